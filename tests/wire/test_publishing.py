"""Publishing when the disk does not play along: nothing half-written or lost, and the operator is told."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aggregator.database import CannotStoreError
from aggregator.journal import Journal
from aggregator.protocol.events import Published
from aggregator.stages import publish_release
from common.verification import verify_release
from common.wire.v1 import control_pb2 as control
from tests.wire.test_operations import R1, pair, refused


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr("aggregator.steps._FIRST_REST_SECONDS", 0.05)


async def seen(aggregator, wanted: Callable[[control.ReleaseView], bool]) -> control.ReleaseView:
    """Wait for a release to be seen in a way."""
    async with asyncio.timeout(20):
        async for view in aggregator.calls.Watch(R1):
            if wanted(view):
                return view
    raise AssertionError("the release ended otherwise")


async def delivered(aggregator, records, **changes) -> None:
    """Have two owners deliver their fragments."""
    owners = await pair(aggregator, records, **changes)
    works = await asyncio.gather(*(owner.until("collect") for owner in owners))
    await asyncio.gather(*(owner.answer(work) for owner, work in zip(owners, works, strict=True)))


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


async def test_what_waits_for_the_disk_can_be_cancelled(launch, records):
    """An operator who cannot make room ends the release; once it can be published, nobody can."""
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


async def test_what_has_appeared_is_published(launch, records, tmp_path, monkeypatch):
    """If the journal takes nothing after the folder appeared, the release is not called failed: it is written
    down as soon as it can be, with the folder and the copy that are there.
    """
    append, refusals = Journal.append, iter([True, True])

    def full(journal: Journal, release: str, event, action=None) -> None:
        if isinstance(event, Published) and next(refusals, False):
            raise CannotStoreError("aggregator.db cannot be written (SQLITE_FULL)")
        append(journal, release, event, action)

    monkeypatch.setattr(Journal, "append", full)
    aggregator = await launch()
    out = tmp_path / "copy"
    await delivered(aggregator, records, out=str(out))
    waiting = await seen(aggregator, lambda view: bool(view.note))
    assert "SQLITE_FULL" in waiting.note
    assert (await refused(aggregator.calls.Cancel(R1))).code == "usage"
    view = await seen(aggregator, lambda view: view.state == "published")
    assert (view.note, verify_release(out).manifest_digest) == ("", view.manifest_digest)


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


async def test_a_bit_that_flipped_on_the_disk_is_never_released(launch, records, monkeypatch):
    """A fragment that is not the one its owner signed, by the time it is joined, ends the release."""

    def flipped(release, intake, *others):
        path = next((aggregator.config.aggregator.state_dir / "incoming" / "r1").glob("a.fragment"))
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(bytes(data))
        return publish_release(release, intake, *others)

    monkeypatch.setattr("aggregator.conductor.publish_release", flipped)
    aggregator = await launch()
    await delivered(aggregator, records)
    view = await seen(aggregator, lambda view: view.state == "failed")
    assert (view.error.code, "fragment of a" in view.error.message) == ("integrity", True)
    assert list(aggregator.config.aggregator.release_dir.iterdir()) == []
