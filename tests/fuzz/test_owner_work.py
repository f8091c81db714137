"""Mutations of every message of an aggregator: as work for a real owner node, and as answers to its calls."""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import DecodeError, Message

from aggregator.api.server_tls import server_credentials
from common.canonical import digest
from common.errors import TesseraError
from common.model.plan import Plan
from common.model.rounds import RoundDocument, SignedKey, read_round
from common.progress import Progress
from common.settings import TlsSection
from common.trust.credentials import read_identity
from common.trust.signing import Domain
from common.wire.software import software_here
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.client import AggregatorClient, NotTakenError
from owner_node.connection.worker import STEP_SECONDS, STEPS, Worker
from owner_node.state.answers import Fragment
from tests.fakes.offering import N_RECORDS, Offering
from tests.fuzz.memory import bounded_memory
from tests.fuzz.mutations import mutated_bytes, mutations


class Listener:
    """Takes answers in the place of a connection, and sends mutated documents.

    A worker hands everything to its connection; here it is kept, so that all the answers need no network.

    Args:
        documents: By their digests; under any other name, one of them is sent mutated.
    """

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self.answers: list[wire.AnswerRequest] = []
        self._documents, self._seeds = documents, count()

    async def document(self, _release: str, name: str) -> bytes:
        """Send a document."""
        seed = next(self._seeds)
        true = self._documents.get(name)
        if true is None or seed % 2:
            true = mutated_bytes(list(self._documents.values())[seed // 2 % len(self._documents)], seed)
        return true

    async def answer(self, request: wire.AnswerRequest) -> None:
        """Keep an answer."""
        self.answers.append(request)

    async def upload_tokens(self, *_arguments: Any) -> wire.BlobKey:
        """Take any tokens."""
        return wire.BlobKey(digest="ab" * 32)

    async def upload_fragment(self, *_arguments: Any) -> wire.UploadResponse:
        """Give no receipt."""
        return wire.UploadResponse()


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node with two releases that it has agreed to, and one that it was only asked about."""
    made = Offering(tmp_path)
    for release in ("r1", "r2"):
        plan = made.plan(made.node.invitations.describe(release, "cohort"), release=release)
        made.node.invitations.consent(release, plan.digest, made.offer(plan))
    made.node.invitations.describe("r3", "cohort")
    yield made
    made.records.db.close()


def _works(offering: Offering) -> tuple[dict[str, wire.Work], dict[str, bytes]]:
    """Return one piece of work of every kind that fits, and the documents that they name.

    Masking is asked for before linking.
    """
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    other = offering.plan(offering.node.invitations.describe("r3", "cohort"), release="r3", epsilon="5")
    offer = offering.offer(other)
    # No addendum that this owner could mask under: a mutation may ask for linking first.
    addendum, signature = offering.addendum(plan, N_RECORDS + 1)
    chain = offering.hub.chain_pem.encode()
    co_owner = wire.CoOwner(id="b", key_check="ab" * 32, signature=b"x", certificate=chain)
    consents = wire.Consents(co_owners=[co_owner]).SerializeToString()
    documents = {digest(data): data for data in (offer.plan, addendum, consents)}
    mask = wire.Mask(addendum_digest=digest(addendum), signature=signature, certificate=chain)
    opening, opened = _opening(offering, plan, addendum)
    documents[digest(opening)] = opening
    measure = wire.Measure(round=1, opening_digest=digest(opening), signature=opened, certificate=chain)
    consent = wire.Consent(signature=offer.signature, certificate=offer.certificate)
    works = {
        "describe": wire.Work(release="r1", describe=wire.Describe(dataset="cohort")),
        "consent": wire.Work(release="r3", plan_digest=other.digest, consent=consent),
        "link": wire.Work(
            release="r2", plan_digest="ab" * 32, link=wire.Link(consents_digest=digest(consents))
        ),
        "mask": wire.Work(release="r1", plan_digest=plan.digest, mask=mask),
        "collect": wire.Work(release="r1", plan_digest=plan.digest, collect=wire.Collect()),
        "measure": wire.Work(release="r1", plan_digest=plan.digest, measure=measure),
        "conclude": wire.Work(release="r9", conclude=wire.Conclude(state="published", manifest_digest="ab")),
    }
    return works, documents


def _opening(offering: Offering, plan: Plan, addendum: bytes) -> tuple[bytes, bytes]:
    """Return what opens a first round, and its signature; the plan is that of a masked release."""
    keys = tuple(SignedKey(owner, "ab" * 32, "", "") for owner in plan.owners)
    document = RoundDocument("r1", plan.digest, digest(addendum), 1, "", digest(addendum), keys)
    return document.with_attached(addendum), offering.hub.sign(Domain.ROUND, document.to_bytes())


@pytest.mark.parametrize("step", ["describe", "consent", "link", "mask", "collect", "measure", "conclude"])
async def test_work(offering: Offering, step: str) -> None:
    """Whatever is asked for is answered or refused in words; nothing is spent for it."""
    works, documents = _works(offering)
    worker, listener = Worker(offering.node), Listener(documents)
    worker.answer_through(cast("AggregatorClient", listener))
    n_done = 0
    with bounded_memory():
        for data in mutations(wire.PollResponse(work=[works[step]])):
            with suppress(DecodeError):
                for work in wire.PollResponse.FromString(data).work[:3]:
                    await worker.do(work)
                    n_done += 1
    assert n_done
    # No aggregator can add a series to the metrics.
    (family,) = STEP_SECONDS.collect()
    assert {sample.labels["step"] for sample in family.samples} == set(STEPS)
    assert [each for each in listener.answers if each.failure.code == "internal"] == []
    assert "spend" not in offering.kinds()
    offering.records.ledger.verify()
    offering.records.history.verify()


def test_what_opens_a_round(offering: Offering) -> None:
    """Bytes that are no document of a round, or come with something else than it names, are refused."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    opening, _ = _opening(offering, plan, offering.addendum(plan)[0])
    n_refused = 0
    with bounded_memory():
        for data in (mutated_bytes(opening, seed) for seed in range(300)):
            try:
                found, attached = read_round(data)
            except ValueError:
                n_refused += 1
            else:
                assert found.with_attached(attached) == data
    assert n_refused


@asynccontextmanager
async def _answering(folder: Path, next_answer: Callable[[], bytes]) -> AsyncIterator[AggregatorClient]:
    """Serve bytes as the answer to every call of an owner; yields the owner's client."""
    files = {
        name: TlsSection(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        for name in ("hub", "owner")
    }
    identity = read_identity(files["hub"])

    async def unary(_request: bytes, _context: Any) -> bytes:
        return next_answer()

    async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield next_answer()

    async def upload(requests: AsyncIterator[bytes], _context: Any) -> bytes:
        async for _ in requests:
            pass
        return next_answer()

    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(unary)
        for name in ("Connect", "Poll", "Answer", "UploadState", "Renew")
    }
    handlers |= {
        name: grpc.unary_stream_rpc_method_handler(stream) for name in ("Download", "Fetch", "Recall")
    }
    handlers["Upload"] = grpc.stream_unary_rpc_method_handler(upload)
    server = grpc.aio.server()
    service = grpc.method_handlers_generic_handler("tessera.v1.OwnerService", handlers)
    server.add_generic_rpc_handlers((service,))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(lambda: identity))
    await server.start()
    try:
        async with AggregatorClient(f"localhost:{port}", files["owner"]) as client:
            yield client
    finally:
        await server.stop(None)


RESPONSES: dict[str, Message] = {
    "connect": wire.ConnectResponse(
        software=software_here(),
        newest_ledger_head=wire.LedgerHead(sequence=3, hash="ab" * 32, signature=b"x" * 70),
    ),
    "poll": wire.PollResponse(work=[wire.Work(release="r1", link=wire.Link())]),
    "answer": wire.AnswerResponse(),
    "upload": wire.UploadStateResponse(offset=4),
    "files": wire.DownloadChunk(files=["manifest.json", "data.csv"], sizes=[5, 6]),
    "download": wire.DownloadChunk(data=b"x" * 100),
    "document": wire.FetchChunk(data=zlib.compress(b"{}")),
}


@pytest.mark.parametrize("call", RESPONSES)
async def test_answers_of_an_aggregator(offering: Offering, tmp_path: Path, call: str) -> None:
    """Whatever comes back from a call is taken, or is an error of the catalogue."""
    path = tmp_path / "fragment"
    path.write_bytes(b"x" * 100)
    fragment = Fragment(path, "ab" * 32, 100)

    async def calls(client: AggregatorClient, number: int) -> None:
        if call == "connect":
            await client.connect(["cohort"], offering.trust)
        elif call == "poll":
            await client.poll({}, offering.trust)
        elif call == "answer":
            await client.answer(wire.AnswerRequest(release="r1"))
        elif call == "upload":
            await client.upload_fragment("r1", "ab" * 32, fragment, Progress())
        elif call == "files":
            await client.files("r1")
        elif call == "document":
            await client.document("r1", digest(b"{}"))
        else:
            await client.download("r1", "data.csv", tmp_path / f"copy-{number}", 100, Progress())

    said: list[bytes] = [b""]
    n_refused = 0
    with bounded_memory():
        async with _answering(offering.folder, lambda: said[0]) as client:
            for number, said[0] in enumerate(mutations(RESPONSES[call])):
                try:
                    await calls(client, number)
                except (TesseraError, NotTakenError):
                    n_refused += 1
    assert n_refused
