"""The outbox: a fragment is there completely or not at all, and nobody else can read it."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import ProtocolError
from owner_node.state.outbox import Outbox


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    """An outbox in a private state directory."""
    (tmp_path / "state").mkdir(mode=0o700)
    return Outbox(tmp_path / "state")


def _seal(outbox: Outbox, release: str, data: bytes) -> None:
    with outbox.begin("hub", release) as stream:
        stream.write(data)


def test_sealed_fragment(outbox: Outbox) -> None:
    """The bytes written are the bytes found, under a private name, only after the end."""
    path = outbox.path("hub", "r1")
    with outbox.begin("hub", "r1") as stream:
        stream.write(b"frag")
        stream.write(b"ment")
        assert not path.exists()
        assert len(outbox.leftovers()) == 1
    assert path.read_bytes() == b"fragment"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert outbox.leftovers() == ()
    assert outbox.sealed() == (("hub", "r1"),)


def test_parcels_of_other_releases_are_deleted(outbox: Outbox) -> None:
    """Ids of releases can have dots: what is kept is told by the whole of them."""
    kept = [outbox.parcel("hub", release, "rows-00ff") for release in ("r1.rows", "r2")]
    lost = [outbox.parcel("hub", "r1", "rows-00ff"), outbox.parcel("hub2", "r2", "sums-00ff-1")]
    for each in (*kept, *lost):
        each.write_bytes(b"ciphertexts")
    _seal(outbox, "r3", b"fragment")
    outbox.keep_parcels([("hub", "r1.rows"), ("hub", "r2")])
    assert [each.exists() for each in (*kept, *lost)] == [True, True, False, False]
    assert outbox.sealed() == (("hub", "r3"),)


def test_failed_fragment_leaves_nothing(outbox: Outbox) -> None:
    """An error while masking leaves no byte of noise behind."""

    def fail() -> None:
        with outbox.begin("hub", "r1") as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (outbox.leftovers(), outbox.sealed()) == ((), ())


_KILLED = """
import os, signal, sys
from pathlib import Path
from owner_node.state.outbox import Outbox
with Outbox(Path(sys.argv[1])).begin("hub", "r1") as stream:
    stream.write(b"half" * 100_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_process_leaves_a_leftover_that_is_destroyed(outbox: Outbox) -> None:
    """After a kill in the middle there is no fragment, and what is left of it can be destroyed."""
    state = outbox.path("hub", "r1").parent.parent
    assert subprocess.run([sys.executable, "-c", _KILLED, str(state)], timeout=60).returncode == -9
    assert outbox.sealed() == ()
    assert len(outbox.leftovers()) == 1
    assert outbox.destroy("hub", "r1") == 1
    assert list(outbox.path("hub", "r1").parent.iterdir()) == []


def test_destroy_takes_one_release(outbox: Outbox) -> None:
    """Destroying a release leaves those with similar names, and can be repeated."""
    for release in ("r1", "r1.fragment", "r10"):
        _seal(outbox, release, release.encode())
    assert outbox.destroy("hub", "r1") == 1
    assert outbox.destroy("hub", "r1") == 0
    assert outbox.sealed() == (("hub", "r1.fragment"), ("hub", "r10"))


@pytest.mark.parametrize(
    "release", ["", "..", "../r1", "a/b", "R1", "r 1", ".r1", "a~b", "r*", "a\n", "x" * 65]
)
def test_hostile_names_reach_no_file(outbox: Outbox, release: str) -> None:
    """A release id that could leave the folder, or hit other files, is refused before any file is touched."""
    with pytest.raises(ProtocolError):
        outbox.path("hub", release)
    with pytest.raises(ProtocolError):
        outbox.destroy("hub", release)


def test_two_aggregators_with_the_same_release(outbox: Outbox) -> None:
    """No two pairs of names share a file."""
    pairs = [("hub", "a-b"), ("hub-a", "b"), ("hub", "a.b"), ("hub.a", "b")]
    assert len({outbox.path(*pair) for pair in pairs}) == len(pairs)
    with pytest.raises(ProtocolError):
        outbox.path("a/b", "r1")
