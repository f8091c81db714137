"""The pipe through which commands notify the daemon; without a daemon, nothing fails."""

import asyncio
import shutil
import stat
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from owner_node.state.notification_pipe import notify_daemon
from owner_node.state.presence import NotificationPipe


async def test_notifications_arrive(tmp_path: Path) -> None:
    """A notification arrives, however many commands sent one and ended before; no other user can send one."""
    heard = asyncio.Event()
    pipe = NotificationPipe(tmp_path, heard.set)
    try:
        for _ in range(3):
            assert await asyncio.to_thread(notify_daemon, tmp_path)
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
        (file,) = tmp_path.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        pipe.close()
    assert list(tmp_path.iterdir()) == []


async def test_without_a_daemon_nothing_fails(tmp_path: Path) -> None:
    """Without a daemon, or after one that was killed, ringing changes nothing and waits for nothing."""
    assert not notify_daemon(tmp_path)
    pipe = NotificationPipe(tmp_path, lambda: None)
    pipe.close()
    assert not notify_daemon(tmp_path)


async def test_a_pipe_that_a_killed_daemon_left(tmp_path: Path) -> None:
    """What is left of an earlier daemon, or stands in the way, is replaced."""
    heard = asyncio.Event()
    NotificationPipe(tmp_path, heard.set).close()
    (tmp_path / "daemon.bell").write_text("a file from a copied folder")
    pipe = NotificationPipe(tmp_path, heard.set)
    assert notify_daemon(tmp_path)
    await asyncio.wait_for(heard.wait(), 10)
    pipe.close()


async def test_a_full_pipe_is_no_fault(tmp_path: Path) -> None:
    """A daemon that is busy is notified by a full pipe as well."""
    pipe = NotificationPipe(tmp_path, lambda: None)
    for _ in range(70_000):
        assert notify_daemon(tmp_path)
    pipe.close()


async def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """Where no pipe can be made, the daemon says so in words."""
    shutil.rmtree(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be made"):
        NotificationPipe(tmp_path, lambda: None)
