"""What a person decided about a plan: lines of the history, for one plan digest and for a limited time.

The history is append-only and chained, so who approved what, and when, cannot change unseen. An approval
holds until its own end by the clock, and also by the history: every line after it was written later, whatever
the clock says now, so a clock that is set back extends nothing that the history has seen the end of.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from common.errors import InternalError
from owner_node.state.database import Clock, Transaction
from owner_node.state.history import History, Line
from owner_node.state.sessions import Session

APPROVED = "approved"
EXPIRED = "approval-expired"
_SET_BACK = timedelta(minutes=1)
"""How far behind an approval the clock may be; more is a clock that was set back, and no time to go by."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who decides, as the operating system knows them."""

    name: str
    """User name."""
    behind: str = ""
    """Who became that user by sudo, as the environment (SUDO_USER) states it; anybody can set that."""
    login: str = ""
    """Who logged in, as the kernel knows it (the login uid), where that is another user; empty if unknown."""

    def to_document(self) -> dict[str, str]:
        """Return what the history keeps."""
        others = {"login_user": self.login, "sudo_user_stated": self.behind}
        return {"by": self.name} | {key: value for key, value in others.items() if value}


@dataclass(frozen=True, slots=True)
class Approval:
    """A person agreed to one plan."""

    plan_digest: str
    """The plan, and no other."""
    by: str
    """User name of the person."""
    given: datetime
    """When."""
    until: datetime
    """When it ends."""
    line: int
    """Its line in the history."""


class Approvals:
    """The approvals of an owner.

    Args:
        history: Keeps them.
        clock: Tells the time.
    """

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock

    def approve(
        self, tx: Transaction, session: Session, person: Person, valid: timedelta, epsilon: str = ""
    ) -> Approval:
        """Note that a person agrees to a session's plan; a later approval of it replaces this one.

        Args:
            tx: The transaction.
            session: The session; its plan is known.
            person: Who agrees.
            valid: How long the approval holds.
            epsilon: What the plan asks of this owner, for the record.
        """
        until = self._clock() + valid
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=APPROVED, decision="approve",
            purpose=session.purpose, epsilon=epsilon, plan_digest=session.plan_digest,
            details={
                **person.to_document(), "until": until.isoformat(), "source": session.source_digest
            },
        )  # fmt: skip
        found = self._newest(session)
        if found is None:
            raise InternalError("an approval that was just noted is not there")
        return _approval(found)

    def newest(self, session: Session) -> Approval | None:
        """Return the newest approval of a session's plan, whether it still holds or not."""
        line = self._newest(session)
        return None if line is None else _approval(line)

    def holds(self, approval: Approval) -> bool:
        """Whether an approval has not ended yet."""
        now, seen = self._clock(), self._history.latest_after(approval.line)
        if now < approval.given - _SET_BACK:
            return False
        return (now if seen is None else max(now, seen)) < approval.until

    def valid(self, session: Session) -> Approval | None:
        """Return the approval of a session's plan that holds now, or None."""
        found = self.newest(session)
        return found if found is not None and self.holds(found) else None

    def note_expired(self, tx: Transaction, session: Session) -> bool:
        """Note, once, that a session's approval ended before it was used.

        Returns:
            Whether that is new.
        """
        found = self.newest(session)
        if found is None or self.holds(found):
            return False
        lines = self._history.entries(session.aggregator, session.release)
        if any(line.event == EXPIRED and line.sequence > found.line for line in lines):
            return False
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=EXPIRED,
            purpose=session.purpose, plan_digest=session.plan_digest,
            details={"by": found.by, "until": found.until.isoformat()},
        )  # fmt: skip
        return True

    def _newest(self, session: Session) -> Line | None:
        lines = self._history.entries(session.aggregator, session.release)
        # A person saw what is expected of these data: if they changed since, the approval was of others.
        approved = (APPROVED, session.plan_digest, session.source_digest)
        given = [
            each
            for each in lines
            if (each.event, each.plan_digest, each.details.get("source", "")) == approved
        ]
        return given[-1] if given and session.plan_digest else None


def _approval(line: Line) -> Approval:
    given = datetime.fromisoformat(line.time)
    # A line that was changed outside this program may lack its end: then it has none left.
    until = datetime.fromisoformat(line.details["until"]) if "until" in line.details else given
    return Approval(line.plan_digest, str(line.details.get("by", "")), given, until, line.sequence)
