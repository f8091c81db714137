"""Calls of pages to the daemon: one that hangs keeps no page waiting for ever."""

import socket

import pytest

from aggregator.config import AggregatorConfig, AggregatorSection
from aggregator.console.calls import Calls
from common.errors import NotConnectedError
from common.settings import TlsSection
from common.wire.v1.control_pb2 import StatusRequest


async def test_a_daemon_that_never_answers(tmp_path, monkeypatch):
    """Its socket accepts connections, as that of a stopped process does."""
    monkeypatch.setattr("aggregator.console.calls.RESPONSE_SECONDS", 0.3)
    place = tmp_path / "s"
    section = AggregatorSection("hub", "release.test", tmp_path, tmp_path, place)
    tls = TlsSection(tmp_path / "ca.pem", tmp_path / "own.pem", tmp_path / "own.key")
    config = AggregatorConfig(path=tmp_path / "aggregator.toml", aggregator=section, tls=tls)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        with pytest.raises(NotConnectedError, match="does not respond"):
            await Calls(lambda: config).ask("Status", StatusRequest())
