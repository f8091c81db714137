"""Hash chains: every entry carries the hash of the one before, so that no past entry can change unseen.

A chain cannot show by itself that its newest entries were cut off. That takes a head, kept elsewhere:
the aggregators keep the owner's newest signed ledger head and return it at every connect.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from common.canonical import document_digest
from common.errors import IntegrityError, InternalError
from owner_node.database import Database, Transaction

GENESIS = "0" * 64
"""What the first entry names as the hash before it."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain is."""

    sequence: int
    """Number of entries."""
    hash: str
    """Hash of the newest entry, hexadecimal; 64 zeros if there is none."""


class Chain:
    """An append-only table whose entries are chained by SHA-256 over canonical JSON.

    Args:
        db: The owner's database.
        table: A table with `sequence`, the columns, `previous` and `hash`.
        name: What it is called in errors.
        columns: The chained columns, all text.
    """

    def __init__(self, db: Database, table: str, name: str, columns: tuple[str, ...]) -> None:
        self._db, self._table, self._name, self._columns = db, table, name, columns
        self._all = ", ".join(("sequence", *columns, "previous", "hash"))

    def append(self, tx: Transaction, values: Mapping[str, str | None]) -> Head:
        """Add an entry inside a transaction.

        Args:
            tx: The transaction.
            values: A text, or None, for every column.

        Returns:
            The new head.

        Raises:
            InternalError: If no transaction is open.
        """
        if not tx.in_transaction:
            raise InternalError(f"an entry of the {self._name} needs a transaction")
        before = self.head()
        sequence = before.sequence + 1
        row = (sequence, *(values[column] for column in self._columns), before.hash)
        mark = _hash(sequence, dict(values), before.hash)
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
            values: For its placeholders.
        """
        condition = f"WHERE {where} " if where else ""
        return self._select(f"{condition}ORDER BY sequence", values)

    def contains(self, head: Head) -> bool:
        """Whether this chain once ended with that head; every chain contains the empty one."""
        if head.sequence == 0:
            return head.hash in ("", GENESIS)
        rows = self._select("WHERE sequence = ?", (head.sequence,))
        return bool(rows) and str(rows[0]["hash"]) == head.hash

    def verify(self) -> None:
        """Check every entry.

        Raises:
            IntegrityError: Naming the first entry that does not hold.
        """
        previous = GENESIS
        for expected, row in enumerate(self.entries(), start=1):
            values = {column: None if row[column] is None else str(row[column]) for column in self._columns}
            holds = row["sequence"] == expected and row["previous"] == previous
            if not holds or row["hash"] != _hash(expected, values, previous):
                raise IntegrityError(
                    f"the {self._name} does not hold from entry {expected} on",
                    "it was changed outside this program: restore the newest backup and find out by whom",
                    {"chain": self._name, "entry": expected},
                )
            previous = str(row["hash"])

    def _select(self, rest: str, values: tuple[str | int, ...] = ()) -> list[sqlite3.Row]:
        return self._db.rows(f"SELECT {self._all} FROM {self._table} {rest}", values)  # noqa: S608 - our names


def _hash(sequence: int, values: Mapping[str, str | None], previous: str) -> str:
    return document_digest({**values, "sequence": sequence, "previous": previous})
