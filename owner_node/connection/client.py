"""gRPC client of one aggregator. Errors of the other side are raised as errors of the catalogue.

`AggregatorClient` is the asynchronous client of the daemon. `greet` is one synchronous call without an event
loop, which returns the version and the clock of the aggregator.
"""

import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from common import __version__
from common.canonical import digest
from common.daemon.metrics import bytes_counter
from common.errors import IdentityError, IntegrityError, NotConnectedError, ProtocolError, TesseraError
from common.files import CHUNK_BYTES, read_chunks
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.signing import Domain
from common.trust.tls import (
    MESSAGE_LIMIT,
    TIME_KEY,
    channel_credentials_of,
    channel_options,
    explain_handshake,
)
from common.wire.answers import NONCE_BYTES, signed_answer
from common.wire.status import from_rpc_error
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.owner_pb2_grpc import OwnerServiceStub
from owner_node.config import KnownAggregator
from owner_node.connection.limits import check_lengths
from owner_node.state.answers import Fragment, SignedHead
from owner_node.trust import Trust

PROTOCOL = 1
_CALL_SECONDS = 20.0
_RECALL_SECONDS = 600.0
_POLL_SECONDS = 40.0
"""Longer than the aggregator holds a poll; an answer later than this means the connection is gone."""
_SLOWEST_BYTES_PER_SECOND = 32 * 1024
_DOCUMENT_SECONDS = _CALL_SECONDS + MESSAGE_LIMIT / _SLOWEST_BYTES_PER_SECOND
_MOST_FILES = 16
"""Most files of a release folder."""


_KINDS = {wire.BLOB_KIND_TOKENS: "tokens", wire.BLOB_KIND_FRAGMENT: "fragment"}
SENT_BYTES = bytes_counter(
    "tessera_owner_sent_bytes",
    "Bytes of tokens and fragments that were sent since the start.",
    _KINDS.values(),
)


class NotTakenError(Exception):
    """The aggregator rejected an answer or an upload, or did not send a selection.

    This is no fault in this owner's own work.

    Args:
        error: The aggregator's error.
    """

    def __init__(self, error: TesseraError) -> None:
        super().__init__(error.message)
        self.error = error


class AggregatorClient:
    """A channel to one aggregator.

    Args:
        address: "host:port".
        tls: The owner's files, or the identity that a daemon has loaded from them.
    """

    def __init__(self, address: str, tls: TlsSection | Identity) -> None:
        identity = read_identity(tls) if isinstance(tls, TlsSection) else tls
        self._owner, self._nonce = identity.signer.party.name, secrets.token_bytes(NONCE_BYTES)
        credentials = channel_credentials_of(identity)
        self._channel = grpc.aio.secure_channel(address, credentials, options=channel_options())
        self._calls: Any = OwnerServiceStub(self._channel)

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

    async def connect(self, datasets: Sequence[str], trust: Trust) -> wire.ConnectResponse:
        """Announce this owner; the response has the newest ledger head that the aggregator keeps.

        Args:
            datasets: Names of the data sets that it offers.
            trust: Knows the aggregator.

        Raises:
            IdentityError: If another aggregator answers.
            IntegrityError: If the answer is not signed.
        """
        request = wire.ConnectRequest(
            protocol=PROTOCOL, version=__version__, datasets=datasets, nonce=self._nonce
        )
        response: wire.ConnectResponse = await _call(
            lambda: self._calls.Connect(request, timeout=_CALL_SECONDS)
        )
        self._check(response, trust)
        return response

    def _check(self, response: wire.ConnectResponse | wire.PollResponse, trust: Trust) -> None:
        payload = signed_answer(self._owner, self._nonce, response)
        trust.check(Domain.ANSWER, payload, response.signature, response.certificate)

    async def poll(
        self,
        busy: Iterable[tuple[str, str]],
        trust: Trust,
        head: SignedHead | None = None,
        shown: str = "",
    ) -> wire.PollResponse:
        """Wait for work other than the work in progress.

        Args:
            busy: Work in progress, as (release, step).
            trust: Knows the aggregator.
            head: Head of this owner's ledger for the aggregator to keep; None if it has that one.
            shown: Hash of the newest head that the aggregator showed, which the ledger has.

        Raises:
            IdentityError: If another aggregator sends work.
            IntegrityError: If the work is not signed.
        """
        keys = [wire.WorkKey(release=release, step=step) for release, step in busy]
        signed = ledger_head(head) if head else None
        request = wire.PollRequest(busy=keys, ledger_head=signed, shown=shown, nonce=self._nonce)
        response: wire.PollResponse = await _call(lambda: self._calls.Poll(request, timeout=_POLL_SECONDS))
        if response.work:
            self._check(response, trust)
        return response

    async def answer(self, request: wire.AnswerRequest) -> None:
        """Answer one piece of work.

        Raises:
            NotConnectedError: If the answer may not have arrived.
            NotTakenError: If the aggregator rejected it.
        """
        await _hand_over(lambda: self._calls.Answer(request, timeout=_CALL_SECONDS))

    async def renew(self, request: bytes) -> bytes:
        """Ask for a certificate of a new key; returns the chain as PEM."""
        response: wire.RenewResponse = await _call(
            lambda: self._calls.Renew(wire.RenewRequest(request=request), timeout=_CALL_SECONDS)
        )
        return bytes(response.certificate)

    async def schema(self, dataset: str) -> bytes:
        """Return the schema file that the aggregator offers for a data set, as received."""
        response: wire.FetchSchemaResponse = await _call(
            lambda: self._calls.FetchSchema(wire.FetchSchemaRequest(dataset=dataset), timeout=_CALL_SECONDS)
        )
        return bytes(response.schema)

    async def upload_tokens(self, release: str, plan_digest: str, tokens: bytes) -> str:
        """Send a token list and return its digest."""
        name = digest(tokens)
        blob = wire.BlobKey(
            release=release, plan_digest=plan_digest, kind=wire.BLOB_KIND_TOKENS, digest=name,
            size=len(tokens),
        )  # fmt: skip
        offset = await self._offset(blob)
        pieces = (tokens[start : start + CHUNK_BYTES] for start in range(offset, len(tokens), CHUNK_BYTES))
        seconds = _transfer_seconds(len(tokens) - offset)
        await _hand_over(lambda: self._calls.Upload(self._chunks(blob, offset, pieces), timeout=seconds))
        return name

    async def upload_fragment(
        self, release: str, plan_digest: str, fragment: Fragment
    ) -> wire.UploadResponse:
        """Send a fragment from the offset that the aggregator has received, and return the receipt."""
        blob = wire.BlobKey(
            release=release, plan_digest=plan_digest, kind=wire.BLOB_KIND_FRAGMENT, digest=fragment.digest,
            size=fragment.size,
        )  # fmt: skip
        offset = await self._offset(blob)
        chunks = self._chunks(blob, offset, read_chunks(fragment.path, offset))
        seconds = _transfer_seconds(fragment.size - offset)
        response: wire.UploadResponse = await _hand_over(lambda: self._calls.Upload(chunks, timeout=seconds))
        return response

    async def document(self, release: str, name: str) -> bytes:
        """Fetch the document that work names by its digest.

        Raises:
            NotConnectedError: If the connection broke before it was complete.
            NotTakenError: If the aggregator did not send it.
            IntegrityError: If the aggregator sends something else.
        """
        request = wire.FetchRequest(release=release, digest=name)
        compressed, found = bytearray(), b""
        with _handing_over():
            async for chunk in _stream(lambda: self._calls.Fetch(request, timeout=_DOCUMENT_SECONDS)):
                compressed += chunk.data
                if len(compressed) > MESSAGE_LIMIT:
                    break
        with suppress(zlib.error):
            found = zlib.decompressobj().decompress(compressed, MESSAGE_LIMIT)
        if digest(found) != name:
            raise IntegrityError("the aggregator sends another document than its work names")
        return found

    async def selection(self, release: str, plan_digest: str, size: int) -> bytes:
        """Fetch which of this owner's records all groups hold.

        Args:
            release: Release id.
            plan_digest: The accepted plan.
            size: Expected size in bytes.

        Raises:
            NotConnectedError: If the connection broke before it was complete.
            NotTakenError: If the aggregator did not send it, or not all of it.
            IntegrityError: If the aggregator sends more than `size` bytes.
        """
        request = wire.SelectRequest(release=release, plan_digest=plan_digest)
        found = bytearray()
        with _handing_over():
            async for chunk in _stream(lambda: self._calls.Select(request, timeout=_transfer_seconds(size))):
                found += chunk.data
                if len(found) > size:
                    break
            if len(found) < size:
                raise IntegrityError(f"the aggregator sent {len(found)} of the {size} bytes of a selection")
        if len(found) > size:
            raise IntegrityError(f"the aggregator sends more than the {size} bytes of a selection")
        return bytes(found)

    async def recall(self) -> AsyncIterator[wire.RecallItem]:
        """Request everything that this owner signed for this aggregator: ledger heads, and releases."""
        async for item in _stream(lambda: self._calls.Recall(wire.RecallRequest(), timeout=_RECALL_SECONDS)):
            yield item

    async def files(self, release: str) -> dict[str, int]:
        """Return the files of a published release by name, with their sizes in bytes.

        Raises:
            IntegrityError: If the answer is no such list.
        """
        async for chunk in self._download(release, "", _CALL_SECONDS):
            if len(chunk.files) != len(chunk.sizes) or not 0 < len(chunk.files) <= _MOST_FILES:
                raise IntegrityError(
                    "the aggregator's list of release files is malformed",
                    "both sides must run compatible versions",
                )
            return dict(zip(chunk.files, chunk.sizes, strict=True))
        raise IntegrityError("the aggregator's answer to a download is empty")

    async def download(self, release: str, name: str, to: Path, size: int) -> None:
        """Write one file of a published release.

        Raises:
            IntegrityError: If it has another size than was listed.
        """
        with to.open("xb") as stream:
            async for chunk in self._download(release, name, _transfer_seconds(size)):
                if not chunk.data or stream.tell() + len(chunk.data) > size:
                    raise IntegrityError(f"the aggregator does not send the {size} bytes that it listed")
                stream.write(chunk.data)
            if stream.tell() != size:
                raise IntegrityError(f"the aggregator sent {stream.tell()} of the {size} bytes listed")

    async def _download(self, release: str, name: str, seconds: float) -> AsyncIterator[wire.DownloadChunk]:
        request = wire.DownloadRequest(release=release, file=name)
        async for chunk in _stream(lambda: self._calls.Download(request, timeout=seconds)):
            yield chunk

    async def _chunks(
        self, blob: wire.BlobKey, offset: int, pieces: Iterable[bytes | memoryview]
    ) -> AsyncIterator[wire.UploadChunk]:
        # The first message names the blob even if nothing of it is left to send.
        yield wire.UploadChunk(blob=blob, offset=offset)
        for piece in pieces:
            yield wire.UploadChunk(offset=offset, data=bytes(piece))
            offset += len(piece)
            SENT_BYTES.labels(_KINDS[blob.kind]).inc(len(piece))

    async def _offset(self, blob: wire.BlobKey) -> int:
        state = await _hand_over(
            lambda: self._calls.UploadState(wire.UploadStateRequest(blob=blob), timeout=_CALL_SECONDS)
        )
        return min(int(state.offset), int(blob.size))


def explain(
    aggregator: KnownAggregator, tls: TlsSection, now: datetime
) -> NotConnectedError | IdentityError | None:
    """Determine by a TLS handshake why an aggregator cannot be reached (`common.trust.tls`)."""
    host, _, port = aggregator.address.rpartition(":")
    return explain_handshake((host.strip("[]"), int(port)), tls.ca, tls.cert, tls.key, now)


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
    return _CALL_SECONDS + size / _SLOWEST_BYTES_PER_SECOND


@contextmanager
def _catalogued() -> Iterator[None]:
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
    with _catalogued():
        return _readable(await make())


async def _stream(make: Callable[[], Any]) -> AsyncIterator[Any]:
    with _catalogued():
        async for response in make():
            yield _readable(response)


def _readable(response: Any) -> Any:
    """Return a response; for bytes that are no message, gRPC returns None and reports success."""
    if response is None:
        raise ProtocolError("the answer cannot be decoded", "both sides must run compatible versions")
    # Work is checked one by one, so that what is wrong with one release keeps no other back.
    check_lengths(response, besides=("work",))
    return response


async def _hand_over(make: Callable[[], Any]) -> Any:
    with _handing_over():
        return await _call(make)


def greet(address: str, identity: Identity, datasets: Sequence[str]) -> tuple[str, float | None]:
    """Connect to an aggregator, announce this owner as a daemon does, and hang up.

    Args:
        address: `host:port`.
        identity: Certificate and key of the owner.
        datasets: Names of the data sets that it offers.

    Returns:
        The aggregator's version, and its clock as Unix time in seconds, if it sends that.

    Raises:
        TesseraError: If it cannot be reached, or rejects calls of this owner.
    """
    request = wire.ConnectRequest(protocol=PROTOCOL, version=__version__, datasets=datasets)
    credentials = channel_credentials_of(identity)
    with grpc.secure_channel(address, credentials, options=channel_options()) as channel:
        calls: Any = OwnerServiceStub(channel)
        try:
            response, call = calls.Connect.with_call(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        moment = dict(call.initial_metadata()).get(TIME_KEY, "")
    return response.version[:64], float(moment) if str(moment).isdigit() else None
