"""Uploads on disk: whole and checked, or resumable, or gone."""

import asyncio
import hashlib
import os
import threading

import pytest

from aggregator.store.intake import Blob, BlobKind, Intake
from common.errors import CannotStoreError, IntegrityError, NotConnectedError, ProtocolError
from common.files import write_atomic
from tests.small_disk import SmallDisk

DATA = os.urandom(1000)


@pytest.fixture
def intake(tmp_path):
    """An empty intake."""
    return Intake(tmp_path / "incoming")


def blob_of(data: bytes, kind: BlobKind = BlobKind.FRAGMENT) -> Blob:
    """Return the key of some bytes."""
    return Blob("r1", "a", kind, hashlib.sha256(data).hexdigest(), len(data))


async def chunks(data: bytes, size: int = 64):
    """Yield bytes in pieces."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def broken(data: bytes):
    """Yield bytes and then lose the connection."""
    async for chunk in chunks(data):
        yield chunk
    raise ConnectionResetError


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 500, 999, 1000])
async def test_resumes_from_every_offset(intake, cut):
    """However much arrived before the connection broke, the rest completes it, byte for byte."""
    blob = blob_of(DATA)
    with pytest.raises(ConnectionResetError):
        await intake.receive(blob, 0, broken(DATA[:cut]))
    assert intake.offset(blob) == cut
    assert intake.held("r1", "a", BlobKind.FRAGMENT) == cut
    path = await intake.receive(blob, cut, chunks(DATA[cut:]))
    assert path.read_bytes() == DATA
    assert intake.offset(blob) == len(DATA)
    assert intake.verify(blob)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("cut", [0, 1, 500, 1000])
async def test_a_check_sees_everything(intake, cut):
    """A check is shown every byte of a blob once and in order, also those of an earlier call."""
    blob, seen = blob_of(DATA), bytearray()
    with pytest.raises(ConnectionResetError):
        await intake.receive(blob, 0, broken(DATA[:cut]))
    await intake.receive(blob, cut, chunks(DATA[cut:]), seen.extend)
    assert seen == DATA
    again = bytearray()
    await intake.receive(blob, len(DATA), chunks(b""), again.extend)
    assert again == DATA


@pytest.mark.parametrize("offset", [1, 499, 501, 1000])
async def test_wrong_offset(intake, offset):
    """An upload that starts elsewhere than where the last one stopped is refused and told where."""
    with pytest.raises(ConnectionResetError):
        await intake.receive(blob_of(DATA), 0, broken(DATA[:500]))
    with pytest.raises(ProtocolError) as caught:
        await intake.receive(blob_of(DATA), offset, chunks(DATA))
    assert caught.value.details == {"offset": 500}


async def test_wrong_digest(intake):
    """Bytes that are not what was declared never get a name, and are not resumed either."""
    blob = blob_of(DATA)
    with pytest.raises(IntegrityError):
        await intake.receive(blob, 0, chunks(DATA[:-1] + bytes([DATA[-1] ^ 1])))
    assert intake.offset(blob) == 0
    assert not intake.verify(blob)
    assert (await intake.receive(blob, 0, chunks(DATA))).read_bytes() == DATA


async def test_read_once(intake):
    """What was digested as it arrived is not read again; another process reads it, and sees its damage."""
    path = await intake.receive(blob_of(DATA), 0, chunks(DATA))
    assert Intake(path.parent.parent).verify(blob_of(DATA))
    path.write_bytes(DATA[::-1])
    assert intake.verify(blob_of(DATA))
    assert not Intake(path.parent.parent).verify(blob_of(DATA))


async def test_too_long(intake):
    """An owner cannot fill the disk beyond what it declared."""
    blob = blob_of(DATA)
    with pytest.raises(ProtocolError, match="more than the declared"):
        await intake.receive(blob, 0, chunks(DATA + b"x"))
    assert intake.offset(blob) == 0


async def test_another_blob_begins_anew(intake):
    """Bytes of two blobs are never mixed, although they have the same place and size."""
    other = bytes(reversed(DATA))
    with pytest.raises(ConnectionResetError):
        await intake.receive(blob_of(DATA), 0, broken(DATA[:500]))
    assert intake.offset(blob_of(other)) == 0
    assert (await intake.receive(blob_of(other), 0, chunks(other))).read_bytes() == other
    with pytest.raises(IntegrityError):
        await intake.receive(blob_of(DATA), len(DATA), chunks(b""))
    assert (await intake.receive(blob_of(DATA), 0, chunks(DATA))).read_bytes() == DATA


async def test_repeated_upload(intake):
    """Uploading again what is whole already gives the same file and reads no more bytes."""
    blob = blob_of(DATA)
    first = await intake.receive(blob, 0, chunks(DATA))
    assert await intake.receive(blob, len(DATA), chunks(b"")) == first
    assert first.read_bytes() == DATA


async def test_one_call_at_a_time(intake):
    """Two calls cannot write the same blob at once; the second is told to try again."""
    blob = blob_of(DATA)

    async def second_during_the_first():
        with pytest.raises(NotConnectedError):
            await intake.receive(blob, 0, chunks(DATA))
        yield DATA

    assert (await intake.receive(blob, 0, second_during_the_first())).read_bytes() == DATA


@pytest.mark.parametrize("cut", [9 << 20, (9 << 20) + 1, 1])
async def test_large_blob_in_batches(intake, cut):
    """A blob of several batches arrives whole, resumed at the end of a block of the disk or within one."""
    data = os.urandom(3 << 20) * 9
    blob = blob_of(data)
    with pytest.raises(ConnectionResetError):
        await intake.receive(blob, 0, broken(data[:cut]))
    held = intake.offset(blob)
    assert held == cut
    path = await intake.receive(blob, held, chunks(data[held:], 1 << 18))
    assert path.read_bytes() == data


async def test_cancelled_call(intake):
    """What had arrived when a call was cancelled is on disk in its order, and the rest completes it."""
    data, arrived = os.urandom(9 << 20), asyncio.Event()
    blob = blob_of(data)

    async def halting():
        async for chunk in chunks(data[:-7], 1 << 18):
            yield chunk
        arrived.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(intake.receive(blob, 0, halting()))
    await arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    held = intake.offset(blob)
    assert held == len(data) - 7
    assert (await intake.receive(blob, held, chunks(data[held:]))).read_bytes() == data


@pytest.mark.parametrize("presses", [1, 2])
async def test_cancelled_while_the_last_batch_is_written(intake, presses):
    """A call goes on until nothing is written any more, so that the next one finds a file that is still."""
    looking, looked = threading.Event(), threading.Event()

    def slow(_data):
        looking.set()
        looked.wait()

    blob = blob_of(DATA)
    call = asyncio.create_task(intake.receive(blob, 0, chunks(DATA), slow))
    await asyncio.to_thread(looking.wait)
    for _ in range(presses):
        call.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(NotConnectedError):
        await intake.receive(blob, intake.offset(blob), chunks(b""))
    looked.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await intake.receive(blob, len(DATA), chunks(b""))).read_bytes() == DATA


async def test_what_owners_fetch_stays_for_a_release_that_can_go_on(intake, tmp_path):
    """Selections and the answers to the last round stay; everything else of it is removed, once."""
    await intake.receive(blob_of(DATA), 0, chunks(DATA))
    selection = intake.path("r1", "a", BlobKind.SELECTION)
    shown = [selection, intake.answers("r1", 2)]
    for path in shown:
        path.write_bytes(b"bits")
    assert intake.set_aside("r1", but_shown=True)
    assert not intake.set_aside("r1", but_shown=True)
    assert intake.held("r1", "a", BlobKind.FRAGMENT) == 0
    assert [path.read_bytes() for path in shown] == [b"bits"] * 2
    assert [path.name for path in (tmp_path / "removed").glob("*/*")] == ["a.fragment"]
    assert intake.set_aside("r1")
    assert not any(path.exists() for path in shown)


async def test_answers_are_shown_for_one_round_more(intake):
    """Answers go once they are added up; all of them in one file go when owners have added them up, too."""
    for number in (1, 2, 10):
        await intake.keep_answer("r1", "a", number, DATA)
        intake.answers("r1", number).write_bytes(DATA)
    intake.remove_answers("r1", 3)
    found = [(intake.answer("r1", "a", n).exists(), intake.answers("r1", n).exists()) for n in (1, 2, 10)]
    assert found == [(False, False), (False, True), (True, True)]


async def test_no_folder_stays_without_selections(intake, tmp_path):
    """Whether a release can go on or not, nothing of it is left if nothing was selected."""
    await intake.receive(blob_of(DATA), 0, chunks(DATA))
    assert intake.set_aside("r1", but_shown=True)
    assert not list((tmp_path / "incoming").iterdir())


async def test_no_answer_stays_of_a_release_that_ended_meanwhile(intake, tmp_path, monkeypatch):
    """What is written while the release ends brings its folder back no more than an upload does."""

    def ends(path, data):
        assert intake.set_aside("r1")
        write_atomic(path, data)

    await intake.keep_answer("r1", "a", 1, DATA)
    assert intake.answer("r1", "a", 1).read_bytes() == DATA
    monkeypatch.setattr("aggregator.store.intake.write_atomic", ends)
    await intake.keep_answer("r1", "a", 2, DATA)
    assert not list((tmp_path / "incoming").iterdir())


async def test_removal(intake, tmp_path):
    """What is removed is gone, whole or in part, and only that."""
    await intake.receive(blob_of(DATA), 0, chunks(DATA))
    await intake.receive(blob_of(DATA, BlobKind.TOKENS), 0, chunks(DATA))
    intake.remove("r1", ["a"], BlobKind.TOKENS)
    assert intake.held("r1", "a", BlobKind.TOKENS) == 0
    assert intake.verify(blob_of(DATA))
    assert intake.set_aside("r1")
    assert not intake.set_aside("r1")
    assert intake.held("r1", "a", BlobKind.FRAGMENT) == 0
    aside = tmp_path / "removed"
    assert [path.read_bytes() for path in aside.rglob("*.fragment")] == [DATA]
    intake.clear()
    assert not list(aside.iterdir())


@pytest.mark.needs("tmpfs")
async def test_what_the_disk_does_not_take_is_said_in_words(tmp_path):
    """Uploads and answers of rounds alike: their owner is told what to wait for, and sends them again."""
    disk, blob = SmallDisk(tmp_path / "incoming", megabytes=1), blob_of(os.urandom(9000))
    try:
        intake, data = Intake(disk.place), os.urandom(9000)
        with disk.full(leave=4096):
            with pytest.raises(CannotStoreError, match="No space left on device"):
                await intake.keep_answer("r1", "a", 1, data)
            with pytest.raises(CannotStoreError, match="No space left on device"):
                await intake.receive(blob, 0, chunks(data))
        await intake.keep_answer("r1", "a", 1, data)
        assert intake.answer("r1", "a", 1).read_bytes() == data
        assert [each.name for each in (disk.place / "r1").glob("a.answer*")] == ["a.answer-1"]
    finally:
        disk.unmount()
