"""Production of a fragment from an accepted plan: link, spend, mask, seal, send, keep the receipt.

One transaction spends the charge before noise is drawn. Another records the sealed fragment after it is on
disk. A process that dies between the two draws noise again, since the first noise was never disclosed. After
the second transaction the fragment is the only answer to its plan.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from common.errors import ProtocolError
from common.model.fragment import Addendum, FragmentStatement, Receipt, contradictions, multiples_of
from common.model.matches import fit
from common.model.plan import Plan
from common.model.task import Assignment
from common.trust.signing import Domain, SignerSource
from owner_node.ledger.entry import Part
from owner_node.release.appraisal import Appraisal
from owner_node.release.cases import Cases, read
from owner_node.release.co_owners import CoOwner, check_co_owners
from owner_node.state.answers import Fragment, LinkAnswer, SealAnswer
from owner_node.state.session import CHARGED, SessionEvent, SessionState
from owner_node.state.sessions import Session
from owner_node.trust import Trust

if TYPE_CHECKING:
    from owner_node.release.masked import Prepared


class Production:
    """Makes fragments for one aggregator."""

    def __init__(self, cases: Cases, signer: SignerSource, trust: Trust, appraisal: Appraisal) -> None:
        self._cases, self._signer, self._trust = cases, signer, trust
        self._appraisal = appraisal

    @property
    def checks_co_owners(self) -> bool:
        """Whether `link` needs the consents of the other owners."""
        return bool(self._cases.config.policy.co_owners)

    def link(self, release: str, plan_digest: str, co_owners: Sequence[CoOwner] = ()) -> LinkAnswer:
        """Load and pin the source, and return its number of records and its tokens.

        Args:
            release: Release id.
            plan_digest: Digest of the accepted plan.
            co_owners: The other owners' consents, as the aggregator presents them.

        Raises:
            RefusedError: If the policy lists co-owners and their consents are missing or invalid, or if the
                limit of linkings without a charge is reached.
            UnusableDataError: If the source cannot be used or masked as planned.
            DataChangedError: If the source changed since consent.
        """
        session, plan, assignment = self._cases.accepted(release, plan_digest)
        config, since = self._cases.config, datetime.fromisoformat(session.created)
        proved = check_co_owners(
            plan, config.owner.id, session.key_check, config.policy, co_owners, self._trust, since
        )
        first = session.state is SessionState.RESERVED
        if first:
            with self._cases.records.db.transaction() as tx:
                session = self._cases.records.attempts.begin(tx, config, session)
        prepared = self._appraisal.prepared(session, plan, assignment)
        if first:
            self._appraisal.check_charged(session, prepared)
        with self._cases.records.db.transaction() as tx:
            if first:
                left_out: dict[str, Any] = {"dropped": prepared.dropped} if prepared.dropped else {}
                self._cases.note(
                    tx, session, "linked", records=prepared.n_records, source=prepared.source_digest,
                    co_owners=proved, **left_out,
                )  # fmt: skip
            self._cases.records.sessions.advance(
                tx, session, SessionEvent.LINK, source_digest=prepared.source_digest,
                n_records=prepared.n_records,
            )  # fmt: skip
        return LinkAnswer(prepared.n_records, prepared.pinned.token_list())

    def mask(
        self,
        release: str,
        plan_digest: str,
        addendum: bytes,
        signature: bytes,
        certificate: bytes = b"",
        selection: bytes = b"",
    ) -> SealAnswer:
        """Spend the charge, mask, and seal the fragment. Idempotent: a sealed fragment is never made again.

        Args:
            release: Release id.
            plan_digest: Digest of the accepted plan.
            addendum: The result of linking, canonical bytes.
            signature: The aggregator's signature of the addendum.
            certificate: The chain that it was signed with; empty: the plan's.
            selection: Which of this owner's records are common, where the addendum selects some.

        Raises:
            DataChangedError: If the source changed since consent.
            ProtocolError: If nothing was linked, or the addendum contradicts the plan or the number of linked
                records.
            IntegrityError: If the selection does not have the digest in the addendum.
            UnusableDataError: If too few records are selected to be masked as planned.
        """
        self._cases.resume(release, plan_digest)
        session, plan, assignment = self._cases.accepted(release, plan_digest)
        if session.state is SessionState.RESERVED:
            # The session of a plan that a person decided has the number of records already. Checking the
            # addendum against it would disclose that number without a linking.
            raise ProtocolError("the fragment was requested before its data were linked")
        found = self._checked_addendum(session, plan, addendum)
        self._check_signed(session, Domain.ADDENDUM, addendum, signature, certificate)
        if session.state in (SessionState.LINKED, SessionState.SPENT):
            prepared = self._selected(self._appraisal.prepared(session, plan, assignment), found, selection)
            session = self._spend(session, plan, assignment, prepared, found, signature)
            session = self._seal(session, plan, assignment, prepared, found)
        if session.addendum != addendum or session.fragment_signature is None:
            raise ProtocolError(f"a session that is {session.state} has no fragment under this addendum")
        return SealAnswer(
            session.fragment_digest,
            session.fragment_size or 0,
            found.records[self._cases.config.owner.id],
            session.fragment_signature,
            session.fragment_certificate or self._signer.current_signer().chain_pem.encode(),
        )

    def drop_tokens(self, session: Session) -> str:
        """Remove the tokens from the fragment of a release that is published; nobody asks for it again.

        Returns:
            The digest of the fragment without them; empty where it has none, or is not there any more.
        """
        records, data = self._cases.records, self._cases.records.sessions.plan(session)
        path = records.outbox.path(session.aggregator, session.release)
        if data is None or session.addendum is None or not path.exists():
            return ""
        from owner_node.release.masked import SealedFile

        plan, owner = Plan.from_bytes(data), self._cases.config.owner.id
        n_records = Addendum.from_bytes(session.addendum).records[owner]
        sealed = SealedFile(path, session.fragment_digest, session.fragment_size or 0, n_records)
        return self._cases.product(plan).drop_tokens(
            records.outbox,
            session.aggregator,
            plan,
            plan.assignment_of(owner),
            sealed,
            self._cases.config.workspace,
            self._cases.progress(session.release),
        )

    def selection_size(self, release: str, plan_digest: str, addendum: bytes) -> int:
        """Return the size in bytes of the selection that `mask` needs with an addendum; 0 if none.

        Raises:
            ProtocolError: If the addendum cannot be decoded.
        """
        self._cases.resume(release, plan_digest)
        session, plan, _ = self._cases.accepted(release, plan_digest)
        found = read(Addendum, addendum)
        needed = session.state in (SessionState.LINKED, SessionState.SPENT) and bool(found.selections)
        return self._cases.product(plan).selection_size(session.n_records or 0, plan) if needed else 0

    def fragment(self, release: str, plan_digest: str) -> Fragment:
        """Return the sealed fragment.

        Raises:
            ProtocolError: If none is sealed.
        """
        self._cases.resume(release, plan_digest)
        session = self._cases.open(release, plan_digest)
        if session.state not in CHARGED or not session.fragment_digest:
            raise ProtocolError(f"the fragment was requested before it was sealed ({session.state})")
        path = self._cases.records.outbox.path(self._cases.aggregator, release)
        return Fragment(path, session.fragment_digest, session.fragment_size or 0)

    def receive_receipt(
        self, release: str, plan_digest: str, receipt: bytes, signature: bytes, certificate: bytes = b""
    ) -> None:
        """Store the aggregator's receipt of the fragment.

        `certificate` is the chain that it was signed with; empty: the plan's.

        Raises:
            ProtocolError: If it is for another fragment.
            IntegrityError: If its signature is invalid.
        """
        session = self._cases.open(release, plan_digest)
        found = read(Receipt, receipt)
        stated = (found.release, found.owner, found.plan_digest, found.fragment_digest)
        if stated != (release, self._cases.config.owner.id, plan_digest, session.fragment_digest):
            raise ProtocolError("the receipt is for another fragment")
        self._check_signed(session, Domain.RECEIPT, receipt, signature, certificate)
        with self._cases.records.db.transaction() as tx:
            if session.state is SessionState.SEALED:
                self._cases.note(
                    tx, session, "uploaded", fragment=session.fragment_digest, receipt=found.digest
                )
            session = self._cases.records.sessions.advance(tx, session, SessionEvent.UPLOAD)
            self._cases.records.sessions.advance(
                tx, session, SessionEvent.ACKNOWLEDGE, receipt=receipt, receipt_signature=signature
            )

    def _check_signed(
        self, session: Session, domain: Domain, document: bytes, signature: bytes, certificate: bytes
    ) -> None:
        """Check the aggregator's signature; its key may have been renewed since it made the plan."""
        chain = certificate or session.aggregator_certificate or b""
        self._trust.check(domain, document, signature, chain, datetime.fromisoformat(session.created))

    def _checked_addendum(self, session: Session, plan: Plan, addendum: bytes) -> Addendum:
        """Decode the result of linking, and check it against the plan and this owner's linked records."""
        found, owner = read(Addendum, addendum), self._cases.config.owner.id
        for contradiction in contradictions(plan, found):
            raise ProtocolError(f"the addendum does not fit the plan: {contradiction}")
        own, linked = found.records[owner], session.n_records or 0
        if not (own <= linked if found.selections else own == linked):
            raise ProtocolError("the addendum does not fit the number of records that this owner linked")
        if not fit(found.matches, plan, found.records):
            raise ProtocolError("the addendum does not fit the plan: its match counts are impossible")
        return found

    def _selected(self, prepared: "Prepared", addendum: Addendum, selection: bytes) -> "Prepared":
        """Return the records to mask: all of them, or those that all groups hold."""
        if not addendum.selections:
            return prepared
        owner = self._cases.config.owner.id
        expected = addendum.records[owner], addendum.selections[owner]
        return prepared.selected(selection, *expected)

    def _spend(
        self,
        session: Session,
        plan: Plan,
        assignment: Assignment,
        prepared: "Prepared",
        addendum: Addendum,
        signature: bytes,
    ) -> Session:
        """Spend the charge for the multiplicity that linking found, and return the rest of the reserve."""
        key, records = (self._cases.aggregator, plan.release, plan.digest), self._cases.records
        multiples = multiples_of(plan, addendum)
        part = Part(
            assignment.epsilon_at(multiples),
            assignment.epsilon_joint_at(multiples),
            assignment.rank_loss_at(multiples),
        )
        with records.db.transaction() as tx:
            # Read again: a person may have returned the reservation in the meantime.
            session = self._cases.open(plan.release, plan.digest)
            records.ledger.spend(tx, *key, prepared.known_by, part)
            if session.state is SessionState.LINKED:
                more: dict[str, Any] = {}
                if addendum.multiples:
                    more["multiples"] = ", ".join(map(str, multiples))
                if addendum.common is not None:
                    more["selected"] = prepared.n_records
                self._cases.note(tx, session, "spent", epsilon=part.epsilon, **more)
            return records.sessions.advance(
                tx, session, SessionEvent.SPEND, addendum=addendum.to_bytes(), addendum_signature=signature
            )

    def _seal(
        self, session: Session, plan: Plan, assignment: Assignment, prepared: "Prepared", addendum: Addendum
    ) -> Session:
        """Mask and seal; the charge is spent."""
        outbox, progress = self._cases.records.outbox, self._cases.progress(plan.release)
        product = self._cases.product(plan)
        sealed = product.produce(outbox, self._cases.aggregator, plan, assignment, prepared, progress)
        statement = FragmentStatement(
            plan.release, self._cases.config.owner.id, plan.digest, addendum.digest, sealed.digest,
            sealed.size, prepared.n_records,
        )  # fmt: skip
        signer = self._signer.current_signer()
        with self._cases.records.db.transaction() as tx:
            self._cases.note(tx, session, "sealed", fragment=sealed.digest, size=sealed.size)
            session = self._cases.records.sessions.advance(
                tx, session, SessionEvent.SEAL, fragment_digest=sealed.digest, fragment_size=sealed.size,
                fragment_signature=signer.sign(Domain.FRAGMENT, statement.to_bytes()),
                fragment_certificate=signer.chain_pem.encode(),
            )  # fmt: skip
        # The key of the release's tokens is not needed any more.
        self._cases.records.db.forget_removed()
        self._appraisal.forget(plan.release)
        return session
