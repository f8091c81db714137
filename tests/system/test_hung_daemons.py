"""A daemon that hangs does not look healthy: checks of it end soon, and say so."""

import signal
import time
from collections.abc import Iterator

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup
from tests.system.small_owners import ATTRIBUTES, declared, identifiers, people, write

LONGEST_SECONDS = 25
"""The time-out of a check, and the start of a program on a busy machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """An aggregator and an owner node that is connected to it."""
    folder = tmp_path_factory.mktemp("hung")
    write(folder, "a", "patients", people(identifiers(0, 50), seed=0))
    make_setup(folder, {"a": declared("patients", attributes={"age": ATTRIBUTES["age"]})})
    with LocalCluster(folder) as made:
        made.start()
        yield made


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("owner-node", ("status", "--check")),
        ("owner-node", ("status", "--alive")),
        ("aggregator", ("status", "--check")),
        ("aggregator", ("owners",)),
        ("aggregator", ("show", "first")),
    ],
)
def test_a_stopped_process(cluster: LocalCluster, program: str, command: tuple[str, ...]) -> None:
    """Its lock, its files and its sockets are there; a check asks the process itself, for seconds only."""
    owner = "a" if program == "owner-node" else ""
    daemon = cluster.owner("a") if owner else cluster.aggregator
    daemon.signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        ended = cluster.cli(program, *command, owner=owner)
        assert time.monotonic() - began < LONGEST_SECONDS
    finally:
        daemon.signal(signal.SIGCONT)
    assert ended.returncode == 6
    if program == "owner-node" or command[0] != "status":
        assert "does not respond" in ended.stderr
    cluster.wait_connected()
    assert cluster.cli(program, "status", "--check", owner=owner).returncode == 0
