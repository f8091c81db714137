"""Decisions of a person, recorded in owner.db: on plans and on unspent reservations."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from common.errors import ConflictError, UsageError
from common.files import user_name
from owner_node.ledger.ledger import Ledger
from owner_node.masking.foreseen import Forecast
from owner_node.release.approvals import Approval, Approvals, Person
from owner_node.state.answers import PERSON
from owner_node.state.database import Clock, OwnerDatabase, Transaction
from owner_node.state.history import History
from owner_node.state.session import CHARGED, LONGEST_HOLD, UNDECIDED, SessionEvent, SessionState
from owner_node.state.sessions import Session, Sessions

_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1
"""Login uid of processes without a login session, such as daemons and containers."""
SHORTEST_DIGEST = 12
"""Digits of a plan digest that a person has to give at least."""
LONGEST_REASON = 500
"""Most characters of the reason of a decision."""


def checked_reason(reason: str) -> str:
    """Return the reason of a decision without the space around it.

    Raises:
        UsageError: If it is empty or too long.
    """
    if not 0 < len(reason.strip()) <= LONGEST_REASON:
        raise UsageError(
            f"a reason has 1 to {LONGEST_REASON} characters",
            "say why in a sentence, which is kept in this owner's history: --reason TEXT",
        )
    return reason.strip()


def this_person() -> Person:
    """Return the user who logged in, whom sudo keeps; without a login, as in containers, this process's."""
    try:
        uid = int(_LOGIN_UID.read_text())
    except (OSError, ValueError):
        uid = _NO_LOGIN
    return Person(user_name(os.getuid() if uid == _NO_LOGIN else uid))


class Decisions:
    """The plans of an owner, and a person's decisions about them."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._history, self._sessions = History(db, clock), Sessions(db, clock)
        self.ledger = Ledger(db, clock)
        """The ledger, which decisions about reservations write."""
        self.approvals = Approvals(self._history, clock)

    def waiting(self) -> tuple[Session, ...]:
        """Return the sessions that wait for a person, oldest first."""
        return tuple(
            session for session in self._sessions.live() if session.state is SessionState.AWAITING_APPROVAL
        )

    def all(self) -> tuple[Session, ...]:
        """Return every session, oldest first."""
        return self._sessions.all()

    def find(self, name: str) -> Session:
        """Return the session that a person names.

        Args:
            name: A release id, or AGGREGATOR/ID where two aggregators use the same.

        Raises:
            UsageError: If there is none, or several.
        """
        aggregator, _, release = name.rpartition("/")
        sessions = [
            session
            for session in self._sessions.of_release(release)
            if aggregator in ("", session.aggregator)
        ]
        if not sessions:
            raise UsageError(
                f"there is no release {name!r} here",
                "owner-node requests --all lists the releases",
                {"release": name},
            )
        if len(sessions) > 1:
            names = [f"{session.aggregator}/{session.release}" for session in sessions]
            raise UsageError(
                f"several aggregators have a release {release!r}",
                f"name one of {', '.join(names)}",
                {"releases": names},
            )
        return sessions[0]

    def plan(self, session: Session) -> bytes | None:
        """Return the canonical bytes of a session's plan, as `Sessions.plan` does."""
        return self._sessions.plan(session)

    def attacks(self, session: Session) -> dict[str, Any] | None:
        """Return what attacks found in a session's data, as `Sessions.attacks` does."""
        return self._sessions.attacks(session)

    def summary(self, session: Session) -> dict[str, Any]:
        """Return a session for a list, without its plan: a list may have many."""
        lines = self._history.entries(session.aggregator, session.release)
        asked = [line for line in lines if line.event in ("awaiting-approval", "accepted")]
        approval, deadline = self.approvals.newest(session), session.deadline
        return {
            "aggregator": session.aggregator,
            "release": session.release,
            "state": str(session.state),
            "dataset": session.dataset,
            "purpose": session.purpose,
            "epsilon": session.epsilon or None,
            "charge": asked[-1].details.get("charge") if asked else None,
            "deadline": None if deadline is None else datetime.fromtimestamp(deadline, UTC).isoformat(),
            "plan_digest": session.plan_digest,
            "rule": next((line.rule for line in asked if line.event == "awaiting-approval"), ""),
            "approved_until": None if approval is None else approval.until.isoformat(),
        }

    def asked_by(self, session: Session) -> str:
        """Return the rule that requires a person's decision about a session; empty if none does."""
        lines = self._history.entries(session.aggregator, session.release)
        return next((line.rule for line in lines if line.event == "awaiting-approval"), "")

    def approve(
        self,
        name: str,
        digest: str,
        person: Person,
        valid: timedelta,
        source: str | None = None,
        *,
        anyway: bool = False,
    ) -> tuple[Session, Approval]:
        """Approve the plan of a waiting session.

        Args:
            name: As in `find`.
            digest: Digest of the plan that the person saw, or its beginning; empty for the waiting one.
            source: Digest of the data whose forecast the person saw (`Session.source_digest`); None for the
                present data.
            anyway: Whether the person wants a result that is expected to be worthless.

        Raises:
            UsageError: If the session does not wait for a person, its data were never read by who looked, or
                the result is expected to be worthless.
            ConflictError: If another plan waits there, or the data changed.
        """
        with self._db.transaction() as tx:
            session = self.awaiting(name, digest)
            if not session.source_digest:
                raise UsageError(
                    "the data of this plan could not be read here, so nobody has seen what it means for them",
                    f"owner-node show {name} says why; approve the plan where its data can be read",
                )
            if source not in (None, session.source_digest):
                raise ConflictError(
                    f"the data for release {session.release} of {session.aggregator} changed since the plan "
                    "was shown",
                    "check what the plan means for the present data, then approve",
                    {"release": session.release, "aggregator": session.aggregator},
                )
            if session.forecast:
                Forecast.from_text(session.forecast).check_worth(anyway=anyway)
            approval = self.approvals.approve(tx, session, person, valid, self._epsilon(session))
            return session, approval

    def refuse(self, name: str, digest: str, person: Person, reason: str) -> Session:
        """Refuse the plan of a waiting session. The aggregator receives the refusal without the reason.

        Args:
            name: As in `find`.
            digest: Digest of the plan that the person saw, or its beginning; empty for the waiting one.

        Raises:
            UsageError: If the session does not wait for a person, or the reason is empty or too long.
            ConflictError: If another plan waits there.
        """
        reason = checked_reason(reason)
        with self._db.transaction() as tx:
            session = self.awaiting(name, digest)
            self._note(tx, session, "refused", f"refused by {person.name}: {reason}", person)
            text = f"refused by {person.name}: {reason}"
            return self._sessions.advance(tx, session, SessionEvent.REFUSE, reason=text, refusal=PERSON)

    def held_until(self, session: Session) -> datetime:
        """Return from when on a person may return a session's reservation."""
        longest = datetime.fromisoformat(session.updated) + LONGEST_HOLD
        if session.deadline is None:
            return longest
        return min(datetime.fromtimestamp(session.deadline, UTC), longest)

    def reserved(self, name: str) -> Session:
        """Return the named session, whose reservation a person may return.

        Raises:
            UsageError: If it has none that was not spent, or its deadline has not passed.
        """
        session = self.find(name)
        known = {"release": session.release, "aggregator": session.aggregator, "state": str(session.state)}
        if session.state not in (SessionState.RESERVED, SessionState.LINKED):
            spent = session.state in CHARGED or session.state is SessionState.ENDED
            raise UsageError(
                f"release {session.release} of {session.aggregator} is {session.state}: it has no open "
                "reservation",
                "a spend is never returned; owner-node ledger lists the entries" if spent
                else "owner-node status lists the releases that are open",
                known,
            )  # fmt: skip
        until = self.held_until(session)
        if self._clock() < until:
            raise UsageError(
                f"release {session.release} of {session.aggregator} holds its reservation until "
                f"{until:%Y-%m-%d %H:%M} UTC",
                "wait until then, or ask the aggregator's operator to cancel it",
                {**known, "until": until.isoformat()},
            )
        return session

    def give_back(self, name: str, person: Person, reason: str) -> Session:
        """Return a reservation that was not spent, and end the release here.

        The aggregator receives a refusal without the reason. If it asked to link, that counts as an attempt.

        Raises:
            UsageError: As `reserved`.
        """
        with self._db.transaction() as tx:
            session = self.reserved(name)
            self.ledger.give_back(tx, session.aggregator, session.release, session.plan_digest)
            for event in ("refused", "returned"):
                self._note(tx, session, event, f"returned by {person.name}: {reason}", person)
            text = f"returned by {person.name}: {reason}"
            return self._sessions.advance(tx, session, SessionEvent.REFUSE, reason=text, refusal=PERSON)

    def _epsilon(self, session: Session) -> str:
        """Return the epsilon that the history recorded when the person was asked."""
        lines = self._history.entries(session.aggregator, session.release)
        return next((line.epsilon for line in lines if line.event == "awaiting-approval"), "")

    def _note(self, tx: Transaction, session: Session, event: str, rule: str, person: Person) -> None:
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=event, decision="refuse",
            rule=rule, purpose=session.purpose,
            epsilon=self._epsilon(session), plan_digest=session.plan_digest, details=person.to_document(),
        )  # fmt: skip

    def awaiting(self, name: str, digest: str = "") -> Session:
        """Return the named session, which has to wait for a person.

        Args:
            name: As in `find`.
            digest: Digest of the plan that the person saw, or its beginning; empty for the waiting one.

        Raises:
            UsageError: If the session does not wait for a person, or the digest's beginning is too short.
            ConflictError: If another plan waits there.
        """
        session = self.find(name)
        known = {"release": session.release, "aggregator": session.aggregator, "state": str(session.state)}
        if session.state is not SessionState.AWAITING_APPROVAL:
            undecided = session.state in UNDECIDED
            text = "its plan has not been judged yet" if undecided else f"it is {session.state}"
            raise UsageError(
                f"release {session.release} of {session.aggregator} does not wait for a decision: {text}",
                "owner-node requests lists the releases that wait",
                known,
            )
        if digest and len(digest) < SHORTEST_DIGEST:
            raise UsageError(
                f"--digest {digest} is too short to name one plan",
                f"give at least {SHORTEST_DIGEST} digits of the digest that owner-node show prints",
                known,
            )
        if digest and not session.plan_digest.startswith(digest.lower()):
            raise ConflictError(
                f"release {session.release} of {session.aggregator} waits with another plan",
                f"look at it, owner-node show {session.aggregator}/{session.release}, and name its digest",
                {**known, "plan_digest": session.plan_digest},
            )
        return session
