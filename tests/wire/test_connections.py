"""Connections without a certificate: not too many, not for long, and the command line always answers."""

import asyncio
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from common.files import PRIVATE_FILE
from common.wire.v1 import control_pb2 as control
from common.wire.v1.control_pb2_grpc import ControlServiceStub
from tests.fakes.releases import random_tokens
from tests.fakes.scripted_owner import ScriptedOwner

FILES = 300
"""As many files as the aggregator of a test may open."""


async def silent(address: str) -> None:
    """Open a connection, say nothing, and wait until the other end closes it."""
    host, _, port = address.rpartition(":")
    with socket.socket() as connection, suppress(ConnectionError):
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (host, int(port)))
        assert await loop.sock_recv(connection, 1) == b""


async def test_connections_that_say_nothing(
    launch: Callable[..., Any], records: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit they are closed at once, others after the time of a handshake; then owners connect."""
    monkeypatch.setattr("aggregator.daemon._MOST_CONNECTIONS", 20)
    monkeypatch.setattr("aggregator.api.server_tls.HANDSHAKE_MS", 1500)
    aggregator = await launch()
    waiting = [asyncio.create_task(silent(aggregator.daemon.address)) for _ in range(60)]
    await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert (await aggregator.calls.Status(control.StatusRequest())).connected_owners == 0
    async with asyncio.timeout(90):
        await asyncio.gather(*waiting)
    owner = aggregator.owner("a", ["age"], records)
    await owner.connect()
    await aggregator.start("a", dry_run=True)
    assert (await owner.run()).state == "cancelled"


async def test_the_control_socket_is_private(launch: Callable[..., Any]) -> None:
    """Its mode does not depend on the umask of whatever starts the daemon."""
    before = os.umask(0)
    try:
        aggregator = await launch()
    finally:
        os.umask(before)
    socket_file = aggregator.config.aggregator.control_socket
    assert stat.S_IMODE(socket_file.stat().st_mode) == PRIVATE_FILE
    assert (await aggregator.calls.Status(control.StatusRequest())).name == "hub"


@asynccontextmanager
async def few_files(folder: Path) -> AsyncIterator[str]:
    """Run an aggregator that may open few files; yields its address."""
    # A shell sets the limits: Python code in a fork of a process that runs gRPC can end the fork.
    limits = f'ulimit -S -n {FILES - 40} && ulimit -H -n {FILES} && exec "$@"'
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", limits, "sh",
        sys.executable, "-m", "tests.benchmarks.owner_parties", "aggregator", str(folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()


async def test_more_connections_than_files(certificates: Path, tmp_path: Path) -> None:
    """The control socket has files of its own, and an owner that is connected stays so."""
    for name in ("ca.pem", "owner-a.pem", "owner-a.key"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    for end in ("pem", "key"):
        (tmp_path / f"aggregator.{end}").write_bytes((certificates / f"hub.{end}").read_bytes())
        (tmp_path / f"aggregator.{end}").chmod(0o600)
    async with few_files(tmp_path) as address:
        tokens = random_tokens(np.random.default_rng(1), 20)
        owner = ScriptedOwner("a", address, tmp_path, ["age"], tokens)
        await owner.connect()
        waiting = [asyncio.create_task(silent(address)) for _ in range(2 * FILES)]
        await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        async with grpc.aio.insecure_channel(f"unix:{tmp_path / 'c' / 's'}") as channel:
            calls: Any = ControlServiceStub(channel)
            status = await calls.Status(control.StatusRequest(), timeout=20)
        assert status.name == "hub"
        await owner.connect()
        await owner.close()
        for task in waiting:
            task.cancel()
