"""Real owner daemons behind a real HTTP proxy: releases go through it, and its refusals are explained."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from common.clock import utc_now
from common.errors import NotConnectedError
from common.trust.credentials import read_identity
from common.trust.handshake import explain_handshake
from common.trust.proxy import Proxy, dial
from owner_node.connection.client import explain
from owner_node.connection.command_client import probe_aggregator
from tests.fakes.connect_proxy import HOST, ConnectProxy
from tests.wire.test_owner_daemon import Heard, connection, heard, owner, published, running, share_key

__all__ = ["heard"]

CREDENTIALS = "north:hunter2@home"
QUOTED = "north:hunter2%40home"


async def test_releases_go_through_a_proxy(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Daemons and checks go through the proxy that the environment names, again after it cut all connections;
    its password is logged by nobody.
    """
    caplog.set_level(logging.DEBUG)
    aggregator = await launch()
    address = aggregator.daemon.address
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    async with ConnectProxy(CREDENTIALS).listening() as proxy:
        monkeypatch.setenv("https_proxy", f"http://{QUOTED}@{HOST}:{proxy.port}")
        async with running(*configs):
            await heard.wait_for("connected", times=2)
            assert proxy.asked == [address] * 2
            proxy.cut()
            await aggregator.start("a", "b")
            await published(aggregator)
        n_asked = len(proxy.asked)
        assert n_asked >= 4
        hub = configs[0].aggregators[0]
        assert await asyncio.to_thread(explain, hub, configs[0].tls, utc_now()) is None
        await asyncio.to_thread(probe_aggregator, configs[0], hub, read_identity(configs[0].tls))
        assert (len(proxy.asked) - n_asked, proxy.refused) == (2, 0)
    said = "".join(str(vars(record)) for record in caplog.records) + "".join(capfd.readouterr())
    assert "hunter2" not in said


async def test_a_password_that_a_proxy_refuses_is_explained(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the proxy answers is in the owner's state, with the variable to correct, without what is in it."""
    aggregator = await launch()
    config = owner(tmp_path / "a", "a", aggregator.daemon.address, certificates)
    async with ConnectProxy(CREDENTIALS).listening() as proxy:
        monkeypatch.setenv("https_proxy", f"http://north:hunter3@{HOST}:{proxy.port}")
        async with running(config):
            await heard.wait_for("not connected")
            reason = connection(config).reason
        assert proxy.asked == []
    assert reason == (
        f"the proxy {HOST}:{proxy.port} wants a user and a password for {aggregator.daemon.address}"
    )


@pytest.mark.parametrize("exception", ["*", "*.0.0.1", "{address}"])
async def test_what_is_excepted_is_dialled_directly(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    exception: str,
) -> None:
    """GRPC itself does not know these forms, and would go through the proxy."""
    aggregator = await launch()
    config = owner(tmp_path / "a", "a", aggregator.daemon.address, certificates)
    async with ConnectProxy(CREDENTIALS).listening() as proxy:
        monkeypatch.setenv("https_proxy", f"http://{HOST}:{proxy.port}")
        monkeypatch.setenv("no_proxy", exception.format(address=aggregator.daemon.address))
        async with running(config):
            await heard.wait_for("connected")
        assert proxy.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("403 Forbidden", "does not connect to hub.example:8443: 403 Forbidden"),
        ("502 Bad \x1b[31mGateway" + "x" * 100, "does not connect to hub.example:8443: 502 Bad [31mGateway"),
        ("9" * 5000, "does not connect to hub.example:8443: it speaks no HTTP"),
        (None, "cannot be reached"),
    ],
)
async def test_refusals_of_a_proxy_are_explained(
    answer: str | None, said: str, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is absent, or does not let CONNECT through, is what the explanation names, in a line."""
    ca, cert, key = (certificates / name for name in ("ca.pem", "owner-a.pem", "owner-a.key"))
    proxy = ConnectProxy()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(proxy.listening())
        monkeypatch.setenv("https_proxy", f"http://{HOST}:{proxy.port}")
        if answer is None:
            await stack.aclose()
        else:
            proxy.answer = answer
        found = await asyncio.to_thread(explain_handshake, ("hub.example", 8443), ca, cert, key, utc_now())
    assert isinstance(found, NotConnectedError)
    assert f"the proxy {HOST}:{proxy.port} (https_proxy) {said}" in found.message
    assert found.message.isprintable()
    assert len(found.message) < 200


async def test_a_proxy_that_answers_byte_by_byte_holds_nobody_up() -> None:
    """The whole answer has one time-out, and not every byte of it."""
    proxy = ConnectProxy()
    proxy.drips = True
    async with proxy.listening(), asyncio.timeout(90):
        through = Proxy("https_proxy", HOST, proxy.port)
        with pytest.raises(NotConnectedError, match="does not connect"):
            await asyncio.to_thread(dial, "hub.example", 8443, 0.3, through)


async def test_a_fault_of_an_explanation_ends_no_daemon(
    tmp_path: Path, certificates: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the way to one aggregator must not end the work for the others."""

    def fail(*_: object) -> None:
        raise ValueError("an answer that nobody foresaw")

    monkeypatch.setattr("owner_node.connection.connection.explain", fail)
    config = owner(tmp_path / "a", "a", f"{HOST}:1", certificates)
    async with running(config):
        await heard.wait_for("not connected")
        assert connection(config).reason == "an internal fault, see the log"
