"""The sessions with one aggregator: the steps of a release look them up and record them in one way."""

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from common.errors import ConfigurationError, ProtocolError
from common.model.plan import Plan
from common.model.privacy import plain
from common.model.task import Assignment
from common.progress import Progress
from owner_node.config import OwnerConfig
from owner_node.linking import linkage_key
from owner_node.linking.tokens import ReleaseKey, release_key
from owner_node.release.records import Records
from owner_node.state.answers import Failure, RefusedBeforeError
from owner_node.state.database import Transaction
from owner_node.state.session import FINAL, UNDECIDED, SessionEvent, SessionState
from owner_node.state.sessions import Session

if TYPE_CHECKING:
    from owner_node.release.masked import Masked


class _Readable(Protocol):
    @classmethod
    def from_bytes(cls, data: bytes) -> Any: ...


_R = TypeVar("_R", bound=_Readable)


def read(kind: type[_R], data: bytes) -> _R:
    """Decode a document that the aggregator sent.

    Raises:
        ProtocolError: If the bytes are not its canonical form.
    """
    try:
        document: _R = kind.from_bytes(data)
    except ValueError as error:
        raise ProtocolError(str(error), "both sides must run compatible versions") from None
    return document


@dataclass(frozen=True, slots=True)
class Cases:
    """The configuration and state that all work for one aggregator shares."""

    config: OwnerConfig
    aggregator: str
    records: Records
    """The owner's state."""

    def progress(self, release: str) -> Progress:
        """Return what shows how far the work for a release is.

        It stays at this owner. Of masking alone, the aggregator gets the share that is done and an estimate.
        """
        return self.records.presence.progress(self.aggregator, release)

    def product(self, _plan: Plan) -> "Masked":
        """Return what makes the product of a plan; the libraries of masking are loaded with it."""
        from owner_node.release.masked import MASKED

        return MASKED

    def open(self, release: str, plan_digest: str | None = None) -> Session:
        """Return a session that has not ended.

        Args:
            release: Release id.
            plan_digest: Digest of the plan that it must have; None before there is one.

        Raises:
            ProtocolError: If there is none, or it has another plan.
            RefusedBeforeError: If this owner has refused the release.
        """
        session = self.records.sessions.get(self.aggregator, release)
        if session is not None and session.refusal:
            raise RefusedBeforeError(Failure.of(session.refusal))
        if session is None or session.state in FINAL:
            raise ProtocolError("there is no open session for this release", "invite this owner first")
        if plan_digest is not None and session.plan_digest != plan_digest:
            raise ProtocolError("the session has another plan")
        return session

    def resume(self, release: str, plan_digest: str) -> None:
        """Reopen a session that ended after its fragment was sealed; a no-op for any other.

        The sealed fragment stays the only answer to its plan, so nothing is drawn or charged again. Once the
        fragment was deleted (`Records.clean_outbox`), the session stays ended. So does one without a sealed
        fragment: after an older state was put back, another fragment may have left under the same charge.
        """
        records = self.records
        session = records.sessions.get(self.aggregator, release)
        if session is None or session.state is not SessionState.ENDED or session.plan_digest != plan_digest:
            return
        path = records.outbox.path(self.aggregator, release)
        spent = records.ledger.is_spent(self.aggregator, release, plan_digest)
        if not (session.fragment_digest and path.exists() and spent):
            return
        with records.db.transaction() as tx:
            session = records.sessions.advance(tx, session, SessionEvent.RESUME, refusal="", reason="")
            session = records.sessions.advance(tx, session, SessionEvent.SEAL)
            self.note(tx, session, "resumed")

    def accepted(self, release: str, plan_digest: str) -> tuple[Session, Plan, Assignment]:
        """Return a session with its accepted plan and this owner's assignment.

        Raises:
            ProtocolError: If no plan, or another one, was accepted.
        """
        session = self.open(release, plan_digest)
        known = None if session.state in UNDECIDED else self.records.sessions.plan(session)
        if known is None:
            raise ProtocolError("no plan was accepted for this release")
        plan = Plan.from_bytes(known)
        return session, plan, plan.assignment_of(self.config.owner.id)

    def release_key(self, plan: Plan, session: Session) -> ReleaseKey | None:
        """Return the key of a release's tokens; None where the plan has none.

        An accepted release keeps the key that it was accepted with, even if the linkage key is replaced.

        Raises:
            ConfigurationError: If this owner has no linkage key, or another one than at consent.
        """
        if not plan.linking.tokens:
            return None
        if session.release_key is not None:
            return ReleaseKey(session.release_key, session.key_generation)
        found = linkage_key.load(self.config.owner.state_dir)
        key = ReleaseKey(release_key(found.key, plan.release, plan.digest), found.generation)
        if session.key_check not in ("", key.check):
            raise ConfigurationError(
                f"the linkage key was replaced (generation {found.generation} now) after release "
                f"{plan.release} was accepted",
                hint="start the release again once all owners have the new key",
            )
        return key

    def note(
        self, tx: Transaction, session: Session, event: str, *, epsilon: Decimal | None = None, **details: Any
    ) -> None:
        """Record an event of a session in the history."""
        self.records.history.record(
            tx, aggregator=self.aggregator, release=session.release, event=event, purpose=session.purpose,
            epsilon="" if epsilon is None else format(plain(epsilon), "f"),
            plan_digest=session.plan_digest, details=details,
        )  # fmt: skip

    def give_back(self, tx: Transaction, session: Session) -> None:
        """Return a session's reservation, if it has one that was not spent."""
        key = (self.aggregator, session.release, session.plan_digest)
        if session.plan_digest and self.records.ledger.give_back(tx, *key):
            self.note(tx, session, "returned")
