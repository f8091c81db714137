"""The proxy of docs/operations.md in front of the gRPC port, a real nginx, limits connections per address."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.local_setup import free_port
from deploy.wheel_environment import PROJECT
from tests.nginx import documented, nginx
from tests.wire.test_owner_daemon import Heard, heard, owner, published, running, share_key

__all__ = ["heard"]

MOST = 16
CONNECTIONS = 30


async def closed(connection: socket.socket) -> bool:
    """Wait until the other side closes a connection."""
    return await asyncio.get_running_loop().sock_recv(connection, 1) == b""


@pytest.mark.needs("nginx-stream")
async def test_owners_behind_a_proxy_that_limits_addresses(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """Of thirty connections of one address sixteen stay; owners from another one make a release meanwhile."""
    aggregator, port = await launch(), free_port()
    text = documented(PROJECT / "docs" / "operations.md", "stream")
    for before, after in (
        ("listen 8443", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8444", aggregator.daemon.address),
    ):
        assert before in text
        text = text.replace(before, after)
    configs = [
        owner(tmp_path / name, name, f"127.0.0.1:{port}", certificates, 100 * i)
        for i, name in enumerate("ab")
    ]
    share_key(configs)
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx", text), ExitStack() as stack:
        flood = [stack.enter_context(socket.socket()) for _ in range(CONNECTIONS)]
        for connection in flood:
            connection.bind(("127.0.0.2", 0))
            connection.connect(("127.0.0.1", port))
            connection.setblocking(False)
        ends = [asyncio.create_task(closed(each)) for each in flood]
        # The others are closed by the aggregator, ten seconds later: they show no certificate.
        done, _ = await asyncio.wait(ends, timeout=5)
        assert len(done) == CONNECTIONS - MOST
        assert all(each.result() for each in done)
        async with running(*configs):
            await heard.wait_for("connected", times=2)
            await aggregator.start("a", "b")
            await published(aggregator)
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
