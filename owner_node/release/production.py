"""Production of a fragment from an accepted plan: link, spend, mask, seal, send, keep the receipt.

One transaction spends the charge before noise is drawn. Another records the sealed fragment after it is on
disk. A process that dies between the two draws noise again, since the first noise was never disclosed. After
the second transaction the fragment is the only answer to its plan.
"""

import hmac
import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.canonical import canonical
from common.errors import IntegrityError, ProtocolError
from common.model.fragment import Addendum, FragmentStatement, Receipt, contradictions, multiples_of
from common.model.matches import fit
from common.model.privacy import plain
from common.model.rounds import SumKey
from common.trust.identity import fingerprint
from common.trust.signing import Domain
from owner_node.ledger.entry import Part
from owner_node.release.co_owners import CoOwner, check_co_owners
from owner_node.release.original_data import OriginalData
from owner_node.release.work import Owner, ReleaseWork, read
from owner_node.state.answers import Fragment, LinkAnswer, SealAnswer
from owner_node.state.session import CHARGED, SessionEvent, SessionState

if TYPE_CHECKING:
    from owner_node.release.product import Prepared
    from owner_node.state.rounds import Secrets

_log = logging.getLogger(__name__)


class Production:
    """Makes fragments for one aggregator."""

    def __init__(self, owner: Owner, original_data: OriginalData) -> None:
        self._owner, self._original_data = owner, original_data

    @property
    def checks_co_owners(self) -> bool:
        """Whether `link` needs the consents of the other owners."""
        return bool(self._owner.config.policy.co_owners)

    def link(self, release: str, plan_digest: str, co_owners: Sequence[CoOwner] = ()) -> LinkAnswer:
        """Load and pin the source, and return its number of records and its tokens.

        Args:
            co_owners: The other owners' consents, as the aggregator presents them.

        Raises:
            RefusedError: If the policy lists co-owners and their consents are missing or invalid, or if the
                limit of linkings without a charge is reached.
            UnusableDataError: If the source cannot be used or masked as planned.
            DataChangedError: If the source changed since consent.
        """
        owner, work = self._owner, self._owner.accepted(release, plan_digest)
        proved = check_co_owners(
            work.plan, owner.id, work.session.key_check, owner.config.policy, co_owners, owner.trust,
            datetime.fromisoformat(work.session.created),
        )  # fmt: skip
        first = work.session.state is SessionState.RESERVED
        if first:
            with work.transaction() as tx:
                work.session = owner.records.attempts.begin(tx, owner.config, work.session)
        prepared = self._original_data.prepared(work)
        if first:
            work.check_budget(prepared.known_by)
        source, n_records = prepared.source_digest, prepared.n_records
        details: dict[str, Any] = {"records": n_records, "source": source, "co_owners": proved}
        left_out = prepared.counts.left_out
        if left_out:
            details["left_out"] = left_out
        if numerals := sum(prepared.counts.numerals.values()):
            details["numerals"] = numerals
            _log.warning(
                "identifiers have texts such as 17.0: who is 17 at another owner counts as somebody else",
                extra={"release": release, "count": numerals},
            )
        in_rounds, pair_key, secrets = work.plan.product.rules.in_rounds, b"", None
        if in_rounds and work.plan.n_groups > 1:
            from owner_node.synthesis.paillier import new_key

            pair_key = new_key()
        with work.transaction() as tx:
            work.advance(
                tx, SessionEvent.LINK, "linked", details,
                source_digest=source, n_records=n_records, left_out=canonical(left_out).decode(),
            )  # fmt: skip
            if in_rounds:
                secrets = owner.records.rounds.make_secrets(tx, owner.aggregator, release, pair_key)
        return _link_answer(work, n_records, prepared.pinned.token_list(), secrets)

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
        self._owner.resume(release, plan_digest)
        work = self._owner.accepted(release, plan_digest)
        if work.plan.product.rules.in_rounds:
            raise ProtocolError("a fragment was requested of a release whose owners answer rounds")
        if work.session.state is SessionState.RESERVED:
            # The session of a plan that a person decided has the number of records already. Checking the
            # addendum against it would disclose that number without a linking.
            raise ProtocolError("the fragment was requested before its data were linked")
        linked = read_addendum(work, addendum)
        work.check_signed(Domain.ADDENDUM, addendum, signature, certificate)
        if work.session.state in (SessionState.LINKED, SessionState.SPENT):
            prepared = self._original_data.prepared(work)
            if linked.selections:
                expected = linked.records[self._owner.id], linked.selections[self._owner.id]
                prepared = prepared.selected(selection, *expected)
            spend(work, prepared, linked, signature)
            self._seal(work, prepared, linked)
        session = work.session
        if session.addendum != addendum or session.fragment_signature is None:
            raise ProtocolError(f"a session that is {session.state} has no fragment under this addendum")
        return SealAnswer(
            session.fragment_digest,
            session.fragment_size or 0,
            linked.records[self._owner.id],
            session.fragment_signature,
            session.fragment_certificate or self._owner.signer.current_signer().chain_pem.encode(),
        )

    def drop_tokens(self, work: ReleaseWork) -> str:
        """Remove the tokens from the fragment of a release that is published; nobody asks for it again.

        Returns:
            The digest of the fragment without them; empty where it has none, or is not there any more.
        """
        session, records = work.session, self._owner.records
        if session.addendum is None or not work.path.exists() or not work.has_plan:
            return ""
        from owner_node.release.product import SealedFile

        n_records = Addendum.from_bytes(session.addendum).records[self._owner.id]
        sealed = SealedFile(work.path, session.fragment_digest, session.fragment_size or 0, n_records)
        return work.product.drop_tokens(
            records.outbox, session.aggregator, work.plan, work.assignment, sealed,
            self._owner.config.workspace, work.progress,
        )  # fmt: skip

    def selection_size(self, release: str, plan_digest: str, addendum: bytes) -> int:
        """Return the size in bytes of the selection that `mask` needs with an addendum; 0 if none.

        Raises:
            ProtocolError: If the addendum cannot be decoded.
        """
        self._owner.resume(release, plan_digest)
        work = self._owner.accepted(release, plan_digest)
        selects = bool(read(Addendum, addendum).selections)
        if not selects or work.session.state not in (SessionState.LINKED, SessionState.SPENT):
            return 0
        return work.product.selection_size(work.session.n_records or 0, work.plan)

    def fragment(self, release: str, plan_digest: str) -> Fragment:
        """Return the sealed fragment.

        Raises:
            ProtocolError: If none is sealed.
        """
        self._owner.resume(release, plan_digest)
        work = self._owner.open(release, plan_digest)
        session = work.session
        if session.state not in CHARGED or not session.fragment_digest:
            raise ProtocolError(f"the fragment was requested before it was sealed ({session.state})")
        return Fragment(work.path, session.fragment_digest, session.fragment_size or 0)

    def receive_receipt(
        self, release: str, plan_digest: str, receipt: bytes, signature: bytes, certificate: bytes = b""
    ) -> None:
        """Store the aggregator's receipt of the fragment.

        `certificate` is the chain that it was signed with; empty: the plan's.

        Raises:
            ProtocolError: If it is for another fragment.
            IntegrityError: If its signature is invalid.
        """
        work, stated = self._owner.open(release, plan_digest), read(Receipt, receipt)
        fragment = work.session.fragment_digest
        if (stated.release, stated.owner, stated.plan_digest, stated.fragment_digest) != (
            release, self._owner.id, plan_digest, fragment,
        ):  # fmt: skip
            raise ProtocolError("the receipt is for another fragment")
        work.check_signed(Domain.RECEIPT, receipt, signature, certificate)
        details = {"fragment": fragment, "receipt": stated.digest}
        with work.transaction() as tx:
            work.advance(tx, SessionEvent.UPLOAD, "uploaded", details)
            work.advance(tx, SessionEvent.ACKNOWLEDGE, receipt=receipt, receipt_signature=signature)

    def _seal(self, work: ReleaseWork, prepared: "Prepared", addendum: Addendum) -> None:
        """Mask and seal; the charge is spent."""
        plan, owner = work.plan, self._owner
        sealed = work.product.produce(
            owner.records.outbox, owner.aggregator, plan, work.assignment, prepared, work.progress
        )
        statement = FragmentStatement(
            plan.release, owner.id, plan.digest, addendum.digest, sealed.digest, sealed.size,
            prepared.n_records,
        )  # fmt: skip
        signer = owner.signer.current_signer()
        with work.transaction() as tx:
            work.advance(
                tx, SessionEvent.SEAL, "sealed", {"fragment": sealed.digest, "size": sealed.size},
                fragment_digest=sealed.digest, fragment_size=sealed.size,
                fragment_signature=signer.sign(Domain.FRAGMENT, statement.to_bytes()),
                fragment_certificate=signer.chain_pem.encode(),
            )  # fmt: skip
        # The key of the release's tokens is not needed any more.
        owner.records.db.forget_removed()
        self._original_data.forget(plan.release)


def _link_answer(
    work: ReleaseWork, n_records: int, tokens: bytes | Path, secrets: "Secrets | None"
) -> LinkAnswer:
    """Return the answer: with this owner's key for sums, signed, and with its proof of the linkage key."""
    signer, release_key = work.owner.signer.current_signer(), work.release_key()
    key = signature = chain = proof = b""
    if secrets is not None:
        from owner_node.synthesis.masks import public_key

        key, chain = public_key(secrets.private_key), signer.chain_pem.encode()
        stated = SumKey(work.plan.release, work.owner.id, work.plan.digest, key.hex())
        signature = signer.sign(Domain.SUM_KEY, stated.to_bytes())
    if release_key is not None and work.plan.linking.key_proofs:
        own = fingerprint(signer.chain[0].public_key())
        proof = release_key.proof(work.owner.id, own, key).to_bytes()
    return LinkAnswer(n_records, tokens, key, signature, chain, proof)


def _check_proofs(work: ReleaseWork, addendum: Addendum) -> None:
    """Check that every owner of the plan has the linkage key, before anything that is counted leaves.

    The aggregator, whose CA may certify anybody, has seen tokens and values that compare keys. It can repeat
    those, and make no proof.

    Raises:
        IntegrityError: If one has not.
    """
    key, shown = work.release_key(), {each.owner: each for each in addendum.key_proofs}
    if key is None or not work.plan.linking.key_proofs:
        # Owners refuse such a plan. This one was accepted before they did.
        return
    for owner in work.plan.owners:
        proof = shown.get(owner)
        if proof is None or not hmac.compare_digest(
            proof.to_bytes(),
            key.proof(owner, proof.fingerprint, bytes.fromhex(proof.sum_key)).to_bytes(),
        ):
            raise IntegrityError(
                f"{owner!r} does not show that it has the linkage key of this release",
                "nothing was spent or sent; telephone that owner: ask whether it takes part, and compare its "
                "linkage key (owner-node linkage-key show)",
                {"owner": owner},
            )


def read_addendum(work: ReleaseWork, addendum: bytes) -> Addendum:
    """Decode the result of linking, and check it against the plan and this owner's linked records."""
    result = read(Addendum, addendum)
    for contradiction in contradictions(work.plan, result):
        raise ProtocolError(f"the addendum does not fit the plan: {contradiction}")
    own, linked = result.records[work.owner.id], work.session.n_records or 0
    fits = {"intersected": own <= linked, "united": own >= linked}
    if not fits.get(result.linking, own == linked):
        raise ProtocolError("the addendum does not fit the number of records that this owner linked")
    if not fit(result.matches, work.plan, result.records):
        raise ProtocolError("the addendum does not fit the plan: its match counts are impossible")
    _check_proofs(work, result)
    return result


def selection_sizes(work: ReleaseWork, addendum: Addendum) -> tuple[int, int]:
    """Return the sizes in bytes of what linking found of this owner's records, which an answer needs.

    Returns:
        Of which of its records are counted, or of numbers or places of its persons; then of who has these
        persons, too. Either is 0 where nothing is to be said.
    """
    plan, n_linked = work.plan, work.session.n_records or 0
    selects = plan.numbers_persons or addendum.linking in ("intersected", "united")
    return (
        work.product.selection_size(n_linked, plan) if selects else 0,
        addendum.records[work.owner.id] * plan.n_groups if plan.has_partners else 0,
    )


def spend(work: ReleaseWork, prepared: "Prepared", addendum: Addendum, signature: bytes) -> None:
    """Spend the charge for the multiplicity that linking found, and return the rest of the reserve.

    A no-op if it is spent. Noise may be drawn afterwards.
    """
    multiples, own = multiples_of(work.plan, addendum), work.assignment
    bounds = own.epsilon_at(multiples), own.epsilon_joint_at(multiples), own.rank_loss_at(multiples)
    part = Part(*bounds, work.plan.delta)
    details: dict[str, Any] = {}
    if addendum.multiples:
        details["multiples"] = ", ".join(map(str, multiples))
    if addendum.common is not None:
        details["selected"] = prepared.n_records
    with work.transaction() as tx:
        work.reopen()  # a person may have returned the reservation in the meantime
        work.spend(tx, prepared.known_by, part)
        work.advance(
            tx, SessionEvent.SPEND, "spent", details, epsilon=format(plain(part.epsilon), "f"),
            addendum=addendum.to_bytes(), addendum_signature=signature,
        )  # fmt: skip
