"""Full and read-only disks on either side: a clear error, nothing half-written, and on it goes with room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import ExitCode
from common.release.verification import verify_release
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon
from deploy.local_setup import make_setup, share_linkage_key
from tests.small_disk import ROOM_FOR_A_DATABASE, SmallDisk
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    spends,
    start_release,
    state_dir,
    write,
)

pytestmark = pytest.mark.needs("tmpfs")
OWNERS = ("a", "b")
RECORDS = 24_000


@pytest.fixture(scope="module")
def disks(tmp_path_factory) -> Iterator[dict[str, SmallDisk]]:
    """A cluster's state and releases, each on a disk of its own."""
    folder = tmp_path_factory.mktemp("disk")
    places = {"aggregator": folder / "aggregator" / "state", "releases": folder / "releases"}
    places |= {owner: folder / "owners" / owner / "state" for owner in OWNERS}
    made: dict[str, SmallDisk] = {}
    try:
        for name, place in places.items():
            made[name] = SmallDisk(place, megabytes=8)
        yield made
    finally:
        for disk in made.values():
            disk.unmount()


@pytest.fixture(scope="module")
def cluster(disks) -> Iterator[LocalCluster]:
    """Two owners whose fragments are larger than what a full disk has left."""
    folder = disks["releases"].place.parent
    for seed, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(seed * RECORDS, RECORDS), seed))
    make_setup(folder, dict.fromkeys(OWNERS, declared("patients", total_epsilon="100")))
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


def check_published(cluster: LocalCluster, command: subprocess.Popen[str], release: str) -> None:
    """Check that a release is whole, and that it was charged once."""
    code, document = answer_of(command)
    assert (code, document.get("state")) == (0, "published"), document
    assert verify_release(Path(document["directory"])).n_records == 2 * RECORDS
    assert [len(spends(cluster, owner, release)) for owner in OWNERS] == [1, 1]
    # The disks are small.
    assert ask(cluster, "aggregator", "delete", release, "--yes")[0] == 0


def start_anew(cluster: LocalCluster) -> None:
    """Start the aggregator again; what SQLite had taken of the disk for its journal is then given back."""
    cluster.aggregator.stop()
    cluster.aggregator.start()
    for owner in OWNERS:
        cluster.aggregator.wait_for("owner connected", owner=owner)


def test_no_room_for_the_release(cluster, disks):
    """A release folder that does not fit is not half there; the operator sees what is waited for."""
    with disks["releases"].full():
        command = start_release(cluster, "r-releases")
        waits = cluster.aggregator.wait_for("step waits", release="r-releases", timeout=60)
        assert "No space left on device" in dict(waits)["reason"]
        code, view = ask(cluster, "aggregator", "show", "r-releases")
        assert (code, view["state"]) == (0, "joining")
        assert "No space left on device" in view["note"]
        # Another attempt can be in progress, under a hidden name.
        assert [path.name for path in disks["releases"].place.glob("[!.]*")] == ["filler"]
    check_published(cluster, command, "r-releases")


@pytest.mark.timeout(600)
def test_no_room_for_uploads(cluster, disks):
    """An upload that does not fit is told in words on both sides, kept so far, and goes on."""
    start_anew(cluster)
    # Plan and consents have room in the journal, a fragment has none beside it.
    with disks["aggregator"].full(leave=4 * ROOM_FOR_A_DATABASE):
        command = start_release(cluster, "r-uploads")
        stored = cluster.aggregator.wait_for("upload cannot be stored", release="r-uploads", timeout=60)
        assert dict(stored)["reason"] == "No space left on device"
        told = cluster.owner("a").wait_for("answer not taken", release="r-uploads", timeout=60)
        assert dict(told)["code"] == "configuration"
    check_published(cluster, command, "r-uploads")


def test_nothing_can_be_started_without_room(cluster, disks):
    """What the journal cannot hold has not happened, and the operator is told why."""
    start_anew(cluster)
    with disks["aggregator"].full(leave=0):
        code, answer = ask(
            cluster, "aggregator", "release", "--dataset", "patients", "--layout", "horizontal",
            "--owners", "a,b", "--epsilon", "1", "--attributes", "x" * 120_000, "--id", "r-none", "--yes",
        )  # fmt: skip
        assert (code, answer["error"]["code"]) == (2, "configuration")
        assert "SQLITE_FULL" in answer["error"]["message"]
        assert ask(cluster, "aggregator", "show", "r-none")[0] == 2
    check_published(cluster, start_release(cluster, "r-none"), "r-none")


@pytest.mark.parametrize("leave", [0, ROOM_FOR_A_DATABASE])
def test_no_room_at_an_owner(cluster, disks, leave):
    """An owner without room for its fragment or its ledger ends no release; it is charged once."""
    release = f"r-owner-{leave}"
    with disks["b"].full(leave):
        command = start_release(cluster, release)
        waits = cluster.owner("b").wait_for("cannot work now", release=release, timeout=60)
        assert "No space left" in dict(waits)["reason"] or "SQLITE_FULL" in dict(waits)["reason"]
        assert not list((state_dir(cluster, "b") / "outbox").glob(f"*{release}*"))
    check_published(cluster, command, release)


@pytest.mark.parametrize("side", ["aggregator", "a"])
def test_a_read_only_state_directory(cluster, disks, side):
    """A daemon that cannot write its state says so at start, and starts once it can."""
    daemon: LocalDaemon = cluster.aggregator if side == "aggregator" else cluster.owner(side)
    daemon.stop()
    with disks[side].read_only():
        verb = "serve" if side == "aggregator" else "run"
        code, err = cluster_output(cluster, daemon, verb)
        assert code == ExitCode.NOT_CONNECTED
        assert "Read-only file system" in err or "cannot be written to" in err
        assert "hint: " in err
    daemon.start()
    daemon.wait_for("ready" if side == "aggregator" else "connected")
    check_published(cluster, start_release(cluster, f"r-ro-{side}"), f"r-ro-{side}")


@pytest.mark.parametrize("side", ["aggregator", "a"])
def test_a_start_without_room(cluster, disks, side):
    """Its exit code is not that of a wrong configuration: a service manager tries until there is room."""
    daemon: LocalDaemon = cluster.aggregator if side == "aggregator" else cluster.owner(side)
    daemon.stop()
    with disks[side].full(leave=0):
        code, err = cluster_output(cluster, daemon, "serve" if side == "aggregator" else "run")
    assert (code, "hint: " in err) == (ExitCode.NOT_CONNECTED, True), err
    daemon.start()
    daemon.wait_for("ready" if side == "aggregator" else "connected")


def test_records_of_a_killed_process_fill_the_disk(cluster, disks):
    """They are removed before a start needs room."""
    owner = cluster.owner("a")
    owner.stop()
    left = state_dir(cluster, "a") / "scratch" / "tessera-session-1"
    left.mkdir(mode=0o700)
    with disks["a"].full(leave=0):
        (left / "records").hardlink_to(disks["a"].place / "filler")
    owner.start()
    owner.wait_for("connected")
    assert not left.exists()


def cluster_output(cluster: LocalCluster, daemon: LocalDaemon, verb: str) -> tuple[int, str]:
    """Run a daemon that is expected to end at once."""
    owner = "" if daemon is cluster.aggregator else daemon.name
    ended = cluster.cli(daemon.program, verb, owner=owner, timeout=30)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr
