"""The rounds of a synthetic release at the aggregator: add the answers up, and open the next round.

The aggregator states what it added up; everybody computes what is asked next (`common.synthesis.schedule`).
numpy is imported here, when the first such release needs it.
"""

from base64 import b64decode, b64encode
from contextlib import suppress
from typing import TYPE_CHECKING

from aggregator.protocol.events import Opened
from aggregator.protocol.release import Release
from aggregator.store.intake import Intake
from common.canonical import digest
from common.errors import IntegrityError, InternalError, UnusableDataError
from common.files import write_atomic
from common.model.fragment import n_records
from common.model.rounds import N_ZEROS, RoundDocument, SignedAnswer, SignedAnswers, SignedKey, chained
from common.trust.signing import Domain, SignerSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.arrays import Int64Array
    from common.synthesis.schedule import Round


def opened_round(release: Release, intake: Intake, signer: SignerSource, at: int) -> Opened:
    """Add the answers to the open round up, and open the next one; or the first.

    Args:
        release: A release whose owners have all answered the open round, or that has none yet.

    Raises:
        UnusableDataError: If there are too many records for a synthetic release; nothing is spent.
        IntegrityError: If an answer is not on the disk as it arrived, the answers do not add up, or their
            sums are implausible.
    """
    import numpy as np

    from common.planning.synthetic import design_of
    from common.synthesis.plausible import fault_of_sums
    from common.synthesis.sample import MOST_RECORDS
    from common.synthesis.schedule import RoundSums, check_design, n_numbers, next_round

    plan, addendum, before = release.the_plan(), release.addendum, release.rounds
    if addendum is None:
        raise InternalError(f"release {release.id} has not linked")
    design = design_of(plan, n_records(plan, addendum))
    attached_before = [b64decode(opened.attached) for opened in before[1:]]
    sums = [np.frombuffer(numbers, dtype="<i8").astype(np.int64) for numbers in attached_before]
    asked: Round | RoundSums = ()
    shown = b""
    if before:
        total, shown = _add_up(release, intake)
        sums.append(total)
        if fault := fault_of_sums(design, sums[1:], plan.groups):
            raise IntegrityError(fault, "nothing was published; ask the administrators of these owners")
        attached = total.astype("<i8").tobytes()
        asked = next_round(design, sums[1:])
    else:
        if design.n_records > MOST_RECORDS:
            raise UnusableDataError(
                f"{design.n_records:,} records, a synthetic release has at most {MOST_RECORDS:,}",
                "make it of fewer owners; nothing was spent",
            )
        check_design(design)
        attached = addendum.to_bytes()
    document = RoundDocument(
        release.id,
        plan.digest,
        addendum.digest,
        len(before) + 1,
        digest(before[-1].document.encode()) if before else "",
        digest(attached),
        () if before else _keys(release),
        digest(shown) if before else "",
        len(shown),
    ).to_bytes()

    def owners_of(groups: "Iterable[int]") -> tuple[str, ...]:
        return tuple(owner for group in groups for owner in plan.owners_of(group))

    key, is_across = signer.current_signer(), not isinstance(asked, RoundSums) and design.counts_across(asked)
    return Opened(
        at=at,
        document=document.decode(),
        attached=b64encode(attached).decode(),
        numbers=0 if isinstance(asked, RoundSums) else n_numbers(asked) if before else N_ZEROS,
        signature=key.sign(Domain.ROUND, document).hex(),
        certificate=key.chain_pem,
        rows=owners_of(design.order[:-1]) if is_across else (),
        sums=owners_of(design.order[1:]) if is_across else (),
    )


def _add_up(release: Release, intake: Intake) -> "tuple[Int64Array, bytes]":
    """Return the sums of the answers to the open round, and the file in which owners get these."""
    from common.synthesis.sums import add_answers, check_sums

    answers, signed = {}, []
    for owner, progress in release.progress.items():
        statement, measured = progress.statement, progress.measured
        try:
            answers[owner] = intake.answer(release.id, owner, release.round).read_bytes()
        except FileNotFoundError:
            answers[owner] = b""
        chain = chained(progress.counted, answers[owner])
        if statement is None or measured is None or chain != statement.fragment_digest:
            raise IntegrityError(
                f"the answer of {owner} to round {release.round} is not on the disk as it arrived",
                "check the aggregator's disk, and who may write to its state directory",
                {"owner": owner},
            )
        by = measured.signature, measured.certificate, measured.key_proof
        signed.append(SignedAnswer(owner, progress.counted, *by))
    sums = add_answers(answers, release.rounds[-1].numbers)
    check_sums(sums, release.round)
    shown = b"".join([SignedAnswers(tuple(signed)).head(), *answers.values()])
    with suppress(FileNotFoundError):
        # Its folder is gone if it ended meanwhile.
        write_atomic(intake.answers(release.id, release.round), shown)
    return sums, shown


def _keys(release: Release) -> tuple[SignedKey, ...]:
    linked = {owner: progress.linked for owner, progress in release.progress.items()}
    return tuple(
        SignedKey(owner, answer.sum_key, answer.signature, answer.certificate)
        for owner, answer in linked.items()
        if answer is not None
    )
