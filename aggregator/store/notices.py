"""Notices to operators: a separate list beside aggregator.db, each event once.

It can be made anew from the journal: without the file, people are told what happens from then on.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.database import SqliteDatabase

FILE_NAME = "notices.db"


class NoticeList(SqliteDatabase):
    """The list; an `AuditSource` for `common.daemon.delivery`."""

    schema = (
        """CREATE TABLE notices (
            sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, event TEXT NOT NULL, release TEXT NOT NULL,
            owner TEXT NOT NULL, what TEXT NOT NULL UNIQUE
        ) STRICT""",
        "CREATE TABLE sinks (name TEXT PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE begun (time INTEGER NOT NULL) STRICT",
    )

    def __init__(self, path: Path, aggregator: str, now: int) -> None:
        super().__init__(path)
        self._aggregator = aggregator
        self._noted = {row[0] for row in self.rows("SELECT what FROM notices")}
        if not (begun := self.rows("SELECT time FROM begun")):
            with self.transaction() as tx:
                tx.execute("INSERT INTO begun VALUES (?)", (now,))
        self.begun = int(begun[0][0]) if begun else now
        """Since when people are told, in Unix time."""

    def note(self, event: str, now: int, when: str, release: str = "", owner: str = "") -> None:
        """Add an event unless it is there.

        Args:
            when: What tells it from another of the same name, release and owner.
        """
        what = f"{event}/{release}/{owner}/{when}"
        if what in self._noted:
            return
        with self.transaction() as tx:
            values = (now, event, release, owner, what)
            tx.execute(
                "INSERT OR IGNORE INTO notices (time, event, release, owner, what) VALUES (?, ?, ?, ?, ?)",
                values,
            )
        self._noted.add(what)

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return events with their numbers, oldest first."""
        rows = self.rows(
            "SELECT sequence, time, event, release, owner FROM notices WHERE sequence > ? "
            "ORDER BY sequence LIMIT ?",
            (after, most),
        )
        return [
            (
                sequence,
                {
                    "sequence": sequence,
                    "time": datetime.fromtimestamp(at, UTC).isoformat(),
                    "event": event,
                    "aggregator": self._aggregator,
                    "release": release,
                    "owner": owner,
                },
            )
            for sequence, at, event, release, owner in rows
        ]

    def keep_sinks(self, former_names: Mapping[str, str]) -> None:
        """Forget all sinks but some: names of version 0.1 can hold a secret.

        Args:
            former_names: By sink that is kept, the name whose cursor it takes over if it has none.
        """
        with self.transaction() as tx:
            tx.executemany(
                "INSERT OR IGNORE INTO sinks (name, sequence) SELECT ?, sequence FROM sinks WHERE name = ?",
                former_names.items(),
            )
            known = tx.execute("SELECT name FROM sinks").fetchall()
            gone = [(name,) for (name,) in known if name not in former_names]
            tx.executemany("DELETE FROM sinks WHERE name = ?", gone)

    def position(self, sink: str) -> int:
        """Return the number up to which a sink has everything; a new one begins with what comes."""
        rows = self.rows("SELECT sequence FROM sinks WHERE name = ?", (sink,))
        if rows:
            return int(rows[0][0])
        newest = int(self.rows("SELECT coalesce(max(sequence), 0) FROM notices")[0][0])
        self.note_delivered(sink, newest)
        return newest

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Store the number up to which a sink has everything."""
        with self.transaction() as tx:
            tx.execute("INSERT OR REPLACE INTO sinks VALUES (?, ?)", (sink, sequence))
