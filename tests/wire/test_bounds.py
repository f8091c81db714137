"""No owner can make the aggregator grow, wait or send without limit, and no plan outgrows a message."""

import asyncio
import contextlib
from unittest.mock import Mock

import grpc
import pytest

from aggregator.api import answers
from aggregator.drive.messages import fit_into_message
from common.canonical import canonical
from common.errors import UsageError
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, IdentifierRules, Schema
from common.planning.arguments import parse_arguments
from common.wire.software import software_here
from common.wire.status import from_rpc_error
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import all_until
from tests.wire.conftest import TRUST_DOMAIN
from tests.wire.test_operations import pair, refused


def wide(name: str, n_bytes: int) -> Schema:
    """Return a schema whose one attribute has labels of so many bytes."""
    labels = tuple(f"{number:0100d}" for number in range(n_bytes // 103))
    attribute = Attribute(name, AttributeType.CATEGORY, 0, len(labels) - 1, categories=labels)
    return Schema((attribute,), IdentifierRules(1, ("trim",)), 1, 60)


async def wide_pair(aggregator, records, n_bytes: int, *releases: str):
    """Return two owners of a vertical release with long lists of categories, who have described them."""
    owners = [aggregator.owner(name, [name], records) for name in ("a", "b")]
    for owner in owners:
        owner.schema = wide(owner.owner, n_bytes)
        await owner.connect()
    for release in releases:
        await aggregator.start("a", "b", layout="vertical", release=release)
    for owner in owners:
        for work in await owner.poll():
            await owner.answer(work)
    return owners


async def test_a_plan_that_fits_no_document_is_not_made(launch, records):
    """It would end every poll that tells it; the operator hears what to leave out, and nobody reserves."""
    aggregator = await launch()
    owners = await wide_pair(aggregator, records, 1_700_000, "r1")
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    assert [end.state for end in ends] == ["failed", "failed"]
    error = (await aggregator.show()).error
    assert (error.code, "--attributes" in error.hint) == ("usage", True)


@pytest.mark.parametrize(
    ("bound", "value", "reserved"),
    [("drive.stages._SMALLEST_CONSENT", 2 << 20, 0), ("drive.messages.LARGEST_DOCUMENT", 1200, 2)],
)
async def test_consents_that_fit_no_document(launch, records, monkeypatch, bound, value, reserved):
    """What every owner is shown of all others fits a document, or nobody links; the operator hears why."""
    monkeypatch.setattr(f"aggregator.{bound}", value)
    aggregator = await launch()
    owners = await pair(aggregator, records)
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    assert [end.state for end in ends] == ["failed", "failed"]
    error = (await aggregator.show()).error
    assert (error.code, "consents of the 2 owners" in error.message) == ("usage", True)
    assert "fewer owners" in error.hint or "at most 1 owners" in error.hint
    assert sum(owner.sequence for owner in owners) == reserved


async def test_large_plans_are_sent_once_each(launch, records):
    """Work names a plan by its digest and stays small; only participants fetch the plan, while it is due."""
    aggregator = await launch()
    (owner, _) = await wide_pair(aggregator, records, 1_200_000, "r1", "r2")
    works: list[wire.Work] = []
    while len(works) < 2:
        works = [work for work in await owner.poll() if work.WhichOneof("step") == "consent"]
    assert sum(work.ByteSize() for work in works) < 20_000
    for work in works:
        assert len(owner.documents[work.plan_digest]) > 2_000_000
        assert Plan.from_bytes(owner.documents[work.plan_digest]).digest == work.plan_digest
    stranger = aggregator.owner("stranger", ["age"], records)
    await stranger.connect()
    fetched = wire.FetchRequest(release="r1", digest=works[0].plan_digest)
    assert (await refused(stranger.calls.Fetch(fetched).read())).code == "not_connected"
    fetched.digest = works[1].plan_digest
    assert (await refused(owner.calls.Fetch(fetched).read())).code == "protocol"


def test_a_single_piece_of_work_is_always_told():
    """What is as large as a message may be is told by itself, and never left out."""
    large, small = wire.Work(plan_digest="x" * (4 << 20)), wire.Work(release="r")
    assert fit_into_message([large, small]) == [large]
    assert fit_into_message([small, large]) == [small]
    assert fit_into_message([small] * 3) == [small] * 3


@pytest.mark.parametrize("changed", ["records_rounded", "max_records_per_person", "min_k"])
async def test_counts_beyond_all_measure_are_refused(launch, records, changed):
    """Numbers of a schema that sizes and loops follow from are bounded."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    document = owners[0].schema.to_document()
    (document["limits"] if changed == "min_k" else document)[changed] = "9" * 30
    request = wire.AnswerRequest(
        release="r1", described=wire.Described(schema=canonical(document), software=software_here())
    )
    assert (await refused(owners[0].calls.Answer(request))).code == "protocol"


@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-cbls"])
async def test_no_more_records_than_were_planned_for(launch, records, monkeypatch, mechanism):
    """Tokens and counts beyond what an owner's rounded number can stand for are refused before they come
    where a joint bound counts clusters; elsewhere those beyond what an aggregator takes unasked are.
    """
    if mechanism == "idp-joint":
        monkeypatch.setattr("aggregator.api.answers._MOST_UNPLANNED", 35)
    aggregator = await launch()
    owners = await pair(aggregator, records, mechanism=mechanism)
    (work, _) = await all_until(owners, "link")
    blob = b"x" * 16 * 40
    key = owners[0].key(work, wire.BLOB_KIND_TOKENS, blob)
    assert (await refused(owners[0].calls.UploadState(wire.UploadStateRequest(blob=key)))).code == "protocol"
    linked = wire.Linked(n_records=40, tokens_digest="ab" * 32, key_proof=owners[0].key_proof)
    request = wire.AnswerRequest(release="r1", plan_digest=work.plan_digest, linked=linked)
    assert "1 to 39" in (await refused(owners[0].calls.Answer(request))).message
    await all_until(owners, "collect")


@pytest.mark.parametrize("habit", ["silent", "empty", "endless", "never begins"])
async def test_an_upload_that_never_ends(launch, records, monkeypatch, habit):
    """An upload that stalls, sends nothing or sends too much is ended, and the release goes on after it."""
    monkeypatch.setattr("aggregator.api.uploads._STALL_SECONDS", 0.2)
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "collect")
    blob = owners[0].fragment
    key = owners[0].key(works[0], wire.BLOB_KIND_FRAGMENT, blob)
    for_ever = asyncio.Event()

    async def chunks():
        if habit != "never begins":
            yield wire.UploadChunk(blob=key, data=blob[:10])
        while habit == "endless":
            yield wire.UploadChunk(data=b"x" * 1000)
        if habit == "empty":
            yield wire.UploadChunk(offset=10)
        await for_ever.wait()

    error = await refused(owners[0].calls.Upload(chunks()))
    # A call that breaks while a message is sent may lose the answer.
    codes = {"empty": {"protocol"}, "endless": {"protocol", "not_connected"}}
    assert error.code in codes.get(habit, {"not_connected"})
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    assert [end.state for end in ends] == ["published", "published"]


async def test_an_upload_ends_with_its_release(launch, records):
    """Nobody goes on receiving for a release that has ended."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await all_until(owners, "collect")
    blob = owners[0].fragment
    key = owners[0].key(works[0], wire.BLOB_KIND_FRAGMENT, blob)
    ended = asyncio.Event()

    async def chunks():
        yield wire.UploadChunk(blob=key, data=blob[:10])
        await ended.wait()
        with contextlib.suppress(asyncio.CancelledError):
            yield wire.UploadChunk(offset=10, data=blob[10:20])
            await asyncio.Event().wait()

    upload = asyncio.ensure_future(owners[0].calls.Upload(chunks()))
    await owners[1].answer(works[1])
    failure = wire.Failure(code="internal", message="x")
    await owners[1].calls.Answer(wire.AnswerRequest(release="r1", failure=failure))
    ended.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await upload
    assert "ended during the upload" in str(caught.value.details())


def test_a_vertical_release_has_several_owners():
    """Attributes of one owner are not joined with anything; the operator hears what to ask for instead."""
    with pytest.raises(UsageError, match="attributes of several owners") as caught:
        parse_arguments(release="r", dataset="d", layout="vertical", groups=[["a"]], epsilon="1")
    assert "horizontal" in caught.value.hint


async def test_an_owner_that_calls_without_end(launch, records, monkeypatch, caplog):
    """Its calls are refused without a line of the log for each; another owner is answered as ever."""
    monkeypatch.setattr("aggregator.api.rates._BURST", 5)
    monkeypatch.setattr("aggregator.api.rates._LONGEST_SECONDS", 0.0)
    aggregator = await launch()
    a, b = (aggregator.owner(name, ["age"], records) for name in "ab")
    with caplog.at_level("INFO"):
        for _ in range(4):
            await a.connect()
        ends = await asyncio.gather(*(a.connect() for _ in range(100)), return_exceptions=True)
        codes = {from_rpc_error(each).code for each in ends if isinstance(each, grpc.aio.AioRpcError)}
    assert codes == {"not_connected"}
    lines = [record for record in caplog.records if getattr(record, "owner", "") == "a"]
    n_taken = sum(not isinstance(each, BaseException) for each in ends)
    assert len(lines) == 4 + n_taken + 1  # one for all that were refused
    assert not [record for record in caplog.records if record.getMessage() == "call refused"]
    await b.connect()


async def test_a_refused_call_is_logged_with_its_caller(launch, records, caplog):
    """Lines are counted by who causes them, which an owner cannot choose: its certificate says it."""
    aggregator = await launch()
    owners = [aggregator.owner(name, ["age"], records) for name in "ab"]
    with caplog.at_level("INFO"):
        for number in range(5):
            for owner in owners:
                key = wire.BlobKey(release=f"r{number}")
                await refused(owner.calls.UploadState(wire.UploadStateRequest(blob=key)))
    callers = [vars(each)["caller"] for each in caplog.records if each.getMessage() == "call refused"]
    assert callers == [f"spiffe://{TRUST_DOMAIN}/owner/{name}" for name in "ab"] * 5


async def test_a_schema_is_read_once(launch, records, monkeypatch):
    """Reading takes long: a repeated schema is compared with the first, and is refused where it differs."""
    reading = Mock(wraps=answers.read_schema)
    monkeypatch.setattr(answers, "read_schema", reading)
    aggregator = await launch()
    owners = await pair(aggregator, records)
    (work, *_) = await owners[0].poll()
    other = wire.AnswerRequest(
        release="r1", described=wire.Described(schema=b"\xff", software=software_here())
    )
    await asyncio.gather(*(owners[0].calls.Answer(owners[0].describe(work)) for _ in range(20)))
    assert (await refused(owners[0].calls.Answer(other))).code == "conflict"
    # Of twenty at once, the next in turn may read it, too, before the first one is recorded.
    assert reading.call_count <= 2
