"""The gRPC service for owners. Every call is checked as untrusted input.

The caller is read from the TLS certificate on every call, since a connection outlives its certificate. Only
participants of a release can access it; for all other callers it does not exist.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cryptography import x509
from google.protobuf.message import Message

from aggregator.api.answers import Answers, check_plan
from aggregator.api.call_errors import abort, raises
from aggregator.api.rates import Rates
from aggregator.api.server_tls import peer_certificate
from aggregator.api.statements import Statements
from aggregator.api.uploads import Uploads, timely
from aggregator.ca.enrolment import Enrolment
from aggregator.ca.renewal import Renewals
from aggregator.drive.conductor import Conductor
from aggregator.drive.deadlines import elapsed
from aggregator.drive.messages import fit_into_message, work_message
from aggregator.drive.presence import LoopTurns, OwnerPresence, wait
from aggregator.protocol.release import Release
from aggregator.protocol.states import ENDS, State
from aggregator.store.journal import Journal, KnownOwner
from aggregator.store.schemas import OfferedSchemas
from common.errors import NotConnectedError, ProtocolError, UsageError
from common.files import CHUNK_BYTES
from common.model.compatibility import common_protocol
from common.model.plan import is_trial
from common.model.rounds import FIRST_COUNTED
from common.progress import StepEstimate
from common.trust.identity import fingerprint, party_of_certificate
from common.trust.signing import Domain, SignerSource
from common.wire.answers import NONCE_BYTES, TIME_KEY, signed_answer
from common.wire.limits import check_lengths
from common.wire.software import read_software, software_here
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.owner_pb2_grpc import OwnerServiceServicer

if TYPE_CHECKING:
    import grpc

POLL_SECONDS = 25.0
"""How long a poll stays open when there is nothing to do."""
_MOST_DATASETS = 1000
_READ_BYTES = 4 * CHUNK_BYTES
_log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class OwnerService(OwnerServiceServicer):
    """The service on the TLS port."""

    def __init__(
        self,
        *,
        conductor: Conductor,
        journal: Journal,
        presence: OwnerPresence,
        statements: Statements,
        answers: Answers,
        uploads: Uploads,
        enrolment: Enrolment,
        renewals: Renewals,
        schemas: OfferedSchemas,
        trust_domain: str,
        signer: SignerSource,
        clock: Callable[[], float],
    ) -> None:
        self._signer = signer
        self._conductor = conductor
        self._journal = journal
        self._presence = presence
        self._statements = statements
        self._answers = answers
        self._uploads = uploads
        self._enrolment = enrolment
        self._renewals = renewals
        self._schemas = schemas
        self._trust_domain = trust_domain
        self._clock = clock
        self._closing = False
        self._turns, self._rates = LoopTurns(), Rates(elapsed)

    def close(self) -> None:
        """End all pending polls; owners call again when the aggregator is back."""
        self._closing = True
        self._presence.wake_all()

    @raises
    async def Connect(self, request: wire.ConnectRequest, context: Context) -> wire.ConnectResponse:
        """Register a connected owner; returns the newest ledger head that it has signed."""
        certificate = await self._admit(context, request)
        owner = party_of_certificate(certificate).name
        software = read_software(request.software)
        common_protocol("the aggregator", {f"owner {owner}": software})
        names = tuple(request.datasets)
        if len(names) > _MOST_DATASETS:
            raise ProtocolError(
                f"{len(names)} data sets, at most {_MOST_DATASETS} are accepted",
                "offer fewer to this aggregator",
            )
        now = int(self._clock())
        # For owners that compare clocks: certificates and deadlines depend on them.
        await context.send_initial_metadata(((TIME_KEY, str(now)),))
        expires = int(certificate.not_valid_after_utc.timestamp())
        key = fingerprint(certificate.public_key())
        self._enrolment.note_seen(certificate)
        self._journal.seen(KnownOwner(owner, now, now, software.version, names, key, expires))
        # No head comes with this call: they come with polls, consents and seals, once the owner has compared
        # its ledger with the one that is returned here. A restored ledger cannot replace it.
        head = self._newest_head(owner)
        response = wire.ConnectResponse(software=software_here(), newest_ledger_head=head)
        self._sign(response, owner, request.nonce)
        _log.info("owner connected", extra={"owner": owner, "version": software.version})
        return response

    @raises
    async def Poll(self, request: wire.PollRequest, context: Context) -> wire.PollResponse:
        """Hold the call until there is something to do that the owner is not busy with."""
        owner = self._name(await self._admit(context, request))
        if request.HasField("ledger_head"):
            signed = self._statements.ledger_head(request.ledger_head, owner)
            newest = self._newest_head(owner)
            if newest is not None and newest.hash not in (request.shown, signed.head.hash):
                # Stored since this owner last looked: a copy of its state directory has to see it first.
                self._journal.heads.compare(signed.head, int(self._clock()))
                return wire.PollResponse(newest_ledger_head=newest)
            self._journal.heads.keep(signed, int(self._clock()))
            _log.info("ledger head", extra={"owner": owner, "sequence": signed.head.sequence})
        busy = {(key.release, key.step) for key in request.busy}
        ends = time.monotonic() + POLL_SECONDS
        self._presence.note_progress(owner, self._estimates(owner, request))
        with self._presence.polling(owner):
            while True:
                ticket = self._presence.signal(owner).ticket()
                due = fit_into_message(
                    work_message(release, work, self._conductor.document(release.id))
                    for release, work in self._conductor.work(owner)
                    if (work.release, work.name) not in busy
                )
                remaining = ends - time.monotonic()
                if due or self._closing or remaining <= 0:
                    # The certificate may have expired, or been revoked, while the poll was held.
                    self._certificate(context)
                    response = wire.PollResponse(work=due, newest_ledger_head=self._newest_head(owner))
                    if due:
                        self._sign(response, owner, request.nonce)
                    return response
                await wait(ticket, remaining)
                # One change can wake every owner of a release.
                await self._turns.take()

    def _estimates(self, owner: str, request: wire.PollRequest) -> dict[str, StepEstimate]:
        """Return how far an owner is with the masking that it has to do, by release."""
        stated = {
            key.release: key.progress
            for key in request.busy
            if key.step == "mask" and key.HasField("progress")
        }
        due = self._conductor.work(owner) if stated else ()
        return {
            work.release: StepEstimate(min(mask.percent, 100), mask.seconds_left)
            for _, work in due
            if work.step == "mask" and (mask := stated.get(work.release)) is not None
        }

    @raises
    async def Answer(self, request: wire.AnswerRequest, context: Context) -> wire.AnswerResponse:
        """Accept an owner's answer. Idempotent; an answer that differs from an earlier one is refused."""
        owner = self._name(await self._admit(context, request))
        self._presence.heard(owner)
        release = self._release(request.release, owner)
        now = int(self._clock())
        kind = request.WhichOneof("answer")
        if kind == "failure":
            failure = request.failure
            self._conductor.owner_failed(release.id, owner, failure.code, failure.message, failure.objects_to)
            return wire.AnswerResponse()
        if release.ended and kind != "acknowledged":
            # The release ended while the answer was on its way; the next poll reports the end.
            return wire.AnswerResponse()
        try:
            event = await self._answers.event(release, owner, request, now)
        except ProtocolError as error:
            known = self._conductor.release(release.id)
            made_once = kind == "described" or (kind == "measured" and known.is_open(request.measured.round))
            if made_once and getattr(known.progress[owner], str(kind)) is None:
                # It is made once: the owner would send it again and again until the deadline.
                fault = ProtocolError(f"owner {owner}: {error.message}", error.hint, error.details)
                self._conductor.fail(release.id, fault, owner)
            raise
        await self._turns.take()
        self._conductor.record(release.id, event)
        return wire.AnswerResponse()

    @raises
    async def UploadState(
        self, request: wire.UploadStateRequest, context: Context
    ) -> wire.UploadStateResponse:
        """Return the offset at which an upload resumes."""
        owner = self._name(await self._admit(context, request))
        self._presence.heard(owner)
        release = self._release(request.blob.release, owner)
        offset = await self._uploads.offset(release, owner, request.blob)
        return wire.UploadStateResponse(offset=offset, zstd=True)

    @raises
    async def Upload(
        self, request_iterator: AsyncIterator[wire.UploadChunk], context: Context
    ) -> wire.UploadResponse:
        """Receive tokens or a fragment from the offset that `UploadState` returned."""
        owner = self._name(await self._admit(context))
        chunks = timely(request_iterator)
        first = await anext(chunks, None)
        if first is None or not first.HasField("blob"):
            raise ProtocolError("an upload begins with the key of its blob")
        release = self._release(first.blob.release, owner)
        with self._presence.polling(owner):
            return await self._uploads.receive(release, owner, first.blob, first, chunks)

    @raises
    async def Renew(self, request: wire.RenewRequest, context: Context) -> wire.RenewResponse:
        """Issue a certificate for a new key of the owner that calls."""
        present = await self._admit(context, request)
        chain = await asyncio.to_thread(self._renewals.renew, present, request.request)
        _log.info("certificate renewed", extra={"owner": party_of_certificate(present).name})
        return wire.RenewResponse(certificate=chain)

    @raises
    async def FetchSchema(
        self, request: wire.FetchSchemaRequest, context: Context
    ) -> wire.FetchSchemaResponse:
        """Send the schema file that is offered for a data set."""
        await self._admit(context, request)
        return wire.FetchSchemaResponse(schema=await asyncio.to_thread(self._schemas.find, request.dataset))

    @raises
    async def Recall(self, request: wire.RecallRequest, context: Context) -> AsyncIterator[wire.RecallItem]:
        """Send what the calling owner signed: its ledger heads, and for the releases that it accepted."""
        owner = self._name(await self._admit(context, request))
        newest_at = self._journal.heads.newest_at(owner)
        places = self._journal.heads.places(owner)
        yield wire.RecallItem(heads=[wire.LedgerHead(sequence=place, hash=mark) for place, mark in places])
        for release in (one for one in self._conductor.releases if not is_trial(one.id)):
            signed = _recall(release, owner, newest_at)
            if signed is not None:
                yield wire.RecallItem(release=signed)
        _log.warning("owner recalls its releases", extra={"owner": owner})

    @raises
    async def Fetch(self, request: wire.FetchRequest, context: Context) -> AsyncIterator[wire.FetchChunk]:
        """Send the document that the work of a release names."""
        owner = self._name(await self._admit(context, request))
        release = self._release(request.release, owner)
        document = self._conductor.document(release.id)
        if document is None or document.digest != request.digest:
            raise ProtocolError(
                f"release {release.id} is {release.state}: its work does not name this document",
                "request the work that is due",
            )
        for start in range(0, len(document.compressed), CHUNK_BYTES):
            yield wire.FetchChunk(data=document.compressed[start : start + CHUNK_BYTES])

    @raises
    async def FetchParcel(
        self, request: wire.ParcelRequest, context: Context
    ) -> AsyncIterator[wire.FetchChunk]:
        """Send what another owner has sent for this one."""
        owner = self._name(await self._admit(context, request))
        release = self._release(request.release, owner)
        check_plan(release, request.plan_digest)
        if not release.round:
            raise ProtocolError(
                f"release {release.id} is {release.state}: nothing is sent between its owners"
            )
        async for data in _read(self._uploads.parcel(release, request.digest), 0):
            yield wire.FetchChunk(data=data)

    @raises
    async def Select(self, request: wire.SelectRequest, context: Context) -> AsyncIterator[wire.SelectChunk]:
        """Send an owner what linking found of its own records (`Addendum.selections`), while it needs it."""
        owner = self._name(await self._admit(context, request))
        release = self._release(request.release, owner)
        check_plan(release, request.plan_digest)
        selected = release.addendum is not None and owner in release.addendum.selections
        if not selected or (release.state is not State.MASKING and not 1 <= release.round <= FIRST_COUNTED):
            raise ProtocolError(
                f"release {release.id} is {release.state}: there is no selection of records to be sent",
                "request the work that is due",
            )
        async for data in _read(self._uploads.selection(release.id, owner), 0):
            yield wire.SelectChunk(data=data)

    @raises
    async def Download(
        self, request: wire.DownloadRequest, context: Context
    ) -> AsyncIterator[wire.DownloadChunk]:
        """Send the listing or a file of a published release."""
        owner = self._name(await self._admit(context, request))
        release = self._release(request.release, owner)
        if release.state is not State.PUBLISHED:
            hint = "it has no data to download" if release.state in ENDS else "wait for its end"
            raise UsageError(f"release {release.id} is {release.state}, not published", hint)
        if release.deleted is not None:
            day = datetime.fromtimestamp(release.deleted.at, UTC).date()
            raise UsageError(
                f"the data of release {release.id} were deleted at the aggregator on {day}",
                "ask the aggregator's operator, or another owner that has downloaded them",
                {"release": release.id, "deleted": release.deleted.at},
            )
        folder = self._conductor.folder(release.id)
        files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if not files:
            raise UsageError(
                f"the data of release {release.id} are not there", "ask the aggregator's operator"
            )
        if not request.file:
            yield wire.DownloadChunk(files=files, sizes=[(folder / name).stat().st_size for name in files])
            return
        if request.file not in files:
            raise UsageError(f"release {release.id} has no such file", f"its files: {', '.join(files)}")
        size = (folder / request.file).stat().st_size
        if request.offset > size:
            raise UsageError(
                f"{request.file} of release {release.id} has {size} bytes", "start the download again"
            )
        async for data in _read(folder / request.file, request.offset):
            yield wire.DownloadChunk(data=data)

    async def _admit(self, context: Context, request: Message | None = None) -> x509.Certificate:
        """Wait until a call may be taken, and check the lengths in its message; returns the certificate."""
        certificate = peer_certificate(context, self._trust_domain, self._now())
        caller = self._name(certificate)
        if self._enrolment.is_revoked(certificate):
            # It has a rate, as every refusal is logged, but not its owner's, who may be enrolled again.
            caller = f"{caller} with a revoked key"
        try:
            await self._rates.take(caller, request.ByteSize() if request is not None else 0)
        except NotConnectedError as error:
            await abort(context, error)
        await self._turns.take()
        certificate = self._certificate(context)
        if request is not None:
            check_lengths(request)
        return certificate

    def _certificate(self, context: Context) -> x509.Certificate:
        """Return the caller's certificate: valid at this moment, an owner's, and not revoked."""
        certificate = peer_certificate(context, self._trust_domain, self._now())
        self._enrolment.check(certificate)
        return certificate

    def _newest_head(self, owner: str) -> wire.LedgerHead | None:
        """Return the newest ledger head that an owner has signed, as a message."""
        newest = self._journal.heads.newest(owner)
        if newest is None:
            return None
        return wire.LedgerHead(
            sequence=newest.head.sequence,
            hash=newest.head.hash,
            signature=newest.signature,
            certificate=newest.certificate,
        )

    def _sign(self, response: wire.ConnectResponse | wire.PollResponse, owner: str, nonce: bytes) -> None:
        if len(nonce) > NONCE_BYTES:
            raise ProtocolError("the nonce is too long", "the owner node must run a compatible version")
        signer = self._signer.current_signer()
        response.signature = signer.sign(Domain.ANSWER, signed_answer(owner, nonce, response))
        response.certificate = signer.chain_pem.encode()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    @staticmethod
    def _name(certificate: x509.Certificate) -> str:
        return party_of_certificate(certificate).name

    def _release(self, release: str, owner: str) -> Release:
        """Return a release that an owner takes part in; the existence of others is not disclosed to it."""
        known = self._conductor.find(release)
        if known is None or owner not in known.progress:
            raise NotConnectedError(
                f"there is no release {release[:64]!r} for {owner} at this aggregator",
                "wait: the aggregator may have been restored and will say how the release ended",
            )
        return known


async def _read(path: Path, offset: int) -> AsyncIterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(offset)
        while data := await asyncio.to_thread(stream.read, _READ_BYTES):
            for start in range(0, len(data), CHUNK_BYTES):
                yield data[start : start + CHUNK_BYTES]


def _recall(release: Release, owner: str, newest_at: int) -> wire.RecalledRelease | None:
    """Return what an owner signed for a release, or None if it never accepted its plan.

    Args:
        newest_at: When the owner's newest ledger head came, in Unix seconds.
    """
    progress = release.progress.get(owner)
    if progress is None or progress.consented is None or release.planned is None:
        return None
    consented, sealed, acknowledged = progress.consented, progress.sealed, progress.acknowledged
    message = wire.RecalledRelease(
        release=release.id,
        plan=release.planned.plan.encode(),
        key_check=consented.key_check,
        consent_signature=bytes.fromhex(consented.signature),
        consent_certificate=consented.certificate.encode(),
        masking_asked=release.addended is not None,
        key_generation=consented.key_generation,
        settled=acknowledged is not None and acknowledged.at < newest_at,
    )
    if sealed is not None:
        message.fragment = sealed.statement.encode()
        message.fragment_signature = bytes.fromhex(sealed.signature)
        message.fragment_certificate = sealed.certificate.encode()
    return message
