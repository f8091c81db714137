"""Connect to a database: read-only, in one snapshot, with a time-out, and with its password.

The password is read from a file or the environment when it is needed, and no printable object keeps it. The
libraries below log messages of databases, including values, so their logs are not propagated.
"""

import logging
import os
import socket
import sqlite3
import time
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from common.errors import ConfigurationError, TesseraError, check_resources
from common.files import read_secret
from owner_node.config import DatasetConfig
from owner_node.config.database import POSTGRESQL, SQLITE, DatabaseUrl, parse_database_url
from owner_node.sources import sql_faults

CONNECT_SECONDS = 10
"""Time-out for connecting to a database."""
TIME_LIMIT = "time_limit_of_tessera"
"""Key in `Connection.info` of how long a statement may take, where that is not `query_timeout`."""
_SQLITE_STEPS = 100_000
"""Steps of SQLite's virtual machine between two checks of the time-out."""
# libpq passes on no SQLSTATE of a connection that is not made: these are recognised by their English text.
_FULL = ("too many clients", "too many connections", "remaining connection slots")
# The connection counts as broken 60 s after the last sign of the other side.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}

for _library in ("sqlalchemy", "psycopg"):
    logging.getLogger(_library).propagate = False
    logging.getLogger(_library).addHandler(logging.NullHandler())


def connect(dataset: DatasetConfig) -> sa.Connection:
    """Connect to the database of a data set.

    Returns:
        A connection in which a read-only transaction begins with the first statement. Closing it frees all
        resources.

    Raises:
        SourceUnreachableError: If the database cannot be reached now.
        ConfigurationError: If it does not let the owner node in, or the driver or password is missing.
    """
    place = parse_database_url(dataset.source)
    engine = _sqlite(place) if place.dialect == SQLITE else _engine(dataset, place)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(engine.connect())
            prepared = _prepare(connection, dataset, place)
            stack.pop_all()
            return prepared
        except (sa.exc.SQLAlchemyError, OSError, ValueError) as fault:
            error = _refusal(engine, dataset, place, fault)
    raise error


def _engine(dataset: DatasetConfig, place: DatabaseUrl) -> sa.Engine:
    problem = ""
    try:
        url = sa.make_url(dataset.source)
        if place.dialect == POSTGRESQL and not place.driver:
            url = url.set(drivername=f"{POSTGRESQL}+psycopg")
        if (password := _password(dataset)) is not None:
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
        f"data set {dataset.name!r} cannot be read: {dataset.place}: {problem}",
        hint="correct source, or install the driver; PostgreSQL's comes with tessera-release[postgresql]",
    )


def _sqlite(place: DatabaseUrl) -> sa.Engine:
    def open_database() -> sqlite3.Connection:
        path = f"file:{quote(place.database)}?mode=ro"
        connection = sqlite3.connect(path, uri=True, timeout=CONNECT_SECONDS)
        # Bytes that are not UTF-8 become lone surrogates, which are counted by column later.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        return connection

    return sa.create_engine("sqlite+pysqlite://", creator=open_database, poolclass=sa.NullPool)


def _password(dataset: DatasetConfig) -> str | None:
    if dataset.password_file is not None:
        return read_secret(dataset.password_file)
    if dataset.password_env is None:
        return None
    if (password := os.environ.get(dataset.password_env)) is None:
        raise ConfigurationError(
            f"data set {dataset.name!r}: the environment variable {dataset.password_env!r} is not set",
            hint="set it for the owner node, or name another one as password_env",
        )
    return password


def _prepare(connection: sa.Connection, dataset: DatasetConfig, place: DatabaseUrl) -> sa.Connection:
    """Make a connection read-only, as strictly as its kind of database supports."""
    driver: Any = connection.connection.driver_connection
    milliseconds = int(dataset.query_timeout.total_seconds() * 1000)
    if place.dialect == SQLITE:
        stop = time.monotonic() + milliseconds / 1000
        driver.set_progress_handler(lambda: time.monotonic() > stop, _SQLITE_STEPS)
    elif place.dialect == POSTGRESQL:
        connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        limit = _shorter(connection, milliseconds)
        connection.info[TIME_LIMIT] = timedelta(milliseconds=limit)
        settings = {"statement_timeout": str(limit), "extra_float_digits": "1", "DateStyle": "ISO"}
        set_locally = (sa.func.set_config(key, value, sa.true()) for key, value in settings.items())
        connection.execute(sa.select(*set_locally))
        if connection.dialect.driver == "psycopg":
            from owner_node.sources.postgresql_values import keep_every_value

            keep_every_value(driver)
    return connection


def _shorter(connection: sa.Connection, milliseconds: int) -> int:
    """Return the shorter time-out of statements: ours, or what role, database or URL say; 0 is none."""
    settings = sa.table("pg_settings", sa.column("name"), sa.column("setting"))
    wanted = sa.select(settings.c.setting).where(settings.c.name == "statement_timeout")
    present = int(connection.execute(wanted).scalar() or 0)
    return min(present, milliseconds) if present else milliseconds


def _refusal(engine: sa.Engine, dataset: DatasetConfig, place: DatabaseUrl, fault: Exception) -> TesseraError:
    """Return the error: the database is unavailable now, or it rejects the owner node."""
    original = getattr(fault, "orig", None)
    if not isinstance(fault, sa.exc.OperationalError) and not isinstance(fault, OSError):
        problem, hint = "the connection cannot be made", "correct the options in the URL of source"
    elif not _runs(engine, place):
        return sql_faults.unreachable(dataset, "there is no answer")
    elif any(sign in str(original) for sign in _FULL):
        return sql_faults.unreachable(dataset, "it has no connection left")
    elif getattr(getattr(original, "pgconn", None), "needs_password", False):
        problem, hint = "it asks for a password", "name it with password_file or password_env"
    else:
        problem = "it does not let the owner node in"
        hint = "check who may read the file that source names, and enter its folders"
        if place.dialect != SQLITE:
            hint = "check user, password, database and TLS options, and whom it lets in from here"
    return ConfigurationError(
        f"data set {dataset.name!r} cannot be read: {dataset.place}: {problem}", hint=hint
    )


def _runs(engine: sa.Engine, place: DatabaseUrl) -> bool:
    """Return whether the server is up and accepts connections from anybody."""
    if place.dialect == SQLITE:
        try:
            Path(place.database).open("rb").close()
        except OSError as fault:
            check_resources(fault)
        return Path(place.database).exists()
    if engine.dialect.driver == "psycopg":
        from psycopg.conninfo import make_conninfo
        from psycopg.pq import PGconn, Ping

        _, options = engine.dialect.create_connect_args(engine.url)
        known = {key: options[key] for key in ("host", "port", "dbname", "user") if key in options}
        conninfo = make_conninfo("", connect_timeout=CONNECT_SECONDS, **known)
        return PGconn.ping(conninfo.encode()) == Ping.OK
    try:
        with socket.create_connection((place.host, place.port or 0), CONNECT_SECONDS):
            return True
    except (OSError, OverflowError):
        return False
