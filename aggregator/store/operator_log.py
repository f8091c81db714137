"""Append-only log of the operators' actions: who, when, with which arguments, and with which outcome.

An action that changes a release is written in one transaction with its event. An action that was refused, or
changed nothing, is written by itself.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import Any

from aggregator.store.database import AggregatorDatabase

USER_KEY = "tessera-user-bin"
"""Metadata of a control call that names the operator. Anyone who reaches the socket has the rights of the
daemon's user: this distinguishes operators, it does not authenticate them."""
_LONGEST_ARGUMENTS = 8192
"""Most characters of arguments; of longer ones, only the length is kept. Many entries fit one message."""
_LONGEST_TEXT = 1000
DONE = "done"
UNCHANGED = "nothing to change"
"""Outcome of a repeated request."""


@dataclass(frozen=True, slots=True)
class Action:
    """One request of an operator."""

    at: int
    """Unix time."""
    user: str
    """The operator, as the command line stated it."""
    name: str
    """The action: "release", "confirm", "cancel", "delete", "enroll" with the act, "signed-in"."""
    release: str
    """Release id; empty if it is about none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments, JSON-serialisable."""
    outcome: str = DONE
    """The outcome: done, nothing to change, or the code and message of the error."""

    def to_document(self) -> dict[str, Any]:
        """Return the form of `history --json` and of audit records."""
        return {
            "time": datetime.fromtimestamp(self.at, UTC).isoformat(),
            "user": self.user,
            "action": self.name,
            "release": self.release or None,
            "arguments": dict(self.arguments),
            "outcome": self.outcome,
        }


class OperatorLog:
    """The log of operators' actions; an `AuditSource` for `common.daemon.delivery`."""

    def __init__(self, db: AggregatorDatabase) -> None:
        self._db = db
        self._listener: Callable[[], None] = lambda: None

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a function to call after every entry."""
        self._listener = listener

    def insert(self, tx: Connection, action: Action) -> None:
        """Write an entry within a transaction; call `announce` after it."""
        arguments = json.dumps(action.arguments, ensure_ascii=False, sort_keys=True)
        if len(arguments) > _LONGEST_ARGUMENTS:
            arguments = json.dumps({"characters": len(arguments)})
        tx.execute(
            "INSERT INTO operator_log (time, user, action, release, details, outcome) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                *(action.at, action.user, action.name, action.release[:_LONGEST_TEXT], arguments),
                action.outcome[:_LONGEST_TEXT],
            ),
        )

    def announce(self) -> None:
        """Notify the listener of new entries."""
        self._listener()

    def note(self, action: Action) -> None:
        """Write an entry by itself; it is on the disk when this returns."""
        with self._db.transaction() as tx:
            self.insert(tx, action)
        self.announce()

    def actions(self, after: int = 0, most: int = -1, release: str = "") -> list[tuple[int, Action]]:
        """Return entries with their numbers, oldest first."""
        rows = self._db.rows(
            "SELECT sequence, time, user, action, release, details, outcome FROM operator_log "
            "WHERE sequence > ? AND (? = '' OR release = ?) ORDER BY sequence LIMIT ?",
            (after, release, release, most),
        )
        with self._db.decoding():
            return [
                (sequence, Action(at, user, name, about, json.loads(details or "{}"), outcome))
                for sequence, at, user, name, about, details, outcome in rows
            ]

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return entries as audit records (`common.daemon.delivery.AuditSource`)."""
        return [
            (sequence, {"sequence": sequence, **action.to_document()})
            for sequence, action in self.actions(after, most)
        ]

    def position(self, sink: str) -> int:
        """Return the number of the entry up to which an audit sink has everything."""
        rows = self._db.rows("SELECT sequence FROM audit_sinks WHERE name = ?", (sink,))
        return int(rows[0][0]) if rows else 0

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Store the number of the entry up to which an audit sink has everything."""
        with self._db.transaction() as tx:
            tx.execute("INSERT OR REPLACE INTO audit_sinks VALUES (?, ?)", (sink, sequence))
