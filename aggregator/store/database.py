"""aggregator.db: everything that the aggregator keeps, and what is said when it cannot be written.

SQLite in WAL mode, flushed at every commit. Calls are short and block; releases number in the hundreds and
their events come at the pace of people and uploads.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.errors import ConfigurationError
from common.files import PRIVATE_FILE
from common.transactions import all_or_nothing

_PASSING = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_BUSY")


def _append_only(table: str) -> tuple[str, ...]:
    refuse = "BEGIN SELECT RAISE(ABORT, 'append-only'); END"
    return (
        f"CREATE TRIGGER {table}_stays BEFORE UPDATE ON {table} {refuse}",
        f"CREATE TRIGGER {table}_remains BEFORE DELETE ON {table} {refuse}",
    )


_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE events (
            release TEXT NOT NULL, sequence INTEGER NOT NULL, time INTEGER NOT NULL, document TEXT NOT NULL,
            PRIMARY KEY (release, sequence)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE owners (
            id TEXT PRIMARY KEY, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL,
            version TEXT NOT NULL, datasets TEXT NOT NULL, fingerprint TEXT NOT NULL,
            certificate_expires INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE ledger_heads (
            owner TEXT PRIMARY KEY, sequence INTEGER NOT NULL, hash TEXT NOT NULL, signature BLOB NOT NULL,
            certificate BLOB NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE operator_log (
            sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, action TEXT NOT NULL, release TEXT NOT NULL,
            details TEXT NOT NULL
        ) STRICT""",
        *_append_only("events"),
        *_append_only("operator_log"),
    ),
    (
        "ALTER TABLE operator_log ADD COLUMN user TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE operator_log ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done'",
        """CREATE TABLE audit_sinks (
            name TEXT PRIMARY KEY, sequence INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
    (
        # Every head, not only the newest: two of one place show that a copy of the owner's state is at work.
        """CREATE TABLE all_ledger_heads (
            owner TEXT NOT NULL, sequence INTEGER NOT NULL, hash TEXT NOT NULL, signature BLOB NOT NULL,
            certificate BLOB NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (owner, sequence)
        ) STRICT, WITHOUT ROWID""",
        """INSERT INTO all_ledger_heads SELECT owner, sequence, hash, signature, certificate, 0
            FROM ledger_heads""",
        "DROP TABLE ledger_heads",
        "ALTER TABLE all_ledger_heads RENAME TO ledger_heads",
    ),
    (
        # Up to where another log was copied into the operators' log.
        "CREATE TABLE copied (source TEXT PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    ),
)
"""What makes a database of each version into one of the next; only ever added to."""


class CannotStoreError(ConfigurationError):
    """The database cannot be written now. Nothing of what was asked has happened; it can be asked again."""


class Database:
    """The aggregator's database. One process uses it; the daemon's lock sees to that.

    Args:
        path: The database file, made if absent.

    Raises:
        ConfigurationError: If it is no database of this software, or a newer version made it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.touch(PRIVATE_FILE)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(type(error).__name__) from None
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._migrate()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise self._unusable(error.sqlite_errorname) from None
        except BaseException:
            self._connection.close()
            raise

    def _unusable(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._path} cannot be used as the aggregator's database ({reason})",
            hint="check the disk and whose file it is; else restore it from a backup",
        )

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(_MIGRATIONS):
            raise ConfigurationError(
                f"{self._path} was written by another version of the software (form {version})",
                hint="run the version that wrote it",
            )
        if version == len(_MIGRATIONS):
            return
        with self.transaction() as tx:
            for statement in (each for step in _MIGRATIONS[version:] for each in step):
                tx.execute(statement)
            tx.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction: all of the block is on the disk afterwards, or nothing of it.

        Yields:
            The connection to write with.

        Raises:
            CannotStoreError: If the disk is full, read-only or failing.
        """
        with self._lock, self._explained(), all_or_nothing(self._connection) as connection:
            yield connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Read rows."""
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            # Some of SQLite's own errors carry no code: "database is closed", for example.
            name = getattr(error, "sqlite_errorname", "")
            if not name.startswith(_PASSING):
                raise
            raise CannotStoreError(
                f"{self._path} cannot be written ({name})",
                hint="check free space, the disk, and whose file it is; the aggregator goes on by itself",
            ) from None
