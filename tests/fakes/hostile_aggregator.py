"""An aggregator that says whatever a test wants, over the real protocol and TLS, to a real owner daemon."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc

from aggregator.api.server_tls import server_credentials
from common.canonical import digest
from common.model.fragment import Addendum, Receipt
from common.model.plan import Plan
from common.model.schema import Schema
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.signing import Domain, Signer
from common.wire.answers import signed_answer
from common.wire.software import software_here
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.owner_pb2_grpc import OwnerServiceServicer, add_OwnerServiceServicer_to_server
from tests.fakes.key_proofs import proved

_Signed = TypeVar("_Signed", wire.ConnectResponse, wire.PollResponse)
_PATIENCE_SECONDS = 60.0
_HELD_SECONDS = 0.2
"""Short, since a test may tell what the owner was busy with when it asked."""


class HostileAggregator(OwnerServiceServicer):
    """Tells one owner work, and keeps its answers.

    Args:
        certificates: Folder with `ca.pem`, `hub.pem`, `hub.key`, and those of another aggregator, `other`.
        owner: The owner's id; its co-owner is an invention.
    """

    def __init__(self, certificates: Path, owner: str = "a") -> None:
        self.hub = Signer.load(certificates / "hub.key", certificates / "hub.pem")
        self.other = Signer.load(certificates / "other.key", certificates / "other.pem")
        self.owner = owner
        self.linkage: Path | None = None
        """State directory of who has the linkage key, for what every owner proves; without, none does."""
        self.head: wire.LedgerHead | None = None
        self.due: list[wire.Work] = []
        self._once: list[wire.Work] = []
        self._news = asyncio.Event()
        self._delivered = asyncio.Event()
        self.answers: asyncio.Queue[wire.AnswerRequest] = asyncio.Queue()
        self.connected = asyncio.Event()
        self.uploaded = bytearray()
        self.misbehave: dict[str, Callable[..., Any]] = {}
        """What to do in a call instead of the usual, by its name."""
        self.selections: list[bytes] = []
        self.documents: dict[str, bytes] = {}
        """What it sends for a digest, uncompressed."""
        self.downloads: Callable[[str], list[wire.DownloadChunk]] = lambda _file: []

    # --- the calls -------------------------------------------------------------------------------------

    async def Connect(self, request: wire.ConnectRequest, context: Any) -> wire.ConnectResponse:
        """Return the ledger head that the test wants to show."""
        self.connected.set()
        response = wire.ConnectResponse(software=software_here())
        if self.head is not None:
            response.newest_ledger_head.CopyFrom(self.head)
        return self.signed(request, response)

    async def Poll(self, request: wire.PollRequest, context: Any) -> wire.PollResponse:
        """Tell what the test wants told: until it is answered, or once."""
        if "Poll" in self.misbehave:
            return await self.misbehave["Poll"](request, context)
        busy = {(key.release, key.step) for key in request.busy}
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self._once or self.due else _HELD_SECONDS):
                await self._news.wait()
        due = [work for work in self.due if (work.release, work.WhichOneof("step")) not in busy]
        due, self._once = [*self._once, *due], []
        return self.signed(request, wire.PollResponse(work=due))

    def signed(
        self, request: wire.ConnectRequest | wire.PollRequest, response: _Signed, by: Signer | None = None
    ) -> _Signed:
        """Return an answer signed, by itself or by whoever signs."""
        signer = by or self.hub
        payload = signed_answer(self.owner, request.nonce, response)
        response.signature = signer.sign(Domain.ANSWER, payload)
        response.certificate = signer.chain_pem.encode()
        return response

    async def Answer(self, request: wire.AnswerRequest, context: Any) -> wire.AnswerResponse:
        """Keep the answer."""
        if "Answer" in self.misbehave:
            return await self.misbehave["Answer"](request, context)
        self.due = [work for work in self.due if work.release != request.release]
        self.answers.put_nowait(request)
        return wire.AnswerResponse()

    async def UploadState(self, request: wire.UploadStateRequest, context: Any) -> wire.UploadStateResponse:
        """Ask for everything."""
        if "UploadState" in self.misbehave:
            return await self.misbehave["UploadState"](request, context)
        return wire.UploadStateResponse()

    async def Upload(
        self, request_iterator: AsyncIterator[wire.UploadChunk], context: Any
    ) -> wire.UploadResponse:
        """Take everything, and give the receipt that the test wants."""
        if "Upload" in self.misbehave:
            return await self.misbehave["Upload"](request_iterator, context)
        blob, self.uploaded = wire.BlobKey(), bytearray()
        async for chunk in request_iterator:
            blob = chunk.blob if chunk.HasField("blob") else blob
            self.uploaded += chunk.data
        if blob.kind == wire.BLOB_KIND_TOKENS:
            return wire.UploadResponse()
        self._delivered.set()
        return self.receipt(blob.release, blob.plan_digest, blob.digest)

    async def Download(
        self, request: wire.DownloadRequest, context: Any
    ) -> AsyncIterator[wire.DownloadChunk]:
        """Send what the test wants sent."""
        if "Download" in self.misbehave:
            await self.misbehave["Download"](request, context)
        for chunk in self.downloads(request.file):
            yield chunk

    async def Renew(self, request: wire.RenewRequest, context: Any) -> wire.RenewResponse:
        """Renew nothing."""
        if "Renew" in self.misbehave:
            await self.misbehave["Renew"](request, context)
        return wire.RenewResponse()

    async def FetchSchema(self, request: wire.FetchSchemaRequest, context: Any) -> wire.FetchSchemaResponse:
        """Offer what is no schema."""
        if "FetchSchema" in self.misbehave:
            await self.misbehave["FetchSchema"](request, context)
        return wire.FetchSchemaResponse(schema=b"source = ''")

    async def Recall(self, request: wire.RecallRequest, context: Any) -> AsyncIterator[wire.RecallItem]:
        """Remember nothing."""
        if "Recall" in self.misbehave:
            await self.misbehave["Recall"](request, context)
        nothing: list[wire.RecallItem] = []
        for item in nothing:
            yield item

    async def Fetch(self, request: wire.FetchRequest, context: Any) -> AsyncIterator[wire.FetchChunk]:
        """Send the document that the test wants sent."""
        if "Fetch" in self.misbehave:
            await self.misbehave["Fetch"](request, context)
        yield wire.FetchChunk(data=zlib.compress(self.documents.get(request.digest, b"")))

    async def FetchParcel(self, request: wire.ParcelRequest, context: Any) -> AsyncIterator[wire.FetchChunk]:
        """Send what no owner has sent."""
        if "FetchParcel" in self.misbehave:
            await self.misbehave["FetchParcel"](request, context)
        yield wire.FetchChunk(data=b"nothing")

    async def Select(self, request: wire.SelectRequest, context: Any) -> AsyncIterator[wire.SelectChunk]:
        """Send the selections that the test wants sent."""
        if "Select" in self.misbehave:
            await self.misbehave["Select"](request, context)
        for data in self.selections:
            yield wire.SelectChunk(data=data)

    # --- what it asks ----------------------------------------------------------------------------------

    async def ask(self, work: wire.Work) -> wire.AnswerRequest:
        """Tell one piece of work until it is answered; return the answer."""
        self.due = [work]
        self._news.set()
        try:
            while (answer := await self.answer()).release != work.release:
                pass
        finally:
            self.due = []
        return answer

    def tell(self, *works: wire.Work) -> None:
        """Tell work once, whether or not it is answered."""
        self._once += works
        self._news.set()

    async def deliver(self, plan: Plan) -> None:
        """Ask for a fragment until it has come."""
        self._delivered.clear()
        self.due = [self.collect(plan)]
        self._news.set()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._delivered.wait()
        self.due = []

    async def answer(self) -> wire.AnswerRequest:
        """Wait for the next answer."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await self.answers.get()

    async def schema(self, release: str) -> Schema:
        """Invite the owner; return its schema."""
        answer = await self.ask(wire.Work(release=release, describe=wire.Describe(dataset="cohort")))
        assert answer.WhichOneof("answer") == "described", answer.failure
        return Schema.from_document(json.loads(answer.described.schema))

    def plan(
        self, schema: Schema, release: str, epsilon: str = "1", k: str = "5", mechanism: str = "idp-joint"
    ) -> Plan:
        """Return the plan of a release with a co-owner that has the same schema."""
        request = parse_arguments(
            release=release, dataset="cohort", layout="horizontal", groups=[(self.owner, "zz")],
            epsilon=epsilon, k=k, mechanism=mechanism,
        )  # fmt: skip
        schemas = {self.owner: schema, "zz": schema}
        created = "2026-01-01T00:00:00+00:00"
        return make_plan(request, schemas, aggregator=self.hub.party.uri, created=created, version="0.1.0")

    def consent(self, plan: Plan, signer: Signer | None = None, data: bytes | None = None) -> wire.Work:
        """Return the offer of a plan, signed by whoever signs."""
        by, content = signer or self.hub, plan.to_bytes() if data is None else data
        offer = wire.Consent(signature=by.sign(Domain.PLAN, content), certificate=by.chain_pem.encode())
        return wire.Work(release=plan.release, plan_digest=self.serve(content), consent=offer)

    def serve(self, data: bytes) -> str:
        """Send a document to owners that fetch it; return its digest."""
        self.documents[digest(data)] = data
        return digest(data)

    def link(self, plan: Plan) -> wire.Work:
        """Return the work of linking."""
        return wire.Work(release=plan.release, plan_digest=plan.digest, link=wire.Link())

    def mask(
        self, plan: Plan, records: int, linking: str = "disjoint", signer: Signer | None = None
    ) -> wire.Work:
        """Return the work of masking after linking found so many records."""
        by = signer or self.hub
        found = dict.fromkeys(plan.owners, records)
        addendum = Addendum(plan.release, plan.digest, linking, found)
        data = (proved(addendum, self.linkage) if self.linkage else addendum).to_bytes()
        told = wire.Mask(
            addendum_digest=self.serve(data),
            signature=by.sign(Domain.ADDENDUM, data),
            certificate=by.chain_pem.encode(),
        )
        return wire.Work(release=plan.release, plan_digest=plan.digest, mask=told)

    def collect(self, plan: Plan) -> wire.Work:
        """Return the work of uploading."""
        return wire.Work(release=plan.release, plan_digest=plan.digest, collect=wire.Collect())

    def conclude(self, release: str, state: str, **said: str) -> wire.Work:
        """Return the end of a release."""
        return wire.Work(release=release, conclude=wire.Conclude(state=state, **said))

    def receipt(self, release: str, plan_digest: str, digest: str) -> wire.UploadResponse:
        """Return the signed receipt of a fragment."""
        data = Receipt(release, self.owner, plan_digest, digest, "2026-01-01T00:00:00+00:00").to_bytes()
        signature = self.hub.sign(Domain.RECEIPT, data)
        return wire.UploadResponse(receipt=data, signature=signature, certificate=self.hub.chain_pem.encode())

    async def honest_release(self, release: str) -> wire.Sealed:
        """Do for once what an aggregator does; return what the owner sealed."""
        plan = self.plan(await self.schema(release), release, epsilon="0.25")
        assert (await self.ask(self.consent(plan))).WhichOneof("answer") == "consented"
        linked = (await self.ask(self.link(plan))).linked
        sealed = (await self.ask(self.mask(plan, linked.n_records))).sealed
        assert sealed.n_records == linked.n_records
        await self.deliver(plan)
        # The next piece of work of a release waits for the one before it.
        end = self.conclude(release, "published", manifest_digest="ab" * 32)
        assert (await self.ask(end)).WhichOneof("answer") == "acknowledged"
        assert len(self.uploaded) == sealed.size
        return sealed


def _identity(certificates: Path, name: str) -> Identity:
    files = TlsSection(certificates / "ca.pem", certificates / f"{name}.pem", certificates / f"{name}.key")
    return read_identity(files)


@asynccontextmanager
async def serving(
    hostile: HostileAggregator, certificates: Path, name: str = "hub", address: str = "127.0.0.1:0"
) -> AsyncIterator[str]:
    """Serve a hostile aggregator with the certificate of a name; yields its address."""
    identity = _identity(certificates, name)
    # It sends messages of any size; what it takes does not matter.
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    add_OwnerServiceServicer_to_server(hostile, server)
    port = server.add_secure_port(address, server_credentials(lambda: identity))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
