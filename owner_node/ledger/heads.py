"""Why no work is done: kept in owner.db, so that a restart, or another command, cannot forget it.

An owner whose ledger lacks what it once signed would spend the same budget twice. Whoever finds that out
stops all work, for every aggregator and for this owner's own commands, until `owner-node ledger recover`.
"""

import json

from common.canonical import canonical
from common.errors import IntegrityError
from owner_node.ledger.entry import Kind, read
from owner_node.state.chain import Chain, Head
from owner_node.state.database import Clock, Database, Transaction


class Halt:
    """The halt of an owner's ledger.

    Args:
        db: The owner's database.
        clock: Tells the time.
    """

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def stop(self, tx: Transaction, error: IntegrityError) -> None:
        """Stop all work; the first reason stays.

        Args:
            tx: The transaction.
            error: What was found.
        """
        details = canonical({key: str(value) for key, value in error.details.items()}).decode()
        values = (self._clock().isoformat(), error.message, error.hint, details)
        tx.execute(
            "INSERT OR IGNORE INTO ledger_halt (id, time, message, hint, details) VALUES (1, ?, ?, ?, ?)",
            values,
        )

    def reason(self) -> IntegrityError | None:
        """Return why no work is done, or None if it is done."""
        found = self._db.rows("SELECT message, hint, details FROM ledger_halt")
        if not found:
            return None
        return IntegrityError(found[0]["message"], found[0]["hint"], json.loads(found[0]["details"]))

    def check(self) -> None:
        """Let work go on, or not.

        Raises:
            IntegrityError: If it was stopped, with the reason.
        """
        reason = self.reason()
        if reason is not None:
            raise reason

    def lift(self, tx: Transaction) -> None:
        """Let work go on again."""
        tx.execute("DELETE FROM ledger_halt")


_AFTER_A_LOSS = (
    "stop every other copy; put the newest owner.db back, or charge what this one lacks: "
    "owner-node ledger recover"
)


class SignedHeads:
    """The heads of one ledger.

    Args:
        db: The owner's database.
        chain: The ledger's chain.
    """

    def __init__(self, db: Database, chain: Chain) -> None:
        self._db, self._chain = db, chain

    def sign(self, tx: Transaction) -> Head:
        """Return where the ledger is, for a signature, and remember that it was signed."""
        head = self._chain.head()
        tx.execute(
            "INSERT INTO ledger_signed (id, sequence, hash) VALUES (1, :sequence, :hash) ON CONFLICT (id) "
            "DO UPDATE SET sequence = :sequence, hash = :hash WHERE :sequence > sequence",
            {"sequence": head.sequence, "hash": head.hash},
        )
        return head

    def newest(self) -> Head | None:
        """Return the newest head that this owner signed, as far as owner.db knows."""
        rows = self._db.rows("SELECT sequence, hash FROM ledger_signed")
        return Head(int(rows[0]["sequence"]), str(rows[0]["hash"])) if rows else None

    def lost(self) -> frozenset[Head]:
        """Return the heads whose loss a recovery has acknowledged."""
        recoveries = self._chain.entries("kind = ?", (Kind.RECOVER,))
        notes = [read(row).note.get("lost", []) for row in recoveries]
        return frozenset(Head(int(each["sequence"]), each["hash"]) for lost in notes for each in lost)

    def misses(self, head: Head) -> bool:
        """Whether the ledger lacks what a head says it had, and nobody has acknowledged that."""
        return not self._chain.contains(head) and head not in self.lost()

    def check(self, head: Head) -> None:
        """Check that the ledger has what it had when one of its heads was signed.

        Raises:
            IntegrityError: If it has not: a restored backup, a lost disk, a copy that went its own way.
        """
        if not self.misses(head):
            return
        own = self._chain.head()
        details = {
            "chain": "ledger", "sequence": own.sequence, "signed": head.sequence, "signed_hash": head.hash,
        }  # fmt: skip
        if head.sequence > own.sequence:
            raise IntegrityError(
                f"the ledger ends at entry {own.sequence}, but this owner has signed entry {head.sequence}: "
                "it was restored from a backup, lost entries, or another copy of this state directory is at "
                "work; no work is done",
                _AFTER_A_LOSS,
                {**details, "entry": own.sequence + 1},
            )
        raise IntegrityError(
            f"entry {head.sequence} of the ledger is not the one that this owner signed: another copy of "
            "this state directory is at work, or this one was restored from a backup and went on; "
            "no work is done",
            _AFTER_A_LOSS,
            {**details, "entry": head.sequence},
        )
