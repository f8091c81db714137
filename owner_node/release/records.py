"""The state of an owner node: the parts of owner.db and the outbox, opened together."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from common.model.fragment import KEPT_AFTER_END
from common.model.plan import Plan, is_trial
from owner_node.ledger.ledger import Ledger
from owner_node.release.approvals import Approvals
from owner_node.release.attempts import Attempts
from owner_node.state.database import Clock, OwnerDatabase
from owner_node.state.history import History
from owner_node.state.outbox import Outbox
from owner_node.state.own_keys import OwnKeys
from owner_node.state.presence import DaemonPresence
from owner_node.state.rounds import Rounds
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions

NOT_KEPT = timedelta(0)
DELETED = "messages-deleted"
"""The event of the history that says when what rounds are computed again from was deleted."""
_NOT_PUBLISHED = (SessionState.ENDED, SessionState.REFUSED)


@dataclass(frozen=True, slots=True)
class Records:
    """The owner's state; changes that belong together are written in one transaction of `db`."""

    db: OwnerDatabase
    ledger: Ledger
    """Charges to budgets."""
    sessions: Sessions
    """One per release."""
    history: History
    """The audit log."""
    outbox: Outbox
    """Sealed fragments."""
    rounds: Rounds
    """Answers to rounds of synthetic releases."""
    presence: DaemonPresence
    """What the daemon records about itself."""
    own_keys: OwnKeys
    """Keys that this owner signed with, and its key of column digests."""
    approvals: Approvals
    attempts: Attempts
    """Linkings without a charge."""
    clock: Clock
    kept_for_audit: timedelta = NOT_KEPT
    """How long after publication what rounds are computed again from is kept, if no plan asks for more."""

    @classmethod
    def open(cls, state_dir: Path, clock: Clock, kept_for_audit: timedelta = NOT_KEPT) -> Self:
        """Open the state directory; it is created if absent."""
        db = OwnerDatabase(state_dir)
        db.forget_removed()
        history, sessions = History(db, clock), Sessions(db, clock)
        return cls(
            db,
            Ledger(db, clock),
            sessions,
            history,
            Outbox(state_dir),
            Rounds(db),
            DaemonPresence(db, clock),
            OwnKeys(db, clock),
            Approvals(history, clock),
            Attempts(sessions, clock),
            clock,
            kept_for_audit,
        )

    def clean_outbox(self) -> None:
        """Delete files that no session will send: interrupted writes, and fragments of releases that ended.

        Call it only while the daemon's lock is held: a fragment that is being written looks like a leftover.
        """
        for path in self.outbox.leftovers():
            path.unlink(missing_ok=True)
        self.drop_fragments()

    def drop_fragments(self) -> None:
        """Delete what releases that ended do not need: fragments, and keys and answers of rounds.

        Sealed ones are kept for a while, so that a release that ended unpublished can go on.
        """
        over = [key for key in self.rounds.held() if self._is_over(*key)]
        if over:
            with self.db.transaction() as tx:
                self.rounds.forget(tx, over)
                for aggregator, release in filter(lambda names: self.is_published(*names), over):
                    self.sessions.forget_key(tx, aggregator, release)
                    self.history.record(tx, aggregator=aggregator, release=release, event=DELETED)
            self.db.forget_removed()
        # A process may have died in between, and a recovery forgets rounds alone.
        self.outbox.keep_parcels(self.rounds.held())
        for aggregator, release in self.outbox.sealed():
            session = self.sessions.get(aggregator, release)
            if session is None or (session.state in _NOT_PUBLISHED and not self._may_go_on(session)):
                self.outbox.destroy(aggregator, release)

    def audit_time(self, plan: Plan) -> timedelta:
        """Return how long after publication of a release what its rounds are computed again from is kept."""
        if not plan.product.rules.in_rounds or is_trial(plan.release):
            return NOT_KEPT
        return max(self.kept_for_audit, timedelta(days=plan.audit_days))

    def is_published(self, aggregator: str, release: str) -> bool:
        """Return True if a release was published."""
        session = self.sessions.get(aggregator, release)
        return session is not None and session.state is SessionState.PUBLISHED

    def _is_over(self, aggregator: str, release: str) -> bool:
        """Whether nobody can ask for answers to the rounds of a release any more, or how they came about."""
        session = self.sessions.get(aggregator, release)
        if session is None:
            return True
        if session.state is SessionState.PUBLISHED:
            # Without an audit nothing is kept, also where the clock was set back since.
            plan, since = self.sessions.plan(session), self.clock() - datetime.fromisoformat(session.updated)
            kept = NOT_KEPT if plan is None else self.audit_time(Plan.from_bytes(plan))
            return not kept or since >= kept
        return session.state in _NOT_PUBLISHED and not self._may_go_on(session)

    def _may_go_on(self, session: Session) -> bool:
        ended = datetime.fromisoformat(session.updated)
        sealed = session.fragment_digest or self.rounds.may_continue(session.aggregator, session.release)
        return bool(sealed) and self.clock() - ended < KEPT_AFTER_END
