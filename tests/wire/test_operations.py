"""What operators do with releases of a real daemon: delete, ask again, cancel, and read who did what."""

import asyncio
import json
from pathlib import Path

import grpc
import pytest

from aggregator.store.operator_log import USER_KEY
from common.errors import TesseraError
from common.release.verification import verify_release
from common.wire.status import from_rpc_error
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import all_until, connected_pair

R1 = control.ReleaseRequest(release="r1")


async def refused(call) -> TesseraError:
    """Return the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def pair(aggregator, records, **changes):
    """Return two connected owners in a release that has been started."""
    owners = await connected_pair(aggregator, records)
    await aggregator.start("a", "b", **changes)
    return owners


async def published(aggregator, records):
    """Return two owners whose release is published, and its folder."""
    owners = await pair(aggregator, records)
    await asyncio.gather(*(owner.run() for owner in owners))
    return owners, Path((await aggregator.show()).directory)


async def actions(aggregator, **which):
    """Return what the operators' log says."""
    return (await aggregator.calls.ListActions(control.ListActionsRequest(**which))).actions


async def test_a_release_that_has_ended_is_not_waited_for(launch, records):
    """Who asks for the data of a cancelled release is not told to wait for its end."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    ends = []
    for cancel in (False, True):
        if cancel:
            await aggregator.calls.Cancel(R1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await owners[0].calls.Download(wire.DownloadRequest(release="r1")).read()
        ends.append(from_rpc_error(caught.value))
    assert [error.hint for error in ends] == ["wait for its end", "it has no data to download"]
    assert "is cancelled, not published" in ends[1].message


async def test_deleting_removes_data_and_keeps_history(launch, records):
    """After deleting, the folder is gone, owners are told, and the release and its digest are on record."""
    aggregator = await launch()
    owners, folder = await published(aggregator, records)
    digest = verify_release(folder).manifest_digest
    view = await aggregator.calls.Delete(R1)
    assert (view.state, view.manifest_digest, view.directory) == ("published", digest, "")
    assert view.deleted > 0
    assert list(folder.parent.iterdir()) == []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await owners[0].calls.Download(wire.DownloadRequest(release="r1")).read()
    assert "were deleted at the aggregator on" in from_rpc_error(caught.value).message
    assert (await aggregator.calls.Delete(R1)).deleted == view.deleted
    assert "were deleted" in (await refused(aggregator.start("a", "b"))).message
    again = await stopped(launch, aggregator)
    assert (await again.show()).deleted == view.deleted
    assert (await refused(again.start("a", "b"))).code == "usage"


async def stopped(launch, aggregator):
    """Stop a daemon and start it anew over the same state."""
    await aggregator.daemon.stop()
    return await launch()


async def test_what_goes_on_is_not_deleted(launch, records):
    """Only what has ended can be deleted; a release that failed takes nobody else's folder with it."""
    aggregator = await launch()
    await pair(aggregator, records)
    error = await refused(aggregator.calls.Delete(R1))
    assert (error.code, error.details["state"]) == ("usage", "inviting")
    await aggregator.calls.Cancel(R1)
    other = aggregator.config.aggregator.release_dir / "r1"
    other.mkdir()
    assert (await aggregator.calls.Delete(R1)).deleted > 0
    assert other.is_dir()
    assert (await refused(aggregator.calls.Delete(control.ReleaseRequest(release="none")))).code == "usage"


async def test_an_interrupted_deletion_is_finished_at_start(launch, records, monkeypatch):
    """Nobody gets a deleted release although its folder could not be removed; the next start removes it."""
    aggregator = await launch()
    owners, folder = await published(aggregator, records)

    def busy(_path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr("aggregator.drive.conductor.remove_folder", busy)
        error = await refused(aggregator.calls.Delete(R1))
        assert "cannot be removed yet: Operation not permitted" in error.message
    assert folder.is_dir()
    with pytest.raises(grpc.aio.AioRpcError):
        await owners[0].calls.Download(wire.DownloadRequest(release="r1")).read()
    folder.rename(folder.with_name(".r1.deleted"))
    again = await stopped(launch, aggregator)
    await again.daemon.stop()
    assert list(folder.parent.iterdir()) == []


async def test_a_link_is_not_followed(launch, records, tmp_path):
    """Data that the operator has moved behind a link are for the operator to remove."""
    aggregator = await launch()
    _, folder = await published(aggregator, records)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in (await refused(aggregator.calls.Delete(R1))).message
    assert (await aggregator.show()).deleted == 0


async def test_the_same_id_comes_back_to_its_release(launch, records):
    """The same arguments find the release while it runs, after a restart and when it is published."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    await all_until(owners, "consent")
    assert (await aggregator.start("a", "b")).state == "consenting"
    again = await stopped(launch, aggregator)
    assert (await again.start("a", "b")).state == "consenting"
    moved = [again.owner(each.owner, ["age", "income"], each.tokens) for each in owners]
    await asyncio.gather(*(owner.run() for owner in moved))
    assert (await again.start("a", "b")).state == "published"
    assert (await refused(again.start("a", "b", k="6"))).code == "usage"


async def test_every_action_is_on_record(launch, records):
    """Who asked for what, with which arguments and what came of it can be read, whatever came of it."""
    aggregator = await launch()
    by = ((USER_KEY, "zoë (sudo by root)".encode()),)
    await pair(aggregator, records, confirmed=False)
    await refused(aggregator.start("a", "b", k="6"))
    await refused(aggregator.calls.Delete(R1, metadata=by))
    await aggregator.calls.Cancel(R1, metadata=by)
    await aggregator.calls.Cancel(R1, metadata=by)
    await aggregator.calls.Delete(R1, metadata=by)
    found = await actions(aggregator)
    assert [(each.action, each.user) for each in found] == [
        ("release", ""),
        ("release", ""),
        *[(name, "zoë (sudo by root)") for name in ("delete", "cancel", "cancel", "delete")],
    ]
    outcomes = [each.outcome.split(":")[0] for each in found]
    assert outcomes == ["done", "usage", "usage", "done", "nothing to change", "done"]
    assert json.loads(found[1].arguments)["k"] == "6"
    assert await actions(aggregator, release="other") == []
    assert len(await actions(aggregator, after=4)) == 2


async def test_start_is_idempotent(launch, records):
    """The same id with the same arguments is the same release; with others it is refused."""
    aggregator = await launch()
    await pair(aggregator, records)
    assert (await aggregator.start("a", "b")).release == "r1"
    assert (await refused(aggregator.start("a", "b", epsilon="2"))).code == "usage"
    assert (await refused(aggregator.start("a", "zz", release="r2"))).details["unknown"] == ["zz"]
    error = await refused(aggregator.start("a", "b", dataset="other", release="r3"))
    assert error.details["dataset"] == "other"


async def test_dry_run_and_cancel(launch, records):
    """A dry run ends with its plan, a cancelled release ends for everybody."""
    aggregator = await launch()
    owners = await pair(aggregator, records, dry_run=True)
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    assert [end.state for end in ends] == ["cancelled", "cancelled"]
    assert (await aggregator.show()).state == "planned"
    for owner in owners:
        owner.concluded = None
    await aggregator.start("a", "b", release="r2", confirmed=False)
    request = control.ReleaseRequest(release="r2")
    states = [
        view.state async for view in aggregator.calls.Watch(request) if await cancelled(aggregator, view)
    ]
    assert states[-1] == "cancelled"
    assert [(await owner.run()).state for owner in owners] == ["cancelled", "cancelled"]


async def cancelled(aggregator, view) -> bool:
    """Cancel a release that is seen for the first time; always true."""
    if view.state == "inviting":
        await aggregator.calls.Cancel(control.ReleaseRequest(release=view.release))
    return True
