"""enrolment.db: the register of certificates, beside aggregator.db because two processes use it.

The daemon reads it at every call; the operator's commands write to it, with or without the daemon.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.durable import PRIVATE_FILE, private_directory
from common.errors import ConfigurationError
from common.transactions import all_or_nothing

FILE_NAME = "enrolment.db"
_BUSY_SECONDS = 30.0
_FIRST = (
    """CREATE TABLE certificates (
        digest TEXT PRIMARY KEY, owner TEXT NOT NULL, fingerprint TEXT NOT NULL, serial TEXT NOT NULL,
        origin TEXT NOT NULL CHECK (origin IN ('approved', 'renewed', 'seen')),
        since INTEGER NOT NULL, expires INTEGER NOT NULL, revoked INTEGER
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX certificates_owner ON certificates (owner)",
    "CREATE INDEX certificates_key ON certificates (fingerprint)",
    "CREATE TABLE revoked_owners (owner TEXT PRIMARY KEY, time INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE log (
        sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
        owner TEXT NOT NULL, fingerprint TEXT NOT NULL, serial TEXT NOT NULL
    ) STRICT""",
    "CREATE TRIGGER log_stays BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER log_remains BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append-only'); END",
)
_WITH_PARENTS = (
    # From which certificate a renewal came: its digest; empty for what was not renewed, or before this form.
    "ALTER TABLE certificates ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX certificates_parent ON certificates (parent)",
)
_FORMS = (_FIRST, _WITH_PARENTS)
"""What makes each form of the database out of the one before."""


class EnrolmentDatabase:
    """The database of the register. Any number of processes may use it.

    Args:
        state_dir: The aggregator's state directory, made if absent.

    Raises:
        ConfigurationError: If the database cannot be used.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = private_directory(state_dir) / FILE_NAME
        self._lock = threading.RLock()
        with self._explained():
            self._path.touch(PRIVATE_FILE)
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._explained():
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._make()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Read rows; inside a transaction of this thread, with what it has written so far."""
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction: all of the block is on the disk afterwards, or nothing of it.

        Yields:
            The connection to write with.

        Raises:
            ConfigurationError: If the database cannot be written.
        """
        with self._lock, self._explained(), all_or_nothing(self._connection) as connection:
            yield connection

    def _make(self) -> None:
        with self.transaction() as tx:
            (version,) = tx.execute("PRAGMA user_version").fetchone()
            if version > len(_FORMS):
                raise ConfigurationError(
                    f"{self._path} was written by a newer version of this software",
                    hint="run the version that wrote it",
                )
            for statement in (each for form in _FORMS[version:] for each in form):
                tx.execute(statement)
            tx.execute(f"PRAGMA user_version = {len(_FORMS)}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = getattr(error, "sqlite_errorname", "") or getattr(error, "strerror", "") or "unknown"
            raise ConfigurationError(
                f"{self._path} cannot be used as the register of certificates ({reason})",
                hint="check the disk and whose file it is; else restore it from a backup",
            ) from None
