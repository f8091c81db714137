"""Uploads to the real daemon: not before all have sealed, resumed where they stopped, receipted once."""

import asyncio

from common.model.fragment import Receipt
from common.trust.identity import load_certificates
from common.trust.signing import Domain, verify
from common.wire.chunks import compress
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import all_until
from tests.wire.test_operations import pair, refused


async def test_receipt_is_signed_and_repeated(launch, records):
    """An upload whose receipt was lost gets the same receipt again, also after the release was published."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "collect")
    await owners[0].answer(works[0])
    first = owners[0].receipt
    await owners[0].answer(works[0])
    assert owners[0].receipt == first
    await owners[1].answer(works[1])
    await asyncio.gather(*(owner.run() for owner in owners))
    await owners[0].answer(works[0])
    assert owners[0].receipt == first
    pem = (aggregator.certificates / "hub.pem").read_bytes()
    verify(load_certificates(pem)[0], Domain.RECEIPT, first.receipt, first.signature)
    assert Receipt.from_bytes(first.receipt).owner == "a"


async def test_no_upload_before_all_sealed(launch, records):
    """No byte of a fragment is taken before every owner has sealed (the ready barrier)."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "mask")
    await owners[0].answer(works[0])
    key = owners[0].key(works[0], wire.BLOB_KIND_FRAGMENT, owners[0].fragment)
    error = await refused(owners[0].calls.UploadState(wire.UploadStateRequest(blob=key)))
    assert error.code == "protocol"
    assert "waiting for b" in error.message
    await owners[1].answer(works[1])
    await all_until(owners, "collect")


async def test_interrupted_upload_goes_on(launch, records):
    """Half an upload is kept and the rest completes it."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "collect")
    blob, owner = owners[0].fragment, owners[0]
    key = owner.key(works[0], wire.BLOB_KIND_FRAGMENT, blob)

    async def half():
        yield wire.UploadChunk(blob=key, data=blob[: len(blob) // 2])

    assert (await refused(owner.calls.Upload(half()))).code == "protocol"
    state = await owner.calls.UploadState(wire.UploadStateRequest(blob=key))
    assert state.offset == len(blob) // 2
    await owner.answer(works[0])
    assert owner.receipt is not None


async def test_compressed_chunks_are_the_same_fragment(launch, records):
    """Chunks travel compressed or not, in one upload; a frame that holds too much stops it where it was."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "collect")
    blob, owner = owners[0].fragment, owners[0]
    key = owner.key(works[0], wire.BLOB_KIND_FRAGMENT, blob)
    request = wire.UploadStateRequest(blob=key)
    assert (await owner.calls.UploadState(request)).zstd

    async def chunks(start: int, *others: wire.UploadChunk):
        part = blob[start : start + 100]
        yield wire.UploadChunk(blob=key, offset=start, zstd=compress(part), zstd_size=len(part))
        for each in others:
            yield each

    bomb = wire.UploadChunk(offset=100, zstd=compress(bytes(100 << 20)), zstd_size=100)
    assert (await refused(owner.calls.Upload(chunks(0, bomb)))).code == "protocol"
    assert (await owner.calls.UploadState(request)).offset == 100
    rest = wire.UploadChunk(offset=200, data=blob[200:])
    owner.receipt = await owner.calls.Upload(chunks(100, rest))
    await owners[1].answer(works[1])
    await asyncio.gather(*(owner.run() for owner in owners))
    assert (await aggregator.show()).state == "published"


async def test_garbage_fragment_ends_the_release(launch, records):
    """A signed fragment that is no fragment fails the release and is never joined."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "mask")
    owners[0].fragment = b"not an Arrow stream" * 10
    forged = owners[0].state(works[0])
    await owners[0].calls.Answer(forged)
    await owners[1].answer(works[1])
    collect = await owners[0].until("collect")
    assert (await refused(owners[0].answer(collect))).code == "integrity"
    view = await aggregator.show()
    assert (view.state, view.error.code) == ("failed", "integrity")


async def test_a_release_goes_on_after_an_owner_failed(launch, records):
    """What ended after owners had spent goes on when it is asked for again: with the same fragments."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "collect")
    await owners[0].answer(works[0])
    failure = wire.Failure(code="internal", message="an internal fault at the owner")
    await owners[1].calls.Answer(
        wire.AnswerRequest(release="r1", plan_digest=works[1].plan_digest, failure=failure)
    )
    view = await aggregator.show()
    assert (view.state, "nobody is charged again" in view.error.hint) == ("failed", True)
    fragments = [owner.fragment for owner in owners]
    for owner, work in zip(owners, await all_until(owners, "conclude"), strict=True):
        await owner.answer(work)
        owner.concluded = None
    await aggregator.start("a", "b")
    assert (await aggregator.show()).state == "collecting"
    await asyncio.gather(*(owner.run() for owner in owners))
    assert (await aggregator.show()).state == "published"
    assert [owner.fragment for owner in owners] == fragments
