"""A real aggregator with an owner that lies: its release ends in words, or it is refused, and on it works."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aggregator.drive import stages
from common.model.fragment import FragmentStatement
from common.model.rounds import Parcel, ParcelKind
from common.trust.signing import Domain
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import ScriptedOwner, all_until, connected_pair
from tests.wire.test_operations import refused


@pytest.fixture
async def pair(launch, records) -> AsyncIterator[tuple[Any, list[ScriptedOwner]]]:
    """An aggregator and two connected owners; whatever happened, an honest release works afterwards."""
    aggregator = await launch()
    owners = await connected_pair(aggregator, records)
    yield aggregator, owners
    await aggregator.start("a", "b", release="good")
    ends = await ended(owners)
    assert ends == ["published", "published"]


async def ended(owners: Sequence[ScriptedOwner]) -> list[str]:
    """Let all owners work until their release has ended."""
    for owner in owners:
        owner.concluded = None
    return [end.state for end in await asyncio.gather(*(owner.run() for owner in owners))]


def stream(*batches: pa.RecordBatch) -> bytes:
    """Return an Arrow stream."""
    sink = BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def columns(n: int = 30, *, nullable: bool = False, **changed: Any) -> bytes:
    """Return a stream of the two columns that were agreed, or of others."""
    values = {name: pa.array(np.arange(n, dtype=np.int64)) for name in ("age", "income")} | changed
    fields = [pa.field(name, each.type, nullable=nullable) for name, each in values.items()]
    return stream(pa.record_batch(list(values.values()), schema=pa.schema(fields)))


def flipped(data: bytes, position: int) -> bytes:
    """Return bytes of which one is another."""
    changed = bytearray(data)
    changed[position] ^= 0xFF
    return bytes(changed)


def _categories(indices: list[int]) -> pa.Array:
    """Return a dictionary column whose indices may point nowhere."""
    where = pa.array(indices, pa.uint8())
    return pa.DictionaryArray.from_arrays(where, pa.array([1, 2], pa.int64()), safe=False)


FRAGMENTS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no Arrow": lambda: b"x" * 1000,
    "half": lambda: columns()[:-40],
    "a byte more": lambda: columns() + b"\0",
    "other columns": lambda: columns(ages=pa.array(np.arange(30, dtype=np.int64))),
    "text": lambda: columns(age=pa.array(["x"] * 30)),
    "floats and NaN": lambda: columns(age=pa.array([float("nan")] * 30)),
    "missing values": lambda: columns(age=pa.array([None] * 30, pa.int64()), nullable=True),
    "values outside": lambda: columns(age=pa.array([5000] * 30)),
    "undeclared categories": lambda: columns(age=_categories([0, 1, 200] * 10)),
    "fewer records": lambda: columns(29),
    "more records": lambda: columns(31),
    "a changed length": lambda: flipped(columns(), 4),
    "a changed schema": lambda: flipped(columns(), 60),
    "a changed batch": lambda: flipped(columns(), columns().index(b"\xff" * 4, 8) + 24),
}


async def test_fragments_that_are_none(pair) -> None:
    """What an owner has signed and is no fragment of its task fails its release, and is never joined."""
    aggregator, owners = pair
    for number, make in enumerate(FRAGMENTS.values()):
        release = f"r{number}"
        await aggregator.start("a", "b", release=release)
        works = await all_until(owners, "mask")
        owners[0].fragment = make()
        await owners[0].calls.Answer(owners[0].state(works[0]))
        await owners[1].answer(works[1])
        collect = await owners[0].until("collect")
        assert (await refused(owners[0].answer(collect))).code == "integrity", list(FRAGMENTS)[number]
        view = await aggregator.show(release)
        assert (view.state, view.error.code) == ("failed", "integrity"), list(FRAGMENTS)[number]
        assert await ended(owners) == ["failed", "failed"]
    assert list(aggregator.config.aggregator.release_dir.iterdir()) == []


async def test_statements_that_do_not_fit(pair) -> None:
    """Counts, plans and sizes that are not those of the release are refused; the true ones are taken then."""
    aggregator, owners = pair
    await aggregator.start("a", "b")
    a, b = owners
    works = await all_until(owners, "mask")
    true = a.seal(works[0])
    addendum = a.addendum(works[0])

    def stated(**changes: Any) -> wire.AnswerRequest:
        fields = {
            "release": "r1", "owner": "a", "plan_digest": works[0].plan_digest,
            "addendum_digest": addendum.digest, "fragment_digest": true.sealed.fragment_digest,
            "size": true.sealed.size, "records": 30,
        } | changes  # fmt: skip
        answer = wire.AnswerRequest()
        answer.CopyFrom(true)
        answer.sealed.signature = a.signer.sign(Domain.FRAGMENT, FragmentStatement(**fields).to_bytes())
        answer.sealed.size, answer.sealed.n_records = fields["size"], fields["records"]
        answer.sealed.fragment_digest = fields["fragment_digest"]
        return answer

    lies = {
        "more records": stated(records=31),
        "another release": stated(release="r2"),
        "another plan": stated(plan_digest="ab" * 32),
        "another addendum": stated(addendum_digest="ab" * 32),
        "another owner": stated(owner="b"),
        "a size beyond measure": stated(size=1 << 40),
    }
    for name, answer in lies.items():
        assert (await refused(a.calls.Answer(answer))).code in ("protocol", "integrity"), name
    by_b = b.seal(works[1])
    assert (await refused(a.calls.Answer(by_b))).code in ("protocol", "identity", "integrity")
    renamed = stated()
    renamed.release = "none"
    assert (await refused(a.calls.Answer(renamed))).code == "not_connected"
    await a.calls.Answer(true)
    await b.answer(works[1])
    assert await ended(owners) == ["published", "published"]


async def test_bytes_that_are_not_the_stated_ones(pair) -> None:
    """Other bytes than those that were sealed are refused, whatever they claim to be; the true ones pass."""
    aggregator, owners = pair
    await aggregator.start("a", "b")
    works = await all_until(owners, "collect")
    a, honest = owners[0], owners[0].fragment
    wrong = flipped(honest, len(honest) // 2)
    other = a.key(works[0], wire.BLOB_KIND_FRAGMENT, wrong)
    assert (await refused(a.calls.UploadState(wire.UploadStateRequest(blob=other)))).code == "conflict"
    key = a.key(works[0], wire.BLOB_KIND_FRAGMENT, honest)
    assert (await refused(a.upload(key, wrong))).code == "integrity"
    assert (await refused(a.upload(key, honest + b"x"))).code == "protocol"
    kind = a.key(works[0], wire.BLOB_KIND_UNSPECIFIED, honest)
    assert (await refused(a.calls.UploadState(wire.UploadStateRequest(blob=kind)))).code == "protocol"
    assert await ended(owners) == ["published", "published"]


TOKENS: dict[str, Callable[[np.ndarray], bytes]] = {
    "unsorted": lambda tokens: tokens[::-1].tobytes(),
    "repeated": lambda tokens: np.repeat(tokens[:1], 30, axis=0).tobytes(),
    "fewer": lambda tokens: tokens[:-1].tobytes(),
    "more": lambda tokens: np.concatenate([tokens, np.full((1, 16), 255, np.uint8)]).tobytes(),
}


async def test_tokens_that_are_none(pair) -> None:
    """A token list that is not sorted, distinct and of the declared length ends the release or is refused."""
    aggregator, owners = pair
    for number, make in enumerate(TOKENS.values()):
        release = f"r{number}"
        await aggregator.start("a", "b", release=release)
        works = await all_until(owners, "link")
        a = owners[0]
        ordered = np.frombuffer(a.token_blob(), dtype=np.uint8).reshape(-1, 16)
        blob = make(ordered)
        await a.upload(a.key(works[0], wire.BLOB_KIND_TOKENS, blob), blob)
        name = hashlib.sha256(blob).hexdigest()
        linked = wire.Linked(n_records=30, tokens_digest=name, key_proof=a.key_proof)
        answer = wire.AnswerRequest(release=release, plan_digest=works[0].plan_digest, linked=linked)
        if len(blob) != 480:
            assert (await refused(a.calls.Answer(answer))).code == "protocol"
            await aggregator.calls.Cancel(control.ReleaseRequest(release=release))
            assert await ended(owners) == ["cancelled", "cancelled"]
            continue
        await a.calls.Answer(answer)
        await owners[1].answer(works[1])
        assert await ended(owners) == ["failed", "failed"]
        assert (await aggregator.show(release)).error.code == "protocol"


async def test_answers_without_a_question(pair, caplog, monkeypatch) -> None:
    """What nobody asked for is refused in words in every state, and ends nobody's release."""
    aggregator, owners = pair
    a, joining, go_on = owners[0], asyncio.Event(), asyncio.Event()
    publish, loop = stages.publish_release, asyncio.get_running_loop()

    def waits(*arguments: Any) -> str:
        loop.call_soon_threadsafe(joining.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        return publish(*arguments)

    monkeypatch.setattr("aggregator.drive.conductor.publish_release", waits)

    async def ask(plan_digest: str) -> None:
        nobody: dict[str, Any] = {
            "consented": wire.Consented(), "linked": wire.Linked(n_records=1), "sealed": wire.Sealed(),
            "passed": wire.Passed(parcel=wire.Parcel(statement=parcel(plan_digest))),
            "measured": wire.Measured(), "waiting": wire.Waiting(),
        }  # fmt: skip
        for kind, answer in nobody.items():
            request = wire.AnswerRequest(release="r1", plan_digest=plan_digest, **{kind: answer})
            state = (await aggregator.show()).state
            if not (kind == "waiting" and plan_digest and state != "consenting"):
                code = (await refused(a.calls.Answer(request))).code
                assert code in ("protocol", "integrity", "identity", "conflict"), (kind, state, code)
        blob = wire.BlobKey(release="r1", plan_digest=plan_digest, kind=wire.BLOB_KIND_ROWS, digest="ab" * 32)
        for each in (wire.BLOB_KIND_ROWS, wire.BLOB_KIND_SUMS, wire.BLOB_KIND_TOKENS):
            blob.kind = each
            code = (await refused(a.calls.UploadState(wire.UploadStateRequest(blob=blob)))).code
            assert code in ("protocol", "conflict"), each

    def parcel(plan_digest: str) -> bytes:
        stated = Parcel("r1", "a", plan_digest, "ab" * 32, ParcelKind.ROWS, "ab" * 32, 10)
        return stated.to_bytes()

    await aggregator.start("a", "b")
    await a.until("describe")
    await ask("")
    for step in ("link", "mask"):
        await ask((await all_until(owners, step))[0].plan_digest)
    works = await all_until(owners, "collect")
    await ask(works[0].plan_digest)
    for owner, work in zip(owners, works, strict=True):
        await owner.answer(work)
    await joining.wait()
    await ask(works[0].plan_digest)
    go_on.set()
    assert await ended(owners) == ["published", "published"]
    assert "internal" not in caplog.text
