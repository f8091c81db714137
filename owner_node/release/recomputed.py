"""Messages that an owner sent in the rounds of a synthetic release, computed again for its auditor.

It follows from the pinned records, from a seed and keys that were stored before anything was sent, and from
what others sent. So an owner that counted other rows than its own cannot show how its messages came about.
An owner keeps all that for a while after publication if the plan or `[owner] keep_for_audit` says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from common.errors import IntegrityError, ProtocolError, UsageError
from common.files import file_digest
from common.model.rounds import Parcel, ParcelKind, RoundDocument, chained
from common.progress import Progress
from owner_node.release.crossing import Crossing
from owner_node.release.original_data import OriginalData
from owner_node.release.records import DELETED
from owner_node.release.work import Owner, ReleaseWork

ANSWER = "answer"
_DAY = len("2026-01-02")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that came out as it was sent."""

    round: int
    kind: str
    """"answer", or a `ParcelKind`: what was sent to owners of other attributes."""
    digest: str
    """SHA-256 of a parcel, as the history and its recipients have it; of an answer, of all up to it."""


def recompute(owner: Owner, work: ReleaseWork, progress: Progress) -> Iterator[Message]:
    """Compute what an owner sent, round by round.

    Raises:
        UsageError: If it does not keep what that needs, or not any more.
        DataChangedError: If its source has other records than those that were pinned.
        IntegrityError: If something comes out otherwise than it was sent.
    """
    names, release = work.key[:2], work.session.release
    answered, data = owner.records.rounds.answered(*names), OriginalData(owner)
    if not owner.records.rounds.may_continue(*names) or not all(each.attached for each in answered):
        deleted = [line.time[:_DAY] for line in owner.records.history.entries(*names, DELETED)]
        raise UsageError(
            f"{owner.id} deleted its messages of release {release}, their seed and keys on {deleted[-1]}"
            if deleted
            else f"{owner.id} does not have the messages of release {release}, their seed and keys",
            "the plan (--audit) or [owner] keep_for_audit in owner.toml says how long after publication they "
            "are kept; without both they are deleted then. No backup has them",
        )
    try:
        before = ""
        for place, sent in enumerate(answered):
            document = RoundDocument.from_bytes(sent.document)
            crossing = Crossing(work, document, sent.attached, answered[:place], data, is_answered=True)
            sums = dict[str, Parcel]()
            if crossing.is_across:
                yield from _parcels(crossing, document.round, progress)
                sums = _received(crossing, ParcelKind.SUMS)
            progress.begin(f"answering round {document.round}")
            before = chained(before, crossing.answer(sums))
            _compare(before, sent.digest, f"its answer of round {document.round}")
            yield Message(document.round, ANSWER, before)
    except ProtocolError as problem:
        raise IntegrityError(f"the rounds that are stored do not fit together: {problem.message}") from None
    finally:
        data.forget(work.session.release)


def _parcels(crossing: Crossing, number: int, progress: Progress) -> Iterator[Message]:
    """Compute what owners of other attributes got in a round."""
    if crossing.roles.adders(crossing.number):
        digest = sha256()
        for piece in crossing.encrypted(progress):
            digest.update(piece)
        yield _parcel(crossing, number, ParcelKind.ROWS, digest.hexdigest())
    if crossing.roles.holders(crossing.number):
        rows = _received(crossing, ParcelKind.ROWS)
        added = crossing.added(rows, progress)
        yield _parcel(crossing, number, ParcelKind.SUMS, sha256(added).hexdigest())


def _parcel(crossing: Crossing, number: int, kind: ParcelKind, digest: str) -> Message:
    try:
        sent = file_digest(crossing.path(kind))
    except FileNotFoundError as missing:
        raise _gone(missing) from None
    _compare(digest, sent, f"its message {str(kind)!r} of round {number}")
    return Message(number, str(kind), digest)


def _received(crossing: Crossing, kind: ParcelKind) -> dict[str, Parcel]:
    try:
        return crossing.stored(kind)
    except FileNotFoundError as missing:
        raise _gone(missing) from None


def _gone(missing: FileNotFoundError) -> UsageError:
    name = Path(missing.filename).name
    return UsageError(f"{name} is not in the outbox any more", "nothing can be computed again without it")


def _compare(made: str, sent: str, what: str) -> None:
    if made != sent:
        raise IntegrityError(
            f"{what} does not follow from its records, its seed and its keys",
            "this owner sent something else than the program computes, or its state was changed since",
        )
