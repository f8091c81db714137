"""The history as records for audit sinks, and how far each sink has come.

What was found about the original data (digests, forecasts) is left out: it stays in owner.db, and sinks may
be other machines that are reached in clear text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from owner_node.state.database import Database
from owner_node.state.history import History, Line

_STAYS = frozenset({"source", "data", "forecast"})
"""Names of details that do not leave owner.db."""


class AuditFeed:
    """What `common.audit.Delivery` asks of an owner.

    Args:
        db: The owner's database.
        history: The history.
        owner: The owner's id, in every record.
    """

    def __init__(self, db: Database, history: History, owner: str) -> None:
        self._db, self._history, self._owner = db, history, owner

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return lines of the history that come after a sequence number, oldest first."""
        return [(line.sequence, self._record(line)) for line in self._history.after(after, most)]

    def _record(self, line: Line) -> dict[str, Any]:
        told = {**asdict(line), "details": _without(line.details)}
        return {"log": "history", "owner": self._owner, **told}

    def delivered(self, sink: str) -> int:
        """Return up to which line a sink has everything; 0 for a new one."""
        rows = self._db.rows("SELECT sequence FROM audit_sinks WHERE sink = ?", (sink,))
        return int(rows[0]["sequence"]) if rows else 0

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Remember up to which line a sink has everything."""
        with self._db.transaction() as tx:
            tx.execute("INSERT OR REPLACE INTO audit_sinks (sink, sequence) VALUES (?, ?)", (sink, sequence))


def _without(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details without what stays, at any depth."""
    return {
        name: _without(value) if isinstance(value, Mapping) else value
        for name, value in details.items()
        if name not in _STAYS
    }
