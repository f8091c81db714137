"""Hash chains and their heads: every entry carries the hash of the one before, so that changes are detected.

A chain cannot show by itself that its newest entries were cut off. That takes a head that is kept elsewhere:
the aggregators keep the owner's newest signed ledger head and return it at every connection.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from common.canonical import document_digest
from common.errors import IntegrityError, InternalError
from owner_node.state.database import OwnerDatabase, Transaction

T = TypeVar("T")
GENESIS = "0" * 64
"""Previous hash of the first entry."""


@dataclass(frozen=True, slots=True)
class Head:
    """The position of a chain: its newest entry."""

    sequence: int
    """Number of its newest entry; 0 if there is none."""
    hash: str
    """Hash of the newest entry, hexadecimal; 64 zeros if there is none."""


class Chain:
    """An append-only table whose entries are chained by SHA-256 over canonical JSON.

    Args:
        table: A table with `sequence`, the columns, `previous` and `hash`; errors name it.
        columns: The chained columns, all text.
        skips: Whether an entry may skip sequence numbers, as after a loss.
        later: Columns that entries of older versions do not have: an entry without a value is hashed without
            the column.
    """

    def __init__(
        self,
        db: OwnerDatabase,
        table: str,
        columns: tuple[str, ...],
        *,
        skips: Callable[[sqlite3.Row], bool] = lambda _: False,
        later: tuple[str, ...] = (),
    ) -> None:
        self._db, self._table = db, table
        self._columns, self._skips, self._later = columns, skips, later
        self._all = ", ".join(("sequence", *columns, "previous", "hash"))

    def append(self, tx: Transaction, values: Mapping[str, str | None], skip_to: int = 0) -> Head:
        """Add an entry inside a transaction.

        Args:
            values: A text, or None, for every column.
            skip_to: Lowest sequence number of the entry; numbers before it are skipped.

        Returns:
            The new head.
        """
        if not tx.in_transaction:
            raise InternalError(f"an entry of the {self._table} needs a transaction")
        before = self.head()
        sequence = max(before.sequence + 1, skip_to)
        row = (sequence, *(values[column] for column in self._columns), before.hash)
        mark = self._hash(sequence, values, before.hash)
        places = ", ".join("?" * (len(row) + 1))
        tx.execute(f"INSERT INTO {self._table} ({self._all}) VALUES ({places})", (*row, mark))  # noqa: S608 - our names
        return Head(sequence, mark)

    def head(self) -> Head:
        """Return the newest entry's sequence number and hash."""
        rows = self._select("ORDER BY sequence DESC LIMIT 1")
        return Head(int(rows[0]["sequence"]), str(rows[0]["hash"])) if rows else Head(0, GENESIS)

    def entries(self, where: str = "", values: tuple[str, ...] = ()) -> list[sqlite3.Row]:
        """Return entries, oldest first.

        Args:
            where: A condition in SQL, or empty for all.
        """
        condition = f"WHERE {where} " if where else ""
        return self._select(f"{condition}ORDER BY sequence", values)

    def newest(self, most: int, where: str = "", values: tuple[str | int, ...] = ()) -> list[sqlite3.Row]:
        """Return at most `most` entries that fulfil a condition, as in `entries`, newest first."""
        condition = f"WHERE {where} " if where else ""
        return self._select(f"{condition}ORDER BY sequence DESC LIMIT ?", (*values, most))

    def contains(self, head: Head) -> bool:
        """Whether this chain once ended with that head; every chain contains the empty one."""
        if head.sequence == 0:
            return head.hash in ("", GENESIS)
        rows = self._select("WHERE sequence = ?", (head.sequence,))
        return bool(rows) and str(rows[0]["hash"]) == head.hash

    def verify(self) -> None:
        """Check every entry.

        Raises:
            IntegrityError: Naming the first invalid entry.
        """
        previous, expected = GENESIS, 1
        for row in self.entries():
            values = {column: None if row[column] is None else str(row[column]) for column in self._columns}
            sequence = int(row["sequence"])
            in_turn = sequence == expected or (sequence > expected and self._skips(row))
            holds = in_turn and row["previous"] == previous
            if not holds or row["hash"] != self._hash(sequence, values, previous):
                raise IntegrityError(
                    f"the {self._table} does not hold from entry {expected} on",
                    "it was changed outside this program: find out by whom; put the newest backup back, then "
                    "owner-node ledger recover",
                    {"chain": self._table, "entry": expected},
                )
            previous, expected = str(row["hash"]), sequence + 1

    def read(self, convert: Callable[[sqlite3.Row], T], rows: Iterable[sqlite3.Row]) -> tuple[T, ...]:
        """Convert entries."""
        with self._db.decoding():
            return tuple(convert(row) for row in rows)

    def _select(self, rest: str, values: tuple[str | int, ...] = ()) -> list[sqlite3.Row]:
        return self._db.rows(f"SELECT {self._all} FROM {self._table} {rest}", values)  # noqa: S608 - our names

    def _hash(self, sequence: int, values: Mapping[str, str | None], previous: str) -> str:
        hashed = {key: value for key, value in values.items() if value is not None or key not in self._later}
        return document_digest({**hashed, "sequence": sequence, "previous": previous})
