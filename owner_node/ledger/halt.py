"""Why no work is done: kept in owner.db, so that a restart, or another command, cannot forget it.

An owner whose ledger lacks what it once signed would spend the same budget twice. Whoever finds that out
stops all work, for every aggregator and for this owner's own commands, until `owner-node ledger recover`.
"""

import json

from common.canonical import canonical
from common.errors import IntegrityError
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
