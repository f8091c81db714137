"""The journal: every event of every release, stored before it is acted on; the owners; their ledger heads."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from aggregator.protocol.events import Event, from_json, to_json
from aggregator.protocol.release import Release, fold
from aggregator.store.database import AggregatorDatabase, CannotStoreError
from aggregator.store.ledger_heads import LedgerHeads
from aggregator.store.operator_log import Action, OperatorLog
from common.errors import ConfigurationError

_CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class KnownOwner:
    """An owner that has connected at least once."""

    id: str
    first_seen: int
    """Unix time."""
    last_seen: int
    """Unix time."""
    version: str
    datasets: tuple[str, ...]
    """Data sets that it offers to this aggregator."""
    fingerprint: str
    certificate_expires: int
    """Unix time."""


class Journal:
    """The parts of the aggregator's database that releases and owners need."""

    def __init__(self, path: Path) -> None:
        self.db = AggregatorDatabase(path)
        self.operators = OperatorLog(self.db)
        """The log of the operators' actions."""
        self.heads = LedgerHeads(self.db, self.operators)
        """Heads of the owners' ledgers."""

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    async def watch(self) -> None:
        """Announce entries of the operators' log that commands wrote, within seconds, until cancelled."""
        seen = self.db.changes()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            # A damaged or locked database is reported where it is needed; the watch continues.
            with suppress(CannotStoreError, ConfigurationError):
                if (newest := self.db.changes()) != seen:
                    seen = newest
                    self.operators.announce()

    def append(self, release: str, event: Event, action: Action | None = None) -> None:
        """Store the next event of a release; it is on the disk when this returns."""
        with self.db.transaction() as tx:
            tx.execute(
                "INSERT INTO events "
                "SELECT ?, coalesce(max(sequence), 0) + 1, ?, ? FROM events WHERE release = ?",
                (release, event.at, to_json(event), release),
            )
            if action is not None:
                self.operators.insert(tx, action)
        if action is not None:
            self.operators.announce()

    def events(self, release: str) -> list[Event]:
        """Return the events of a release in their order."""
        rows = self.db.rows("SELECT document FROM events WHERE release = ? ORDER BY sequence", (release,))
        with self.db.decoding():
            return [from_json(document) for (document,) in rows]

    def newest_events(self, release: str, before: int, most: int) -> list[tuple[int, Event]]:
        """Return events of a release with their numbers, newest first."""
        rows = self.db.rows(
            "SELECT sequence, document FROM events WHERE release = ? AND (? = 0 OR sequence < ?) "
            "ORDER BY sequence DESC LIMIT ?",
            (release, before, before, most),
        )
        with self.db.decoding():
            return [(sequence, from_json(document)) for sequence, document in rows]

    def replay(self) -> dict[str, Release]:
        """Rebuild every release from its events, oldest first."""
        rows = self.db.rows("SELECT release, document FROM events ORDER BY release, sequence")
        with self.db.decoding():
            releases = {
                release: fold(from_json(document) for _, document in events)
                for release, events in groupby(rows, itemgetter(0))
            }
        return dict(sorted(releases.items(), key=lambda item: (item[1].created, item[0])))

    def seen(self, owner: KnownOwner) -> None:
        """Store what is known of an owner; `first_seen` stays what it was."""
        with self.db.transaction() as tx:
            tx.execute(
                "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "last_seen = excluded.last_seen, version = excluded.version, datasets = excluded.datasets, "
                "fingerprint = excluded.fingerprint, certificate_expires = excluded.certificate_expires",
                (
                    *(owner.id, owner.first_seen, owner.last_seen, owner.version),
                    *(json.dumps(owner.datasets), owner.fingerprint, owner.certificate_expires),
                ),
            )

    def owners(self, after: str = "") -> dict[str, KnownOwner]:
        """Return every owner that has ever connected, by id."""
        rows = self.db.rows("SELECT * FROM owners WHERE id > ? ORDER BY id", (after,))
        with self.db.decoding():
            return {
                id_: KnownOwner(id_, first, last, version, tuple(json.loads(datasets)), key, expires)
                for id_, first, last, version, datasets, key, expires in rows
            }
