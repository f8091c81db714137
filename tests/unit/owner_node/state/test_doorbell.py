"""The doorbell: a command rings, the daemon looks; nobody at home is no fault."""

import asyncio
import shutil
import stat
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from owner_node.state.presence import Doorbell, ring


async def test_ringing(tmp_path: Path) -> None:
    """A ring is heard, however many commands rang and left before, and nobody else may ring."""
    heard = asyncio.Event()
    bell = Doorbell(tmp_path, heard.set)
    try:
        for _ in range(3):
            assert await asyncio.to_thread(ring, tmp_path)
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
        (pipe,) = tmp_path.iterdir()
        assert stat.S_IMODE(pipe.stat().st_mode) == 0o600
    finally:
        bell.close()
    assert list(tmp_path.iterdir()) == []


async def test_nobody_at_home(tmp_path: Path) -> None:
    """Without a daemon, or after one that was killed, ringing changes nothing and waits for nothing."""
    assert not ring(tmp_path)
    bell = Doorbell(tmp_path, lambda: None)
    bell.close()
    assert not ring(tmp_path)


async def test_a_pipe_that_a_killed_daemon_left(tmp_path: Path) -> None:
    """What is left of an earlier daemon, or stands in the way, is replaced."""
    heard = asyncio.Event()
    Doorbell(tmp_path, heard.set).close()
    (tmp_path / "daemon.bell").write_text("a file from a copied folder")
    bell = Doorbell(tmp_path, heard.set)
    assert ring(tmp_path)
    await asyncio.wait_for(heard.wait(), 10)
    bell.close()


async def test_a_full_pipe_is_no_fault(tmp_path: Path) -> None:
    """A daemon that is busy is not rung twice as loud: a pipe full of rings says enough."""
    bell = Doorbell(tmp_path, lambda: None)
    for _ in range(70_000):
        assert ring(tmp_path)
    bell.close()


async def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """Where no pipe can be made, the daemon says so in words."""
    shutil.rmtree(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be made"):
        Doorbell(tmp_path, lambda: None)
