"""Approvals by a person: lines of the history, each for one plan digest and a limited time.

The history is append-only and chained, so a change of who approved what, and when, is detected. An approval
expires by the clock, and also by the history: every later line was written later, whatever the clock says
now. A clock that is set back therefore does not extend an approval that had expired when a later line was
written.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    """The person who decides, as the operating system or an OpenID Connect provider identifies them."""

    name: str
    """User name, or the subject or e-mail address that the configuration of the console names."""
    behind: str = ""
    """User who ran sudo, as the environment (SUDO_USER) states it; anyone can set that."""
    login: str = ""
    """User who logged in (the kernel's login uid), where it is another one; empty if unknown.

    Of a person whom a provider names, the user whom the configuration says to be the same person.
    """
    subject: str = ""
    """Provider and its subject; empty if the operating system identifies the person."""
    stated: str = ""
    """Name that the provider shows; anyone may choose it."""

    def to_document(self) -> dict[str, str]:
        """Return the fields that the history records."""
        others = {
            "login_user": self.login,
            "sudo_user_stated": self.behind,
            "subject": self.subject,
            "name_stated": self.stated,
        }
        return {"by": self.name} | {key: value for key, value in others.items() if value}


@dataclass(frozen=True, slots=True)
class Approval:
    """A person agreed to one plan."""

    plan_digest: str
    by: str
    subject: str
    """Provider and its subject, of a person whom a provider named; else empty."""
    known_as: frozenset[tuple[str, str]]
    """What names the person, with the kind of each name; approvals that share one are of the same person."""
    given: datetime
    until: datetime
    line: int
    """Its line in the history."""


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
                **person.to_document(), "until": until.isoformat(), "source": session.source_digest
            },
        )  # fmt: skip
        line = self._newest(session)
        if line is None:
            raise InternalError("an approval that was just recorded is missing")
        return _approval(line)

    def of(self, session: Session) -> tuple[Approval, ...]:
        """Return the newest approval of every person for a session's plan, valid or not, oldest first."""
        return _newest(_by_person(map(_approval, self._given(session))))

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

        Args:
            provider: Who may decide at a provider now; None if nobody signs in at one. An approval of
                anyone who was removed from it does not count.
        """
        counted = (
            [approval for approval in approvals if not approval.subject or _decides(approval, provider)]
            for approvals in _by_person(map(_approval, self._given(session)))
        )
        return tuple(approval for approval in _newest(counted) if self.holds(approval))

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


def _decides(approval: Approval, provider: OidcSection | None) -> bool:
    return provider is not None and provider.decides(approval.by, approval.subject)


def _by_person(approvals: Iterable[Approval]) -> list[list[Approval]]:
    """Return approvals by person: those that share a name, directly or through others, are of one person."""
    persons: list[list[Approval]] = []
    for newcomer in approvals:
        same = [other for other in persons if any(newcomer.known_as & known.known_as for known in other)]
        persons = [other for other in persons if other not in same]
        persons.append([*(approval for other in same for approval in other), newcomer])
    return persons


def _newest(persons: Iterable[Sequence[Approval]]) -> tuple[Approval, ...]:
    """Return the newest approval of every person who has one, oldest first."""
    line = attrgetter("line")
    return tuple(sorted((max(approvals, key=line) for approvals in persons if approvals), key=line))


def _approval(line: Line) -> Approval:
    given, about = datetime.fromisoformat(line.time), line.details
    # A line that was changed outside this program may lack its end: then it has expired.
    until = datetime.fromisoformat(about["until"]) if "until" in about else given
    by, subject = str(about.get("by", "")), str(about.get("subject", ""))
    return Approval(line.plan_digest, by, subject, _known_as(by, subject, about), given, until, line.sequence)


def _known_as(by: str, subject: str, about: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    login = str(about.get("login_user", ""))
    if subject:
        # One person may have several accounts whose address matches one entry of the configuration.
        names = [("subject", subject), ("entry", comparable(by)), ("user", login)]
    elif login:
        names = [("user", login)]
    else:
        # Without a login uid, such as in a container, all that is known is what sudo stated.
        names = [("user", by), ("user", str(about.get("sudo_user_stated", "")))]
    return frozenset(name for name in names if name[1])
