"""The real daemon, called over real TLS by owners that can be made to misbehave."""

import asyncio
import json
from pathlib import Path

import grpc
import numpy as np
import pyarrow.parquet as pq
import pytest

from common import __version__
from common.errors import TesseraError
from common.release.verification import verify_release
from common.wire.software import software_here
from common.wire.status import from_rpc_error
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import all_until


async def refused(call) -> TesseraError:
    """Return the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def pair(aggregator, records, *, names=("age", "income"), layout="horizontal", **changes):
    """Return two connected owners in a release that has been started."""
    if layout == "vertical":
        parts = [("a", names[:1], records), ("b", names[1:], records)]
    else:
        parts = [("a", names, records[:30]), ("b", names, records[30:])]
    owners = [aggregator.owner(name, held, tokens) for name, held, tokens in parts]
    for owner in owners:
        await owner.connect()
    await aggregator.start("a", "b", layout=layout, **changes)
    return owners


@pytest.mark.parametrize(("layout", "n_records"), [("horizontal", 60), ("vertical", 60)])
async def test_release_is_published(launch, records, tmp_path, layout, n_records):
    """Both layouts go from invitation to a folder that verifies, is downloadable, and shows no token."""
    aggregator = await launch()
    owners = await pair(aggregator, records, layout=layout)
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    assert [end.state for end in ends] == ["published", "published"]
    view = await aggregator.show()
    assert [(o.id, o.state, o.k) for o in view.owners] == [("a", "published", "5"), ("b", "published", "5")]
    assert verify_release(Path(view.directory)).manifest_digest == view.manifest_digest
    assert ends[0].manifest_digest == view.manifest_digest
    table = pq.read_table(Path(view.directory) / "data.parquet")
    assert table.column_names == ["record", "age", "income"]
    assert table.num_rows == n_records
    assert not list((tmp_path / "state" / "incoming").iterdir())
    files = [chunk async for chunk in owners[0].calls.Download(wire.DownloadRequest(release="r1"))]
    assert "manifest.json" in files[0].files
    request = wire.DownloadRequest(release="r1", file="manifest.json", offset=5)
    body = b"".join([chunk.data async for chunk in owners[0].calls.Download(request)])
    assert body == (Path(view.directory) / "manifest.json").read_bytes()[5:]
    beyond = wire.DownloadRequest(release="r1", file="manifest.json", offset=2**64 - 1)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await owners[0].calls.Download(beyond).read()
    assert from_rpc_error(raised.value).code == "usage"


async def test_strangers_see_nothing(launch, records):
    """An owner that takes no part can neither answer, upload nor download, nor learn of a release."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    stranger = aggregator.owner("stranger", ["age"], records)
    await stranger.connect()
    works = await all_until(owners, "consent")
    answer = await refused(stranger.calls.Answer(stranger.describe(works[0])))
    nothing = await refused(stranger.calls.Answer(stranger.describe(wire.Work(release="none"))))
    assert answer.message.replace("r1", "none") == nothing.message
    key = stranger.key(works[0], wire.BLOB_KIND_TOKENS, b"x" * 16)
    upload = await refused(stranger.calls.UploadState(wire.UploadStateRequest(blob=key)))
    assert (answer.code, upload.code) == ("not_connected", "not_connected")
    stream = stranger.calls.Download(wire.DownloadRequest(release="r1"))
    with pytest.raises(grpc.aio.AioRpcError):
        await stream.read()


async def test_identity_is_not_a_field(launch, records):
    """A consent that another owner signed is refused: who signs must be who calls."""
    aggregator = await launch()
    a, b = await pair(aggregator, records)
    work, _ = await all_until([a, b], "consent")
    error = await refused(a.calls.Answer(b.consent(work)))
    assert error.code == "identity"
    assert (await aggregator.show()).owners[0].state == "invited"


async def test_repeated_and_changed_answers(launch, records):
    """The same answer twice counts once; another answer to the same question is refused."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    work, _ = await all_until(owners, "consent")
    await owners[0].calls.Answer(owners[0].consent(work))
    await owners[0].calls.Answer(owners[0].consent(work))
    error = await refused(owners[0].calls.Answer(owners[0].consent(work, key_check="cd" * 32)))
    assert error.code == "conflict"
    other = owners[0].consent(work)
    other.plan_digest = "0" * 64
    assert (await refused(owners[0].calls.Answer(other))).code == "conflict"


@pytest.mark.parametrize(
    "schema",
    [b"", b"{}", b"[" * 100_000, b"\xff", b'{"attributes":[]}', b'{"attributes":[1]}', b"null"]
    + [
        json.dumps(
            {
                "attributes": [{"name": "x", "type": "integer", "outside": "error", "min": "0", "max": end}],
                "identifier": None,
                "max_records_per_person": "1",
                "records_rounded": "60",
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
        for end in ("1E+999999", "99999999999999999999", "-1", "x")
    ],
)
async def test_garbage_schemas(launch, records, schema):
    """No schema that a stranger makes up gets into a release or stops the daemon: its release ends."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    (work,) = await owners[0].poll()
    request = wire.AnswerRequest(
        release=work.release, described=wire.Described(schema=schema, software=software_here())
    )
    assert (await refused(owners[0].calls.Answer(request))).code == "protocol"
    assert (await aggregator.show()).state == "failed"
    await aggregator.start("a", "b", release="r2")
    works = await all_until(owners, "consent")
    assert [each.release for each in works] == ["r2", "r2"]


async def test_shared_persons_are_a_conflict(launch, records):
    """Two horizontal owners with common tokens stop the release before anything is masked."""
    aggregator = await launch()
    owners = [aggregator.owner(name, ["age"], records[:40]) for name in ("a", "b")]
    for owner in owners:
        await owner.connect()
    await aggregator.start("a", "b")
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    assert [end.state for end in ends] == ["conflict", "conflict"]
    assert "40" in (await aggregator.show()).error.message


async def test_different_linkage_keys_are_a_conflict(launch, records):
    """Owners with different linkage keys are stopped, and told who has which generation."""
    aggregator = await launch()
    a, b = await pair(aggregator, records)
    works = await all_until([a, b], "consent")
    await a.calls.Answer(a.consent(works[0], generation=2))
    await b.calls.Answer(b.consent(works[1], key_check="cd" * 32, generation=1))
    told = await a.run()
    assert told.state == "conflict"
    assert "a has generation 2 | b has generation 1" in told.reason
    assert (await aggregator.show()).error.code == "conflict"


async def test_schema_conflicts_are_told_together(launch, records):
    """A release over different attributes ends in conflict with every difference."""
    aggregator = await launch()
    owners = [aggregator.owner("a", ["age", "x"], records), aggregator.owner("b", ["age", "y"], records)]
    for owner in owners:
        await owner.connect()
    await aggregator.start("a", "b")
    await asyncio.gather(*(owner.run() for owner in owners))
    view = await aggregator.show()
    assert view.state == "conflict"
    assert len(json.loads(view.error.details)["conflicts"]) == 2


async def test_one_refusal_ends_it_for_all(launch, records):
    """A refusal ends the release once; the operator sees "balance" only if no owner refused otherwise."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    work, _ = await all_until(owners, "consent")

    def failure(code: str) -> wire.AnswerRequest:
        told = wire.Failure(code=code, message="refused by owner policy")
        return wire.AnswerRequest(release="r1", plan_digest=work.plan_digest, failure=told)

    await owners[0].calls.Answer(failure("balance"))
    await owners[0].calls.Answer(failure("refused"))
    view = await aggregator.show()
    assert (view.state, view.error.code) == ("refused", "balance")
    assert [owner.state for owner in view.owners] == ["refused", "ended"]
    # The other owner's refusal was on its way already.
    await owners[1].calls.Answer(failure("refused"))
    assert (await owners[1].run()).state == "refused"
    view = await aggregator.show()
    assert (view.state, view.error.code) == ("refused", "refused")
    assert [owner.state for owner in view.owners] == ["refused", "refused"]


async def test_absent_owner(launch, pass_deadline, records):
    """A known owner that does not come before the deadline fails the release with its name."""
    aggregator = await launch()
    a, b = (aggregator.owner(name, ["age"], records) for name in ("a", "b"))
    await b.connect()
    aggregator = await launch_again(launch, aggregator)
    a = aggregator.owner("a", ["age"], records)
    await a.connect()
    await aggregator.start("a", "b")
    await a.answer(await a.until("describe"))
    pass_deadline()
    assert (await a.run()).state == "failed"
    view = await aggregator.show()
    assert (view.error.code, view.error.message) == ("not_connected", "not connected: b")


async def launch_again(launch, aggregator, **deadlines):
    """Stop a daemon and start it anew over the same state."""
    await aggregator.daemon.stop()
    return await launch(**deadlines)


@pytest.mark.parametrize("step", ["consent", "link", "mask", "collect", "conclude"])
async def test_restart_goes_on(launch, records, step):
    """A release goes on after a restart of the aggregator in every state."""
    aggregator = await launch()
    owners = await pair(aggregator, records, layout="vertical")
    works = await all_until(owners, step)
    again = await launch_again(launch, aggregator)
    moved = []
    for owner in owners:
        other = again.owner(owner.owner, owner.schema.names, owner.tokens)
        other.plan, other.fragment, other.sequence = getattr(owner, "plan", None), owner.fragment, 1
        other.documents = owner.documents
        await other.connect()
        moved.append(other)
    if step == "mask":
        await moved[0].answer(works[0])
    ends = await asyncio.gather(*(owner.run() for owner in moved))
    assert [end.state for end in ends] == ["published", "published"]


async def test_ledger_head_only_moves_forward(launch, records):
    """The newest signed ledger head is kept and returned at every connect, whatever an owner says later."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    first = owners[0]
    assert not (await first.connect()).HasField("newest_ledger_head")
    first.sequence = 5
    await all_until(owners, "link")
    assert (await first.connect()).newest_ledger_head.sequence == 6
    first.sequence = 2
    await aggregator.start("a", "b", release="r2")
    while (await aggregator.show("r2")).state != "linking":
        for owner in owners:
            for work in await owner.poll([wire.WorkKey(release="r1", step="link")]):
                await owner.answer(work)
    assert first.sequence == 3
    assert (await first.connect()).newest_ledger_head.sequence == 6


async def test_a_forged_ledger_head_is_refused(launch, records):
    """A head that its owner did not sign comes with no consent."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    (work, _) = await all_until(owners, "consent")
    consent = owners[0].consent(work)
    consent.consented.ledger_head.sequence += 1
    assert (await refused(owners[0].calls.Answer(consent))).code == "integrity"
    assert not (await owners[0].connect()).HasField("newest_ledger_head")


async def test_polls_are_held_and_busy_work_is_not_told(launch, records):
    """A poll returns at once when there is work, and not for work that the owner is busy with."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    (work,) = await owners[0].poll()
    held = asyncio.create_task(owners[0].poll([wire.WorkKey(release="r1", step="describe")]))
    assert (await owners[0].poll())[0] == work
    assert not held.done()
    await owners[0].answer(work)
    await owners[1].until("consent")
    assert [each.WhichOneof("step") for each in await held] == ["consent"]


async def test_operators_see_how_far_masking_is(launch, records, monkeypatch):
    """A poll says how far it is, until the next one or until it is done. Of other steps nothing is kept."""
    monkeypatch.setattr("aggregator.api.owner_service.POLL_SECONDS", 0.1)
    aggregator = await launch()
    owners = await pair(aggregator, records)
    far = wire.StepProgress(percent=40, seconds_left=170)

    async def shown():
        return [each.progress for each in (await aggregator.show("r1")).owners]

    async def shown_after(step, progress):
        await owners[0].poll([wire.WorkKey(release="r1", step=step, progress=progress)])
        return await shown()

    for step in ("describe", "mask"):
        assert await shown_after(step, far) == ["", ""]
    work, _ = await all_until(owners, "mask")
    assert await shown_after("describe", far) == ["", ""]
    assert await shown_after("mask", wire.StepProgress(percent=4_000_000_000)) == ["100 %", ""]
    assert await shown_after("mask", None) == ["", ""]
    assert await shown_after("mask", far) == ["40 %, about 3 minutes left", ""]
    await owners[0].answer(work)
    assert await shown() == ["", ""]


def test_the_fixture_has_distinct_tokens(records):
    """The tests' tokens are distinct, else their conflicts would mean nothing."""
    assert len(np.unique(records, axis=0)) == len(records)


async def test_an_owner_that_is_too_old(launch, records):
    """Without a common protocol it is refused at once; without a feature of the release, when it is planned.
    Both name what to upgrade, and no owner was asked.
    """
    aggregator = await launch()
    stranger = aggregator.owner("a", ("age",), records)
    stranger.software = wire.Software(version="9.0", oldest_protocol=8, newest_protocol=9)
    error = await refused(stranger.connect())
    assert (error.code, error.hint) == ("version", f"upgrade the aggregator (version {__version__})")
    stranger.software = wire.Software()
    assert "does not say what it runs" in (await refused(stranger.connect())).message
    owners = await pair(aggregator, records, owner_column=True)
    owners[1].software = wire.Software(version="0.0.9", oldest_protocol=1, newest_protocol=1)
    for owner in owners:
        (work,) = await owner.poll()
        await owner.calls.Answer(owner.describe(work))
    (work,) = await owners[0].poll()
    assert work.conclude.state == "conflict"
    assert (
        "b (version 0.0.9): key-proof, known since 0.2.0, owner-column, known since 0.1.0"
        in work.conclude.reason
    )
    assert (await aggregator.show()).error.code == "version"
