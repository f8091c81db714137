"""A round of a synthetic release as the aggregator opened it, and this owner's answer to it.

Everything here is a function of the plan, of what opened this round and those before, of the pinned records,
and of secrets that were stored before anything was sent. So an answer that is computed again is the same.
"""

import hmac
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from common.arrays import Int64Array
from common.errors import IntegrityError, ProtocolError
from common.model.fragment import Addendum, FragmentStatement, n_records
from common.model.rounds import NUMBER_BYTES, RoundDocument, SignedAnswer, SignedAnswers, SumKey, chained
from common.planning.synthetic import design_of
from common.synthesis.plausible import fault_of_sums
from common.synthesis.schedule import Design, Round, RoundSums, next_round
from common.synthesis.sums import LARGEST_SUM, add_answers, check_sums
from common.trust.identity import fingerprint, load_certificates
from common.trust.signing import Domain
from owner_node.release.original_data import OriginalData
from owner_node.release.production import read_addendum
from owner_node.release.work import ReleaseWork
from owner_node.state.rounds import AnsweredRound, Secrets
from owner_node.synthesis.masks import Masks


class OpenedRound:
    """The round.

    Args:
        work: The release.
        document: What opened the round.
        attached: What came with it.
        before: The rounds before.
        original_data: Of this owner's records.
        is_answered: Whether this owner has answered the round.

    Raises:
        ProtocolError: If it is not the round after these, or asks nothing that follows from them.
    """

    def __init__(
        self,
        work: ReleaseWork,
        document: RoundDocument,
        attached: bytes,
        before: Sequence[AnsweredRound],
        original_data: OriginalData,
        *,
        is_answered: bool = False,
    ) -> None:
        self.work, self.document, self.attached, self.before = work, document, attached, before
        self._original_data, self.is_answered = original_data, is_answered
        self.addendum = _check(work, document, attached, before)
        asked, self.design, self.sums = _questions(work, self.addendum, attached, before)
        self.is_last = isinstance(asked, RoundSums)
        """True if nothing is asked: this owner signs that the sums hold."""
        self.questions: Round = () if isinstance(asked, RoundSums) else asked
        """The counts that are asked for; none in the first round, of zeros."""

    @cached_property
    def secrets(self) -> Secrets:
        """What this owner stored for the release."""
        secrets = self.work.owner.records.rounds.secrets(*self.work.key[:2])
        if secrets is None:
            raise ProtocolError("this owner has no key for the sums of this release any more")
        return secrets

    @cached_property
    def masks(self) -> Masks:
        """This owner's masks, with keys of the others that are checked."""
        work, key = self.work, self.work.release_key()
        first = self.before[0].document if self.before else self.document.to_bytes()
        keys, shared = _checked_keys(work, self.addendum, first), b"" if key is None else key.key
        masks = Masks(work.owner.id, self.secrets.private_key, keys, work.plan.release, shared)
        masks.check()
        return masks

    @property
    def is_across(self) -> bool:
        """True if the round counts tables with owners of other groups."""
        return self.design.counts_across(self.questions)

    def check(self, answers: Path) -> None:
        """Check that the sums of the round before are those of all owners' answers.

        Args:
            answers: What all owners answered and signed (`common.model.rounds.SignedAnswers`).

        Raises:
            IntegrityError: If they are not, or an answer is not signed by its owner.
        """
        with answers.open("rb") as stream:
            try:
                head = SignedAnswers.from_bytes(stream.readline().removesuffix(b"\n"))
            except ValueError:
                raise _unsummed("they are malformed") from None
            if sorted(each.owner for each in head.answers) != sorted(self.work.plan.owners):
                raise _unsummed("they are not those of the owners of the plan")
            n_bytes = len(self.before[-1].answer)
            read = {each.owner: self._checked(each, stream.read(n_bytes)) for each in head.answers}
        sums = add_answers(read, n_bytes // NUMBER_BYTES)
        check_sums(sums, self.document.round - 1)
        if sums.astype("<i8").tobytes() != self.attached:
            raise _unsummed("they have other sums than the aggregator states")

    def _checked(self, signed: SignedAnswer, answer: bytes) -> bytes:
        """Return an owner's answer to the round before, which it signed."""
        plan, owner = self.work.plan, signed.owner
        if owner == self.work.owner.id:
            if answer != self.before[-1].answer:
                raise _unsummed("this owner gave another one")
            return answer
        stated = FragmentStatement(
            plan.release, owner, plan.digest, self.document.previous, chained(signed.before, answer),
            sum(len(each.answer) for each in self.before), self.addendum.records[owner],
        )  # fmt: skip
        proof = stated.to_bytes(), bytes.fromhex(signed.signature), signed.certificate.encode()
        objection, key = self.work.objection_to(owner, Domain.FRAGMENT, *proof), self.work.release_key()
        if key is not None and not objection:
            made = key.answer_proof(owner, self.document.previous, stated.fragment_digest).hex()
            # The aggregator's CA may certify another key for the same owner; it has no linkage key.
            objection = "" if hmac.compare_digest(made, signed.key_proof) else "it lacks the linkage key"
        if objection:
            raise _unsummed(f"that of owner {owner} is not its own: {objection}", {"owner": owner})
        return answer


def _check(
    work: ReleaseWork, document: RoundDocument, attached: bytes, before: Sequence[AnsweredRound]
) -> Addendum:
    """Check that a document opens the next round of this release; return what linking found."""
    if (document.release, document.plan_digest) != (work.plan.release, work.plan.digest):
        raise ProtocolError("the round is of another release or plan")
    if document.round != len(before) + 1:
        raise ProtocolError(f"round {document.round} was opened, {len(before)} are answered")
    addendum = before[0].attached if before else attached
    first = RoundDocument.from_bytes(before[0].document) if before else document
    if before and document.previous != RoundDocument.from_bytes(before[-1].document).digest:
        raise ProtocolError("the round follows another one than this owner answered")
    linking = read_addendum(work, addendum)
    if not document.addendum_digest == first.addendum_digest == linking.digest:
        raise ProtocolError("the round is about another result of linking")
    return linking


def _checked_keys(work: ReleaseWork, addendum: Addendum, first: bytes) -> Mapping[str, bytes]:
    """Return the owners' keys for sums, each signed by its owner; this owner's own is checked by `Masks`."""
    plan, own, public_keys = work.plan, work.owner.id, dict[str, bytes]()
    keys = RoundDocument.from_bytes(first).keys
    if [key.owner for key in keys] != list(plan.owners):
        raise ProtocolError("the keys for sums are not those of the owners of the plan")
    proved = {each.owner: (each.sum_key, each.fingerprint) for each in addendum.key_proofs}
    for key in keys:
        try:
            stated = SumKey(plan.release, key.owner, plan.digest, key.key).to_bytes()
            public_keys[key.owner] = bytes.fromhex(key.key)
            if key.owner == own:
                continue
            signed = (stated, bytes.fromhex(key.signature), key.certificate.encode())
            objection = work.objection_to(key.owner, Domain.SUM_KEY, *signed)
        except ValueError:
            objection = "it is malformed"
        if not objection and proved:
            (own_key, *_) = load_certificates(key.certificate.encode())
            if proved[key.owner] != (key.key, fingerprint(own_key.public_key())):
                objection = "it proved another one with the linkage key"
        if objection:
            raise IntegrityError(
                f"the key of owner {key.owner} for sums is not its own: {objection}",
                "nothing was sent; ask that owner's administrator, and the aggregator's operator",
                {"owner": key.owner},
            )
    return public_keys


def _questions(
    work: ReleaseWork,
    addendum: Addendum,
    attached: bytes,
    before: Sequence[AnsweredRound],
) -> tuple[Round | RoundSums, Design, list[Int64Array]]:
    """Compute what a round asks from the sums of those that counted, which are untrusted input.

    Returns:
        What is asked, what it follows from, and these sums.
    """
    sums: list[Int64Array] = []
    # With the first document comes the addendum.
    for data in (*(data.attached for data in before[1:]), *([attached] if before else [])):
        if len(data) % NUMBER_BYTES:
            raise ProtocolError("the sums of a round are no whole numbers")
        sums.append(np.frombuffer(data, dtype="<i8").astype(np.int64))
    if any(bool(((numbers > LARGEST_SUM) | (numbers < -LARGEST_SUM)).any()) for numbers in sums):
        raise ProtocolError("sums of a round are out of bounds")
    design = design_of(work.plan, n_records(work.plan, addendum))
    if not before:
        return (), design, sums
    del sums[0]  # zeros
    try:
        asked = next_round(design, sums)
    except ValueError as problem:
        raise ProtocolError(f"the sums are not those of this release: {problem}") from None
    if fault := fault_of_sums(design, sums, work.plan.groups):
        raise IntegrityError(fault, "nothing was published; ask these owners, and the aggregator's operator")
    return asked, design, sums


def _unsummed(reason: str, details: Mapping[str, str] | None = None) -> IntegrityError:
    return IntegrityError(
        f"the owners' answers to the round before, as the aggregator passes them on, do not hold: {reason}",
        "this owner goes no further; ask the aggregator's operator, and the other owners",
        details,
    )
