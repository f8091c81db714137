"""The lines of the ledger in owner.db: they are appended and read back, and never changed."""

import sqlite3
from collections.abc import Mapping
from typing import Any

from common.canonical import canonical
from common.errors import IntegrityError
from owner_node.ledger.entry import COLUMNS, OF_A_CHARGE, Entry, EntryKind, read
from owner_node.state.chain import Chain, Head
from owner_node.state.database import Clock, OwnerDatabase, Transaction
from owner_node.state.history import History

_HISTORY = "history"


class LedgerBook:
    """The lines."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        self._clock = clock
        self._history = History(db, clock)
        self.chain = Chain(
            db, "ledger", COLUMNS, skips=lambda row: row["kind"] == EntryKind.RECOVER, later=("delta",)
        )
        """Hash chain of the lines."""
        self._read: tuple[Entry, ...] | None = None

    def read_once(self, known: tuple[Entry, ...] = ()) -> tuple[Entry, ...]:
        """Read the lines now, and answer from them afterwards: for a page, which asks much of one moment.

        An object that writes must not do this.

        Args:
            known: Lines that were read before. If the ledger still has the newest of them, only lines after
                it are read.

        Returns:
            All lines, oldest first.
        """
        newest = Head(known[-1].sequence, known[-1].hash) if known else None
        if newest is None or not self.chain.contains(newest):
            self._read = self.lines()
        else:
            rows = self.chain.entries("sequence > ?", (str(newest.sequence),))
            self._read = (*known, *self.chain.read(read, rows))
        return self._read

    def lines(self, budget: str | None = None) -> tuple[Entry, ...]:
        """Return the lines of one budget or of all, oldest first."""
        if self._read is not None:
            return tuple(line for line in self._read if budget in (None, line.budget))
        rows = self.chain.entries() if budget is None else self.chain.entries("budget = ?", (budget,))
        return self.chain.read(read, rows)

    def of(self, aggregator: str, release: str) -> list[sqlite3.Row]:
        """Return the rows about one release."""
        return self.chain.entries("aggregator = ? AND release = ?", (aggregator, release))

    def append(
        self,
        tx: Transaction,
        kind: EntryKind,
        note: Mapping[str, Any],
        values: Mapping[str, str | None],
        skip_to: int = 0,
    ) -> Head:
        """Append a line with the head of the history: anyone who keeps the ledger's head keeps that as well.

        Args:
            values: The columns `OF_A_CHARGE`.
            skip_to: Lowest sequence number that it may get.

        Returns:
            The new head.
        """
        said = {"time": self._clock().isoformat(), "kind": str(kind), **values}
        history = self._history.head()
        if history.sequence:
            note = {**note, _HISTORY: {"sequence": str(history.sequence), "hash": history.hash}}
        return self.chain.append(tx, {**said, "note": canonical(note).decode() if note else None}, skip_to)

    def settle(
        self,
        tx: Transaction,
        kind: EntryKind,
        reservation: sqlite3.Row,
        note: Mapping[str, Any] | None = None,
        amounts: Mapping[str, str | None] | None = None,
    ) -> None:
        """Record that a reservation was spent or returned; `amounts` override its own for a part of it."""
        self.append(
            tx, kind, note or {}, {name: reservation[name] for name in OF_A_CHARGE} | dict(amounts or {})
        )

    def head(self) -> Head:
        """Return the head of the ledger, which is signed with consents, seals, and polls after a change."""
        return self.chain.head()

    def verify_chain(self) -> None:
        """Check that no entry was changed, removed, inserted or moved; the end may still be cut off.

        Raises:
            IntegrityError: Naming the first invalid entry.
        """
        self.chain.verify()

    def verify_history(self) -> None:
        """Check that the history still has the lines that it had at each entry; newer ones may be cut off.

        Raises:
            IntegrityError: Naming the first line of the history that is missing or differs.
        """
        for line in self.lines():
            mark = line.note.get(_HISTORY)
            if mark is None:
                # Written before there was any history.
                continue
            head = Head(int(mark["sequence"]), str(mark["hash"]))
            if not self._history.contains(head):
                raise IntegrityError(
                    f"the history lacks line {head.sequence} as it was when entry {line.sequence} of the "
                    "ledger was written: lines were cut off or rewritten",
                    "it was changed outside this program: find out by whom; put the newest backup back, then "
                    "owner-node ledger recover",
                    {"chain": "history", "entry": head.sequence},
                )
