"""Accepts uploads: which, in which state of a release, and with which answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.api.answers import TOKEN_BYTES, check_plan, most_linked
from aggregator.drive.conductor import Conductor
from aggregator.drive.presence import LoopTurns
from aggregator.drive.stages import fragment_check
from aggregator.protocol.events import Received
from aggregator.protocol.release import Release
from aggregator.protocol.states import State
from aggregator.store.intake import Blob, BlobKind, Intake
from common.daemon.metrics import bytes_counter
from common.errors import (
    ConflictError,
    IntegrityError,
    InternalError,
    NotConnectedError,
    ProtocolError,
    TesseraError,
)
from common.model.fragment import Receipt, n_records
from common.model.rounds import Parcel, ParcelKind, RoundDocument
from common.trust.signing import Domain, SignerSource
from common.wire.chunks import data_of
from common.wire.limits import check_lengths
from common.wire.v1 import owner_pb2 as wire

if TYPE_CHECKING:
    from common.wire.decoding import FragmentCheck

RECEIVED_BYTES = bytes_counter(
    "tessera_aggregator_received_bytes",
    "Bytes of tokens and fragments that were received since the start.",
    BlobKind,
)
_KINDS = {
    wire.BLOB_KIND_TOKENS: BlobKind.TOKENS,
    wire.BLOB_KIND_FRAGMENT: BlobKind.FRAGMENT,
    wire.BLOB_KIND_ROWS: BlobKind.ROWS,
    wire.BLOB_KIND_SUMS: BlobKind.SUMS,
}
_PARCELS = (BlobKind.ROWS, BlobKind.SUMS)
_STALL_SECONDS = 60.0
"""How long an upload may be silent before it is cut off; the owner can resume it later."""


class Uploads:
    """Accepts tokens while a release links, and fragments once every owner has sealed.

    Args:
        conductor: The releases.
        intake: Where uploads are kept.
        signer: Signs receipts.
        clock: The time in Unix seconds.
    """

    def __init__(
        self,
        conductor: Conductor,
        intake: Intake,
        signer: SignerSource,
        clock: Callable[[], float],
        turns: LoopTurns,
    ) -> None:
        self._turns = turns
        self._conductor = conductor
        self._intake = intake
        self._signer = signer
        self._clock = clock

    async def offset(self, release: Release, owner: str, key: wire.BlobKey) -> int:
        """Return how many bytes of a blob need not be sent again.

        Raises:
            ProtocolError, ConflictError: If no such blob is expected.
        """
        blob, done = self._expected(release, owner, key)
        return blob.size if done else self._intake.offset(blob)

    def parcel(self, release: Release, name: str) -> Path:
        """Return the file of what an owner sent others, or of all answers to the last round, by its digest.

        Raises:
            ProtocolError: If nobody sent it.
        """
        if release.rounds and RoundDocument.from_bytes(release.rounds[-1].document.encode()).answers == name:
            return self._intake.answers(release.id, len(release.rounds) - 1)
        for owner, progress in release.progress.items():
            for passed in (progress.passed_rows, progress.passed_sums):
                # Reading the statements of all owners would take milliseconds, and every owner needs many.
                if passed is None or name not in passed.statement:
                    continue
                stated = Parcel.from_bytes(passed.statement.encode())
                if stated.parcel_digest == name:
                    return self._intake.path(release.id, owner, BlobKind(stated.kind))
        raise ProtocolError("no owner sent this", "request the work that is due")

    def selection(self, release: str, owner: str) -> Path:
        """Return the file of what linking selected of an owner's records."""
        return self._intake.path(release, owner, BlobKind.SELECTION)

    async def receive(
        self,
        release: Release,
        owner: str,
        key: wire.BlobKey,
        first: wire.UploadChunk,
        rest: AsyncIterator[wire.UploadChunk],
    ) -> wire.UploadResponse:
        """Receive a blob to its end.

        Args:
            release: The release; the owner takes part in it.
            owner: Owner id, from the certificate of the call.
            key: Key of the blob.
            first: The first chunk.
            rest: The other chunks.

        Returns:
            For a fragment, the signed receipt. Idempotent: repeated uploads return the same receipt.

        Raises:
            ProtocolError, ConflictError, IntegrityError: If the blob is not expected or not what was stated.
        """
        blob, done = self._expected(release, owner, key)
        if not done:
            check = _Check(release, owner) if blob.kind is BlobKind.FRAGMENT else None
            chunks = self._chunks(blob, first, rest)
            try:
                await self._intake.receive(blob, first.offset, chunks, check)
            except FileNotFoundError:
                raise _ended(release.id) from None
            if check is not None:
                await self._received(release, owner, blob, check)
        if blob.kind is not BlobKind.FRAGMENT:
            return wire.UploadResponse()
        received = self._conductor.release(release.id).progress[owner].received
        if received is None:
            raise _ended(release.id)
        return wire.UploadResponse(
            receipt=received.receipt.encode(),
            signature=bytes.fromhex(received.signature),
            certificate=received.certificate.encode(),
        )

    async def _received(self, release: Release, owner: str, blob: Blob, check: "_Check") -> None:
        """Record the receipt of a complete fragment. An unusable one ends the release: it never changes."""
        try:
            await self._turns.in_thread(check.finish)
        except IntegrityError as error:
            if not self._conductor.release(release.id).ended:
                self._conductor.fail(release.id, error, owner)
            raise
        now = int(self._clock())
        moment = datetime.fromtimestamp(now, UTC).isoformat()
        receipt = Receipt(release.id, owner, release.plan_digest, blob.digest, moment).to_bytes()
        signer = self._signer.current_signer()
        event = Received(
            at=now,
            owner=owner,
            receipt=receipt.decode(),
            signature=signer.sign(Domain.RECEIPT, receipt).hex(),
            certificate=signer.chain_pem,
        )
        self._conductor.record(release.id, event)

    async def _chunks(
        self, blob: Blob, first: wire.UploadChunk, rest: AsyncIterator[wire.UploadChunk]
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of an upload; an offset on a later chunk must be where that chunk belongs."""
        data = data_of(first)
        position = first.offset + len(data)
        RECEIVED_BYTES.labels(blob.kind).inc(len(data))
        yield data
        async for chunk in rest:
            data = data_of(chunk)
            if chunk.offset not in (0, position):
                raise ProtocolError(f"a chunk for byte {chunk.offset} came at byte {position}")
            if self._conductor.release(blob.release).ended:
                raise _ended(blob.release)
            if not data:
                raise ProtocolError("a chunk is empty", "send the bytes, or end the upload")
            position += len(data)
            RECEIVED_BYTES.labels(blob.kind).inc(len(data))
            yield data

    def _expected(self, release: Release, owner: str, key: wire.BlobKey) -> tuple[Blob, bool]:
        """Return the blob that is uploaded, and whether the aggregator has it already."""
        check_plan(release, key.plan_digest)
        kind = _KINDS.get(key.kind)
        if kind is None:
            raise ProtocolError("the upload is neither tokens nor a fragment")
        blob = Blob(release.id, owner, kind, key.digest, key.size)
        if kind is BlobKind.TOKENS:
            return blob, _check_tokens(release, blob)
        if kind in _PARCELS:
            return blob, _check_parcel(release, blob)
        return blob, _check_fragment(release, blob)


class _Check:
    """Checks a fragment while it is received; an error is raised only once its digest is right.

    Args:
        release: The release; the owner has stated its fragment.
        owner: Owner id.
    """

    def __init__(self, release: Release, owner: str) -> None:
        self._release = release
        self._owner = owner
        self._fragment: FragmentCheck | None = None
        self._error: TesseraError | None = None

    def __call__(self, data: bytes | memoryview) -> None:
        """Check the next bytes."""
        if self._error is not None:
            return
        try:
            if self._fragment is None:
                self._fragment = fragment_check(self._release, self._owner)
            for _ in self._fragment.update(data):
                """Reading a batch checks it."""
        except TesseraError as error:
            self._error = error

    def finish(self) -> None:
        """Raise the first error.

        Raises:
            IntegrityError: If the bytes are not the owner's fragment under this plan.
        """
        if self._error is not None:
            raise self._error
        if self._fragment is None:
            raise InternalError("a fragment was not checked")
        self._fragment.finish()


def _check_tokens(release: Release, blob: Blob) -> bool:
    linked = release.progress[blob.owner].linked
    if linked is not None:
        if linked.tokens_digest != blob.digest:
            raise ConflictError(
                f"owner {blob.owner} has sent another token list before", "the first one counts"
            )
        return True
    plan = release.the_plan()
    if release.state is not State.LINKING or not plan.linking.tokens:
        raise ProtocolError(f"release {release.id} is {release.state}: no tokens are expected")
    linked_at_most = most_linked(plan.assignment_of(blob.owner))
    if plan.passes:
        from common.matching.lists import largest_blob

        possible = 0 < blob.size <= largest_blob(len(plan.passes), linked_at_most)
    else:
        possible = not blob.size % TOKEN_BYTES and 0 < blob.size <= TOKEN_BYTES * linked_at_most
    if not possible:
        raise ProtocolError(f"{blob.size} bytes cannot be the tokens of the described records")
    return False


def _check_parcel(release: Release, blob: Blob) -> bool:
    progress, plan = release.progress[blob.owner], release.the_plan()
    passed = progress.passed_rows if blob.kind is BlobKind.ROWS else progress.passed_sums
    if passed is not None:
        if Parcel.from_bytes(passed.statement.encode()).parcel_digest != blob.digest:
            raise ConflictError(
                f"owner {blob.owner} has sent other {blob.kind} before", "the first ones count"
            )
        return True
    # After the end, nobody would delete it.
    opened = release.rounds[-1] if release.state is State.MEASURING and release.round else None
    senders = () if opened is None else opened.rows if blob.kind is BlobKind.ROWS else opened.sums
    if blob.owner not in senders or release.addendum is None:
        raise ProtocolError(
            f"no {blob.kind} of owner {blob.owner} are expected now", "do the work that is due"
        )
    from common.planning.synthetic import design_of
    from common.synthesis.counters import largest_parcel

    # Across groups an owner is in one of them.
    (group,) = plan.assignment_of(blob.owner).groups
    design, n_persons = (
        design_of(plan, n_records(plan, release.addendum)),
        release.addendum.records[blob.owner],
    )
    if blob.size > largest_parcel(design, group, ParcelKind(blob.kind), n_persons):
        raise ProtocolError(f"{blob.size} bytes cannot be the {blob.kind} of this release")
    return False


def _check_fragment(release: Release, blob: Blob) -> bool:
    progress, statement = release.progress[blob.owner], release.statement(blob.owner)
    if statement is None:
        raise ProtocolError(f"owner {blob.owner} has not sealed its fragment", "seal it first")
    if (statement.fragment_digest, statement.size) != (blob.digest, blob.size):
        raise ConflictError("this is not the fragment that was sealed", "upload the sealed one")
    if progress.received is not None:
        return True
    if release.state is not State.COLLECTING:
        waiting = ", ".join(release.missing("sealed"))
        reason = f"waiting for {waiting} to seal" if waiting else f"the release is {release.state}"
        raise ProtocolError(f"fragments of release {release.id} are not taken: {reason}", "wait for the work")
    return False


async def timely(chunks: AsyncIterator[wire.UploadChunk]) -> AsyncIterator[wire.UploadChunk]:
    """Yield the chunks of an upload as they come.

    Raises:
        NotConnectedError: If nothing came for too long.
        ProtocolError: If a text of a chunk is too long.
    """
    stream = aiter(chunks)
    while True:
        try:
            async with asyncio.timeout(_STALL_SECONDS):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise NotConnectedError(
                "the upload was silent for too long", "request the offset and resume there"
            ) from None
        if chunk is None:
            return
        check_lengths(chunk)
        yield chunk


def _ended(release: str) -> ProtocolError:
    return ProtocolError(f"release {release} ended during the upload", "request the work that is due")
