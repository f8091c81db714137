"""Explain errors of a database to its owner, without any text of the database or its driver.

Their texts quote values ("invalid input syntax for type integer: …"), statements and addresses. Only the kind
of an error is reported, and a name from the configured query if the database refers to it.
"""

import re
from dataclasses import dataclass
from typing import Any

from common.errors import SourceUnreachableError
from owner_node.config import DatasetConfig

_PASSING_STATES = re.compile(r"08...|53...|57P0.|40001|40P01|55P03")
"""SQLSTATEs of broken connections, of servers that start, stop or are full, of locks and deadlocks."""
_PASSING_NAMES = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_PROTOCOL")
_STOPPED = ("57014", "SQLITE_INTERRUPT")
_NAMED = re.compile(r"(?:no such (?:table|column|function)|near)\W+(?P<name>\w[\w.]*)")
_WORD = re.compile(r"\w+|\S")


@dataclass(frozen=True, slots=True)
class Fault:
    """An error caused by the query or the data."""

    problem: str
    hint: str


_FAULTS = {
    ("25006", "SQLITE_READONLY"): Fault(
        "the query tries to change the database", "name one SELECT that changes nothing"
    ),
    ("42501", "SQLITE_AUTH", "SQLITE_PERM"): Fault(
        "the database does not let this user read what the query names",
        "let the user that the owner node connects as SELECT from everything that the query names",
    ),
    ("SQLITE_NOTADB", "SQLITE_CORRUPT"): Fault(
        "not a SQLite database, or a damaged one", "check the path in source"
    ),
    ("22021",): Fault(
        "some of the texts are not in UTF-8, and the database does not convert them",
        "convert them in the query; for a database in SQL_ASCII, add client_encoding=latin1 to the URL",
    ),
}


def explain(error: Any, dataset: DatasetConfig) -> Fault | SourceUnreachableError:
    """Explain the error of a statement.

    Args:
        error: SQLAlchemy's error, or any other error of a driver while reading.
        dataset: The settings of the data set.

    Returns:
        The problem of the query, or an error that says that the database cannot be used now.
    """
    original = getattr(error, "orig", None) or error
    state = _state(original)
    name = type(original).__name__ + (f" ({state})" if state else "")
    if getattr(error, "connection_invalidated", False) or _passes(state):
        return unreachable(dataset, f"the database cannot answer now: {name}")
    if state in _STOPPED:
        seconds = int(dataset.query_timeout.total_seconds())
        return Fault(f"the query was stopped after {seconds} s", "make it faster, or raise query_timeout")
    for states, fault in _FAULTS.items():
        if state in states:
            return fault
    if state.startswith("22"):
        hint = "correct the casts and calculations of the query, or the data"
        return Fault(f"a value does not fit what the query does with it: {name}", hint)
    if state.startswith(("42", "0A", "SQLITE_ERROR")):
        place = _place(error, original, dataset.query or "")
        hint = "try the query with the database's own tools, as the user that the owner node connects as"
        return Fault(f"the database does not accept the query: {name}{place}", hint)
    hint = "cast what is unusual to numbers, texts or dates in the query; the database's log may say more"
    return Fault(f"the database or its driver failed on the query: {name}", hint)


def unreachable(dataset: DatasetConfig, problem: str) -> SourceUnreachableError:
    """Return the error of a database that cannot be used now, but possibly later."""
    return SourceUnreachableError(
        f"data set {dataset.name!r} cannot be read now: {dataset.place}: {problem}",
        "check that the database runs, that source names its host and port, and that no firewall is between",
        {"dataset": dataset.name, "source": dataset.place},
    )


def _state(original: Any) -> str:
    """Return the SQLSTATE, or SQLite's name, of a driver's error; empty if it has none."""
    for key in ("sqlstate", "sqlite_errorname", "pgcode"):
        state = getattr(original, key, None)
        if isinstance(state, str) and re.fullmatch(r"\w{1,40}", state):
            return state
    return ""


def _passes(state: str) -> bool:
    return _PASSING_STATES.fullmatch(state) is not None or state.startswith(_PASSING_NAMES)


def _place(error: Any, original: Any, query: str) -> str:
    """Return the word of the configured query that the database refers to."""
    position = getattr(getattr(original, "diag", None), "statement_position", None)
    # For drivers that mark parameters with a percent sign, all other percent signs are doubled.
    statement = str(getattr(error, "statement", "")).replace("%%", "%")
    start = statement.find(query)
    if position is not None and start >= 0:
        found = _WORD.match(query, max(0, int(position) - 1 - start))
        return f", at {found[0]!r}" if found is not None and int(position) > start else ""
    named = _NAMED.search(str(original)) if _state(original).startswith("SQLITE") else None
    if named is not None and re.search(rf"\b{re.escape(named['name'])}\b", query):
        return f", at {named['name']!r}"
    return ""
