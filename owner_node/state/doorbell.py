"""How a command tells the daemon beside it that something was decided: a named pipe in the state directory.

A byte in it means "look again"; what is new stands in owner.db. Nobody listening is no fault: the daemon
looks when it starts.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from common.durable import PRIVATE_FILE
from common.errors import ConfigurationError

_NAME = "daemon.bell"
_DRAIN = 4096


def ring(state_dir: Path) -> bool:
    """Tell the daemon to look again.

    Returns:
        Whether a daemon listens.
    """
    try:
        descriptor = os.open(state_dir / _NAME, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        # No pipe, or nobody reads it.
        if error.errno in (errno.ENOENT, errno.ENXIO):
            return False
        raise
    try:
        # A pipe that is full of bytes says it already.
        with suppress(BlockingIOError):
            os.write(descriptor, b"\0")
    finally:
        os.close(descriptor)
    return True


class Doorbell:
    """The daemon's end of the pipe. Only while the daemon's lock is held, and in a running event loop.

    Args:
        state_dir: The owner's state directory.
        answer: Called in the event loop whenever somebody rang.

    Raises:
        ConfigurationError: If the pipe cannot be made there.
    """

    def __init__(self, state_dir: Path, answer: Callable[[], None]) -> None:
        self._path, self._answer = state_dir / _NAME, answer
        try:
            if not (self._path.exists() and stat.S_ISFIFO(self._path.lstat().st_mode)):
                self._path.unlink(missing_ok=True)
                os.mkfifo(self._path, PRIVATE_FILE)
            # Open for writing too, so that the pipe does not end when the last command has rung.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"{self._path} cannot be made: {error.strerror}",
                hint="state_dir must be on a file system with named pipes",
            ) from None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._rung)

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    def _rung(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor, _DRAIN)
        self._answer()
