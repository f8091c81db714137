"""A person looks at plans that wait, approves and refuses them: in owner.db, beside the daemon."""

import os
import pwd
from datetime import timedelta
from pathlib import Path

from common.errors import ConflictError, UsageError
from owner_node.release.approvals import Approval, Approvals, Person
from owner_node.state.answers import PERSON
from owner_node.state.database import Clock, Database, Transaction
from owner_node.state.history import History
from owner_node.state.session import UNDECIDED, Event, State
from owner_node.state.sessions import Session, Sessions

_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1
"""The login uid of what nobody logged in for, such as a daemon, and of containers."""
SHORTEST_DIGEST = 12
"""How many digits of a plan digest name it for a person."""


def this_person() -> Person:
    """Return who runs this process, as the operating system knows them."""
    name, login = _user_name(os.getuid()), _login_name()
    return Person(name, os.environ.get("SUDO_USER", ""), "" if login == name else login)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _login_name() -> str:
    """Return who logged in to what this process descends from: sudo keeps it, and users cannot set it."""
    try:
        uid = int(_LOGIN_UID.read_text())
    except (OSError, ValueError):
        return ""
    return "" if uid == _NO_LOGIN else _user_name(uid)


class Decisions:
    """The plans of an owner, as a person looks at them.

    Args:
        db: The owner's database.
        clock: Tells the time.
    """

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._history, self._sessions = History(db, clock), Sessions(db, clock)
        self.approvals = Approvals(self._history, clock)
        """What people agreed to."""

    def waiting(self) -> tuple[Session, ...]:
        """Return the sessions that wait for a person, oldest first."""
        return tuple(each for each in self._sessions.all() if each.state is State.AWAITING_APPROVAL)

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
        found = [
            each
            for each in self._sessions.all()
            if each.release == release and aggregator in ("", each.aggregator)
        ]
        if not found:
            raise UsageError(
                f"there is no release {name!r} here",
                "owner-node requests --all lists them",
                {"release": name},
            )
        if len(found) > 1:
            names = [f"{each.aggregator}/{each.release}" for each in found]
            raise UsageError(
                f"several aggregators have a release {release!r}",
                f"name one of {', '.join(names)}",
                {"releases": names},
            )
        return found[0]

    def asked_by(self, session: Session) -> str:
        """Return the rule by which a person is asked about a session; empty if nobody is."""
        lines = self._history.entries(session.aggregator, session.release)
        return next((line.rule for line in lines if line.event == "awaiting-approval"), "")

    def approve(self, name: str, digest: str, person: Person, valid: timedelta) -> tuple[Session, Approval]:
        """Agree to the plan that a session waits with.

        Args:
            name: As `find` takes it.
            digest: Of the plan that the person has seen, or its beginning; empty for the one that waits.
            person: Who agrees.
            valid: How long that holds.

        Raises:
            UsageError: If nothing waits there.
            ConflictError: If another plan waits there.
        """
        with self._db.transaction() as tx:
            session = self.awaiting(name, digest)
            approval = self.approvals.approve(tx, session, person, valid, self._epsilon(session))
            return session, approval

    def refuse(self, name: str, digest: str, person: Person, reason: str) -> Session:
        """Refuse the plan that a session waits with. The aggregator hears that, and not why.

        Args:
            name: As `find` takes it.
            digest: Of the plan that the person has seen, or its beginning; empty for the one that waits.
            person: Who refuses.
            reason: Why, for this owner's history.

        Raises:
            UsageError: If nothing waits there.
            ConflictError: If another plan waits there.
        """
        with self._db.transaction() as tx:
            session = self.awaiting(name, digest)
            self._note_refusal(tx, session, person, reason)
            text = f"refused by {person.name}: {reason}"
            return self._sessions.advance(tx, session, Event.REFUSE, reason=text, refusal=PERSON)

    def _epsilon(self, session: Session) -> str:
        """Return the epsilon that a person was asked about, as the history has it."""
        lines = self._history.entries(session.aggregator, session.release)
        return next((line.epsilon for line in lines if line.event == "awaiting-approval"), "")

    def _note_refusal(self, tx: Transaction, session: Session, person: Person, reason: str) -> None:
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event="refused", decision="refuse",
            rule=f"refused by {person.name}: {reason}", purpose=session.purpose,
            epsilon=self._epsilon(session), plan_digest=session.plan_digest, details=person.to_document(),
        )  # fmt: skip

    def awaiting(self, name: str, digest: str = "") -> Session:
        """Return the session that waits for a person under a name.

        Args:
            name: As `find` takes it.
            digest: Of the plan that the person has seen, or its beginning; empty for the one that waits.

        Raises:
            UsageError: If nothing waits there.
            ConflictError: If another plan waits there.
        """
        session = self.find(name)
        known = {"release": session.release, "aggregator": session.aggregator, "state": str(session.state)}
        if session.state is not State.AWAITING_APPROVAL:
            undecided = session.state in UNDECIDED
            text = "its plan has not been judged yet" if undecided else f"it is {session.state}"
            raise UsageError(
                f"release {session.release} of {session.aggregator} waits for nobody: {text}",
                "owner-node requests lists what waits",
                known,
            )
        if digest and not (len(digest) >= SHORTEST_DIGEST and session.plan_digest.startswith(digest.lower())):
            raise ConflictError(
                f"release {session.release} of {session.aggregator} waits with another plan",
                f"look at it, owner-node show {session.aggregator}/{session.release}, and name its digest",
                {**known, "plan_digest": session.plan_digest},
            )
        return session
