"""SQLite files of both sides: private, in WAL mode, flushed at every commit, one writer at a time.

Several processes may use the same file: commands work beside their daemon. A write transaction excludes every
other writer, whatever process it is in; readers never wait.
"""

import logging
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

from common.errors import CannotStoreError, ConfigurationError, IntegrityError, InternalError, TesseraError
from common.files import PRIVATE_FILE, lock_folder, private_directory, sync_directory

Transaction = sqlite3.Connection
"""What `SqliteDatabase.transaction` yields: a connection with a write transaction open."""
FIRST_VERSION = 101
"""Number of the schema of version 0.1.0. Lower numbers were used during development."""
_BUSY_TIMEOUT = "busy_timeout = 30000"  # milliseconds
_PAGE_BYTES = 16384
"""Size of a page. An entry of more than about a quarter of one, such as a signed event, takes whole pages of
its own. With SQLite's 4096 bytes, a release of ten owners takes 210 KB for 72 KB of events."""
_SETTINGS = (
    f"page_size = {_PAGE_BYTES}",  # of a new file
    _BUSY_TIMEOUT,  # before the first setting that needs a lock
    "journal_mode = WAL",
    "wal_autocheckpoint = 250",  # pages: 4 MB
    "synchronous = FULL",
    "fullfsync = ON",
    "foreign_keys = ON",
    "trusted_schema = OFF",
    "secure_delete = ON",  # what is removed is overwritten, keys among it
)
_DAMAGED = (
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
    "SQLITE_ERROR",
    "SQLITE_FORMAT",
    "SQLITE_MISMATCH",
    "SQLITE_SCHEMA",
)
"""SQLite's codes for damage. All statements are constants, so one that is an error meets damaged tables."""
_log = logging.getLogger(__name__)
_UNAVAILABLE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def append_only(table: str) -> tuple[str, ...]:
    """Return the triggers of a table whose entries are never changed or deleted."""
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    return (
        f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}",
        f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}",
    )


def copies_before(path: Path) -> list[Path]:
    """Return the copies of a database that conversions of it left beside, oldest first."""
    return sorted(path.parent.glob(f"{path.name}.before-*"))


class SqliteDatabase:
    """A database; one object serves all threads of a process. Subclasses set the schema.

    Args:
        path: The file. It and its folder are created for this user alone where they are absent.
        create: False to only read: without a file, an empty database in memory is used, and no file is
            created.

    Raises:
        ConfigurationError: If the folder or the file cannot be used, a newer version wrote the file, or it
            has to be converted while another process uses it.
    """

    schema: ClassVar[Sequence[str]] = ()
    """Statements that create all tables."""
    migrations: ClassVar[Sequence[Sequence[str]]] = ()
    """By number, from that after `FIRST_VERSION` on: statements that convert a database of the number before.

    Released ones never change: converted step by step, every database has the tables of `schema`."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.committed: Callable[[], None] = lambda: None
        """Called after every transaction of this object, in its thread; must return at once."""
        self._lock = threading.RLock()
        self._in_transaction = False
        if not create and not path.exists():
            self._connection = _connect(None)
            self._create_tables()
            return
        private_directory(path.parent)
        # One process at a time opens it: SQLite does not wait while the journal mode changes.
        with self._explaining(), lock_folder(path.parent):
            self._connection = _connect(path)
            try:
                self._check_version()
            except BaseException:
                self._connection.close()
                raise

    def damage_error(self, reason: str) -> TesseraError:
        """Return the error for a file that is no intact database; `reason` is the name of SQLite's code."""
        details = {"file": str(self.path), "sqlite": reason}
        return IntegrityError(f"{self.path} is damaged", "restore the newest backup", details)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a write transaction: all of the block is on disk afterwards, or nothing of it.

        Never wait for anything else inside (a network, another coroutine): every other writer waits too.

        Raises:
            CannotStoreError: If the disk cannot be written, or another process keeps the file locked.
            InternalError: If this thread has a transaction open already.
        """
        with self._lock, self._explaining():
            if self._in_transaction:
                raise InternalError("a database transaction inside another")
            self._in_transaction = True
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False
        self.committed()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Read rows; inside a transaction of this thread, with what it has written so far."""
        with self._lock, self._explaining():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Convert values of rows: one that cannot be converted was damaged since it was written."""
        try:
            yield
        except (ValueError, TypeError, LookupError, ArithmeticError, zlib.error):
            raise self.damage_error("a value cannot be read") from None

    def changes(self) -> int:
        """Return a number that is another one once any other connection has written."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def forget_removed(self) -> None:
        """Empty the write-ahead log, which still has what was removed from the file.

        If another process reads at this moment, the log is emptied by a later call.
        """
        with self._lock, self._explaining():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def compact(self) -> None:
        """Write a file of smaller pages, or with many unused ones, anew; a no-op if another process uses it.

        Only at the start of a daemon: it takes as long as copying the file, and as much room beside it.
        """
        with self._lock, self._explaining(), lock_folder(self.path.parent):
            size, pages, unused = (
                int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_size", "page_count", "freelist_count")
            )
            if size >= _PAGE_BYTES and unused <= pages // 2:
                return
            before = self.path.stat().st_size
            # SQLite changes the size of pages only outside of WAL mode.
            if not self._left_alone():
                return
            try:
                self._connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
                self._connection.execute("VACUUM")
            finally:
                self._connection.execute("PRAGMA journal_mode = WAL")
            about = {"file": self.path.name, "bytes_before": before, "bytes": self.path.stat().st_size}
            _log.info("database compacted", extra=about)

    def copy_to(self, path: Path, removing: Sequence[str] = ()) -> None:
        """Write a copy as of one moment, while other processes continue writing.

        Args:
            path: A new file, in a folder that only its user can enter.
            removing: Statements that delete what stays out of it; nothing of that is left in the file.
        """
        with self._lock, self._explaining(), closing(sqlite3.connect(path)) as target:
            self._connection.backup(target)
            if removing:
                target.execute("PRAGMA secure_delete = ON")
                for statement in removing:
                    target.execute(statement)
                target.commit()
                target.execute("VACUUM")

    def close(self) -> None:
        """Close the database; it cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_version(self) -> None:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version == 0:
            self._create_tables()
        elif version < FIRST_VERSION:
            raise ConfigurationError(
                f"{self.path} was written by a development version, before the first release "
                f"(schema {version})",
                hint="it is not converted: use the version that wrote it, or move the file away",
            )
        elif version > self._newest:
            raise ConfigurationError(
                f"{self.path} was written by a newer version of this software (schema {version})",
                hint="install that version again; a database is never converted back (docs/upgrading.md)",
            )
        elif version < self._newest:
            self._convert(version)

    @property
    def _newest(self) -> int:
        """Number of the present schema."""
        return FIRST_VERSION + len(self.migrations)

    def _create_tables(self) -> None:
        self._run(self.schema)

    def _run(self, statements: Iterable[str]) -> None:
        with self.transaction() as tx:
            for statement in (*statements, f"PRAGMA user_version = {self._newest}"):
                tx.execute(statement)

    def _convert(self, version: int) -> None:
        """Convert a database of an older version, in one transaction, and leave a copy of it beside."""
        if not self._left_alone():
            raise ConfigurationError(
                f"{self.path} has to be converted from schema {version}, and another process uses it",
                hint="stop the daemon of the older version first",
            )
        copy = self.path.with_name(f"{self.path.name}.before-{self._newest}")
        part = self.path.with_name(f"{self.path.name}.part")
        part.unlink(missing_ok=True)
        part.touch(PRIVATE_FILE)
        # Not `_connect`, whose settings a copy of other pages could not take over.
        with closing(sqlite3.connect(part)) as target:
            self._connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        part.replace(copy)
        sync_directory(copy.parent)
        self._run(chain.from_iterable(self.migrations[version - FIRST_VERSION :]))
        self._connection.execute("PRAGMA journal_mode = WAL")
        # SQLite reads the new schema at the next statement, and refuses that if it is a checkpoint.
        self._connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
        about = {"file": self.path.name, "from_schema": version, "to_schema": self._newest, "copy": str(copy)}
        _log.warning("database converted", extra=about)

    def _left_alone(self) -> bool:
        """Leave WAL mode, which SQLite allows only to the only connection; who opens it now waits."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            return False
        finally:
            self._connection.execute(f"PRAGMA {_BUSY_TIMEOUT}")
        return True

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors of SQLite into those of the catalogue; only the name of SQLite's code is passed on."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explain(str(getattr(error, "sqlite_errorname", type(error).__name__))) from None
        except UnicodeDecodeError:
            # SQLite quotes damaged text in its messages.
            raise self.damage_error("SQLITE_CORRUPT") from None

    def _explain(self, name: str) -> TesseraError:
        if name.startswith(_DAMAGED):
            return self.damage_error(name)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return CannotStoreError(
                f"{self.path} is in use by another process", hint="try again when that has ended"
            )
        if name.startswith(_UNAVAILABLE):
            folder = self.path.parent
            cause = "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to: "
            return CannotStoreError(
                f"{cause}{self.path} cannot be used ({name})",
                hint="check free space, the disk, and that this user may write there; a daemon retries",
            )
        return InternalError(f"{self.path}: {name}", details={"file": str(self.path), "sqlite": name})


def _connect(path: Path | None) -> sqlite3.Connection:
    """Open a file, or a database in memory."""
    if path is not None and not path.exists():
        try:
            # SQLite would create it readable for others; its side files copy this mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
        except OSError as error:
            raise CannotStoreError(
                f"{path} cannot be created: {error.strerror}", hint="check the disk and whose folder it is"
            ) from None
        sync_directory(path.parent)
    connection = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    # SQLite's own complaint about a damaged text quotes the text.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection
