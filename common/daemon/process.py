"""A daemon as a process: stop signals, threads and connections that must end, and the service manager."""

import asyncio
import errno
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Event, Thread, Timer
from traceback import clear_frames
from typing import Any, TypeVar

from common.errors import CannotListenError, CannotRunError, CannotStoreError, TesseraError

READY = "READY=1"
"""The daemon serves."""
STOPPING = "STOPPING=1"
"""The daemon received a stop signal and finishes its current work."""
WATCHDOG = "WATCHDOG=1"
"""The daemon's event loop runs."""
_T = TypeVar("_T")


def notify(state: str) -> None:
    """Report a state to the service manager that started the process, if there is one (sd_notify(3))."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    # A name that begins with "@" is of the abstract namespace.
    address = "\0" + place[1:] if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.connect(address)
        to.send(state.encode())


def _watchdog_seconds() -> float | None:
    """Return within which time the service manager expects signs of life; None if it expects none."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 1e6 or None
    except (KeyError, ValueError):
        return None


async def _run_watched(main: Coroutine[Any, Any, None]) -> None:
    """Run a daemon, and show the service manager that its event loop runs, until the daemon has ended."""
    seconds = _watchdog_seconds()
    if seconds is None:
        await main
        return

    async def show_life() -> None:
        while True:
            notify(WATCHDOG)
            await asyncio.sleep(seconds / 2)

    life = asyncio.create_task(show_life())
    try:
        await main
    finally:
        life.cancel()


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


KEPT_FILES = 256
"""Open files that connections from outside never take: databases, releases, logs, and the control socket."""


def file_limit() -> int:
    """Return how many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit(wanted: int) -> int:
    """Raise the number of files that this process may have open as far as possible, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return file_limit()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a daemon until it ends.

    Raises:
        CannotRunError: If it ended for a reason that may pass, such as a full disk. Its exit code is another
            one than that of a wrong configuration, after which no service manager starts a daemon again.
    """
    try:
        asyncio.run(_run_watched(main))
    except (CannotStoreError, CannotListenError, ExceptionGroup) as fault:
        passing: Exception | None = fault
        if isinstance(fault, ExceptionGroup):
            passing = fault.subgroup((CannotStoreError, CannotListenError))
        while isinstance(passing, ExceptionGroup):
            passing = passing.exceptions[0]
        if not isinstance(passing, TesseraError):
            raise
        raise CannotRunError(passing.message, passing.hint) from None


async def in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a blocking function in a thread; a cancelled caller waits until it ends.

    A thread cannot be stopped. No other process may take over the state while it spends, masks or seals.

    What an error's frames hold, such as a half-read sort, ends with the call: the error can be kept for long.
    """

    def call() -> _T:
        try:
            return function(*arguments)
        except BaseException as error:
            clear_frames(error.__traceback__)
            raise

    future = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        # Nobody is left to answer. asyncio logs an error that nobody looks at.
        if not future.cancelled():
            future.exception()
        raise


async def in_own_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a blocking function that may be abandoned; a cancelled caller continues at once.

    The thread goes on by itself, and does not keep the process from ending. For what only waits for others,
    such as a mail server: nothing of the state may be used in there.
    """
    result: Future[_T] = Future()
    result.set_running_or_notify_cancel()

    def call() -> None:
        try:
            result.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - the caller's, as if it had made the call
            result.set_exception(error)

    Thread(target=call, daemon=True).start()
    return await asyncio.wrap_future(result)


@contextmanager
def deadline(connection: socket.socket, seconds: float) -> Iterator[None]:
    """End a connection a while after the block began, however little the other side sends at a time.

    The time-out of a socket is for one call: with a byte now and then an answer never ends. The block may put
    layers such as TLS on the connection.
    """
    passed = Event()
    with connection.dup() as same:

        def end() -> None:
            passed.set()
            with suppress(OSError):
                same.shutdown(socket.SHUT_RDWR)

        timer = Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:
            if passed.is_set():
                raise TimeoutError(errno.ETIMEDOUT, f"not done within {seconds:.0f} s") from None
            raise
        finally:
            timer.cancel()
