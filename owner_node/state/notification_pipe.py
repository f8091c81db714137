"""The commands' end of the daemon's pipe (`owner_node.state.presence`)."""

import errno
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from owner_node.state.presence import CHECK, LOOK_AGAIN, PIPE_NAME, is_running

_RESPONSE_SECONDS = 10.0
"""Time-out of a check. On a busy machine an event loop can be late by seconds."""
_LOOK_SECONDS = 0.01
NO_RESPONSE = "the daemon does not respond"
NO_RESPONSE_HINT = "it is starting, stopped or stuck: see its log, and restart it if this does not pass"


@contextmanager
def _open_pipe(state_dir: Path, flags: int) -> Iterator[int | None]:
    """Open the daemon's pipe; None if there is no pipe, or nobody reads it."""
    try:
        descriptor = os.open(state_dir / PIPE_NAME, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, byte: bytes) -> None:
    # In a full pipe there is a byte of each kind, or its reader will not respond in any case.
    with suppress(BlockingIOError):
        os.write(descriptor, byte)


def notify_daemon(state_dir: Path) -> bool:
    """Notify the daemon to look for decisions again.

    Returns:
        Whether a daemon listens.
    """
    with _open_pipe(state_dir, os.O_WRONLY) as pipe:
        if pipe is not None:
            _write(pipe, LOOK_AGAIN)
    return pipe is not None


def responds(state_dir: Path, seconds: float = _RESPONSE_SECONDS) -> bool:
    """Return whether the daemon runs and its event loop reads from its pipe within a time-out."""
    # A pipe that this process would read from itself always has a reader: the writing end is opened first.
    with _open_pipe(state_dir, os.O_WRONLY) as pipe:
        if pipe is None or not is_running(state_dir):
            return False
        with _open_pipe(state_dir, os.O_RDONLY) as watched:
            if watched is None:
                return False
            _write(pipe, CHECK)
            until = time.monotonic() + seconds
            while select.select([watched], [], [], 0)[0]:
                if time.monotonic() >= until:
                    return False
                time.sleep(_LOOK_SECONDS)
    # A daemon that died meanwhile emptied nothing.
    return is_running(state_dir)
