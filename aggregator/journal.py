"""aggregator.db: every event before it is acted on, who the owners are, and the newest ledger heads.

SQLite in WAL mode, flushed at every commit. Calls are short and block; releases number in the hundreds and
their events come at the pace of people and uploads.
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aggregator.protocol.events import Event, Started, from_json, to_json
from aggregator.protocol.release import Release, apply, begin
from common.durable import PRIVATE_FILE
from common.errors import ConfigurationError
from common.fragment import LedgerHead

_log = logging.getLogger(__name__)
_VERSION = 1
_SCHEMA = """
CREATE TABLE events (
    release TEXT NOT NULL, sequence INTEGER NOT NULL, time INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (release, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE owners (
    id TEXT PRIMARY KEY, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL, version TEXT NOT NULL,
    datasets TEXT NOT NULL, fingerprint TEXT NOT NULL, certificate_expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE ledger_heads (
    owner TEXT PRIMARY KEY, sequence INTEGER NOT NULL, hash TEXT NOT NULL, signature BLOB NOT NULL,
    certificate BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE operator_log (
    sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, action TEXT NOT NULL, release TEXT NOT NULL,
    details TEXT NOT NULL
) STRICT;
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER operator_log_stays BEFORE UPDATE ON operator_log
    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER operator_log_remains BEFORE DELETE ON operator_log
    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class KnownOwner:
    """An owner that has connected at least once."""

    id: str
    """Owner id."""
    first_seen: int
    """Unix time."""
    last_seen: int
    """Unix time."""
    version: str
    """Version of its software."""
    datasets: tuple[str, ...]
    """Data sets that it offers to this aggregator."""
    fingerprint: str
    """Of its key."""
    certificate_expires: int
    """Unix time."""


@dataclass(frozen=True, slots=True)
class SignedHead:
    """Where an owner's ledger was, with its signature."""

    head: LedgerHead
    """The statement."""
    signature: bytes
    """Over tessera/v1/ledger-head."""
    certificate: bytes
    """PEM, the certificate that verifies it."""


class Journal:
    """The aggregator's database. One process uses it; the daemon's lock sees to that.

    Args:
        path: The database file, made if absent.

    Raises:
        ConfigurationError: If it is no database of this version.
    """

    def __init__(self, path: Path) -> None:
        path.touch(PRIVATE_FILE)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._migrate(path)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ConfigurationError(
                f"{path} cannot be used as the aggregator's database ({type(error).__name__})",
                hint="restore it from a backup, or name another state_dir",
            ) from None

    def _migrate(self, path: Path) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            self._connection.close()
            raise ConfigurationError(
                f"{path} was written by another version of the software (form {version})",
                hint="run the version that wrote it",
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def append(self, release: str, event: Event) -> None:
        """Store the next event of a release; it is on the disk when this returns."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO events "
                "SELECT ?, coalesce(max(sequence), 0) + 1, ?, ? FROM events WHERE release = ?",
                (release, event.at, to_json(event), release),
            )

    def events(self, release: str) -> list[Event]:
        """Return the events of a release in their order."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT document FROM events WHERE release = ? ORDER BY sequence", (release,)
            ).fetchall()
        return [from_json(document) for (document,) in rows]

    def replay(self) -> dict[str, Release]:
        """Return every release as its events make it, oldest first."""
        releases: dict[str, Release] = {}
        with self._lock:
            rows = self._connection.execute("SELECT release, document FROM events ORDER BY release, sequence")
            for release, document in rows:
                event = from_json(document)
                starts = isinstance(event, Started)
                releases[release] = begin(event) if starts else apply(releases[release], event)
        return dict(sorted(releases.items(), key=lambda item: (item[1].created, item[0])))

    def seen(self, owner: KnownOwner) -> None:
        """Store what is known of an owner; `first_seen` stays what it was."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "last_seen = excluded.last_seen, version = excluded.version, datasets = excluded.datasets, "
                "fingerprint = excluded.fingerprint, certificate_expires = excluded.certificate_expires",
                (
                    *(owner.id, owner.first_seen, owner.last_seen, owner.version),
                    *(json.dumps(owner.datasets), owner.fingerprint, owner.certificate_expires),
                ),
            )

    def left(self, owner: str, at: int) -> None:
        """Store when an owner was last heard of."""
        with self._transaction() as db:
            db.execute("UPDATE owners SET last_seen = ? WHERE id = ?", (at, owner))

    def owners(self) -> dict[str, KnownOwner]:
        """Return every owner that has ever connected, by id."""
        with self._lock:
            rows = self._connection.execute("SELECT * FROM owners ORDER BY id").fetchall()
        return {
            id_: KnownOwner(id_, first, last, version, tuple(json.loads(datasets)), key, expires)
            for id_, first, last, version, datasets, key, expires in rows
        }

    def ledger_head(self, owner: str) -> SignedHead | None:
        """Return the newest ledger head that an owner has signed, or None."""
        with self._lock:
            row = self._connection.execute(
                "SELECT sequence, hash, signature, certificate FROM ledger_heads WHERE owner = ?", (owner,)
            ).fetchone()
        return None if row is None else SignedHead(LedgerHead(owner, row[0], row[1]), row[2], row[3])

    def keep_ledger_head(self, signed: SignedHead) -> bool:
        """Store a ledger head if it is newer than the one that is kept.

        Args:
            signed: A head whose signature has been checked.

        Returns:
            Whether it is the newest now. A head that lies behind, or says something else about the same
            place, is not stored: the owner's ledger is a restored backup, or was rewritten.
        """
        head, kept = signed.head, self.ledger_head(signed.head.owner)
        if kept is not None and (head.sequence, head.hash) == (kept.head.sequence, kept.head.hash):
            return True
        if kept is not None and head.sequence <= kept.head.sequence:
            _log.warning(
                "ledger head lies behind the newest one",
                extra={"owner": head.owner, "sequence": head.sequence, "newest": kept.head.sequence},
            )
            return False
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO ledger_heads VALUES (?, ?, ?, ?, ?)",
                (head.owner, head.sequence, head.hash, signed.signature, signed.certificate),
            )
        return True

    def note_operator(self, at: int, action: str, release: str, details: str = "") -> None:
        """Store what an operator asked for."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO operator_log (time, action, release, details) VALUES (?, ?, ?, ?)",
                (at, action, release, details),
            )

    def operator_log(self) -> list[tuple[int, str, str, str]]:
        """Return what operators asked for, oldest first: time, action, release, details."""
        with self._lock:
            return self._connection.execute(
                "SELECT time, action, release, details FROM operator_log ORDER BY sequence"
            ).fetchall()
