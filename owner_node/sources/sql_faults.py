"""Explain errors of a database to its owner, without any text of the database or its driver.

Their texts quote values ("invalid input syntax for type integer: …"), statements and addresses. Only the kind
of an error is reported, and a name from the configured query if the database refers to it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from common.errors import SourceUnreachableError
from owner_node.config import DatasetConfig
from owner_node.config.database import POSTGRESQL, SQLITE, parse_database_url

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


@dataclass(frozen=True, slots=True)
class _Advice:
    """What to do with one kind of database."""

    away: str
    rights: str
    query: str
    texts: str
    other: str


_OF_SERVERS = _Advice(
    "check that the database runs, that source names its host and port, and that no firewall is between",
    "let the user that the owner node connects as SELECT from everything that the query names",
    "try the query with the database's own tools, as the user that the owner node connects as",
    "convert them in the query",
    "cast what is unusual to numbers, texts or dates in the query; the database's log may say more",
)
_ADVICE = {
    SQLITE: _Advice(
        "check the file that source names and its disk, and which other program writes to it",
        "let the user of the owner node read the file that source names",
        "try the query with the program sqlite3, on the file that source names",
        "convert them in the query",
        "cast what is unusual to numbers, texts or dates in the query",
    ),
    POSTGRESQL: replace(
        _OF_SERVERS,
        texts="convert them in the query; for a database in SQL_ASCII, add client_encoding=latin1 to the URL",
    ),
}


def _advice(dataset: DatasetConfig) -> _Advice:
    return _ADVICE.get(parse_database_url(dataset.source).dialect, _OF_SERVERS)


_FAULTS: dict[tuple[str, ...], Callable[[_Advice], Fault]] = {
    ("25006", "SQLITE_READONLY"): lambda _: Fault(
        "the query tries to change the database", "name one SELECT that changes nothing"
    ),
    ("42501", "SQLITE_AUTH", "SQLITE_PERM"): lambda advice: Fault(
        "the database does not let this user read what the query names", advice.rights
    ),
    ("SQLITE_NOTADB", "SQLITE_CORRUPT"): lambda _: Fault(
        "not a SQLite database, or a damaged one", "check the path in source"
    ),
    ("22021",): lambda advice: Fault(
        "some of the texts are not in UTF-8, and the database does not convert them", advice.texts
    ),
}


def explain(error: Any, dataset: DatasetConfig, limit: timedelta) -> Fault | SourceUnreachableError:
    """Explain the error of a statement.

    Args:
        error: SQLAlchemy's error, or any other error of a driver while reading.
        limit: How long a statement may take; less than `query_timeout` if the database says so.

    Returns:
        The problem of the query, or an error that says that the database cannot be used now.
    """
    original = getattr(error, "orig", None) or error
    state = _state(original)
    name = type(original).__name__ + (f" ({state})" if state else "")
    passes = _PASSING_STATES.fullmatch(state) is not None or state.startswith(_PASSING_NAMES)
    if passes or getattr(error, "connection_invalidated", False):
        return unreachable(dataset, f"the database cannot answer now: {name}")
    if state in _STOPPED:
        stopped = f"the query was stopped after {limit.total_seconds():g} s"
        if limit == dataset.query_timeout:
            return Fault(stopped, "make it faster, or raise query_timeout")
        hint = "make it faster, or raise statement_timeout of the role, the database or the URL in source"
        return Fault(f"{stopped}, by the database's own statement_timeout", hint)
    advice = _advice(dataset)
    for states, fault in _FAULTS.items():
        if state in states:
            return fault(advice)
    if state.startswith("22"):
        hint = "correct the casts and calculations of the query, or the data"
        return Fault(f"a value does not fit what the query does with it: {name}", hint)
    if state.startswith(("42", "0A", "SQLITE_ERROR")):
        place = _place(error, original, dataset.query or "")
        return Fault(f"the database does not accept the query: {name}{place}", advice.query)
    return Fault(f"the database or its driver failed on the query: {name}", advice.other)


def unreachable(dataset: DatasetConfig, problem: str) -> SourceUnreachableError:
    """Return the error of a database that cannot be used now, but possibly later."""
    return SourceUnreachableError(
        f"data set {dataset.name!r} cannot be read now: {dataset.place}: {problem}",
        _advice(dataset).away,
        {"dataset": dataset.name, "source": dataset.place},
    )


def _state(original: Any) -> str:
    """Return the SQLSTATE, or SQLite's name, of a driver's error; empty if it has none."""
    for key in ("sqlstate", "sqlite_errorname", "pgcode"):
        state = getattr(original, key, None)
        if isinstance(state, str) and re.fullmatch(r"\w{1,40}", state):
            return state
    return ""


def _place(error: Any, original: Any, query: str) -> str:
    """Return the word of the configured query that the database refers to."""
    position = getattr(getattr(original, "diag", None), "statement_position", None)
    # For drivers that mark parameters with a percent sign, all other percent signs are doubled.
    statement = str(getattr(error, "statement", "")).replace("%%", "%")
    start = statement.find(query)
    if position is not None and start >= 0:
        word = _WORD.match(query, max(0, int(position) - 1 - start))
        return f", at {word[0]!r}" if word is not None and int(position) > start else ""
    named = _NAMED.search(str(original)) if _state(original).startswith("SQLITE") else None
    if named is not None and re.search(rf"\b{re.escape(named['name'])}\b", query):
        return f", at {named['name']!r}"
    return ""
