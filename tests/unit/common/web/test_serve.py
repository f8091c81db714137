"""`console --serve`: what keeps it from serving, and how it ends then."""

import socket
from pathlib import Path

import pytest
from starlette.routing import Router

from common.daemon.console import ConsoleSection
from common.errors import CannotRunError, ConfigurationError, UsageError
from common.files import exclusive_lock
from common.web.server import Console, serve


def console(folder: Path, listen: str = "") -> Console[str]:
    """Return the pages of nobody."""
    section = ConsoleSection(listen=listen)
    return Console("owner x", section, folder, lambda _: "", lambda _: "", lambda *_: Router())


def test_an_address_is_needed(tmp_path):
    """Without [console] listen the command says what to write."""
    with pytest.raises(ConfigurationError, match="names no address"):
        serve(console(tmp_path), "owner-node")


def test_an_address_that_is_taken_may_be_free_later(tmp_path):
    """A service manager starts the pages again then; nothing is served meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pages = console(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(CannotRunError, match="cannot listen"):
            serve(pages, "owner-node")
        assert not pages.served


def test_one_process_serves_them(tmp_path):
    """Whoever holds the lock serves the pages, and links are for those."""
    pages = console(tmp_path, "127.0.0.1:0")
    with exclusive_lock(tmp_path / "console.lock", "owner-node console --serve"):
        assert pages.served
        with pytest.raises(UsageError, match="console --serve"):
            serve(pages, "owner-node")
    assert not pages.served
