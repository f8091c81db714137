"""Presence: whether the daemon runs is decided by its lock, and what it wrote is believed only then."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.errors import UsageError
from owner_node.state.database import OwnerDatabase
from owner_node.state.notification_pipe import notify_daemon, responds
from owner_node.state.presence import (
    ConnectionState,
    DaemonPresence,
    DaemonState,
    NotificationPipe,
    daemon_lock,
    is_running,
)

_NOTHING = DaemonState(False, None, "", "", ())


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A real database in a folder of its own."""
    with OwnerDatabase(tmp_path / "state") as database:
        yield database


def test_connections_of_a_running_daemon(db: OwnerDatabase) -> None:
    """Commands see what the daemon is connected to, since when, and why it is not."""
    seconds = iter(range(100))
    presence = DaemonPresence(db, lambda: datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=next(seconds)))
    with daemon_lock(db.state_dir):
        presence.note_started(17, "1.0")
        presence.note_connected("hub")
        presence.note_disconnected("other", "refused")
        presence.note_disconnected("other", "refused")
        found = presence.state()
        assert (found.running, found.pid, found.version) == (True, 17, "1.0")
        assert found.connections == (
            ConnectionState("hub", True, "2026-01-02T00:00:01+00:00", ""),
            ConnectionState("other", False, "2026-01-02T00:00:02+00:00", "refused"),
        )
        presence.note_connected("other")
        assert [each.connected for each in presence.state().connections] == [True, True]
        presence.note_stopped()
        assert presence.state() == DaemonState(True, None, "", "", ())
    assert presence.state() == _NOTHING


def test_a_restart_forgets_old_connections(db: OwnerDatabase) -> None:
    """A new daemon is not connected because an earlier one was."""
    presence = DaemonPresence(db, lambda: datetime(2026, 1, 2, tzinfo=UTC))
    with daemon_lock(db.state_dir):
        presence.note_started(17, "1.0")
        presence.note_connected("hub")
        presence.note_started(18, "1.0")
        assert presence.state().connections == ()


def test_one_daemon_per_state_directory(db: OwnerDatabase) -> None:
    """A second daemon is refused, also inside one process."""
    with (
        daemon_lock(db.state_dir),
        pytest.raises(UsageError, match="owner-node run"),
        daemon_lock(db.state_dir),
    ):
        pass


_DAEMON = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from owner_node.state.database import OwnerDatabase
from owner_node.state.presence import DaemonPresence, daemon_lock
state = Path(sys.argv[1])
with daemon_lock(state), OwnerDatabase(state) as db:
    presence = DaemonPresence(db, lambda: datetime.now(UTC))
    presence.note_started(os.getpid(), "1.0")
    presence.note_connected("hub")
    print("ready", flush=True)
    signal.pause()
"""


def test_a_killed_daemon_does_not_run(db: OwnerDatabase) -> None:
    """After a kill nothing that the daemon wrote is believed, though all of it is still there."""
    daemon = subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(db.state_dir)], stdout=subprocess.PIPE, text=True
    )
    presence = DaemonPresence(db, lambda: datetime(2026, 1, 2, tzinfo=UTC))
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "ready\n"
    assert is_running(db.state_dir)
    assert presence.state().pid == daemon.pid
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.communicate(timeout=60)
    assert (db.state_dir / "daemon.lock").stat().st_size > 0
    assert presence.state() == _NOTHING
    with daemon_lock(db.state_dir):
        assert is_running(db.state_dir)
    assert not is_running(db.state_dir)


@pytest.fixture
async def pipe(db: OwnerDatabase) -> AsyncIterator[list[None]]:
    """What a daemon in this event loop was notified of."""
    notified: list[None] = []
    with daemon_lock(db.state_dir):
        listening = NotificationPipe(db.state_dir, lambda: notified.append(None))
        yield notified
        listening.close()


async def test_a_daemon_responds(db: OwnerDatabase, pipe: list[None]) -> None:
    """A check is answered by the event loop alone, and is no decision of a person."""
    assert await asyncio.to_thread(responds, db.state_dir)
    assert pipe == []
    assert notify_daemon(db.state_dir)
    assert await asyncio.to_thread(responds, db.state_dir)
    assert pipe == [None]


async def test_a_blocked_event_loop_does_not_respond(db: OwnerDatabase, pipe: list[None]) -> None:
    """Other threads of the process live, its lock is held, its pipe is open: still it does not respond."""
    found = []
    check = threading.Thread(target=lambda: found.append(responds(db.state_dir, 0.2)))
    check.start()
    check.join()
    assert found == [False]
    assert await asyncio.to_thread(responds, db.state_dir)


@pytest.mark.parametrize("left", ["nothing", "pipe", "lock", "pipe and lock", "file", "read by another"])
def test_what_a_daemon_left_does_not_respond(db: OwnerDatabase, left: str) -> None:
    """Neither an old file nor another reader of the pipe passes for a daemon."""
    pipe, lock = db.state_dir / "daemon.bell", db.state_dir / "daemon.lock"
    if "pipe" in left or "read" in left:
        os.mkfifo(pipe, 0o600)
    if left == "file":
        pipe.write_bytes(b"")
    if "lock" in left or left == "file":
        lock.write_text('{"pid": 1, "holder": "owner-node run"}')
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) if "read" in left else None
    assert not responds(db.state_dir, 0.2)
    if reader is not None:
        os.close(reader)


async def test_a_starting_daemon_does_not_respond(db: OwnerDatabase) -> None:
    """The lock is taken first; a pipe that an earlier daemon left is not read yet."""
    os.mkfifo(db.state_dir / "daemon.bell", 0o600)
    with daemon_lock(db.state_dir):
        assert not responds(db.state_dir, 0.2)
