"""Approvals by a person: lines of the history, each for one plan digest and a limited time.

The history is append-only and chained, so a change of who approved what, and when, is detected. An approval
expires by the clock, and also by the history: every later line was written later, whatever the clock says
now. A clock that is set back therefore does not extend an approval that had expired when a later line was
written.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from common.daemon.console import OidcSection, comparable
from common.errors import InternalError
from owner_node.state.database import Clock, Transaction
from owner_node.state.history import History, Line
from owner_node.state.sessions import Session

APPROVED = "approved"
EXPIRED = "approval-expired"
ACCEPTED = "accepted"
"""A line with the numbers of the approvals that were used (`approval`)."""
_SET_BACK = timedelta(minutes=1)
"""How far the clock may be behind an approval; beyond that it was set back and the approval is invalid."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person who decides: a user of this machine, or a subject of an OpenID Connect provider."""

    name: str
    """User who logged in; or the subject or e-mail address that the configuration of the console names."""
    subject: str = ""
    """Provider and its subject; empty for a user of this machine."""

    def to_document(self) -> dict[str, str]:
        """Return the fields that the history records."""
        return {"by": self.name} | ({"subject": self.subject} if self.subject else {})


@dataclass(frozen=True, slots=True)
class Approval:
    """A person agreed to one plan."""

    plan_digest: str
    by: str
    subject: str
    """Provider and its subject; empty for a user of this machine."""
    given: datetime
    until: datetime
    line: int
    """Its line in the history."""


def appraisal_of(session: Session) -> dict[str, Any]:
    """Return what was found about a session's data for the history, since a person decides by it."""
    if not session.forecast:
        return {}
    forecast = json.loads(session.forecast)
    return {"source": session.source_digest, "records": session.n_records, "forecast": forecast}


class Approvals:
    """The approvals of an owner."""

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock

    def approve(
        self, tx: Transaction, session: Session, person: Person, valid: timedelta, epsilon: str = ""
    ) -> Approval:
        """Record that a person approves a session's plan; a later approval replaces this one.

        Args:
            session: The session; its plan is known.
            valid: How long the approval holds.
            epsilon: The epsilon that the plan requests of this owner, for the record.
        """
        until = self._clock() + valid
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=APPROVED, decision="approve",
            purpose=session.purpose, epsilon=epsilon, plan_digest=session.plan_digest,
            details={
                **person.to_document(), "until": until.isoformat(), **appraisal_of(session),
                "source": session.source_digest,
            },
        )  # fmt: skip
        line = self._newest(session)
        if line is None:
            raise InternalError("an approval that was just recorded is missing")
        return _approval(line)

    def of(self, session: Session) -> tuple[Approval, ...]:
        """Return the newest approval of every person for a session's plan, valid or not, oldest first."""
        return _newest(map(_approval, self._given(session)))

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

    def held(self, session: Session, provider: OidcSection | None) -> tuple[Approval, ...]:
        """Return the approvals of a session's plan that hold now, one for each person, oldest first.

        A user of this machine may be the same human being as a subject of the provider. So approvals of the
        two kinds are not added up: those of the kind that has more count.

        Args:
            provider: Who may decide at a provider now; None if nobody signs in at one. An approval of
                anyone who was removed from it does not count.
        """
        given = [_approval(line) for line in self._given(session)]
        signed_in = [
            approval
            for approval in given
            if approval.subject and provider is not None and provider.decides(approval.by, approval.subject)
        ]
        users = [approval for approval in given if not approval.subject]
        return max((tuple(filter(self.holds, _newest(kind))) for kind in (signed_in, users)), key=len)

    def note_expired(self, tx: Transaction, session: Session) -> bool:
        """Record, once for each, that approvals of a session expired before they were used.

        Returns:
            Whether one was recorded now.
        """
        lines = self._history.entries(session.aggregator, session.release)
        noted = {line.details.get("approval") for line in lines if line.event == EXPIRED}
        expired = [
            approval
            for approval in self.of(session)
            if str(approval.line) not in noted and not self.holds(approval)
        ]
        for approval in expired:
            self._history.record(
                tx, aggregator=session.aggregator, release=session.release, event=EXPIRED,
                purpose=session.purpose, plan_digest=session.plan_digest,
                details={
                    "by": approval.by, "until": approval.until.isoformat(), "approval": str(approval.line)
                },
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
            line
            for line in lines
            if (line.event, line.plan_digest, line.details.get("source", "")) == approved
        ]


def _newest(approvals: Iterable[Approval]) -> tuple[Approval, ...]:
    """Return the newest approval of every person, oldest first.

    A subject is one person. So are all accounts that match one entry of the configuration.
    """
    by_subject = {approval.subject or approval.by: approval for approval in approvals}
    newest = sorted(by_subject.values(), key=attrgetter("line"))
    by_name = {(approval.subject != "", comparable(approval.by)): approval for approval in newest}
    return tuple(sorted(by_name.values(), key=attrgetter("line")))


def _approval(line: Line) -> Approval:
    given, about = datetime.fromisoformat(line.time), line.details
    # A line that was changed outside this program may lack its end: then it has expired.
    until = datetime.fromisoformat(about["until"]) if "until" in about else given
    subject = str(about.get("subject", ""))
    # Version 0.1 wrote the user of the process as `by`, and the user who logged in beside it.
    by = str(about.get("by", "") if subject else about.get("login_user") or about.get("by", ""))
    return Approval(line.plan_digest, by, subject, given, until, line.sequence)
