"""owner.db: everything an owner must not forget, in one file, so that what belongs together commits together.

The ledger and the history are append-only: triggers refuse every change and deletion, and a new entry
must carry the next sequence number. That stops mistakes; deliberate changes are found by the hash chain
(`owner_node.state.chain`).
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from common.errors import ConfigurationError, IntegrityError, InternalError, TesseraError, UsageError
from common.files import PRIVATE_FILE, private_directory, sync_directory
from common.transactions import all_or_nothing

Transaction = sqlite3.Connection
"""What `Database.transaction` yields: a connection with a write transaction open."""
Clock = Callable[[], datetime]
"""Tells the time, with its time zone."""

FILE_NAME = "owner.db"
_SETTINGS = (
    "busy_timeout = 30000",  # milliseconds; before the first setting that needs a lock
    "journal_mode = WAL",
    "synchronous = FULL",
    "fullfsync = ON",
    "foreign_keys = ON",
    "trusted_schema = OFF",
)


class CannotStoreError(ConfigurationError):
    """The disk is full, read-only or failing now. Nothing of a transaction happened; it can be repeated."""


class BusyError(UsageError):
    """Another process keeps the database locked now."""


def _append_only(table: str, skipping: str = "") -> tuple[str, ...]:
    """Return the triggers of a table whose entries stay; one `skipping` kind may leave numbers out."""
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    following = f"(SELECT coalesce(max(sequence), 0) + 1 FROM {table})"  # noqa: S608 - our names
    out_of_turn = f"NEW.sequence IS NOT {following}"
    if skipping:
        out_of_turn += f" AND NOT (NEW.kind = '{skipping}' AND NEW.sequence > {following})"
    return (
        f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}",
        f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}",
        # INSERT OR REPLACE deletes without firing the trigger above.
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {out_of_turn} {refuse}",
    )


_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE ledger (
            sequence INTEGER PRIMARY KEY, time TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('reserve', 'spend', 'return')),
            budget TEXT NOT NULL, aggregator TEXT NOT NULL, release TEXT NOT NULL, plan_digest TEXT NOT NULL,
            charge TEXT NOT NULL, epsilon TEXT NOT NULL, epsilon_joint TEXT, accounting TEXT NOT NULL,
            previous TEXT NOT NULL, hash TEXT NOT NULL)""",
        "CREATE UNIQUE INDEX ledger_reserved_once ON ledger (aggregator, release) WHERE kind = 'reserve'",
        # A reservation is either spent or returned, once.
        "CREATE UNIQUE INDEX ledger_settled_once ON ledger (aggregator, release) WHERE kind != 'reserve'",
        "CREATE INDEX ledger_budget ON ledger (budget)",
        *_append_only("ledger"),
        """CREATE TABLE history (
            sequence INTEGER PRIMARY KEY, time TEXT NOT NULL, aggregator TEXT NOT NULL, release TEXT NOT NULL,
            event TEXT NOT NULL, decision TEXT NOT NULL, rule TEXT NOT NULL, purpose TEXT NOT NULL,
            epsilon TEXT NOT NULL, plan_digest TEXT NOT NULL, details TEXT NOT NULL,
            previous TEXT NOT NULL, hash TEXT NOT NULL)""",
        "CREATE INDEX history_release ON history (aggregator, release)",
        *_append_only("history"),
        """CREATE TABLE sessions (
            aggregator TEXT NOT NULL, release TEXT NOT NULL, state TEXT NOT NULL, dataset TEXT NOT NULL,
            purpose TEXT NOT NULL, plan BLOB, plan_digest TEXT NOT NULL, plan_signature BLOB,
            aggregator_certificate BLOB, key_check TEXT NOT NULL, source_digest TEXT NOT NULL,
            addendum BLOB, addendum_signature BLOB, fragment_digest TEXT NOT NULL, fragment_size INTEGER,
            n_records INTEGER, fragment_signature BLOB, receipt BLOB, receipt_signature BLOB,
            manifest_digest TEXT NOT NULL, reason TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
            PRIMARY KEY (aggregator, release))""",
        """CREATE TABLE daemon (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            pid INTEGER NOT NULL, version TEXT NOT NULL, started TEXT NOT NULL)""",
        """CREATE TABLE connections (
            aggregator TEXT PRIMARY KEY,
            connected INTEGER NOT NULL, since TEXT NOT NULL, reason TEXT NOT NULL)""",
    ),
    (
        # Entries say what they rest on (note); a budget's total is changed, and lost entries are
        # acknowledged, by entries of their own. A recovery goes on after the numbers that were lost.
        """CREATE TABLE ledger_grown (
            sequence INTEGER PRIMARY KEY, time TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('reserve', 'spend', 'return', 'budget', 'recover')),
            budget TEXT NOT NULL, aggregator TEXT NOT NULL, release TEXT NOT NULL, plan_digest TEXT NOT NULL,
            charge TEXT NOT NULL, epsilon TEXT NOT NULL, epsilon_joint TEXT, accounting TEXT NOT NULL,
            note TEXT, previous TEXT NOT NULL, hash TEXT NOT NULL)""",
        """INSERT INTO ledger_grown SELECT sequence, time, kind, budget, aggregator, release, plan_digest,
            charge, epsilon, epsilon_joint, accounting, NULL, previous, hash FROM ledger ORDER BY sequence""",
        "DROP TABLE ledger",
        "ALTER TABLE ledger_grown RENAME TO ledger",
        "CREATE UNIQUE INDEX ledger_reserved_once ON ledger (aggregator, release) WHERE kind = 'reserve'",
        """CREATE UNIQUE INDEX ledger_settled_once ON ledger (aggregator, release)
            WHERE kind IN ('spend', 'return')""",
        "CREATE INDEX ledger_budget ON ledger (budget)",
        *_append_only("ledger", skipping="recover"),
        # Why no work is done, from the moment that this is known until `ledger recover`.
        """CREATE TABLE ledger_halt (
            id INTEGER PRIMARY KEY CHECK (id = 1), time TEXT NOT NULL,
            message TEXT NOT NULL, hint TEXT NOT NULL, details TEXT NOT NULL)""",
        # The newest ledger head that this owner signed.
        """CREATE TABLE ledger_signed (
            id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL, hash TEXT NOT NULL)""",
        # Public keys that this owner signed with: its own signatures outlive the CA that vouched for them.
        """CREATE TABLE own_keys (
            fingerprint TEXT PRIMARY KEY, public_key BLOB NOT NULL, first_used TEXT NOT NULL)""",
        # What columns are digested under in the ledger, so that no digest tells a value to who reads it.
        "CREATE TABLE source_key (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL)",
    ),
    (
        # Until when the aggregator waits for a consent; the refusal that is answered again when asked again.
        "ALTER TABLE sessions ADD COLUMN deadline INTEGER",
        "ALTER TABLE sessions ADD COLUMN refusal TEXT NOT NULL DEFAULT ''",
        # How far the copies of the history outside this database have come.
        "CREATE TABLE audit_sinks (sink TEXT PRIMARY KEY, sequence INTEGER NOT NULL)",
    ),
    (
        # The chain that a fragment was signed with; the key may be renewed before the fragment is sent again.
        "ALTER TABLE sessions ADD COLUMN fragment_certificate BLOB",
    ),
    (
        # What masking is expected to do, from the owner's own data: told to nobody else.
        "ALTER TABLE sessions ADD COLUMN forecast TEXT NOT NULL DEFAULT ''",
    ),
    (
        # The linkage key that a release was agreed with, as far as that release needs it.
        "ALTER TABLE sessions ADD COLUMN key_generation INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN release_key BLOB",
    ),
    (
        # What a release tells about who got which entries of its lists; NULL: no bound, or not recorded.
        "ALTER TABLE ledger ADD COLUMN rank_loss TEXT",
    ),
    (
        # What is not needed of a reservation is returned before the rest is spent; a spend is never returned.
        "DROP INDEX ledger_settled_once",
        """CREATE UNIQUE INDEX ledger_settled_once ON ledger (aggregator, release, kind)
            WHERE kind IN ('spend', 'return')""",
        """CREATE TRIGGER ledger_spent_for_ever BEFORE INSERT ON ledger WHEN NEW.kind = 'return'
            AND EXISTS (SELECT 1 FROM ledger WHERE kind = 'spend'
                AND aggregator = NEW.aggregator AND release = NEW.release)
            BEGIN SELECT RAISE(ABORT, 'a spend is never returned'); END""",
    ),
    (
        # Which owner.toml the daemon runs with: commands beside it read the file as it is now.
        "ALTER TABLE daemon ADD COLUMN configuration TEXT NOT NULL DEFAULT ''",
    ),
    (
        # The schema that was sent for a release: its plan is judged by that one, without a look at the data.
        "ALTER TABLE sessions ADD COLUMN schema BLOB",
    ),
)
SCHEMA_VERSION = len(_MIGRATIONS)


class Database:
    """The owner's database; one object serves all threads of a process.

    Several processes may have the same database open: a write transaction excludes every other writer,
    whatever process it is in.

    Args:
        state_dir: The owner's state directory; made, for this user alone, where it is absent.
        make: False to only look: where there is no database, an empty one in memory, and nothing is made.

    Raises:
        ConfigurationError: If the directory or file cannot be used, or a newer version made it.
        IntegrityError: If the file is damaged.
    """

    def __init__(self, state_dir: Path, *, make: bool = True) -> None:
        self.state_dir = state_dir
        """The owner's state directory."""
        self.path = state_dir / FILE_NAME
        """The database file."""
        self._lock = threading.RLock()
        self._in_transaction = False
        self.committed: Callable[[], None] = lambda: None
        """Called after every transaction of this object, in its thread; must only note that."""
        if not make and not self.path.exists():
            self._connection = _connect(None)
            self._migrate()
            return
        private_directory(state_dir)
        with self._explained(), _one_after_another(state_dir):
            self._connection = _connect(self.path)
            try:
                self._migrate()
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a write transaction: all of the block is on disk afterwards, or nothing of it.

        Never wait for anything else inside (a network, another coroutine): every other writer waits too.

        Yields:
            The connection to write with.

        Raises:
            InternalError: If this thread has a transaction open already.
            UsageError: If another process keeps the database locked.
        """
        with self._lock, self._explained():
            if self._in_transaction:
                raise InternalError("a database transaction inside another")
            self._in_transaction = True
            try:
                with all_or_nothing(self._connection) as connection:
                    yield connection
            finally:
                self._in_transaction = False
        self.committed()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Read rows; inside a transaction of this thread, with what it has written so far."""
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the database; it cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _migrate(self) -> None:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION:
            raise ConfigurationError(
                f"{self.path} was written by a newer version of this software",
                hint="install that version again; state is never converted back",
            )
        with self.transaction() as tx:
            for statement in (each for step in _MIGRATIONS[version:] for each in step):
                tx.execute(statement)
            tx.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(self.path, error) from None


def _connect(path: Path | None) -> sqlite3.Connection:
    if path is not None and not path.exists():
        # Made before SQLite does, which would leave it readable for others; its side files copy this mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
        sync_directory(path.parent)
    connection = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    # SQLite's own complaint about a damaged text quotes the text.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def _one_after_another(directory: Path) -> Iterator[None]:
    """Let one process at a time open the database: SQLite does not wait while the journal mode changes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _explain(path: Path, error: sqlite3.Error) -> TesseraError:
    """Turn SQLite's error into one of the catalogue; its text is passed on only as the name of its code."""
    name = str(getattr(error, "sqlite_errorname", "SQLITE_ERROR"))
    details = {"file": str(path), "sqlite": name}
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return BusyError(f"{path} is in use by another process", "try again when that is done", details)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        hint = "put the newest backup back, then charge what it lacks: owner-node ledger recover"
        return IntegrityError(f"{path} is damaged", hint, details)
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        hint = "check free space, the disk, and that this user may write there"
        closed = "" if os.access(path.parent, os.W_OK) else f"{path.parent} cannot be written to: "
        return CannotStoreError(f"{closed}{path} cannot be used ({name})", hint=hint)
    return InternalError(f"{path}: {name}", details=details)
