"""Downloads from an aggregator that lies: nothing but what was listed is taken, and none takes for ever."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.errors import IntegrityError, NotConnectedError, TesseraError, UsageError
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.client import AggregatorClient
from owner_node.connection.download import download
from tests.wire.siege import Siege, besieged


@pytest.fixture
async def siege(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Siege]:
    """An owner daemon with a policy, at a hostile aggregator; afterwards an honest release still works."""
    async with besieged(tmp_path, certificates, monkeypatch) as made:
        yield made


LISTED = wire.DownloadChunk(files=["manifest.json"], sizes=[10])


def _endless(_file: str) -> list[wire.DownloadChunk]:
    return [LISTED] if not _file else [wire.DownloadChunk(data=b"x" * 1000)] * 10_000


DOWNLOADS = {
    "nothing": (lambda _file: [], IntegrityError),
    "no sizes": (lambda _file: [wire.DownloadChunk(files=["manifest.json"])], IntegrityError),
    "more than listed": (_endless, IntegrityError),
    "less than listed": (lambda file: [wire.DownloadChunk(data=b"x")] if file else [LISTED], IntegrityError),
    "empty pieces": (lambda file: [wire.DownloadChunk()] * 99 if file else [LISTED], IntegrityError),
    "more than there is room for": (
        lambda _file: [wire.DownloadChunk(files=["a"], sizes=[2**60])],
        UsageError,
    ),
    "elsewhere": (lambda _file: [wire.DownloadChunk(files=["../a"], sizes=[1])], IntegrityError),
    "no name": (lambda _file: [wire.DownloadChunk(files=[""], sizes=[1])], IntegrityError),
    "a NUL": (lambda _file: [wire.DownloadChunk(files=["a\0b"], sizes=[1])], IntegrityError),
    "a long name": (lambda _file: [wire.DownloadChunk(files=["a" * 200], sizes=[1])], IntegrityError),
    "hidden": (lambda _file: [wire.DownloadChunk(files=[".a"], sizes=[1])], IntegrityError),
    "thousands": (
        lambda _file: [wire.DownloadChunk(files=[f"f{n}" for n in range(5000)], sizes=[1] * 5000)],
        IntegrityError,
    ),
    "something else": (
        lambda file: [wire.DownloadChunk(data=b"x" * 10)] if file else [LISTED],
        IntegrityError,
    ),
}


async def test_downloads_that_lie(siege: Siege, tmp_path: Path) -> None:
    """A download takes what was listed and nothing more, and leaves no folder unless all of it holds."""
    hostile = siege.hostile
    await hostile.honest_release("r1")
    out = tmp_path / "out"
    for name, (downloads, expected) in DOWNLOADS.items():
        hostile.downloads = downloads
        with pytest.raises(TesseraError) as caught:
            await download(siege.config, "r1", out)
        assert isinstance(caught.value, expected), name
        assert not out.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["a"], name


async def test_a_download_is_verified_in_the_owners_scratch(
    siege: Siege, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not fit into the system's folder for temporary files, which is not there here."""
    await siege.hostile.honest_release("r1")
    siege.hostile.downloads, expected = DOWNLOADS["something else"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(expected):
        await download(siege.config, "r1", tmp_path / "out")


async def test_a_selection_without_end(siege: Siege) -> None:
    """Of which records are common an owner takes as many bits as it has records, however many come."""
    siege.hostile.selections = [b"x" * 100_000] * 50
    section, tls = siege.config.aggregators[0], siege.config.tls
    async with AggregatorClient(section.address, tls) as client:
        with pytest.raises(IntegrityError, match="more than the 8 bytes of a selection"):
            await client.selection("r1", "ab" * 32, 8)


async def test_a_download_that_stalls(siege: Siege, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download in which nothing more comes is given up."""
    monkeypatch.setattr("owner_node.connection.client.CALL_SECONDS", 0.3)
    await siege.hostile.honest_release("r1")
    siege.hostile.misbehave["Download"] = lambda _request, _context: asyncio.Event().wait()
    with pytest.raises(NotConnectedError):
        await download(siege.config, "r1", tmp_path / "out")
    monkeypatch.setattr("owner_node.connection.client.CALL_SECONDS", 20.0)
