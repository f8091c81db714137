"""Work with an owner's data: reserved, spent and recorded under one key, each exactly once.

`ReleaseWork` is an owner's part in one release of an aggregator. Work that an owner does for itself
(`owner_node.local.charge`) is charged and recorded in the same way, without an aggregator.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from common.errors import ConfigurationError, ProtocolError, TesseraError
from common.model.plan import Plan
from common.model.products import Product
from common.model.task import Assignment
from common.progress import Progress
from common.trust.signing import Domain, SignerSource
from owner_node.config import DatasetConfig, OwnerConfig, PolicyConfig
from owner_node.consent.judge import Accept
from owner_node.ledger.entry import Part
from owner_node.linking import linkage_key
from owner_node.linking.tokens import ReleaseKey, release_key
from owner_node.release.co_owners import unpinned
from owner_node.release.records import Records
from owner_node.state.answers import Failure, RefusedBeforeError
from owner_node.state.database import Clock, Transaction
from owner_node.state.session import FINAL, UNDECIDED, SessionEvent, SessionState
from owner_node.state.sessions import Session
from owner_node.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Iterable

    from owner_node.ledger.budget_terms import Column
    from owner_node.release.product import OwnerProduct


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


def product_of(plan: Plan) -> "OwnerProduct":
    """Return what makes the product of a plan; the libraries of masking are loaded with it."""
    match plan.product:
        case Product.MASKED:
            from owner_node.release.masked import MASKED

            return MASKED
        case Product.SYNTHETIC:
            from owner_node.release.synthetic import SYNTHETIC

            return SYNTHETIC


@dataclass(frozen=True, slots=True)
class Owner:
    """This owner as one aggregator meets it: what all works for that aggregator share."""

    config: OwnerConfig
    aggregator: str
    records: Records
    """The owner's state."""
    signer: SignerSource
    """The owner's key."""
    trust: Trust
    """Checks signatures of the aggregator."""
    clock: Clock

    @property
    def id(self) -> str:
        """Owner id."""
        return self.config.owner.id

    def work(self, release: str) -> "ReleaseWork | None":
        """Return a release's work, ended or not; None if there never was any."""
        session = self.records.sessions.get(self.aggregator, release)
        return None if session is None else ReleaseWork(self, session)

    def open(self, release: str, plan_digest: str | None = None) -> "ReleaseWork":
        """Return a release's work that has not ended.

        Args:
            plan_digest: Digest of the plan that it must have; None before there is one.

        Raises:
            ProtocolError: If there is none, or it has another plan.
            RefusedBeforeError: If this owner has refused the release.
        """
        work = self.work(release)
        if work is not None and work.session.refusal:
            raise RefusedBeforeError(Failure.of(work.session.refusal))
        if work is None or work.session.state in FINAL:
            raise ProtocolError("there is no open session for this release", "invite this owner first")
        if plan_digest is not None and work.session.plan_digest != plan_digest:
            raise ProtocolError("the session has another plan")
        return work

    def accepted(self, release: str, plan_digest: str) -> "ReleaseWork":
        """Return the work of a release whose plan was accepted.

        Raises:
            ProtocolError: If no plan, or another one, was accepted.
        """
        work = self.open(release, plan_digest)
        if work.session.state in UNDECIDED or not work.has_plan:
            raise ProtocolError("no plan was accepted for this release")
        return work

    def resume(self, release: str, plan_digest: str) -> None:
        """Reopen work that ended after its fragment was sealed, or a round answered; a no-op for any other.

        The sealed fragment stays the only answer to its plan, so nothing is drawn or charged again. Once the
        fragment was deleted (`Records.clean_outbox`), the session stays ended. So does one without a sealed
        fragment: after an older state was put back, another fragment may have left under the same charge.
        """
        work = self.work(release)
        if work is None or work.session.plan_digest != plan_digest or not work.is_resumable:
            return
        sealed = bool(work.session.fragment_digest)
        with work.transaction() as tx:
            work.advance(tx, SessionEvent.RESUME, "" if sealed else "resumed", refusal="", reason="")
            if sealed:
                work.advance(tx, SessionEvent.SEAL, "resumed")


class Work(ABC):
    """Work that a budget pays for."""

    records: Records
    """The owner's state."""

    @property
    @abstractmethod
    def key(self) -> tuple[str, str, str]:
        """Aggregator, release and digest of the plan: what it is charged and recorded under."""

    @property
    @abstractmethod
    def dataset(self) -> DatasetConfig:
        """Settings of its data set."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Location of the source (`Source.place`); empty for data passed in memory."""

    @property
    def purpose(self) -> str:
        """What the release is for."""
        return ""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction: a step, its line of the history and its charge are stored together."""
        return self.records.db.transaction()

    def check_budget(self, known_by: "Iterable[Column]" = ()) -> None:
        """Check, before anything is spent, that the ledger allows charges of the data set to its budget.

        Args:
            known_by: Digests of the loaded columns, once the data are loaded.

        Raises:
            RefusedError: If the budget's total grew, or the data were charged to another budget.
        """
        budget, total = self.dataset.budget, self.dataset.total_epsilon
        self.records.ledger.check_budget(budget, total, self.place, known_by)

    def reserve(self, tx: Transaction, terms: Accept, policy: PolicyConfig) -> None:
        """Reserve its charge, as `Ledger.reserve` does; idempotent."""
        aggregator, release, digest = self.key
        self.records.ledger.reserve(
            tx, budget=terms.budget, total_epsilon=self.dataset.total_epsilon, charge=terms.charge,
            aggregator=aggregator, release=release, plan_digest=digest, epsilon=terms.epsilon,
            epsilon_joint=terms.epsilon_joint, accounting=terms.accounting, place=self.place,
            rank_loss=terms.rank_loss, total_rank_loss=policy.total_rank_loss, delta=terms.delta,
            total_delta=policy.total_delta,
        )  # fmt: skip

    def spend(self, tx: Transaction, known_by: "Iterable[Column]", part: Part | None = None) -> None:
        """Spend what is reserved, as `Ledger.spend` does; idempotent. Noise may be drawn afterwards."""
        self.records.ledger.spend(tx, *self.key, known_by, part)

    def note(
        self,
        tx: Transaction,
        event: str,
        *,
        decision: str = "",
        rule: str = "",
        epsilon: str = "",
        **details: Any,
    ) -> None:
        """Record an event in the history, as `History.record` does."""
        aggregator, release, digest = self.key
        self.records.history.record(
            tx, aggregator=aggregator, release=release, event=event, decision=decision, rule=rule,
            purpose=self.purpose, epsilon=epsilon, plan_digest=digest, details=details,
        )  # fmt: skip


class ReleaseWork(Work):
    """A release at this owner, as its session was stored last.

    Args:
        owner: Whose it is.
        session: Its session.
        plan: Its plan, if it was just read; by default it is read from the state when it is needed.
    """

    def __init__(self, owner: Owner, session: Session, plan: Plan | None = None) -> None:
        self.owner, self.records = owner, owner.records
        self.session, self._plan = session, plan

    @property
    def has_plan(self) -> bool:
        """Whether its plan is kept."""
        if self._plan is None:
            data = self.records.sessions.plan(self.session)
            self._plan = None if data is None else Plan.from_bytes(data)
        return self._plan is not None

    @property
    def plan(self) -> Plan:
        """Its plan."""
        if not self.has_plan or self._plan is None:
            raise ProtocolError("there is no plan for this release")
        return self._plan

    @property
    def assignment(self) -> Assignment:
        """This owner's part of the plan."""
        return self.plan.assignment_of(self.owner.id)

    @property
    def key(self) -> tuple[str, str, str]:
        """Aggregator, release and digest of its plan; empty before there is one."""
        return self.session.aggregator, self.session.release, self.session.plan_digest

    @property
    def dataset(self) -> DatasetConfig:
        """Settings of its data set."""
        return self.owner.config.dataset(self.session.dataset)

    @property
    def place(self) -> str:
        """Location of its source."""
        return self.dataset.origin.place

    @property
    def purpose(self) -> str:
        """What the release is for."""
        return self.session.purpose

    @property
    def product(self) -> "OwnerProduct":
        """The object of the plan's product."""
        return product_of(self.plan)

    @property
    def progress(self) -> Progress:
        """Shows how far it is.

        It stays at this owner. Of masking alone, the aggregator gets the share that is done and an estimate.
        """
        return self.records.presence.progress(self.session.aggregator, self.session.release)

    @property
    def path(self) -> Path:
        """Where its sealed fragment is."""
        return self.records.outbox.path(self.session.aggregator, self.session.release)

    @property
    def is_resumable(self) -> bool:
        """Whether it ended, and what it sealed or answered under a spent charge is kept."""
        session, answered = self.session, self.records.rounds.may_continue(*self.key[:2])
        kept = answered or (bool(session.fragment_digest) and self.path.exists())
        return session.state is SessionState.ENDED and kept and self.records.ledger.is_spent(*self.key)

    def release_key(self) -> ReleaseKey | None:
        """Return the key of the release's tokens; None where the plan has none.

        An accepted release keeps the key that it was accepted with, even if the linkage key is replaced.

        Raises:
            ConfigurationError: If this owner has no linkage key, or another one than at consent.
        """
        plan, session = self.plan, self.session
        if not plan.linking.tokens:
            return None
        if session.release_key is not None:
            return ReleaseKey(session.release_key, session.key_generation)
        linkage = linkage_key.load(self.owner.config.owner.state_dir)
        key = ReleaseKey(release_key(linkage.key, plan.release, plan.digest), linkage.generation)
        if session.key_check not in ("", key.check):
            raise ConfigurationError(
                f"the linkage key was replaced (generation {linkage.generation} now) after release "
                f"{plan.release} was accepted",
                hint="start the release again once all owners have the new key",
            )
        return key

    def check_signed(self, domain: Domain, document: bytes, signature: bytes, certificate: bytes) -> None:
        """Check the aggregator's signature; its key may have been renewed since it made the plan.

        `certificate` is the chain that it was signed with; empty: the plan's.

        Raises:
            IntegrityError: If it is invalid.
        """
        chain, since = certificate or self.session.aggregator_certificate or b"", self.session.created
        self.owner.trust.check(domain, document, signature, chain, datetime.fromisoformat(since))

    def objection_to(
        self, owner: str, domain: Domain, document: bytes, signature: bytes, certificate: bytes
    ) -> str:
        """Return why another owner is not taken as the author of a document; empty if it is.

        Its key has to have been valid since the release began, and be the pinned one where the policy pins.
        """
        since = datetime.fromisoformat(self.session.created)
        try:
            trust = self.owner.trust
            fingerprint = trust.check_owner(owner, domain, document, signature, certificate, since)
        except TesseraError as error:
            return error.message
        return unpinned(self.owner.config.policy, owner, fingerprint)

    def reopen(self) -> None:
        """Read the session again: a person, or another thread, may have changed it.

        Raises:
            ProtocolError, RefusedBeforeError: As `Owner.open`.
        """
        self.session = self.owner.open(self.session.release, self.session.plan_digest or None).session

    def update(self, tx: Transaction, **facts: Any) -> None:
        """Store new facts, as `Sessions.update` does."""
        self.session = self.records.sessions.update(tx, self.session, **facts)

    def advance(
        self,
        tx: Transaction,
        event: SessionEvent,
        noted: str = "",
        details: dict[str, Any] | None = None,
        *,
        epsilon: str = "",
        **changes: Any,
    ) -> None:
        """Apply an event as `Sessions.advance` does. The history records it if it changes the state.

        Args:
            noted: Name of the event in the history; empty if it is not recorded.
            epsilon: Epsilon for the history, decimal text.
            changes: Fields of `Session` that are now known.
        """
        asked_again = event is SessionEvent.SEAL and self.plan.product.rules.in_rounds
        audited = event in (SessionEvent.SEAL, SessionEvent.PUBLISH) and self.records.audit_time(self.plan)
        if asked_again or audited:
            # Messages are made again with it, also after another linkage key came.
            changes["release_key"] = self.session.release_key
        sessions = self.records.sessions
        before = sessions.get(self.session.aggregator, self.session.release)
        self.session = sessions.advance(tx, self.session, event, **changes)
        if noted and before is not None and self.session.state is not before.state:
            self.note(tx, noted, epsilon=epsilon, **details or {})

    def give_back(self, tx: Transaction) -> None:
        """Return its reservation, if it has one that was not spent."""
        if self.session.plan_digest and self.records.ledger.give_back(tx, *self.key):
            self.note(tx, "returned")

    def drop_fragment(self) -> None:
        """Delete its fragment unless it is sealed: a sealed one is paid for, and the release may go on."""
        if not self.session.fragment_digest:
            self.records.outbox.destroy(self.session.aggregator, self.session.release)
