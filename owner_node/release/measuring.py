"""Answers to the rounds of a synthetic release: spend, count, draw, mask, store, send.

The first round counts nothing: owners answer zeros, and find out whether their masks cancel. The charge is
spent once, in the round after that. The last round asks nothing: an owner signs that it added up what all
owners answered, as it did before every round. One transaction stores a round's answer under its number; it
is sent afterwards, and after that only the same bytes. Noise follows from a secret of the release and from
what is asked, masks from another secret and from what opened the round. So a process that died before, or
whose state was restored, makes the same answer; and a question has one draw of noise, whatever comes with it.
On tables across groups noise also follows from what the other owner sent (`owner_node.synthesis.crossed`).

The aggregator states sums, never questions. What is counted follows from plan and sums, and is computed here.
An answer is masked under the digest of the document that opened its round, which stands for all sums and keys
so far: where owners got different documents, their masks do not cancel, and nobody learns anything.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.canonical import digest
from common.errors import IntegrityError, ProtocolError
from common.files import file_digest
from common.model.fragment import Addendum, FragmentStatement
from common.model.rounds import (
    LARGEST_PROOF,
    Parcel,
    RoundDocument,
    chained,
    read_round,
)
from common.trust.signing import Domain
from owner_node.linking.places import read_places
from owner_node.release.original_data import OriginalData
from owner_node.release.production import read_addendum, selection_sizes, spend
from owner_node.release.work import Owner, ReleaseWork
from owner_node.state.answers import RoundAnswer, digests_of
from owner_node.state.rounds import AnsweredRound
from owner_node.state.session import SessionEvent, SessionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from owner_node.release.crossing import Crossing
    from owner_node.release.opened_round import OpenedRound


@dataclass(frozen=True, slots=True)
class Opening:
    """A round as the aggregator opened it."""

    release: str
    plan_digest: str
    data: bytes
    """The document that opens the round, with what comes with it (`common.model.rounds`)."""
    signature: bytes
    """The aggregator's, of the document."""
    certificate: bytes = b""
    """The chain that it was signed with; empty: the plan's."""
    answers: Path | None = None
    """Answers of all owners to the round before, where `Measuring.unchecked` says that it is needed."""


class Measuring:
    """Answers rounds for one aggregator."""

    def __init__(self, owner: Owner, original_data: OriginalData) -> None:
        self._owner, self._original_data = owner, original_data

    def answer(
        self,
        opening: Opening,
        sums_across: "Mapping[str, Parcel] | None" = None,
        selection: bytes = b"",
    ) -> RoundAnswer:
        """Answer a round; the charge is spent in the first that counts. Idempotent: nothing is drawn twice.

        Args:
            sums_across: What owners of other groups sent this one, by owner.
            selection: What linking found of its records, where `selection_size` says that it is needed.

        Raises:
            ProtocolError: If nothing was linked, the document opens another round than the next one, or
                contradicts plan, linking or the rounds before.
            IntegrityError: If a signature is invalid, the key of an owner is not its own, or the sums of the
                round before do not hold.
            DataChangedError: If the source changed since consent.
        """
        work, document, attached = self._open(opening)
        before = self._owner.records.rounds.answered(*work.key[:2])
        if document.round <= len(before):
            return _repeat(work, document, before[document.round - 1])
        from owner_node.release.crossing import Crossing

        opened = Crossing(work, document, attached, before, self._original_data)
        addendum, _ = opened.addendum, opened.masks  # what is wrong with the keys is found before the charge
        self._settle(opened, opening.answers)
        if addendum.selections and not before:
            # In the round of zeros: what cannot be is found before any owner is charged.
            self._keep_selection(work, addendum, selection)
        if opened.questions:
            spend(work, opened.prepared, addendum, opening.signature)
            if work.session.state is not SessionState.SPENT:
                raise ProtocolError(f"a session that is {work.session.state} answers no other round")
            work.progress.begin("counting", 0)
        sums = sums_across or {}
        return self._store(opened, opened.answer(sums), sums)

    def selection_size(self, opening: Opening) -> int:
        """Return the size in bytes of what `answer` needs to know of this owner's records.

        It is 0 but in the first round, where linking selects persons, numbers them, gives them places, or
        says who has them, too.
        """
        self._owner.resume(opening.release, opening.plan_digest)
        work = self._owner.accepted(opening.release, opening.plan_digest)
        document, addendum = _read(opening.data)
        if document.round > 1 or self._owner.records.rounds.answered(*work.key[:2]):
            return 0
        return sum(selection_sizes(work, read_addendum(work, addendum)))

    def _keep_selection(self, work: ReleaseWork, addendum: Addendum, selection: bytes) -> None:
        """Check and store what linking found of this owner's records."""
        n_records, n_selection = addendum.records[self._owner.id], selection_sizes(work, addendum)[0]
        _check_selection(work, addendum, selection)
        if work.plan.linking.unites:
            read_places(selection, n_records)
        else:
            self._original_data.counted(work, n_records, selection[:n_selection])
        with work.transaction() as tx:
            self._owner.records.rounds.keep_selection(tx, *work.key[:2], selection)

    def unchecked(
        self, release: str, plan_digest: str, opening: bytes
    ) -> "tuple[RoundDocument, Path] | None":
        """Return what opened a round whose sums this owner has to check, and where to write the answers.

        Returns:
            None if it has checked them, or if no round came before.
        """
        self._owner.resume(release, plan_digest)
        work, document = self._owner.accepted(release, plan_digest), _read(opening)[0]
        before = self._owner.records.rounds.answered(*work.key[:2])
        most = len(work.plan.owners) * (len(before[-1].answer) + LARGEST_PROOF) if before else 0
        if document.answers_size > most:
            raise ProtocolError(f"answers of {document.answers_size:,} bytes are none")
        if not document.answers or self._owner.records.ledger.opening_of(*work.key[:2], document.round):
            return None
        return document, self._owner.records.outbox.parcel(*work.key[:2], f"answers-{document.round}")

    def _open(self, opening: Opening) -> tuple[ReleaseWork, RoundDocument, bytes]:
        """Return the work, and what opened a round of it, with what came with that."""
        self._owner.resume(opening.release, opening.plan_digest)
        work = self._owner.accepted(opening.release, opening.plan_digest)
        if not work.plan.product.rules.in_rounds or work.session.state is SessionState.RESERVED:
            raise ProtocolError("a round was opened before the data of a synthetic release were linked")
        document, attached = _read(opening.data)
        work.check_signed(Domain.ROUND, document.to_bytes(), opening.signature, opening.certificate)
        return work, document, attached

    def _settle(self, opened: "OpenedRound", answers: Path | None) -> None:
        """Check the sums of the round before, once, and record what opened this one before anything is sent.

        Two documents would mean noise of both.
        """
        work, document, ledger = opened.work, opened.document, self._owner.records.ledger
        if document.answers and not ledger.opening_of(*work.key[:2], document.round):
            if answers is None:
                raise ProtocolError("the answers to the round before are missing")
            try:
                if file_digest(answers) != document.answers:
                    raise IntegrityError("the aggregator sends other answers than those that it names")
                opened.check(answers)
            finally:
                # Fetched again unless it is settled.
                answers.unlink()
        with work.transaction() as tx:
            first = ledger.open_round(tx, *work.key, document.round, document.digest)
        if first != document.digest:
            raise ProtocolError(
                f"round {document.round} was opened by another document before",
                "a round is answered once; start the release again under another id",
            )

    def crossing(self, opening: Opening) -> "Crossing":
        """Return what an owner does in a round beside answering it, for owners of other attributes.

        Errors as `answer` has them.
        """
        from owner_node.release.crossing import Crossing

        work, document, attached = self._open(opening)
        answered = self._owner.records.rounds.answered(*work.key[:2])
        before, is_answered = answered[: document.round - 1], document.round <= len(answered)
        if is_answered:
            _repeat(work, document, answered[document.round - 1])
        opened = Crossing(work, document, attached, before, self._original_data, is_answered=is_answered)
        if not opened.is_across or not self._owner.records.ledger.is_spent(*work.key):
            raise ProtocolError("this owner sends others nothing in this round")
        self._settle(opened, opening.answers)
        return opened

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
            self._original_data.forget(plan.release)
        return _round_answer(work, answered)


def _check_selection(work: ReleaseWork, addendum: Addendum, selection: bytes) -> None:
    """Check what the aggregator says about this owner's records, and who has them, which is untrusted input.

    Whether it is true both owners of a table check before they use it: they compare a digest of their tokens.
    Numbers of persons, where match keys link them, are what the aggregator says.

    Raises:
        IntegrityError: If it is not what the addendum is about, or names an owner that is none.
    """
    import numpy as np

    plan, own = work.plan, work.owner.id
    n_selection, n_partners = selection_sizes(work, addendum)
    fault = ""
    if digest(selection) != addendum.selections.get(own) or len(selection) != n_selection + n_partners:
        fault = "it is not what the addendum is about"
    elif n_partners:
        places = np.frombuffer(selection[n_selection:], dtype=np.uint8).reshape(-1, plan.n_groups)
        if bool((places >= np.array([len(owners) for owners in plan.groups])).any()):
            fault = "it names owners that do not take part"
    if fault:
        raise IntegrityError(
            f"what the aggregator says about this owner's persons cannot be used: {fault}",
            "nothing was spent; ask the aggregator's operator",
        )


def _read(opening: bytes) -> tuple[RoundDocument, bytes]:
    try:
        return read_round(opening)
    except ValueError as problem:
        raise ProtocolError(str(problem), "both sides must run compatible versions") from None


def _round_answer(work: ReleaseWork, answered: AnsweredRound) -> RoundAnswer:
    """Return a stored answer with the proof that it is this owner's."""
    key, opening = work.release_key(), digest(answered.document)
    proof = b"" if key is None else key.answer_proof(work.owner.id, opening, answered.digest)
    return RoundAnswer(answered.answer, answered.signature, answered.certificate, proof)


def _repeat(work: ReleaseWork, document: RoundDocument, answered: AnsweredRound) -> RoundAnswer:
    """Return the stored answer to a round, if the round was opened by the same document."""
    if document.to_bytes() != answered.document:
        raise ProtocolError(
            f"round {document.round} was opened by another document before",
            "a round is answered once; start the release again under another id",
        )
    if not answered.attached:
        raise ProtocolError(f"the answer to round {document.round} is not kept any more")
    return _round_answer(work, answered)
