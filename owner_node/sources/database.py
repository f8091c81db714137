"""The URL of a database as `source`, parsed and shown without credentials.

A URL has the form of SQLAlchemy, `dialect+driver://user@host:port/database?option=value`, but never contains
a password: the password has its own key, so that the configuration can be shown, copied and shared.
"""

import re
from pathlib import Path
from urllib.parse import parse_qsl

from common.canonical import digest
from owner_node.sources.source import Source

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "mssql": 1433, "oracle": 1521}
_FORM = re.compile(
    r"(?P<dialect>[a-z][a-z0-9_]*)(?:\+(?P<driver>[a-z][a-z0-9_]*))?://"
    r"(?:(?P<user>[^:@/?#]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/(?P<database>[^@?#]*))?(?:\?(?P<options>[^@#]*))?"
)
SECRET = re.compile(r"passw|pwd|secret|token|credential|odbc_connect", re.IGNORECASE)
"""Recognises options that are secrets."""
_WAYS = frozenset({"access_mode", "read_only"})
"""Options of DuckDB that would override that a file is opened read-only."""
SQLITE, POSTGRESQL, DUCKDB = "sqlite", "postgresql", "duckdb"


class Database(Source):
    """A database by its URL; `owner_node.sources.query` opens it."""

    dialect: str
    """Kind of database, as SQLAlchemy names it."""
    driver = ""
    """Library that connects to it; empty for the default."""
    host = ""
    """Host name or address, or the folder of a Unix socket; empty if the URL names none."""
    port: int | None = None
    """Port; the default of the dialect if the URL has none; None if neither is known."""
    database: str
    """Name of the database; of one that is a file, its path."""

    def parse(self) -> None:
        """Take the address apart (see `Source`)."""
        scheme, _, rest = self.address.partition("://")
        if scheme.partition("+")[0] == SQLITE:
            # The path is taken literally, without options.
            self.dialect, self.database = SQLITE, rest.removeprefix("/")
            if scheme != SQLITE or self.database == rest or self.database in ("", ":memory:"):
                raise ValueError('expected the path of its file, such as "sqlite:///patients.db"')
            return
        if ":" in rest.rpartition("@")[0]:
            raise ValueError(
                "it contains a password; use password_file to name a file with the password, or "
                "password_env to name an environment variable"
            )
        parts = _FORM.fullmatch(self.address)
        if parts is None or int(parts["port"] or 1) not in range(1, 65536):
            raise ValueError(
                'expected a URL such as "postgresql+psycopg://user@host:5432/database"; "@", ":", "?" and '
                '"#" inside a part are written as %40, %3A, %3F and %23'
            )
        url_options = dict(parse_qsl(parts["options"] or "", keep_blank_values=True))
        if any(map(SECRET.search, url_options)):
            raise ValueError("one of its options is a secret; use password_file or password_env")
        self.dialect, self.driver = parts["dialect"], parts["driver"] or ""
        self.host = parts["host"].strip("[]") or url_options.get("host", "")
        self.port = int(parts["port"]) if parts["port"] else _PORTS.get(self.dialect)
        self.database = parts["database"] or ""
        if self.dialect == DUCKDB and (not self.database or self.database.startswith(":memory:")):
            raise ValueError('expected the path of its file, such as "duckdb:///patients.duckdb"')
        if self.dialect == DUCKDB and (ways := _WAYS.intersection(map(str.lower, url_options))):
            raise ValueError(f"leave out the option {min(ways)}: the file is always opened read-only")

    @property
    def shown(self) -> str:
        """Its address without user, driver and options (see `Source`)."""
        if self.files:
            return f"{self.dialect}:///{self.database}"
        port = "" if self.port is None or self.host.startswith("/") else f":{self.port}"
        return f"{self.dialect}://{self.host.lower()}{port}/{self.database}"

    @property
    def place(self) -> str:
        """Its address, with links resolved, and a digest of its query (see `Source`)."""
        query = digest(" ".join((self.options.query or "").split()).encode())[:16]
        at = f"{self.dialect}:{self.files[0].resolve()}" if self.files else self.shown
        return f"{at}#{query}"

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of a database without a server (see `Source`).

        Of dialects that are not known, a path from the root is one. MotherDuck is a service.
        """
        if self.dialect == DUCKDB and self.database.startswith(("md:", "motherduck:")):
            return ()
        known = self.dialect in (SQLITE, DUCKDB)
        path = not self.host and self.dialect not in _PORTS and self.database.startswith("/")
        return (Path(self.database),) if known or path else ()
