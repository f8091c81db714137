"""An aggregator and two owners in a network that breaks in all ways but loudly; a release after each.

    unshare --net --mount python -m tests.wire.broken_network FOLDER

As root. Prints a line for every release: how it ended. No connection is ever reset: what is lost vanishes
without an answer, as with a firewall that has forgotten a connection, and only keepalive notices.
"""

import asyncio
import logging
import subprocess
import sys
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc

from aggregator.config import AggregatorConfig, AggregatorSection
from aggregator.daemon import AggregatorDaemon
from common.settings import TlsSection
from common.wire.v1 import control_pb2 as control
from common.wire.v1.control_pb2_grpc import ControlServiceStub
from deploy.development_ca import DevelopmentCa
from tests.fakes.parties import Heard
from tests.wire.conftest import TRUST_DOMAIN
from tests.wire.test_owner_daemon import owner, running, share_key

HUB = "hub.example"
FIRST, SECOND, OWNERS, OTHERS = "10.9.0.1", "10.9.0.2", "10.9.0.8", "10.9.0.9"
KEEPALIVE_MS = 3000
"""In place of half a minute, so that the tests take seconds."""
RULES = """
table inet broken {
    set forgotten { type inet_service; }
    set gone { type ipv4_addr; }
    chain input {
        type filter hook input priority filter;
        tcp sport @forgotten drop
        tcp dport @forgotten drop
        ip saddr @gone drop
        ip daddr @gone drop
    }
}
"""
_SECONDS = 60
_SHOWN = logging.StreamHandler()


def run(command: str) -> str:
    """Run a command of the system; what it printed."""
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


class Network:
    """The network namespace of this process.

    Args:
        folder: For the file of host names.
    """

    def __init__(self, folder: Path) -> None:
        self._hosts, rules = folder / "hosts", folder / "rules"
        rules.write_text(RULES)
        run("ip link set lo up")
        for address in (FIRST, SECOND, OWNERS, OTHERS):
            run(f"ip address add {address}/32 dev lo")
        self.owners_come_from(OWNERS)
        run(f"nft -f {rules}")
        self.name(FIRST)
        run(f"mount --bind {self._hosts} /etc/hosts")

    def name(self, address: str) -> None:
        """Let the aggregator's name lead to an address."""
        self._hosts.write_text(f"127.0.0.1 localhost\n{address} {HUB}\n")

    def owners_come_from(self, address: str) -> None:
        """Give connections to the aggregator another source address."""
        for place in (FIRST, SECOND):
            run(f"ip route replace table local local {place} dev lo src {address}")

    def forget(self, port: int) -> None:
        """Drop whatever belongs to the present connections to a port."""
        places = [line.split()[2] for line in run(f"ss -Htn state established dport = :{port}").splitlines()]
        ports = ", ".join(sorted(place.rpartition(":")[2] for place in places))
        run(f"nft add element inet broken forgotten {{ {ports} }}")

    def lose(self, address: str) -> None:
        """Drop whatever comes from an address or goes there."""
        run(f"nft add element inet broken gone {{ {address} }}")

    def drop_some(self) -> None:
        """Drop one packet in twenty."""
        run("nft add rule inet broken input numgen random mod 20 < 1 drop")


async def published(calls: Any, release: str) -> None:
    """Make a release of both owners."""
    request = control.StartRequest(
        release=release, dataset="cohort", layout="horizontal", epsilon="1", k="5",
        confirmed=True, anyway=True,
        groups=[control.OwnerGroup(owners=["a", "b"])],
    )  # fmt: skip
    state = ""
    async with asyncio.timeout(_SECONDS):
        await calls.Start(request)
        async for view in calls.Watch(control.ReleaseRequest(release=release)):
            state = view.state
    print(release, state, flush=True)


async def play(folder: Path, network: Network) -> None:
    """Break the network again and again."""
    ca = DevelopmentCa(TRUST_DOMAIN)
    ca.issued.write(folder, "ca")
    ca.aggregator("hub", [HUB]).write(folder, "hub")
    section = AggregatorSection(
        "hub", TRUST_DOMAIN, folder / "state", folder / "releases", folder / "c" / "s", listen="0.0.0.0:0"
    )
    tls = TlsSection(folder / "ca.pem", folder / "hub.pem", folder / "hub.key")
    heard = Heard()
    heard.listen()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=[heard, _SHOWN])
    async with AsyncExitStack() as stack:
        daemon = AggregatorDaemon(AggregatorConfig(path=folder / "a.toml", aggregator=section, tls=tls))
        await daemon.start()
        stack.push_async_callback(daemon.stop)
        port = int(daemon.address.rpartition(":")[2])
        configs = []
        for i, name in enumerate("ab"):
            ca.owner(name).write(folder, f"owner-{name}")
            configs.append(owner(folder / name, name, f"{HUB}:{port}", folder, 100 * i))
        share_key(configs)
        channel = grpc.aio.insecure_channel(f"unix:{section.control_socket}")
        calls = ControlServiceStub(await stack.enter_async_context(channel))
        await stack.enter_async_context(running(*configs))
        await heard.wait_for("connected", times=2)
        await published(calls, "whole")
        network.forget(port)
        await published(calls, "forgotten")
        network.name(SECOND)
        network.lose(FIRST)
        await published(calls, "renamed")
        network.owners_come_from(OTHERS)
        network.lose(OWNERS)
        await published(calls, "moved")
        network.drop_some()
        await published(calls, "lossy")


if __name__ == "__main__":
    sides = ("owner_node.connection.client", "aggregator.api.server_tls")
    with ExitStack() as stack:
        for side in sides:
            stack.enter_context(patch(f"{side}.KEEPALIVE_MS", KEEPALIVE_MS))
        place = Path(sys.argv[1])
        asyncio.run(play(place, Network(place)))
