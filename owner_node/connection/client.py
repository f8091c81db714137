"""gRPC client of one aggregator. Errors of the other side are raised as errors of the catalogue.

`AggregatorClient` is the asynchronous client of the daemon; `connected_client` is one for a command.
`probe_aggregator` is one synchronous call without an event loop, which returns the version and the clock of
the aggregator. Each begins with `Connect`, whose signed answer shows that the aggregator named in owner.toml
answers.
"""

import asyncio
import secrets
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from common.canonical import digest
from common.daemon.metrics import bytes_counter
from common.errors import IdentityError, IntegrityError, NotConnectedError, ProtocolError, TesseraError
from common.files import CHUNK_BYTES, atomic_writer, file_digest, read_chunks
from common.model.compatibility import Software, common_protocol
from common.model.rounds import ParcelKind
from common.progress import Progress, StepEstimate
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.handshake import explain_handshake
from common.trust.proxy import proxy_to
from common.trust.signing import Domain
from common.wire.answers import NONCE_BYTES, signed_answer
from common.wire.limits import KEEPALIVE_MS, MESSAGE_LIMIT, WINDOW_BYTES, check_lengths
from common.wire.software import read_software, software_here
from common.wire.status import from_rpc_error
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.owner_pb2_grpc import OwnerServiceStub
from owner_node.config import KnownAggregator
from owner_node.connection.packing import ChunkPacking
from owner_node.state.answers import Fragment, ParcelAnswer, SignedHead
from owner_node.trust import Trust

CALL_SECONDS = 20.0
_RECALL_SECONDS = 600.0
_POLL_SECONDS = 40.0
"""Longer than the aggregator holds a poll; an answer later than this means the connection is gone."""
_SLOWEST_BYTES_PER_SECOND = 32 * 1024
_DOCUMENT_SECONDS = CALL_SECONDS + MESSAGE_LIMIT / _SLOWEST_BYTES_PER_SECOND
_MOST_FILES = 16
"""Most files of a release folder."""
_KINDS = {
    wire.BLOB_KIND_TOKENS: "tokens",
    wire.BLOB_KIND_FRAGMENT: "fragment",
    wire.BLOB_KIND_ROWS: "rows",
    wire.BLOB_KIND_SUMS: "sums",
}
_PARCEL_KINDS = {ParcelKind.ROWS: wire.BLOB_KIND_ROWS, ParcelKind.SUMS: wire.BLOB_KIND_SUMS}
SENT_BYTES = bytes_counter(
    "tessera_owner_sent_bytes",
    "Bytes of tokens and fragments that were sent since the start.",
    _KINDS.values(),
)


class NotTakenError(Exception):
    """The aggregator rejected an answer or an upload, or did not send a selection.

    This is no fault in this owner's own work.
    """

    def __init__(self, error: TesseraError) -> None:
        super().__init__(error.message)
        self.error = error


class AggregatorClient:
    """A channel to one aggregator.

    Args:
        address: "host:port".
        tls: The owner's files, or the identity that a daemon has loaded from them.

    Raises:
        ConfigurationError: If the environment names a proxy that cannot be used.
    """

    def __init__(self, address: str, tls: TlsSection | Identity) -> None:
        identity = read_identity(tls) if isinstance(tls, TlsSection) else tls
        self._owner, self._nonce = identity.signer.party.name, secrets.token_bytes(NONCE_BYTES)
        # gRPC takes the same proxy, but would dial directly where the variable cannot be used.
        host, port = host_and_port(address)
        direct = proxy_to(host, port=port) is None
        credentials = channel_credentials(identity)
        self._channel = grpc.aio.secure_channel(address, credentials, options=channel_options(direct=direct))
        self._stub: Any = OwnerServiceStub(self._channel)
        self._introduced = False

    async def __aenter__(self) -> Self:
        """Return the client; the channel connects with the first call."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close(None)

    @property
    def _calls(self) -> Any:
        """The calls of this connection.

        gRPC would dial again where it broke, and another aggregator of this host could answer: then nothing
        is sent before that one, too, has shown its name, which takes another client.
        """
        if self._introduced and self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            raise NotConnectedError("the connection broke")
        return self._stub

    async def connect(self, datasets: Sequence[str], trust: Trust) -> wire.ConnectResponse:
        """Announce this owner; the response has the newest ledger head that the aggregator keeps.

        Raises:
            IdentityError: If another aggregator answers.
            IntegrityError: If the answer is not signed.
            VersionError: If the aggregator speaks no version of the protocol that is spoken here.
        """
        request = announcement(datasets, self._nonce)
        response: wire.ConnectResponse = await _call(
            lambda: self._calls.Connect(request, timeout=CALL_SECONDS)
        )
        check_answer(self._owner, self._nonce, response, trust)
        self._introduced = True
        check_software(response)
        return response

    async def poll(
        self,
        busy: Mapping[tuple[str, str], StepEstimate | None],
        trust: Trust,
        head: SignedHead | None = None,
        shown: str = "",
    ) -> wire.PollResponse:
        """Wait for work other than the work in progress.

        Args:
            busy: Work in progress, as (release, step), and how far it is.
            head: Head of this owner's ledger for the aggregator to keep; None if it has that one.
            shown: Hash of the newest head that the aggregator showed, which the ledger has.

        Raises:
            IdentityError: If another aggregator sends work.
            IntegrityError: If the work is not signed.
        """
        keys = [_work_key(release, step, estimate) for (release, step), estimate in busy.items()]
        signed = ledger_head(head) if head else None
        request = wire.PollRequest(busy=keys, ledger_head=signed, shown=shown, nonce=self._nonce)
        response: wire.PollResponse = await _call(lambda: self._calls.Poll(request, timeout=_POLL_SECONDS))
        if response.work:
            check_answer(self._owner, self._nonce, response, trust)
        return response

    async def answer(self, request: wire.AnswerRequest) -> None:
        """Answer one piece of work.

        Raises:
            NotConnectedError: If the answer may not have arrived.
            NotTakenError: If the aggregator rejected it.
        """
        await _hand_over(lambda: self._calls.Answer(request, timeout=CALL_SECONDS))

    async def renew(self, request: bytes) -> bytes:
        """Ask for a certificate of a new key; returns the chain as PEM."""
        response: wire.RenewResponse = await _call(
            lambda: self._calls.Renew(wire.RenewRequest(request=request), timeout=CALL_SECONDS)
        )
        return bytes(response.certificate)

    async def schema(self, dataset: str) -> bytes:
        """Return the schema file that the aggregator offers for a data set, as received."""
        response: wire.FetchSchemaResponse = await _call(
            lambda: self._calls.FetchSchema(wire.FetchSchemaRequest(dataset=dataset), timeout=CALL_SECONDS)
        )
        return bytes(response.schema)

    async def upload_tokens(
        self, release: str, plan_digest: str, tokens: bytes | Path, progress: Progress
    ) -> wire.BlobKey:
        """Send a token list, or the file that has it, and return its key; `progress` shows how far that is.

        Raises:
            OSError: If the file cannot be read any more.
        """
        if isinstance(tokens, Path):
            size, name = tokens.stat().st_size, await asyncio.to_thread(file_digest, tokens)
        else:
            size, name = len(tokens), digest(tokens)
        blob = wire.BlobKey(
            release=release, plan_digest=plan_digest, kind=wire.BLOB_KIND_TOKENS, digest=name, size=size
        )
        await self._upload(blob, tokens, progress)
        return blob

    async def upload_fragment(
        self, release: str, plan_digest: str, fragment: Fragment, progress: Progress
    ) -> wire.UploadResponse:
        """Send a fragment from the offset that the aggregator has received, and return the receipt.

        `progress` shows how far that is.
        """
        blob = wire.BlobKey(
            release=release, plan_digest=plan_digest, kind=wire.BLOB_KIND_FRAGMENT, digest=fragment.digest,
            size=fragment.size,
        )  # fmt: skip
        return await self._upload(blob, fragment.path, progress)

    async def upload_parcel(
        self, release: str, plan_digest: str, answer: ParcelAnswer, progress: Progress
    ) -> None:
        """Send what owners of other attributes wait for."""
        kind, stated = _PARCEL_KINDS[answer.parcel.kind], answer.parcel
        blob = wire.BlobKey(
            release=release, plan_digest=plan_digest, kind=kind, digest=stated.parcel_digest, size=stated.size
        )
        await self._upload(blob, answer.path, progress)

    async def parcel(self, release: str, plan_digest: str, name: str, size: int, to: Path) -> None:
        """Write what other owners sent to a file, unless it is there; its bytes are checked where it is read.

        Args:
            name: SHA-256 of it.

        Raises:
            IntegrityError: If the aggregator sends something else.
        """
        if to.exists() and to.stat().st_size == size:
            return
        request = wire.ParcelRequest(release=release, plan_digest=plan_digest, digest=name)
        with atomic_writer(to) as stream, _handing_over():
            async for chunk in _stream(
                lambda: self._calls.FetchParcel(request, timeout=_transfer_seconds(size))
            ):
                stream.write(chunk.data)
                if stream.tell() > size:
                    break
            if stream.tell() != size:
                raise IntegrityError(f"the aggregator does not send the {size} bytes of other owners")

    async def document(self, release: str, name: str) -> bytes:
        """Fetch the document that work names by its digest.

        Raises:
            NotConnectedError: If the connection broke before it was complete.
            NotTakenError: If the aggregator did not send it.
            IntegrityError: If the aggregator sends something else.
        """
        request = wire.FetchRequest(release=release, digest=name)
        compressed, document = bytearray(), b""
        with _handing_over():
            async for chunk in _stream(lambda: self._calls.Fetch(request, timeout=_DOCUMENT_SECONDS)):
                compressed += chunk.data
                if len(compressed) > MESSAGE_LIMIT:
                    break
        with suppress(zlib.error):
            document = zlib.decompressobj().decompress(compressed, MESSAGE_LIMIT)
        if digest(document) != name:
            raise IntegrityError("the aggregator sends another document than its work names")
        return document

    async def selection(self, release: str, plan_digest: str, size: int) -> bytes:
        """Fetch which of this owner's records all groups hold.

        Raises:
            NotConnectedError: If the connection broke before it was complete.
            NotTakenError: If the aggregator did not send it, or not all of it.
            IntegrityError: If the aggregator sends more than `size` bytes.
        """
        request = wire.SelectRequest(release=release, plan_digest=plan_digest)
        selection = bytearray()
        with _handing_over():
            async for chunk in _stream(lambda: self._calls.Select(request, timeout=_transfer_seconds(size))):
                selection += chunk.data
                if len(selection) > size:
                    break
            if len(selection) < size:
                raise IntegrityError(
                    f"the aggregator sent {len(selection)} of the {size} bytes of a selection"
                )
        if len(selection) > size:
            raise IntegrityError(f"the aggregator sends more than the {size} bytes of a selection")
        return bytes(selection)

    async def recall(self) -> AsyncIterator[wire.RecallItem]:
        """Request everything that this owner signed for this aggregator: ledger heads, and releases."""
        async for item in _stream(lambda: self._calls.Recall(wire.RecallRequest(), timeout=_RECALL_SECONDS)):
            yield item

    async def files(self, release: str) -> dict[str, int]:
        """Return the files of a published release by name, with their sizes in bytes.

        Raises:
            IntegrityError: If the answer is no such list.
        """
        async for chunk in self._download(release, "", CALL_SECONDS):
            if len(chunk.files) != len(chunk.sizes) or not 0 < len(chunk.files) <= _MOST_FILES:
                raise IntegrityError(
                    "the aggregator's list of release files is malformed",
                    "both sides must run compatible versions",
                )
            return dict(zip(chunk.files, chunk.sizes, strict=True))
        raise IntegrityError("the aggregator's answer to a download is empty")

    async def download(self, release: str, name: str, to: Path, size: int, progress: Progress) -> None:
        """Write one file of a published release; `progress` is advanced by its bytes.

        Raises:
            IntegrityError: If it has another size than was listed.
        """
        with to.open("xb") as stream:
            async for chunk in self._download(release, name, _transfer_seconds(size)):
                if not chunk.data or stream.tell() + len(chunk.data) > size:
                    raise IntegrityError(f"the aggregator does not send the {size} bytes that it listed")
                stream.write(chunk.data)
                progress.advance(len(chunk.data))
            if stream.tell() != size:
                raise IntegrityError(f"the aggregator sent {stream.tell()} of the {size} bytes listed")

    async def _download(self, release: str, name: str, seconds: float) -> AsyncIterator[wire.DownloadChunk]:
        request = wire.DownloadRequest(release=release, file=name)
        async for chunk in _stream(lambda: self._calls.Download(request, timeout=seconds)):
            yield chunk

    async def _chunks(
        self,
        blob: wire.BlobKey,
        offset: int,
        pieces: Iterable[bytes | memoryview],
        packing: ChunkPacking,
        progress: Progress,
    ) -> AsyncIterator[wire.UploadChunk]:
        progress.begin("uploading", blob.size - offset)
        # The first message names the blob even if nothing of it is left to send.
        yield wire.UploadChunk(blob=blob, offset=offset)
        for piece in pieces:
            chunk = packing.chunk(offset, piece)
            began = time.perf_counter()
            yield chunk
            packing.sent(chunk, time.perf_counter() - began)
            offset += len(piece)
            progress.advance(len(piece))
            SENT_BYTES.labels(_KINDS[blob.kind]).inc(len(piece))

    async def _upload(
        self, blob: wire.BlobKey, content: bytes | Path, progress: Progress
    ) -> wire.UploadResponse:
        """Send a blob, or the file that has it, from the offset that the aggregator holds."""
        state = await _hand_over(
            lambda: self._calls.UploadState(wire.UploadStateRequest(blob=blob), timeout=CALL_SECONDS)
        )
        offset = min(int(state.offset), blob.size)
        pieces: Iterable[bytes | memoryview]
        if isinstance(content, Path):
            pieces = read_chunks(content, offset)
        else:
            pieces = (content[start : start + CHUNK_BYTES] for start in range(offset, blob.size, CHUNK_BYTES))
        chunks = self._chunks(blob, offset, pieces, ChunkPacking(allowed=state.zstd), progress)
        seconds = _transfer_seconds(blob.size - offset)
        response: wire.UploadResponse = await _hand_over(lambda: self._calls.Upload(chunks, timeout=seconds))
        return response


def host_and_port(address: str) -> tuple[str, int]:
    """Split the address of an aggregator; a host that is an IPv6 address comes without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def announcement(datasets: Sequence[str], nonce: bytes) -> wire.ConnectRequest:
    """Return the first message of an owner."""
    return wire.ConnectRequest(software=software_here(), datasets=datasets, nonce=nonce)


def _work_key(release: str, step: str, estimate: StepEstimate | None) -> wire.WorkKey:
    key = wire.WorkKey(release=release, step=step)
    if estimate is not None:
        key.progress.percent, key.progress.seconds_left = estimate.percent, estimate.seconds_left
    return key


def check_answer(
    owner: str, nonce: bytes, response: wire.ConnectResponse | wire.PollResponse, trust: Trust
) -> None:
    """Check that an aggregator signed its answer.

    Raises:
        IdentityError, IntegrityError: If it did not.
    """
    payload = signed_answer(owner, nonce, response)
    trust.check(Domain.ANSWER, payload, response.signature, response.certificate)


def check_software(response: wire.ConnectResponse) -> Software:
    """Return what the aggregator runs."""
    software = read_software(response.software)
    common_protocol("this owner node", {"the aggregator": software})
    return software


def explain(
    aggregator: KnownAggregator, tls: TlsSection, now: datetime
) -> NotConnectedError | IdentityError | None:
    """Determine by a TLS handshake why an aggregator cannot be reached (`common.trust.handshake`)."""
    return explain_handshake(host_and_port(aggregator.address), tls.ca, tls.cert, tls.key, now)


def ledger_head(head: SignedHead) -> wire.LedgerHead:
    """Return a signed ledger head as its wire message."""
    return wire.LedgerHead(
        sequence=head.head.sequence,
        hash=head.head.hash,
        signature=head.signature,
        certificate=head.certificate,
    )


def _transfer_seconds(size: int) -> float:
    """Return the time-out of a transfer in seconds, so that a stalled peer does not block it."""
    return CALL_SECONDS + size / _SLOWEST_BYTES_PER_SECOND


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert exceptions of gRPC calls to errors of the catalogue."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    except grpc.aio.UsageError:
        raise NotConnectedError("the connection was closed") from None


@contextmanager
def _handing_over() -> Iterator[None]:
    """Convert errors of the other side to `NotTakenError`: they are no faults of this owner."""
    try:
        yield
    except NotConnectedError:
        raise
    except TesseraError as error:
        raise NotTakenError(error) from None


async def _call(make: Callable[[], Any]) -> Any:
    with _convert_errors():
        return readable(await make())


async def _stream(make: Callable[[], Any]) -> AsyncIterator[Any]:
    with _convert_errors():
        async for response in make():
            yield readable(response)


def readable(response: Any) -> Any:
    """Return a response; for bytes that are no message, gRPC returns None and reports success."""
    if response is None:
        raise ProtocolError("the answer cannot be decoded", "both sides must run compatible versions")
    # Work is checked one by one, so that what is wrong with one release keeps no other back.
    check_lengths(response, besides=("work",))
    return response


async def _hand_over(make: Callable[[], Any]) -> Any:
    with _handing_over():
        return await _call(make)


def channel_options(*, direct: bool = False) -> list[tuple[str, int]]:
    """Return the options of an owner's channel; `direct` keeps gRPC from proxies of the environment."""
    return [
        ("grpc.enable_http_proxy", int(not direct)),
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 3),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 1_000),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 60_000),
        # A call is for the aggregator that showed its name on this connection, not for who is reached next.
        ("grpc.enable_retries", 0),
    ]


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Return an owner's credentials."""
    return grpc.ssl_channel_credentials(identity.ca_pem, identity.key_pem, identity.chain_pem)
