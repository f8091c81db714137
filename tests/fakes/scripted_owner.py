"""An owner node reduced to its calls: real TLS, real signatures, data made up on the spot."""

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from common.canonical import canonical
from common.model.fragment import Addendum, Consent, FragmentStatement, KeyProof, LedgerHead
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, IdentifierRules, Schema, round_to_leading_digit
from common.trust.signing import Domain, Signer
from common.wire.software import software_here
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.owner_pb2_grpc import OwnerServiceStub
from owner_node.connection.client import channel_options
from tests.fakes.releases import by_token, encoded, random_columns
from tests.fakes.tls_endpoints import credentials_from

KEY_CHECK = "ab" * 32
CHUNK = 64 * 1024


def attributes(*names: str) -> tuple[Attribute, ...]:
    """Return integer attributes of one domain."""
    return tuple(Attribute(name, AttributeType.INTEGER, 0, 1000) for name in names)


class ScriptedOwner:
    """Calls the aggregator as one owner.

    Args:
        owner: Owner id.
        address: Of the aggregator.
        certificates: Folder with `ca.pem`, `owner-ID.pem` and `owner-ID.key`.
        schema: What it describes.
        tokens: Its records' tokens, shape (n_records, 16).
    """

    def __init__(
        self, owner: str, address: str, certificates: Path, names: Sequence[str], tokens: np.ndarray,
        *, identifier: bool = True,
    ) -> None:  # fmt: skip
        files = (certificates / f"owner-{owner}.pem", certificates / f"owner-{owner}.key")
        self.owner, self.tokens, self.kept = owner, tokens, tokens
        self.schema = Schema(
            attributes(*names),
            IdentifierRules(1, ("trim",)) if identifier else None,
            1,
            round_to_leading_digit(len(tokens)),
        )
        self.signer = Signer.load(files[1], files[0])
        credentials = credentials_from(certificates / "ca.pem", *files)
        self.channel = grpc.aio.secure_channel(address, credentials, options=channel_options())
        self.calls = OwnerServiceStub(self.channel)
        self.fragment = b""
        self.receipt: wire.UploadResponse | None = None
        self.concluded: wire.Conclude | None = None
        self.sequence = 0
        self.software = software_here()
        self.documents: dict[str, bytes] = {}

    def head(self, sequence: int | None = None) -> wire.LedgerHead:
        """Return a signed ledger head."""
        number = self.sequence if sequence is None else sequence
        text = hashlib.sha256(str(number).encode()).hexdigest() if number else ""
        signature = self.signer.sign(Domain.LEDGER_HEAD, LedgerHead(self.owner, number, text).to_bytes())
        return wire.LedgerHead(
            sequence=number, hash=text, signature=signature, certificate=self.signer.chain_pem.encode()
        )

    async def connect(self, datasets: Sequence[str] = ("cohort",)) -> wire.ConnectResponse:
        """Make the first call."""
        return await self.calls.Connect(wire.ConnectRequest(software=self.software, datasets=datasets))

    async def poll(self, busy: Sequence[wire.WorkKey] = ()) -> list[wire.Work]:
        """Wait for work, and fetch the documents that it names."""
        works = list((await self.calls.Poll(wire.PollRequest(busy=busy), timeout=30)).work)
        for work in works:
            await self.fetch(work)
        return works

    async def poll_with(self, head: wire.LedgerHead, shown: str = "") -> wire.PollResponse:
        """Wait for work, and tell where the ledger is and which head was shown last."""
        request = wire.PollRequest(ledger_head=head, shown=shown)
        response: wire.PollResponse = await self.calls.Poll(request, timeout=30)
        return response

    def describe(self, work: wire.Work) -> wire.AnswerRequest:
        """Answer an invitation."""
        schema = canonical(self.schema.to_document())
        return wire.AnswerRequest(
            release=work.release, described=wire.Described(schema=schema, software=self.software)
        )

    def read_plan(self, data: bytes) -> Plan:
        """Read a plan."""
        return Plan.from_bytes(data)

    async def fetch(self, work: wire.Work) -> None:
        """Fetch the document that work names, if it names one; the consents of others are not needed."""
        names = {"consent": work.plan_digest, "mask": work.mask.addendum_digest}
        name = names.get(str(work.WhichOneof("step")), "")
        if name and name not in self.documents:
            self.documents[name] = await self.document(work.release, name)

    async def document(self, release: str, name: str) -> bytes:
        """Fetch a document of a release by its digest."""
        request = wire.FetchRequest(release=release, digest=name)
        return zlib.decompress(b"".join([chunk.data async for chunk in self.calls.Fetch(request)]))

    def consent(
        self, work: wire.Work, key_check: str | None = None, generation: int = 0
    ) -> wire.AnswerRequest:
        """Accept a plan."""
        self.plan = self.read_plan(self.documents[work.plan_digest])
        self.sequence += 1
        check = (KEY_CHECK if self.plan.linking.tokens else "") if key_check is None else key_check
        statement = Consent(work.release, self.owner, work.plan_digest, check, "accept", generation)
        return wire.AnswerRequest(
            release=work.release,
            plan_digest=work.plan_digest,
            consented=wire.Consented(
                key_check=check,
                key_generation=generation,
                ledger_head=self.head(),
                signature=self.signer.sign(Domain.CONSENT, statement.to_bytes()),
            ),
        )

    def token_blob(self) -> bytes:
        """Return the sorted token list."""
        return self.tokens[by_token(self.tokens)].tobytes()

    @property
    def key_proof(self) -> bytes:
        """What an aggregator takes for a proof, since only owners can check it."""
        return KeyProof(self.owner, KEY_CHECK, "", KEY_CHECK).to_bytes()

    async def link(self, work: wire.Work) -> wire.AnswerRequest:
        """Upload tokens where the plan wants them; return the answer."""
        linked = wire.Linked(n_records=len(self.tokens))
        if self.plan.linking.key_proofs:
            linked.key_proof = self.key_proof
        if self.plan.linking.tokens:
            blob = self.token_blob()
            await self.upload(self.key(work, wire.BLOB_KIND_TOKENS, blob), blob)
            linked.tokens_digest = hashlib.sha256(blob).hexdigest()
            linked.tokens_size = len(blob) if self.plan.passes else 0
        return wire.AnswerRequest(release=work.release, plan_digest=work.plan_digest, linked=linked)

    async def selection(self, work: wire.Work) -> bytes:
        """Fetch which of its records all groups hold."""
        request = wire.SelectRequest(release=work.release, plan_digest=work.plan_digest)
        return b"".join([chunk.data async for chunk in self.calls.Select(request)])

    async def select(self, work: wire.Work) -> None:
        """Keep the records that are to be masked: all, unless the addendum says otherwise."""
        self.kept = self.tokens
        if self.owner in self.addendum(work).selections:
            bits = np.unpackbits(np.frombuffer(await self.selection(work), np.uint8))[: len(self.tokens)]
            self.kept = self.tokens[by_token(self.tokens)][bits.astype(np.bool_)]

    def seal(self, work: wire.Work) -> wire.AnswerRequest:
        """Make a fragment and state what it is."""
        assigned = self.plan.assignment_of(self.owner)
        wanted = [self.plan.attribute(each.name) for each in assigned.attributes]
        n = len(self.kept)
        columns = random_columns(np.random.default_rng(7), wanted, n)
        grid = self.plan.n_groups > 1
        order = by_token(self.kept) if grid else np.arange(n, dtype=np.int64)
        self.fragment = encoded(assigned, columns, order, self.kept if grid else None)
        return self.state(work)

    def addendum(self, work: wire.Work) -> Addendum:
        """Return what linking found."""
        return Addendum.from_bytes(self.documents[work.mask.addendum_digest])

    def state(self, work: wire.Work) -> wire.AnswerRequest:
        """State and sign what the fragment is."""
        n = len(self.kept)
        digest, size = self.fragment_identity()
        statement = FragmentStatement(
            work.release, self.owner, work.plan_digest, work.mask.addendum_digest, digest, size, n
        )
        return wire.AnswerRequest(
            release=work.release,
            plan_digest=work.plan_digest,
            sealed=wire.Sealed(
                fragment_digest=digest,
                size=size,
                n_records=n,
                signature=self.signer.sign(Domain.FRAGMENT, statement.to_bytes()),
                certificate=self.signer.chain_pem.encode(),
                ledger_head=self.head(),
            ),
        )

    def fragment_identity(self) -> tuple[str, int]:
        """Return the digest and the size of the fragment."""
        return hashlib.sha256(self.fragment).hexdigest(), len(self.fragment)

    def key(self, work: wire.Work, kind: "wire.BlobKind.ValueType", blob: bytes) -> wire.BlobKey:
        """Return the key of a blob."""
        digest = hashlib.sha256(blob).hexdigest()
        return wire.BlobKey(
            release=work.release, plan_digest=work.plan_digest, kind=kind, digest=digest, size=len(blob)
        )

    async def upload(self, key: wire.BlobKey, blob: bytes) -> wire.UploadResponse:
        """Upload a blob from where the aggregator says."""
        state = await self.calls.UploadState(wire.UploadStateRequest(blob=key))

        async def chunks() -> AsyncIterator[wire.UploadChunk]:
            yield wire.UploadChunk(blob=key, offset=state.offset)
            for start in range(state.offset, len(blob), CHUNK):
                yield wire.UploadChunk(offset=start, data=blob[start : start + CHUNK])

        return await self.calls.Upload(chunks())

    async def answer(self, work: wire.Work) -> None:
        """Do one piece of work as an honest owner does."""
        step = work.WhichOneof("step")
        if step == "collect":
            key = self.key(work, wire.BLOB_KIND_FRAGMENT, self.fragment)
            self.receipt = await self.upload(key, self.fragment)
            return
        if step == "conclude":
            self.concluded = work.conclude
            request = wire.AnswerRequest(
                release=work.release, plan_digest=work.plan_digest, acknowledged=wire.Acknowledged()
            )
        elif step == "link":
            request = await self.link(work)
        else:
            if step == "mask":
                await self.select(work)
            request = {"describe": self.describe, "consent": self.consent, "mask": self.seal}[str(step)](work)
        await self.calls.Answer(request)

    async def until(self, step: str) -> wire.Work:
        """Do all work up to a step, which is returned and not done."""
        while True:
            for work in await self.poll():
                if work.WhichOneof("step") == step:
                    return work
                await self.answer(work)

    async def run(self) -> wire.Conclude:
        """Do all work until the release has ended."""
        while self.concluded is None:
            for work in await self.poll():
                await self.answer(work)
        return self.concluded

    async def close(self) -> None:
        """Hang up."""
        await self.channel.close(None)


async def all_until(owners: Sequence[ScriptedOwner], step: str) -> list[wire.Work]:
    """Let all owners work up to a step."""
    return list(await asyncio.gather(*(owner.until(step) for owner in owners)))


async def connected_pair(aggregator: Any, records: np.ndarray) -> list[ScriptedOwner]:
    """Return owners a and b, connected, with the same attributes of half of the records each."""
    half = len(records) // 2
    parts = {"a": records[:half], "b": records[half:]}
    owners = [aggregator.owner(name, ["age", "income"], tokens) for name, tokens in parts.items()]
    for owner in owners:
        await owner.connect()
    return owners
