"""Approvals by a person: lines of the history, each for one plan digest and a limited time.

The history is append-only and chained, so a change of who approved what, and when, is detected. An approval
expires by the clock, and also by the history: every later line was written later, whatever the clock says
now. A clock that is set back therefore does not extend an approval that had expired when a later line was
written.
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
"""How far the clock may be behind an approval; beyond that it was set back and the approval is invalid."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person who decides, as the operating system identifies them."""

    name: str
    """User name."""
    behind: str = ""
    """User who ran sudo, as the environment (SUDO_USER) states it; anyone can set that."""
    login: str = ""
    """User who logged in (the kernel's login uid), where it is another one; empty if unknown."""

    def to_document(self) -> dict[str, str]:
        """Return the fields that the history records."""
        others = {"login_user": self.login, "sudo_user_stated": self.behind}
        return {"by": self.name} | {key: value for key, value in others.items() if value}


@dataclass(frozen=True, slots=True)
class Approval:
    """A person agreed to one plan."""

    plan_digest: str
    by: str
    """User name of the person."""
    person: str
    """What tells persons apart: the user who logged in, where the kernel knows it, else the user name."""
    given: datetime
    until: datetime
    line: int
    """Its line in the history."""


class Approvals:
    """The approvals of an owner.

    Args:
        history: Keeps them.
        clock: Returns the time.
    """

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock

    def approve(
        self, tx: Transaction, session: Session, person: Person, valid: timedelta, epsilon: str = ""
    ) -> Approval:
        """Record that a person approves a session's plan; a later approval replaces this one.

        Args:
            tx: The transaction.
            session: The session; its plan is known.
            person: The person who approves.
            valid: How long the approval holds.
            epsilon: The epsilon that the plan requests of this owner, for the record.
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
            raise InternalError("an approval that was just recorded is missing")
        return _approval(found)

    def of(self, session: Session) -> tuple[Approval, ...]:
        """Return the newest approval of every person for a session's plan, valid or not, oldest first."""
        newest = {each.person: each for each in map(_approval, self._given(session))}
        return tuple(sorted(newest.values(), key=lambda each: each.line))

    def newest(self, session: Session) -> Approval | None:
        """Return the newest approval of a session's plan, whether it still holds or not."""
        line = self._newest(session)
        return None if line is None else _approval(line)

    def holds(self, approval: Approval) -> bool:
        """Whether an approval has not expired."""
        now, seen = self._clock(), self._history.latest_after(approval.line)
        if now < approval.given - _SET_BACK:
            return False
        return (now if seen is None else max(now, seen)) < approval.until

    def held(self, session: Session) -> tuple[Approval, ...]:
        """Return the approvals of a session's plan that hold now, one for each person, oldest first."""
        return tuple(each for each in self.of(session) if self.holds(each))

    def note_expired(self, tx: Transaction, session: Session) -> bool:
        """Record, once for each, that approvals of a session expired before they were used.

        Returns:
            Whether one was recorded now.
        """
        lines = self._history.entries(session.aggregator, session.release)
        noted = {line.details.get("approval") for line in lines if line.event == EXPIRED}
        expired = [each for each in self.of(session) if str(each.line) not in noted and not self.holds(each)]
        for each in expired:
            self._history.record(
                tx, aggregator=session.aggregator, release=session.release, event=EXPIRED,
                purpose=session.purpose, plan_digest=session.plan_digest,
                details={"by": each.by, "until": each.until.isoformat(), "approval": str(each.line)},
            )  # fmt: skip
        return bool(expired)

    def _newest(self, session: Session) -> Line | None:
        given = self._given(session)
        return given[-1] if given else None

    def _given(self, session: Session) -> list[Line]:
        if not session.plan_digest:
            return []
        # The person saw the forecast for these data. If they changed, the approval was for other data.
        approved = (APPROVED, session.plan_digest, session.source_digest)
        lines = self._history.entries(session.aggregator, session.release)
        return [
            each
            for each in lines
            if (each.event, each.plan_digest, each.details.get("source", "")) == approved
        ]


def _approval(line: Line) -> Approval:
    given = datetime.fromisoformat(line.time)
    # A line that was changed outside this program may lack its end: then it has expired.
    until = datetime.fromisoformat(line.details["until"]) if "until" in line.details else given
    by = str(line.details.get("by", ""))
    person = str(line.details.get("login_user", by))
    return Approval(line.plan_digest, by, person, given, until, line.sequence)
