"""A database as `source`: its URL, parsed and shown without credentials, and its `query`.

A URL has the form of SQLAlchemy, `dialect+driver://user@host:port/database?option=value`, but never contains
a password: the password has its own key, so that the configuration can be shown, copied and shared.

A query is one complete SELECT. It becomes the inner part of `SELECT columns FROM (query)`, so it must not end
early. The check here finds mistakes when the file is read; a read-only transaction ensures that nothing is
changed.
"""

import os
import re
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from common.canonical import digest

if TYPE_CHECKING:
    from owner_node.config import DatasetConfig


_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "mssql": 1433, "oracle": 1521}
_FORM = re.compile(
    r"(?P<dialect>[a-z][a-z0-9_]*)(?:\+(?P<driver>[a-z][a-z0-9_]*))?://"
    r"(?:(?P<user>[^:@/?#]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/(?P<database>[^@?#]*))?(?:\?(?P<options>[^@#]*))?"
)
SECRET = re.compile(r"passw|pwd|secret|token|credential|odbc_connect", re.IGNORECASE)
"""Recognises options that are secrets."""
SQLITE, POSTGRESQL = "sqlite", "postgresql"
"""The only dialect whose databases are files."""


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """Location of a database, without its password."""

    dialect: str
    """Kind of database, as SQLAlchemy names it."""
    driver: str
    """Library that connects to it; empty for the default."""
    host: str
    """Host name or address, or the folder of a Unix socket; empty if the URL names none."""
    port: int | None
    """Port; the default of the dialect if the URL has none; None if neither is known."""
    database: str
    """Name of the database; for SQLite the path of its file."""

    @property
    def shown(self) -> str:
        """The address for printing, logging and comparing: without user, driver and options."""
        if self.dialect == SQLITE:
            return f"{SQLITE}:///{self.database}"
        port = "" if self.port is None or self.host.startswith("/") else f":{self.port}"
        return f"{self.dialect}://{self.host.lower()}{port}/{self.database}"


def parse_database_url(url: str) -> DatabaseUrl:
    """Parse a URL.

    Raises:
        ValueError: If it is malformed or contains a password; the text quotes nothing of it.
    """
    scheme, _, rest = url.partition("://")
    if scheme.partition("+")[0] == SQLITE:
        return _sqlite(scheme, rest)
    if ":" in rest.rpartition("@")[0]:
        raise ValueError(
            "it contains a password; use password_file to name a file with the password, or password_env to "
            "name an environment variable"
        )
    parts = _FORM.fullmatch(url)
    if parts is None or int(parts["port"] or 1) not in range(1, 65536):
        raise ValueError(
            'expected a URL such as "postgresql+psycopg://user@host:5432/database"; "@", ":", "?" and "#" '
            "inside a part are written as %40, %3A, %3F and %23"
        )
    options = dict(parse_qsl(parts["options"] or "", keep_blank_values=True))
    if any(map(SECRET.search, options)):
        raise ValueError("one of its options is a secret; use password_file or password_env")
    dialect, port = parts["dialect"], parts["port"]
    return DatabaseUrl(
        dialect,
        parts["driver"] or "",
        parts["host"].strip("[]") or options.get("host", ""),
        int(port) if port else _PORTS.get(dialect),
        parts["database"] or "",
    )


def _sqlite(scheme: str, rest: str) -> DatabaseUrl:
    """Parse the URL of a SQLite database; its path is taken literally, without options."""
    path = rest.removeprefix("/")
    if scheme != SQLITE or path == rest or path in ("", ":memory:"):
        raise ValueError('expected the path of its file, such as "sqlite:///patients.db"')
    return DatabaseUrl(SQLITE, "", "", None, path)


_HIDDEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$",
    re.DOTALL,
)
_FIRST = re.compile(r"[\s(]*(?P<word>\w*)")
_DEPTH = {"(": 1, ")": -1}


def one_select(query: str) -> str:
    """Return a query without a final semicolon.

    Raises:
        ValueError: If it is not one SELECT.
    """
    # Comments and quoted texts become blanks of the same length, so that positions do not change.
    bare = _HIDDEN.sub(lambda match: " " * len(match[0]), query)
    last = len(bare.rstrip()) - 1
    if bare[last:].startswith(";"):
        bare, query = bare[:last], query[:last] + query[last + 1 :]
    first = _FIRST.match(bare)
    word = first["word"] if first is not None else ""
    if word.lower() not in ("select", "with", "values", "table"):
        raise ValueError(f"expected one SELECT, not {word.upper() or 'an empty text'}")
    if ";" in bare:
        raise ValueError("expected one SELECT, not several statements")
    if re.search(r"['\"`]|/\*", bare):
        raise ValueError("a quote or comment in it is never closed")
    depths = list(accumulate(_DEPTH.get(character, 0) for character in bare))
    if min(depths) < 0 or depths[-1] != 0:
        raise ValueError("its parentheses do not match")
    return query


def place_of(dataset: "DatasetConfig") -> str:
    """Return the location of a source, without credentials and without the text of a query.

    Returns:
        For a file its real path, with links resolved; for a database its address and a digest of the query;
        what Spark reads as it is declared.

    Raises:
        ValueError: If the source is a malformed URL.
    """
    if dataset.of_spark is not None:
        return dataset.of_spark.place
    if "://" not in dataset.source:
        return f"file:{os.path.realpath(dataset.source)}"
    query = digest(" ".join((dataset.query or "").split()).encode())[:16]
    address = parse_database_url(dataset.source)
    if address.dialect == SQLITE:
        return f"sqlite:{Path(address.database).resolve()}#{query}"
    return f"{address.shown}#{query}"
