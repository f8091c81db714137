"""A flood of connections at the consoles of all parties, with TLS and without, beside a release."""

import json
import time
from collections.abc import Iterator

import pytest

from common.errors import ExitCode
from deploy.development_ca import DevelopmentCa
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon
from deploy.local_setup import HOST, free_port, make_setup, section, share_linkage_key
from tests.benchmarks.daemon_memory import daemons, memory
from tests.consoles import Visitor, link_of
from tests.flood import flood
from tests.system.small_owners import answer_of, ask, declared, identifiers, people, start_release, write

OWNERS = ("a", "b")
CONNECTIONS = 1100
"""At each console, more than it answers at a time."""
PAUSE = 2.0
"""Seconds until a closed connection is tried again: as many as ever are open, and fewer are made anew."""
MOST_LOG = 256 * 1024
MOST_MEMORY = 96 * 2**20
"""Bytes of log and of memory that a flood may cost a daemon."""
RECOVERY_SECONDS = 30.0


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """The port of each console."""
    return {party: free_port() for party in ("aggregator", *OWNERS)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, ports) -> Iterator[LocalCluster]:
    """The pages of all parties are served, those of owner a over TLS."""
    folder = tmp_path_factory.mktemp("flood")
    listen = {party: {"listen": f"{HOST}:{port}"} for party, port in ports.items()}
    listen["a"] |= {"certificate": "console.pem", "key": "console.key"}
    for position, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    make_setup(
        folder, {owner: section("[console]", listen[owner]) + declared("patients") for owner in OWNERS}
    )
    with (folder / "aggregator" / "aggregator.toml").open("a") as config:
        config.write(section("[console]", listen["aggregator"]))
    ca = DevelopmentCa("pages.test")
    ca.aggregator("pages", ["localhost", HOST]).write(folder / "owners" / "a", "console")
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        for party in ("", *OWNERS):
            running.serve_console(party)
        # The first release and the first page load libraries.
        assert answer_of(start_release(running, "before", programs="own", k="5"))[0] == ExitCode.DONE
        yield running


def cost(daemon: LocalDaemon) -> tuple[int, int]:
    """Return the bytes of a daemon's log, and of its memory at most so far."""
    return daemon.log_file.stat().st_size, memory(daemon, "VmHWM")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_release_beside_a_flood(cluster, ports, sent):
    """Commands and a release work as ever, no daemon grows, and pages answer again after the flood."""
    name = f"beside-{len(sent)}"
    visitor = Visitor(link_of(cluster, "aggregator"))
    visitor.sign_in()
    assert visitor.ask("GET", "/").status == 200
    before = {daemon.name: cost(daemon) for daemon in daemons(cluster)}
    with flood(list(ports.values()), CONNECTIONS, sent, PAUSE) as flooding:
        assert flooding.reached.wait(60)
        assert ask(cluster, "aggregator", "status")[0] == ExitCode.DONE
        for owner in OWNERS:
            assert ask(cluster, "owner-node", "status", owner=owner)[0] == ExitCode.DONE
        code, document = answer_of(start_release(cluster, name, programs="own", k="5"))
        assert (code, document["state"]) == (ExitCode.DONE, "published"), json.dumps(document)
    for daemon in daemons(cluster):
        (log, peak), (log_after, peak_after) = before[daemon.name], cost(daemon)
        assert log_after - log < MOST_LOG
        assert peak_after - peak < MOST_MEMORY
    begun = time.monotonic()
    while visitor.ask("GET", "/").status != 200:
        assert time.monotonic() < begun + RECOVERY_SECONDS
    for console in cluster.consoles:
        assert console.log_file.stat().st_size < MOST_LOG
