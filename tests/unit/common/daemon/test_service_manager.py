"""What the service manager is told, over its real kind of socket."""

import os
import socket

import pytest

from common.daemon.service_manager import READY, notify


@pytest.fixture
def manager(tmp_path):
    """A socket as a service manager has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.settimeout(5)
        yield heard


def test_a_manager_hears(manager, tmp_path, monkeypatch):
    """The state arrives as it is."""
    place = str(tmp_path / "notify")
    manager.bind(place)
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    notify(READY)
    assert manager.recv(100) == b"READY=1"


def test_a_manager_of_the_abstract_namespace_hears(manager, monkeypatch):
    """A name that begins with an at sign is no file."""
    name = f"tessera-test-{os.getpid()}"
    manager.bind(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    notify(READY)
    assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("place", ["", "/nowhere/at/all", "vsock:2:1", "/" + "x" * 300])
def test_nobody_listens(place, monkeypatch):
    """A daemon that nobody manages, or whose manager is away, works all the same."""
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    notify(READY)
