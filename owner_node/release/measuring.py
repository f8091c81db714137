"""Answers to the rounds of a synthetic release: spend, count, draw, mask, store, send.

The charge is spent once, before the first round. One transaction stores a round's answer under its number; it
is sent afterwards, and after that only the same bytes. Noise follows from a secret of the release and from
what is asked, masks from another secret and from what opened the round. So a process that died before, or
whose state was put back, makes the same answer; and a question has one draw of noise, whatever comes with it.
On tables across groups noise also follows from what the other owner sent (`owner_node.synthesis.crossed`).

The aggregator states sums, never questions. What is counted follows from plan and sums, and is computed here.
An answer is masked under the digest of the document that opened its round, which stands for all sums and keys
so far: where owners were told different things, their masks do not cancel, and nobody learns anything.
"""

from typing import TYPE_CHECKING

from common.canonical import digest
from common.errors import IntegrityError, ProtocolError
from common.model.fragment import Addendum, FragmentStatement
from common.model.rounds import Parcel, RoundDocument, chained, read_round
from common.trust.signing import Domain
from owner_node.release.appraisal import Appraisal
from owner_node.release.production import spend
from owner_node.release.work import Owner, ReleaseWork
from owner_node.state.answers import RoundAnswer, digests_of
from owner_node.state.rounds import AnsweredRound
from owner_node.state.session import SessionEvent, SessionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from owner_node.release.crossing import Crossing
    from owner_node.release.opened_round import OpenedRound


class Measuring:
    """Answers rounds for one aggregator."""

    def __init__(self, owner: Owner, appraisal: Appraisal) -> None:
        self._owner, self._appraisal = owner, appraisal

    def answer(
        self,
        release: str,
        plan_digest: str,
        opening: bytes,
        signature: bytes,
        certificate: bytes = b"",
        sums_across: "Mapping[str, Parcel] | None" = None,
        partners: bytes = b"",
    ) -> RoundAnswer:
        """Answer a round; before the first one the charge is spent. Idempotent: nothing is drawn twice.

        Args:
            opening: The document that opens the round, with what comes with it (`common.model.rounds`).
            signature: The aggregator's signature of the document.
            certificate: The chain that it was signed with; empty: the plan's.
            sums_across: What owners of other groups sent this one, by owner.
            partners: Which of them have its persons, where `partners_size` says that they are needed.

        Raises:
            ProtocolError: If nothing was linked, the document opens another round than the next one, or
                contradicts plan, linking or the rounds before.
            IntegrityError: If a signature is invalid, or the key of an owner is not its own.
            DataChangedError: If the source changed since consent.
        """
        work, document, attached = self._open(release, plan_digest, opening, signature, certificate)
        before = self._owner.records.rounds.answered(self._owner.aggregator, release)
        if document.round <= len(before):
            return _repeat(document, before[document.round - 1])
        from owner_node.release.opened_round import OpenedRound

        opened = OpenedRound(work, document, attached, before)
        addendum, _ = opened.addendum, opened.masks  # what is wrong with the keys is found before the charge
        prepared = self._appraisal.prepared(work)
        if work.plan.has_partners and not before:
            _check_partners(work, addendum, partners)
            with work.transaction() as tx:
                self._owner.records.rounds.keep_partners(tx, *work.key[:2], partners)
        spend(work, prepared, addendum, signature)
        self._settle(work, document)
        if work.session.state is not SessionState.SPENT:
            raise ProtocolError(f"a session that is {work.session.state} answers no other round")
        work.progress.begin("counting", 0)
        sums = sums_across or {}
        return self._store(opened, opened.answer(self._appraisal, sums), sums)

    def partners_size(self, release: str, plan_digest: str, opening: bytes) -> int:
        """Return the size in bytes of what `answer` needs to know of the owners that have the same persons.

        It is 0 but in the first round of a release of several owners in a group.
        """
        self._owner.resume(release, plan_digest)
        work = self._owner.accepted(release, plan_digest)
        if not work.plan.has_partners or _read(opening)[0].round > 1:
            return 0
        return (work.session.n_records or 0) * work.plan.n_groups

    def _open(
        self, release: str, plan_digest: str, opening: bytes, signature: bytes, certificate: bytes
    ) -> tuple[ReleaseWork, RoundDocument, bytes]:
        """Return the work, and what opened a round of it, with what came with that."""
        self._owner.resume(release, plan_digest)
        work = self._owner.accepted(release, plan_digest)
        if not work.plan.product.rules.in_rounds or work.session.state is SessionState.RESERVED:
            raise ProtocolError("a round was opened before the data of a synthetic release were linked")
        document, attached = _read(opening)
        work.check_signed(Domain.ROUND, document.to_bytes(), signature, certificate)
        return work, document, attached

    def _settle(self, work: ReleaseWork, document: RoundDocument) -> None:
        """Record what opened a round before anything is sent for it; two of them would mean noise of both."""
        with work.transaction() as tx:
            first = self._owner.records.ledger.open_round(tx, *work.key, document.round, document.digest)
        if first != document.digest:
            raise ProtocolError(
                f"round {document.round} was opened by another document before",
                "a round is answered once; start the release again under another id",
            )

    def crossing(
        self, release: str, plan_digest: str, opening: bytes, signature: bytes, certificate: bytes = b""
    ) -> "Crossing":
        """Return what an owner does in a round beside answering it, for owners of other attributes.

        Arguments and errors as `answer` has them.
        """
        from owner_node.release.opened_round import OpenedRound

        work, document, attached = self._open(release, plan_digest, opening, signature, certificate)
        answered = self._owner.records.rounds.answered(self._owner.aggregator, release)
        before, is_answered = answered[: document.round - 1], document.round <= len(answered)
        if is_answered:
            _repeat(document, answered[document.round - 1])
        opened = OpenedRound(work, document, attached, before)
        if not opened.design.counts_across(opened.questions) or not self._owner.records.ledger.is_spent(
            *work.key
        ):
            raise ProtocolError("this owner sends others nothing in this round")
        self._settle(work, document)
        return opened.crossing(self._appraisal, is_answered=is_answered)

    def _store(self, opened: "OpenedRound", answer: bytes, sums: "Mapping[str, Parcel]") -> RoundAnswer:
        """Store an answer, with this owner's statement about all answers so far."""
        owner, work, document, before = self._owner, opened.work, opened.document, opened.before
        plan, last = work.plan, opened.is_last
        digest = chained(before[-1].digest if before else "", answer)
        size = sum(len(earlier.answer) for earlier in before) + len(answer)
        records = opened.addendum.records[owner.id]
        statement = FragmentStatement(
            plan.release, owner.id, plan.digest, document.digest, digest, size, records
        )
        signer = owner.signer.current_signer()
        signed, chain = signer.sign(Domain.FRAGMENT, statement.to_bytes()), signer.chain_pem.encode()
        answered = AnsweredRound(
            document.round, document.to_bytes(), opened.attached, answer, digest, signed, chain
        )
        with work.transaction() as tx:
            work.reopen()
            owner.records.rounds.add(tx, owner.aggregator, plan.release, answered)
            work.note(tx, "answered", round=document.round, answers=digest, **digests_of(sums))
            if last:
                work.advance(
                    tx, SessionEvent.SEAL, "sealed", {"fragment": digest, "size": size},
                    fragment_digest=digest, fragment_size=size, fragment_signature=signed,
                    fragment_certificate=chain,
                )  # fmt: skip
        if last:
            # The key of the release's tokens is not needed any more.
            owner.records.db.forget_removed()
            self._appraisal.forget(plan.release)
        return RoundAnswer(answer, signed, chain)


def _check_partners(work: ReleaseWork, addendum: Addendum, partners: bytes) -> None:
    """Check what the aggregator says about who has this owner's persons, which is untrusted input.

    Whether it is true both owners of a table check before they use it: they compare a digest of their tokens.

    Raises:
        IntegrityError: If it is not what the addendum is about, or names an owner that is none.
    """
    import numpy as np

    plan, own = work.plan, work.owner.id
    fault = ""
    if (
        digest(partners) != addendum.selections.get(own)
        or len(partners) != addendum.records[own] * plan.n_groups
    ):
        fault = "it is not what the addendum is about"
    else:
        places = np.frombuffer(partners, dtype=np.uint8).reshape(-1, plan.n_groups)
        if bool((places >= np.array([len(owners) for owners in plan.groups])).any()):
            fault = "it names owners that do not take part"
    if fault:
        raise IntegrityError(
            f"what the aggregator says about who has the same persons cannot be used: {fault}",
            "nothing was spent; ask the aggregator's operator",
        )


def _read(opening: bytes) -> tuple[RoundDocument, bytes]:
    try:
        return read_round(opening)
    except ValueError as problem:
        raise ProtocolError(str(problem), "both sides must run compatible versions") from None


def _repeat(document: RoundDocument, answered: AnsweredRound) -> RoundAnswer:
    """Return the stored answer to a round, if the round was opened by the same document."""
    if document.to_bytes() != answered.document:
        raise ProtocolError(
            f"round {document.round} was opened by another document before",
            "a round is answered once; start the release again under another id",
        )
    if not answered.answer:
        raise ProtocolError(f"the answer to round {document.round} is not kept any more")
    return RoundAnswer(answered.answer, answered.signature, answered.certificate)
