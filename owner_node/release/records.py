"""What an owner node keeps: the parts of owner.db and the outbox, opened together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from owner_node.ledger.ledger import Ledger
from owner_node.release.approvals import Approvals
from owner_node.release.attempts import Attempts
from owner_node.state.database import Clock, Database
from owner_node.state.history import History
from owner_node.state.outbox import Outbox
from owner_node.state.own_keys import OwnKeys
from owner_node.state.presence import Presence
from owner_node.state.session import State
from owner_node.state.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Records:
    """The owner's state; what belongs together is written in one transaction of `db`."""

    db: Database
    """owner.db."""
    ledger: Ledger
    """Charges to budgets."""
    sessions: Sessions
    """One per release."""
    history: History
    """The audit log."""
    outbox: Outbox
    """Sealed fragments."""
    presence: Presence
    """What the daemon says about itself."""
    own_keys: OwnKeys
    """Keys that this owner signed with, and the one it digests columns under."""
    approvals: Approvals
    """What people agreed to."""
    attempts: Attempts
    """Answers about the data that nothing was charged for."""

    @classmethod
    def open(cls, state_dir: Path, clock: Clock) -> Self:
        """Open the state directory, or make it."""
        db = Database(state_dir)
        history = History(db, clock)
        return cls(
            db,
            Ledger(db, clock),
            Sessions(db, clock),
            history,
            Outbox(state_dir),
            Presence(db, clock),
            OwnKeys(db, clock),
            Approvals(history, clock),
            Attempts(history, clock),
        )

    def clean_outbox(self) -> None:
        """Delete what no session will send: interrupted writes, and fragments of releases that ended.

        Only while the daemon's lock is held; a fragment that is being written looks like a leftover.
        """
        for path in self.outbox.leftovers():
            path.unlink(missing_ok=True)
        for aggregator, release in self.outbox.sealed():
            session = self.sessions.get(aggregator, release)
            if session is None or session.state in (State.ENDED, State.REFUSED):
                self.outbox.destroy(aggregator, release)
