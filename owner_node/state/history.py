"""The audit log: requests to this owner, its decisions and the deciding rules. Append-only and chained.

`AuditFeed` copies the lines to audit sinks, and stores how far each sink has come. It leaves out what was
found about the original data (digests, forecasts, records left out): that stays in owner.db, since sinks may
be other machines that are reached in clear text.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from common.canonical import canonical
from owner_node.state.chain import Chain, Head
from owner_node.state.database import Clock, OwnerDatabase, Transaction

_COLUMNS = (
    "time", "aggregator", "release", "event",
    "decision", "rule", "purpose", "epsilon", "plan_digest", "details",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the history. Fields that do not apply are empty."""

    sequence: int
    """Position, from 1."""
    time: str
    """ISO 8601, UTC."""
    aggregator: str
    release: str
    event: str
    """What happened: invited, accepted, refused, reserved, linked, spent, sealed, uploaded, signed-in, ..."""
    decision: str
    """What this owner decided."""
    rule: str
    """The rule that decided, in full."""
    purpose: str
    epsilon: str
    """Decimal text."""
    plan_digest: str
    details: Mapping[str, Any]
    """Ids, counts and digests."""
    hash: str
    """Hash of this line and all before it."""

    @property
    def amount(self) -> Decimal | None:
        """The epsilon as a number; None if it does not apply."""
        return Decimal(self.epsilon) if self.epsilon else None


class History:
    """The owner's audit log."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._chain = Chain(db, "history", _COLUMNS)

    def record(
        self,
        tx: Transaction,
        *,
        aggregator: str,
        release: str,
        event: str,
        decision: str = "",
        rule: str = "",
        purpose: str = "",
        epsilon: str = "",
        plan_digest: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> Head:
        """Append a line, in the transaction of the event that it records.

        Args:
            epsilon: Decimal text.
            details: Ids, counts and digests; never a value of a record, an identifier or a token.

        Returns:
            The new head of the history.
        """
        values = {
            "time": self._clock().isoformat(), "aggregator": aggregator, "release": release, "event": event,
            "decision": decision, "rule": rule, "purpose": purpose, "epsilon": epsilon,
            "plan_digest": plan_digest, "details": canonical(details or {}).decode(),
        }  # fmt: skip
        return self._chain.append(tx, values)

    def entries(
        self, aggregator: str | None = None, release: str | None = None, event: str | None = None
    ) -> tuple[Line, ...]:
        """Return the lines, oldest first, filtered by the aggregator, release and event that are named."""
        where, values = _condition(aggregator, release, event)
        return self._chain.read(_line, self._chain.entries(where, values))

    def newest(
        self,
        before: int | None,
        most: int,
        aggregator: str | None = None,
        release: str | None = None,
        event: str | None = None,
    ) -> tuple[Line, ...]:
        """Return at most `most` lines before a sequence number, newest first, filtered as in `entries`."""
        where, values = _condition(aggregator, release, event)
        if before is not None:
            where, values = f"{where} AND sequence < ?" if where else "sequence < ?", (*values, str(before))
        return self._chain.read(_line, self._chain.newest(most, where, values))

    def events(self) -> tuple[str, ...]:
        """Return the events that occur, by name."""
        return tuple(
            row["event"] for row in self._db.rows("SELECT DISTINCT event FROM history ORDER BY event")
        )

    def after(self, sequence: int, most: int) -> tuple[Line, ...]:
        """Return at most `most` lines after a sequence number, oldest first."""
        last = str(sequence + most)
        rows = self._chain.entries("sequence > ? AND sequence <= ?", (str(sequence), last))
        return self._chain.read(_line, rows)

    def latest_after(self, sequence: int) -> datetime | None:
        """Return the latest time of all lines after one, or None if there are none."""
        # Times are all in UTC, in one form: the latest text is the latest time.
        rows = self._db.rows("SELECT max(time) AS latest FROM history WHERE sequence > ?", (sequence,))
        return None if rows[0]["latest"] is None else datetime.fromisoformat(rows[0]["latest"])

    def head(self) -> Head:
        """Return the head of the history."""
        return self._chain.head()

    def contains(self, head: Head) -> bool:
        """Whether the history once ended with that head."""
        return self._chain.contains(head)

    def verify(self) -> None:
        """Check the whole history; the ledger's lines show whether its newest lines were cut off.

        Raises:
            IntegrityError: Naming the first invalid line.
        """
        self._chain.verify()


def _condition(aggregator: str | None, release: str | None, event: str | None) -> tuple[str, tuple[str, ...]]:
    wanted = {"aggregator": aggregator, "release": release, "event": event}
    named = {column: value for column, value in wanted.items() if value is not None}
    return " AND ".join(f"{column} = ?" for column in named), tuple(named.values())


def _line(row: sqlite3.Row) -> Line:
    try:
        details = json.loads(row["details"])
    except ValueError:
        # A changed line is still shown; `verify` reports it.
        details = {}
    texts = {column: row[column] for column in ("sequence", *_COLUMNS, "hash")}
    return Line(**{**texts, "details": details})


_STAYS = frozenset({"source", "data", "forecast", "left_out"})
"""Names of details that do not leave owner.db."""


class AuditFeed:
    """The source of audit records for `common.daemon.delivery.Delivery`."""

    def __init__(self, db: OwnerDatabase, history: History, owner: str) -> None:
        self._db, self._history, self._owner = db, history, owner

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return lines of the history that come after a sequence number, oldest first."""
        about = {"log": "history", "owner": self._owner}
        return [
            (line.sequence, {**about, **asdict(line), "details": _without(line.details)})
            for line in self._history.after(after, most)
        ]

    def position(self, sink: str) -> int:
        """Return the sequence number up to which a sink has received the history; 0 for a new one."""
        rows = self._db.rows("SELECT sequence FROM audit_sinks WHERE sink = ?", (sink,))
        return int(rows[0]["sequence"]) if rows else 0

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Store the sequence number up to which a sink has received the history."""
        with self._db.transaction() as tx:
            tx.execute("INSERT OR REPLACE INTO audit_sinks (sink, sequence) VALUES (?, ?)", (sink, sequence))


def _without(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details without the fields that stay in owner.db, at any depth."""
    return {
        name: _without(value) if isinstance(value, Mapping) else value
        for name, value in details.items()
        if name not in _STAYS
    }
