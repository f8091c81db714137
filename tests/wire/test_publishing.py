"""Publishing when disk or program fail: nothing half-written or lost, and the operator is told."""

import asyncio
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from aggregator.drive import conductor
from aggregator.drive.deadlines import Deadlines
from aggregator.drive.stages import publish_release, signed_plan
from aggregator.protocol.events import Published
from aggregator.release import publication
from aggregator.store.database import CannotStoreError
from aggregator.store.journal import Journal
from common.canonical import digest
from common.progress import Progress
from common.release.verification import verify_release
from common.runs import RunFile
from common.wire.v1 import control_pb2 as control
from tests.fakes.published import make_release
from tests.wire.test_operations import R1, actions, pair, refused, stopped


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr("aggregator.drive.steps._FIRST_BACKOFF_SECONDS", 0.05)


async def seen(aggregator, wanted: Callable[[control.ReleaseView], bool]) -> control.ReleaseView:
    """Wait for a release to be seen in a way."""
    async with asyncio.timeout(90):
        async for view in aggregator.calls.Watch(R1):
            if wanted(view):
                return view
    raise AssertionError("the release ended otherwise")


async def delivered(aggregator, records, **changes) -> None:
    """Have two owners deliver their fragments."""
    owners = await pair(aggregator, records, **changes)
    works = await asyncio.gather(*(owner.until("collect") for owner in owners))
    await asyncio.gather(*(owner.answer(work) for owner, work in zip(owners, works, strict=True)))


async def test_an_idle_daemon_does_not_load_what_a_release_needs(launch, records, monkeypatch):
    """The libraries take 70 MB; they are loaded once the first release goes on."""
    loaded = threading.Event()
    monkeypatch.setattr("aggregator.daemon._load_libraries", lambda _threads: loaded.set())
    aggregator = await launch()
    await aggregator.calls.Status(control.StatusRequest())
    assert not loaded.is_set()
    await pair(aggregator, records)
    assert await asyncio.to_thread(loaded.wait, 20)


async def test_a_folder_that_cannot_be_written_is_waited_for(launch, records):
    """While the release folder cannot be made the release says so and stays; then it is published."""
    aggregator = await launch()
    place = aggregator.config.aggregator.release_dir
    place.rmdir()
    place.write_text("in the way")
    await delivered(aggregator, records)
    waiting = await seen(aggregator, lambda view: bool(view.note))
    assert (waiting.state, "Not a directory" in waiting.note) == ("joining", True)
    place.unlink()
    place.mkdir()
    view = await seen(aggregator, lambda view: view.state == "published")
    assert view.note == ""
    assert [each.name for each in place.iterdir()] == ["r1"]
    assert verify_release(Path(view.directory)).manifest_digest == view.manifest_digest


async def test_what_waits_for_the_disk_can_be_cancelled(launch, records, monkeypatch):
    """An operator who cannot make room ends the release; then it is not published any more."""
    # The next attempt begins after the cancellation.
    monkeypatch.setattr("aggregator.drive.steps._FIRST_BACKOFF_SECONDS", 2.0)
    aggregator = await launch()
    place = aggregator.config.aggregator.release_dir
    place.rmdir()
    place.write_text("in the way")
    await delivered(aggregator, records)
    await seen(aggregator, lambda view: bool(view.note))
    assert (await aggregator.calls.Cancel(R1)).state == "cancelled"
    place.unlink()
    place.mkdir()
    await aggregator.daemon.stop()
    assert list(place.iterdir()) == []


async def test_what_is_being_published_cannot_be_cancelled(launch, records, monkeypatch):
    """An attempt after one that failed can publish at any moment: nobody is told that it was cancelled."""
    check, attempts, written, go_on = publication._check, count(1), threading.Event(), threading.Event()

    def full_at_first(*arguments):
        if next(attempts) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        check(*arguments)
        written.set()
        go_on.wait(30)

    monkeypatch.setattr(publication, "_check", full_at_first)
    aggregator = await launch()
    await delivered(aggregator, records)
    await asyncio.to_thread(written.wait, 30)
    try:
        error = await refused(aggregator.calls.Cancel(R1))
    finally:
        go_on.set()
    assert (error.code, "it is being published" in error.hint) == ("usage", True)
    view = await seen(aggregator, lambda view: view.state == "published")
    assert verify_release(Path(view.directory)).manifest_digest == view.manifest_digest


async def test_what_has_appeared_is_published(launch, records, tmp_path, monkeypatch):
    """If the journal takes nothing after the folder appeared, the release is not called failed: it is written
    down as soon as it can be, with the folder and the copy that are there.
    """
    append = Journal.append

    def full(journal: Journal, release: str, event, action=None) -> None:
        if isinstance(event, Published):
            raise CannotStoreError("aggregator.db cannot be written (SQLITE_FULL)")
        append(journal, release, event, action)

    out = tmp_path / "copy"
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", full)
        aggregator = await launch()
        await delivered(aggregator, records, out=str(out))
        waiting = await seen(aggregator, lambda view: bool(view.note))
        assert "SQLITE_FULL" in waiting.note
        assert (await refused(aggregator.calls.Cancel(R1))).code == "usage"
    view = await seen(aggregator, lambda view: view.state == "published")
    assert (view.note, verify_release(out).manifest_digest) == ("", view.manifest_digest)


async def test_what_appeared_before_a_restart_is_published(launch, records, monkeypatch):
    """A daemon that ended between the folder and its event finds the folder, and makes no second one."""
    append = Journal.append

    def full(journal: Journal, release: str, event, action=None) -> None:
        if isinstance(event, Published):
            raise CannotStoreError("aggregator.db cannot be written (SQLITE_FULL)")
        append(journal, release, event, action)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", full)
        aggregator = await launch()
        await delivered(aggregator, records)
        await seen(aggregator, lambda view: bool(view.note))
        await aggregator.daemon.stop()
    place = aggregator.config.aggregator.release_dir / "r1"
    made = verify_release(place).manifest_digest
    view = await seen(await launch(), lambda view: view.state == "published")
    assert view.manifest_digest == made == verify_release(place).manifest_digest
    assert fragments(aggregator) == {}


async def test_what_a_killed_attempt_wrote_does_not_outlast_the_release(launch, records, monkeypatch):
    """An operator who ends a release after a crash leaves no half folder of its records behind."""
    monkeypatch.setattr("aggregator.drive.stages._fragment", None)
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await asyncio.gather(*(owner.until("collect") for owner in owners))
    half = aggregator.config.aggregator.release_dir / ".r1.partial"
    half.mkdir()
    (half / "data.csv").write_text("half")
    await asyncio.gather(*(owner.answer(work) for owner, work in zip(owners, works, strict=True)))
    await seen(aggregator, lambda view: view.HasField("error"))
    assert (await aggregator.calls.Cancel(R1)).state == "cancelled"
    assert not half.exists()
    # One that could not be removed then goes with what is deleted.
    half.mkdir()
    await aggregator.calls.Delete(R1)
    assert not half.exists()


async def test_a_copy_that_cannot_be_made_is_told(launch, records, tmp_path):
    """A release is published although its copy is not, and says so."""
    aggregator = await launch()
    out = tmp_path / "place" / "copy"
    out.parent.mkdir()
    owners = await pair(aggregator, records, out=str(out))
    shutil.rmtree(out.parent)
    out.parent.write_text("in the way")
    await asyncio.gather(*(owner.run() for owner in owners))
    view = await aggregator.show()
    assert view.state == "published"
    assert "there is no copy at" in view.note


class Fault:
    """A fault inside publishing, for as long as it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.attempts = True, 0
        monkeypatch.setattr("aggregator.drive.conductor.publish_release", self._publish)

    def _publish(self, *arguments):
        self.attempts += 1
        if self.there:
            raise OverflowError("the value 4711")
        return publish_release(*arguments)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """Publishing fails inside."""
    return Fault(monkeypatch)


def fragments(aggregator) -> dict[str, bytes]:
    """Return the fragments that the aggregator holds."""
    held = (aggregator.config.aggregator.state_dir / "incoming" / "r1").glob("*.fragment")
    return {path.name: path.read_bytes() for path in held}


async def test_a_fault_inside_ends_no_release(launch, records, fault):
    """Owners have spent: the release stays, says what to do, is tried in no loop, and goes on with the same
    fragments when its operator asks for it again.
    """
    aggregator = await launch()
    await delivered(aggregator, records)
    view = await seen(aggregator, lambda view: view.HasField("error"))
    kept = fragments(aggregator)
    assert (view.state, len(kept), fault.attempts) == ("joining", 2, 1)
    assert view.note == "waits: an internal fault of the aggregator; the fragments are kept"
    assert (view.error.code, "the fragments are kept" in view.error.message) == ("internal", True)
    assert ("--id r1" in view.error.hint, "aggregator cancel r1" in view.error.hint) == (True, True)
    assert json.loads(view.error.details) == {"release": "r1", "state": "joining", "cause": "internal"}
    await asyncio.sleep(0.3)
    assert fault.attempts == 1
    await aggregator.start("a", "b")
    await seen(aggregator, lambda view: view.HasField("error"))
    assert (fault.attempts, fragments(aggregator)) == (2, kept)
    fault.there = False
    again = await aggregator.start("a", "b")
    assert (again.state, again.note, again.HasField("error")) == ("joining", "", False)
    # Asked twice at once it is tried once.
    await aggregator.start("a", "b")
    view = await seen(aggregator, lambda view: view.state == "published")
    assert (fault.attempts, view.HasField("error"), view.note) == (3, False, "")
    evidence = verify_release(Path(view.directory)).owners
    sealed = {f"{owner}.fragment": each.statement.fragment_digest for owner, each in evidence.items()}
    assert sealed == {name: digest(data) for name, data in kept.items()}
    outcomes = [(each.action, each.outcome) for each in await actions(aggregator)]
    assert outcomes[:3] == [("release", "done")] * 3


async def test_a_fault_inside_is_tried_again_at_start(launch, records, fault):
    """A new version of the program publishes what the old one could not."""
    aggregator = await launch()
    await delivered(aggregator, records)
    await seen(aggregator, lambda view: view.HasField("error"))
    fault.there = False
    view = await seen(await stopped(launch, aggregator), lambda view: view.state == "published")
    assert verify_release(Path(view.directory)).n_records > 0


async def test_a_fault_inside_can_be_cancelled(launch, records, fault):
    """An operator who has no use for it any more ends the release; then nothing is kept."""
    aggregator = await launch()
    await delivered(aggregator, records)
    await seen(aggregator, lambda view: view.HasField("error"))
    assert (await aggregator.calls.Cancel(R1)).state == "cancelled"
    view = await aggregator.start("a", "b")
    assert (view.state, view.error.code, fault.attempts) == ("cancelled", "cancelled", 1)
    assert fragments(aggregator) == {}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_folder_of_another_release_is_in_the_way(launch, records, tmp_path, cancelled):
    """It is neither overwritten nor the end of the release: it is moved away, or the release is cancelled."""
    other = make_release(tmp_path).folder
    aggregator = await launch()
    owners = await pair(aggregator, records)
    works = await asyncio.gather(*(owner.until("collect") for owner in owners))
    place = aggregator.config.aggregator.release_dir / "r1"
    shutil.copytree(other, place)
    await asyncio.gather(*(owner.answer(work) for owner, work in zip(owners, works, strict=True)))
    view = await seen(aggregator, lambda view: view.HasField("error"))
    assert (view.state, "holds another release" in view.error.message) == ("joining", True)
    assert "move that folder away" in view.error.hint
    if cancelled:
        assert (await aggregator.calls.Cancel(R1)).state == "cancelled"
        assert verify_release(place).plan.release == "demo-1"
        return
    place.rename(tmp_path / "away")
    await aggregator.start("a", "b")
    view = await seen(aggregator, lambda view: view.state == "published")
    assert verify_release(Path(view.directory)).plan.release == "r1"


async def test_a_report_that_fails_is_told(launch, records, monkeypatch):
    """A release without its report is published, and says so."""
    monkeypatch.setattr("common.release.report.render_report", None)
    aggregator = await launch()
    await delivered(aggregator, records)
    view = await seen(aggregator, lambda view: view.state == "published")
    assert view.note == "the report could not be made: there is no report.html"
    assert verify_release(Path(view.directory)).files == (
        "data.csv",
        "data.parquet",
        "ro-crate-metadata.json",
    )


async def test_a_bit_that_flipped_on_the_disk_is_never_released(launch, records, monkeypatch):
    """A fragment that is not the one its owner signed, by the time it is joined, ends the release."""

    def flipped(release, intake, *others):
        path = next((aggregator.config.aggregator.state_dir / "incoming" / "r1").glob("a.fragment"))
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(bytes(data))
        return publish_release(release, intake, *others)

    monkeypatch.setattr("aggregator.drive.conductor.publish_release", flipped)
    aggregator = await launch()
    await delivered(aggregator, records)
    view = await seen(aggregator, lambda view: view.state == "failed")
    assert (view.error.code, "fragment of a" in view.error.message) == ("integrity", True)
    assert list(aggregator.config.aggregator.release_dir.iterdir()) == []


async def test_a_daemon_that_stops_does_not_wait_for_the_end_of_publishing(launch, records, monkeypatch):
    """A step that takes long is given up when the daemon stops, and begins anew at the next start."""
    reached, stopping, begun = threading.Event(), threading.Event(), []
    begin, advance, stop = Progress.begin, Progress.advance, Deadlines.stop

    def noted(self, what, total):
        begun.append(what)
        begin(self, what, total)

    def slow(self, n_records):
        if self.what == "publishing":
            reached.set()
            stopping.wait(30)
        advance(self, n_records)

    def stops(self):
        stop(self)
        stopping.set()

    monkeypatch.setattr(Progress, "begin", noted)
    monkeypatch.setattr(Progress, "advance", slow)
    monkeypatch.setattr(Deadlines, "stop", stops)
    aggregator = await launch()
    await delivered(aggregator, records)
    await asyncio.to_thread(reached.wait, 30)
    view = await seen(await stopped(launch, aggregator), lambda view: view.state == "published")
    assert verify_release(Path(view.directory)).n_records > 0
    assert begun.count("publishing") == 2


async def test_a_full_scratch_folder_is_waited_for(launch, records, monkeypatch):
    """The release says which folder has no room, loses nothing, and goes on by itself when there is some."""
    append, has_room = RunFile.append, threading.Event()

    def full(self, *others):
        if not has_room.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(self, *others)

    monkeypatch.setattr("aggregator.release.shuffling.n_buckets", lambda *_: 4)
    monkeypatch.setattr(RunFile, "append", full)
    aggregator = await launch()
    await delivered(aggregator, records)
    scratch = aggregator.config.aggregator.state_dir / "scratch"
    view = await seen(aggregator, lambda view: view.note.startswith("waits: "))
    assert view.note == f"waits: {scratch} cannot be used: No space left on device"
    assert (view.state, len(fragments(aggregator))) == ("joining", 2)
    has_room.set()
    view = await seen(aggregator, lambda view: view.state == "published")
    assert verify_release(Path(view.directory)).n_records > 0
    assert list(scratch.iterdir()) == []


async def test_a_plan_that_takes_long_does_not_hold_up_a_stop(launch, records, monkeypatch):
    """The stop does not wait for it, and it is made again at the next start."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments):
        begun.set()
        go_on.wait(60)
        return signed_plan(*arguments)

    monkeypatch.setattr(conductor, "signed_plan", slow)
    aggregator = await launch()
    for owner in await pair(aggregator, records):
        for work in await owner.poll():
            await owner.answer(work)
    assert await asyncio.to_thread(begun.wait, 20)
    try:
        async with asyncio.timeout(20):
            await aggregator.daemon.stop()
    finally:
        go_on.set()
    await seen(await launch(), lambda view: view.state == "consenting")
