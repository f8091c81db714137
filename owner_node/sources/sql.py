"""A query on a database as records, through SQLAlchemy.

The query is the inner part of every statement. Its columns are selected by name, so columns that are not
declared are not read. The database itself counts. All statements run in one transaction: read-only, in one
snapshot, with a time-out.

The password is read from a file or the environment when it is needed, and no printable object keeps it. The
libraries below log messages of databases, including values, so their logs are not propagated. Errors are
explained without any text of the database or its driver: these quote values ("invalid input syntax for type
integer: …"), statements and addresses. Only the kind of an error is reported, and a name from the configured
query if the database refers to it.
"""

import logging
import os
import re
import socket
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.engine.default import DefaultDialect

from common.errors import ConfigurationError, SourceUnreachableError, TesseraError, check_resources
from common.files import read_secret
from owner_node.sources.database import DUCKDB, POSTGRESQL, SQLITE, Database
from owner_node.sources.findings import Findings
from owner_node.sources.source import Reader, Tally
from owner_node.sources.sql_values import arrow

BATCH_RECORDS = 2**14
"""Records fetched at a time: as Python objects they take many times the memory of an array."""
_WIDEST_IDENTIFIER = 1000
_T = TypeVar("_T")
CONNECT_SECONDS = 10
"""Time-out for connecting to a database."""
_TIME_LIMIT = "time_limit_of_tessera"
"""Key in `Connection.info` of how long a statement may take, where that is not `query_timeout`."""
_SQLITE_STEPS = 100_000
"""Steps of SQLite's virtual machine between two checks of the time-out."""
_WAL_HEADER = b"\2\2"
"""Bytes 18 and 19 of a SQLite file whose changes are first written beside it."""
_OTHER_IN_ARROW = ("HUGEINT", "UHUGEINT", "BIGNUM", "BIT")
"""Types of DuckDB that are read as texts: Arrow does not have all of their values."""
_ALONE = "state_of_tessera"
"""Key in `Connection.info` of the state of a file that must not change while it is read."""
# Without SQLSTATE of a connection that is not made, these are recognised by their English text.
_LOCKED = ("lock",)
_FULL = ("too many clients", "too many connections", "remaining connection slots", "Too many open files")
_SEVERAL = ("one statement at a time", "multiple commands into a prepared statement")
"""Texts of `DuckDb` and SQLite's driver, and of PostgreSQL, about a query of several statements."""
# The connection counts as broken 60 s after the last sign of the other side.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}

for _library in ("sqlalchemy", "psycopg"):
    logging.getLogger(_library).propagate = False
    logging.getLogger(_library).addHandler(logging.NullHandler())


class DuckDb(DefaultDialect):
    """DuckDB by its own driver. A file that a program reads is locked for others that would write."""

    name = driver = DUCKDB
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:  # noqa: D102
        import duckdb

        return duckdb

    def create_connect_args(self, url: sa.URL) -> Any:  # noqa: D102
        return [url.database], {"read_only": True, "config": dict(url.query)}

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        """Execute one statement: a file that is opened read-only does not keep others from being written."""
        if len(cursor.extract_statements(statement)) != 1:
            raise self.loaded_dbapi.ProgrammingError(_SEVERAL[0])
        cursor.execute(statement, parameters)

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Do nothing: no transaction was begun."""


registry.register(DUCKDB, __name__, DuckDb.__name__)


class SqlReader(Reader):
    """The result of a query."""

    ordered = False
    """A database may return records in a different order every time."""

    def __init__(self, database: Database, connection: sa.Connection) -> None:
        self.names: Sequence[str] = ()
        self._read_as_text: Collection[str] = ()
        self._database = database
        self._connection = connection
        self._alone = connection.info.get(_ALONE)
        self._time_limit = connection.info.get(_TIME_LIMIT, database.options.query_timeout)
        # SQLAlchemy interprets ":name" as a parameter, unless it is escaped by a backslash.
        query = (database.options.query or "").replace(":", "\\:")
        self._query = sa.text(f"(\n{query}\n) tessera_source")

    def describe(self, findings: Findings) -> bool:
        """Get the names of all columns; return whether the database accepts the query."""

        def described() -> tuple[tuple[str, str], ...]:
            # PostgreSQL accepts several statements at once, unless they have parameters.
            never = sa.literal(1) == sa.literal(0)
            statement = sa.select(sa.text("*")).select_from(self._query).where(never)
            with self._connection.execute(statement) as result:
                return tuple((str(column[0]), str(column[1])) for column in result.cursor.description or ())

        columns = self._try(described, findings)
        self.names = tuple(name for name, _ in columns or ())
        self._read_as_text = {name for name, kind in columns or () if kind in _OTHER_IN_ARROW}
        return columns is not None

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns as the database's types (see `Reader`)."""
        if self._connection.dialect.name == DUCKDB:
            yield from self._arrow_batches(columns, findings)
            return
        statement = sa.select(*map(_column, columns)).select_from(self._query)
        streaming = self._connection.execution_options(yield_per=BATCH_RECORDS)
        result = self._try(lambda: streaming.execute(statement), findings)
        if result is None:
            return
        records = result.partitions()
        # psycopg knows the names of types; without them those of Python are used.
        kinds = [getattr(column, "type_display", "") for column in result.cursor.description or ()]
        try:
            while batch := self._try(lambda: next(records, []), findings):
                yield list(map(arrow, zip(*batch, strict=True), kinds))
        finally:
            with suppress(Exception):  # as in `close`
                result.close()

    def _arrow_batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        selected = [
            sa.cast(_column(name), sa.String) if name in self._read_as_text else _column(name)
            for name in columns
        ]
        query = str(sa.select(*selected).select_from(self._query).compile(self._connection))
        driver: Any = self._connection.connection.driver_connection
        reader = self._try(lambda: driver.sql(query).to_arrow_reader(BATCH_RECORDS), findings)
        while reader is not None and (batch := self._try(lambda: next(reader, None), findings)) is not None:
            yield batch.columns

    def tally(
        self,
        columns: Sequence[str],
        identifiers: Sequence[str],
        dropping: Collection[str],
        findings: Findings,
    ) -> Tally | None:
        """Let the database count (see `Reader`)."""
        present = {name: _column(name) for name in columns}
        for name in identifiers:
            written = sa.func.trim(sa.cast(_column(name), sa.String(_WIDEST_IDENTIFIER)))
            present[name] = sa.func.nullif(written, "")
        needed = (value.is_not(None) for name, value in present.items() if name in dropping)
        kept = sa.and_(sa.true(), *needed)
        absent = (sa.and_(kept, value.is_(None)) for value in present.values())
        counts = [sa.func.sum(sa.case((condition, 1), else_=0)) for condition in (kept, *absent)]

        def count() -> Tally:
            statement = sa.select(sa.func.count(), *counts).select_from(self._query)
            answer = self._connection.execute(statement).one()
            n_records, n_kept, *missing = (int(number or 0) for number in answer)
            return Tally(n_records, n_kept, dict(zip(present, missing, strict=True)))

        return self._try(count, findings) or Tally(0, 0, dict.fromkeys(present, 0))

    def close(self) -> None:
        """Close the connection, which ends the transaction."""
        with suppress(Exception):  # a connection that broke cannot be closed properly, and need not be
            self._connection.close()

    def _try(self, action: Callable[[], _T], findings: Findings) -> _T | None:
        """Call `action`; an error becomes a finding, unless the database is unavailable."""
        fault: Fault | SourceUnreachableError | None = None
        result = None
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - a driver's error can be of any class, and quote a value
            fault = explain(error, self._database, self._time_limit)
        if self._alone is not None and self._alone != _file_state(self._database.files[0]):
            fault = _unreachable(self._database, "it was changed while it was read")
        if fault is None:
            return result
        if isinstance(fault, Fault):
            findings.fail(fault.problem, fault.hint)
            return None
        raise fault


def _column(name: str) -> Any:
    return sa.column(sa.quoted_name(name, quote=True))


# --- connecting ------------------------------------------------------------------------------------------


def connect(database: Database) -> sa.Connection:
    """Connect to a database.

    Returns:
        A connection in which a read-only transaction begins with the first statement. Closing it frees all
        resources.

    Raises:
        SourceUnreachableError: If the database cannot be reached now.
        ConfigurationError: If it does not let the owner node in, or the driver or password is missing.
    """
    engine = _sqlite(database) if database.dialect == SQLITE else _engine(database)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(engine.connect())
            prepared = _prepare(connection, database)
            stack.pop_all()
            return prepared
        except (sa.exc.SQLAlchemyError, OSError, ValueError) as fault:
            error = _refusal(engine, database, fault)
    raise error


def _engine(database: Database) -> sa.Engine:
    problem = ""
    try:
        url = sa.make_url(database.address)
        if database.dialect == POSTGRESQL and not database.driver:
            url = url.set(drivername=f"{POSTGRESQL}+psycopg")
        if (password := _password(database)) is not None:
            url = url.set(password=password)
        arguments: dict[str, Any] = {}
        if url.drivername == f"{POSTGRESQL}+psycopg":
            arguments = {"connect_timeout": CONNECT_SECONDS, "client_encoding": "utf8"} | _KEEPALIVES
            arguments = {key: value for key, value in arguments.items() if key not in url.query}
        return sa.create_engine(url, poolclass=sa.NullPool, connect_args=arguments)
    except ModuleNotFoundError as missing:
        problem = f"the driver {missing.name} is not installed"
    except sa.exc.SQLAlchemyError:
        problem = "the URL names a kind of database or a driver that is not known"
    raise ConfigurationError(
        f"data set {database.dataset!r} cannot be read: {database.shown}: {problem}",
        hint="correct source, or install the driver; PostgreSQL's comes with tessera-release[postgresql]",
    )


def _sqlite(database: Database) -> sa.Engine:
    def open_database() -> sqlite3.Connection:
        # SQLite keeps -wal and -shm beside the file that a link leads to.
        path = Path(database.database).resolve()
        state, way = (_file_state(path), "&immutable=1") if _is_alone(path, database) else (None, "")
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro{way}",
            uri=True, timeout=CONNECT_SECONDS, factory=_SqliteConnection,
        )  # fmt: skip
        connection.alone = state
        # Bytes that are not UTF-8 become lone surrogates, which are counted by column later.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        return connection

    return sa.create_engine("sqlite+pysqlite://", creator=open_database, poolclass=sa.NullPool)


class _SqliteConnection(sqlite3.Connection):
    alone: tuple[int, ...] | None = None
    """State of a file that is read as one that does not change; None for others."""


def _is_alone(path: Path, database: Database) -> bool:
    """Return whether a file is in WAL mode, and no program has it open or left changes in FILE-wal.

    SQLite would make two files beside it to read it. It cannot where the folder may not be written, and
    leaves them behind elsewhere.
    """
    with path.open("rb") as file:
        if file.read(20)[18:] != _WAL_HEADER:
            return False
    log, index = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    has_changes = log.exists() and log.stat().st_size > 0
    if has_changes and not index.exists():
        raise ConfigurationError(
            f"data set {database.dataset!r} cannot be read: {database.shown}: its last changes are only in "
            f"{log.name}, and no program has it open that shares them",
            hint="close the program that writes to it; if none runs, open the file once with the program "
            "sqlite3, as a user who may write, and read a table: that takes the changes over",
        )
    return not (log.exists() and index.exists())


def _file_state(path: Path) -> tuple[int, ...]:
    """Return what changes whenever a file is changed; nothing if it is not there any more."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _password(database: Database) -> str | None:
    options = database.options
    if options.password_file is not None:
        return read_secret(options.password_file)
    if options.password_env is None:
        return None
    if (password := os.environ.get(options.password_env)) is None:
        raise ConfigurationError(
            f"data set {database.dataset!r}: the environment variable {options.password_env!r} is not set",
            hint="set it for the owner node, or name another one as password_env",
        )
    return password


def _prepare(connection: sa.Connection, database: Database) -> sa.Connection:
    """Make a connection read-only, as strictly as its kind of database supports."""
    driver: Any = connection.connection.driver_connection
    milliseconds = int(database.options.query_timeout.total_seconds() * 1000)
    if database.dialect == SQLITE:
        connection.info[_ALONE] = driver.alone
        stop = time.monotonic() + milliseconds / 1000
        driver.set_progress_handler(lambda: time.monotonic() > stop, _SQLITE_STEPS)
    elif database.dialect == POSTGRESQL:
        connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        limit = _shorter(connection, milliseconds)
        connection.info[_TIME_LIMIT] = timedelta(milliseconds=limit)
        settings = {"statement_timeout": str(limit), "extra_float_digits": "1", "DateStyle": "ISO"}
        set_locally = (sa.func.set_config(key, value, sa.true()) for key, value in settings.items())
        connection.execute(sa.select(*set_locally))
        if connection.dialect.driver == "psycopg":
            _keep_every_value(driver)
    return connection


def _shorter(connection: sa.Connection, milliseconds: int) -> int:
    """Return the shorter time-out of statements: ours, or what role, database or URL say; 0 is none."""
    settings = sa.table("pg_settings", sa.column("name"), sa.column("setting"))
    wanted = sa.select(settings.c.setting).where(settings.c.name == "statement_timeout")
    present = int(connection.execute(wanted).scalar() or 0)
    return min(present, milliseconds) if present else milliseconds


def _refusal(engine: sa.Engine, database: Database, fault: Exception) -> TesseraError:
    """Return the error: the database is unavailable now, or it rejects the owner node."""
    original = getattr(fault, "orig", None)
    if not isinstance(fault, sa.exc.OperationalError) and not isinstance(fault, OSError):
        problem, hint = "the connection cannot be made", "correct the options in the URL of source"
    elif not _runs(engine, database):
        return _unreachable(database, "there is no answer")
    elif database.files and any(sign in str(original) for sign in _LOCKED):
        return _unreachable(database, "another program has locked it")
    elif any(sign in str(original) for sign in _FULL):
        return _unreachable(database, "it has no connection left")
    elif "not a valid DuckDB" in str(original):
        problem, hint = "not a DuckDB database", "check the path in source"
    elif getattr(getattr(original, "pgconn", None), "needs_password", False):
        problem, hint = "it asks for a password", "name it with password_file or password_env"
    else:
        problem = "it does not let the owner node in"
        hint = "check who may read the file that source names, and enter its folders"
        if not database.files:
            hint = "check user, password, database and TLS options, and whom it lets in from here"
    return ConfigurationError(
        f"data set {database.dataset!r} cannot be read: {database.shown}: {problem}", hint=hint
    )


def _runs(engine: sa.Engine, database: Database) -> bool:
    """Return whether the server is up and accepts connections from anybody."""
    for path in database.files:
        try:
            path.open("rb").close()
        except OSError as fault:
            check_resources(fault)
        return path.exists()
    if engine.dialect.driver == "psycopg":
        from psycopg.conninfo import make_conninfo
        from psycopg.pq import PGconn, Ping

        _, options = engine.dialect.create_connect_args(engine.url)
        known = {key: options[key] for key in ("host", "port", "dbname", "user") if key in options}
        conninfo = make_conninfo("", connect_timeout=CONNECT_SECONDS, **known)
        return PGconn.ping(conninfo.encode()) == Ping.OK
    try:
        with socket.create_connection((database.host, database.port or 0), CONNECT_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


def _keep_every_value(driver: Any) -> None:
    """Let psycopg load values as texts that Python's types would round, or would fail on with the query."""
    import psycopg
    from psycopg.abc import AdaptContext, Buffer
    from psycopg.adapt import Loader
    from psycopg.pq import Format
    from psycopg.types.string import TextLoader

    class Timestamp(Loader):
        """Loads an infinity, or a year that Python does not have, as the text that it is."""

        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            usual = psycopg.adapters.get_loader(oid, Format.TEXT)
            if usual is None:
                raise TypeError(f"psycopg loads no values of type {oid}")
            self._usual = usual(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                return self._usual.load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    class Unreadable(Loader):
        """Loads nothing of a type that no attribute can have, not all of whose values Python has."""

        def load(self, data: Buffer) -> object:
            return self

    loaders: dict[str, type[Loader]] = {"date": TextLoader}
    loaders |= dict.fromkeys(("timestamp", "timestamptz"), Timestamp)
    loaders |= dict.fromkeys(("time", "timetz", "interval"), Unreadable)
    for kind, loader in loaders.items():
        driver.adapters.register_loader(kind, loader)


# --- errors ----------------------------------------------------------------------------------------------

_PASSING_STATES = re.compile(r"08...|53...|57P0.|40001|40P01|55P03")
"""SQLSTATEs of broken connections, of servers that start, stop or are full, of locks and deadlocks."""
_PASSING_NAMES = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_PROTOCOL")
_STATES_OF_DUCKDB = {
    **dict.fromkeys(("BinderException", "CatalogException", "ParserException"), "42000"),
    **dict.fromkeys(("ConversionException", "InvalidInputException", "OutOfRangeException"), "22000"),
}
"""Its errors have no SQLSTATE."""
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
    """Verbs of one kind of database."""

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
_OF_FILES = _Advice(
    "check the file that source names and its disk, and which other program writes to it",
    "let the user of the owner node read the file that source names",
    "try the query with the database's own tools, on the file that source names",
    "convert them in the query",
    "cast what is unusual to numbers, texts or dates in the query",
)
_ADVICE = {
    SQLITE: replace(_OF_FILES, query="try the query with the program sqlite3, on the file that source names"),
    POSTGRESQL: replace(
        _OF_SERVERS,
        texts="convert them in the query; for a database in SQL_ASCII, add client_encoding=latin1 to the URL",
    ),
}


def _advice(database: Database) -> _Advice:
    return _ADVICE.get(database.dialect, _OF_FILES if database.files else _OF_SERVERS)


_FAULTS: dict[tuple[str, ...], Callable[[_Advice], Fault]] = {
    ("25006", "SQLITE_READONLY"): lambda _: Fault(
        "the query tries to change the database", "name one SELECT that changes nothing"
    ),
    ("42501", "SQLITE_AUTH", "SQLITE_PERM"): lambda advice: Fault(
        "the database does not let this user read what the query names", advice.rights
    ),
    ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY"): lambda _: Fault(
        "a program ended in the middle of a change, which has to be taken back first",
        "open the file once with the program sqlite3, as a user who may write, and read a table",
    ),
    ("SQLITE_CANTOPEN", "SQLITE_READONLY_CANTINIT", "SQLITE_READONLY_DIRECTORY"): lambda _: Fault(
        "a file that SQLite keeps beside the database (-wal, -shm, -journal) cannot be opened",
        "let the user of the owner node read these files and enter their folder",
    ),
    ("SQLITE_NOTADB", "SQLITE_CORRUPT"): lambda _: Fault(
        "not a SQLite database, or a damaged one", "check the path in source"
    ),
    ("22021",): lambda advice: Fault(
        "some of the texts are not in UTF-8, and the database does not convert them", advice.texts
    ),
}


def explain(error: Any, database: Database, limit: timedelta) -> Fault | SourceUnreachableError:
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
        return _unreachable(database, f"the database cannot answer now: {name}")
    if state in _STOPPED:
        stopped = f"the query was stopped after {limit.total_seconds():g} s"
        if limit == database.options.query_timeout:
            return Fault(stopped, "make it faster, or raise query_timeout")
        hint = "make it faster, or raise statement_timeout of the role, the database or the URL in source"
        return Fault(f"{stopped}, by the database's own statement_timeout", hint)
    if any(sign in str(original) for sign in _SEVERAL):
        return Fault("the query is more than one statement", "name one SELECT that changes nothing")
    advice = _advice(database)
    for states, fault in _FAULTS.items():
        if state in states:
            return fault(advice)
    if state.startswith("22"):
        hint = "correct the casts and calculations of the query, or the data"
        return Fault(f"a value does not fit what the query does with it: {name}", hint)
    if state.startswith(("42", "0A", "SQLITE_ERROR")):
        place = _place(error, original, database.options.query or "")
        return Fault(f"the database does not accept the query: {name}{place}", advice.query)
    return Fault(f"the database or its driver failed on the query: {name}", advice.other)


def _unreachable(database: Database, problem: str) -> SourceUnreachableError:
    """Return the error of a database that cannot be used now, but possibly later."""
    return SourceUnreachableError(
        f"data set {database.dataset!r} cannot be read now: {database.shown}: {problem}",
        _advice(database).away,
        {"dataset": database.dataset, "source": database.shown},
    )


def _state(original: Any) -> str:
    """Return the SQLSTATE, or SQLite's name, of a driver's error; empty if it has none."""
    for key in ("sqlstate", "sqlite_errorname", "pgcode"):
        state = getattr(original, key, None)
        if isinstance(state, str) and re.fullmatch(r"\w{1,40}", state):
            return state
    return _STATES_OF_DUCKDB.get(type(original).__name__, "")


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
