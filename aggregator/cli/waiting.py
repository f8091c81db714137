"""Waiting for the daemon such that a Ctrl-C ends the waiting, whenever it comes, and nothing half-way.

Python raises KeyboardInterrupt wherever it is. In the middle of gRPC or of an event loop that leaves calls
that are counted but never end, so that hanging up waits for ever; and out of what an object does when it is
forgotten nothing is raised, so that the command goes on as if nothing had been pressed.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

_LOOK_SECONDS = 0.2
"""A signal that comes between the last look and the sleep is seen after this."""
_T = TypeVar("_T")


class Waiter:
    """An event loop for a command that has none, and Ctrl-C while it is used.

    In the `with` block a Ctrl-C raises KeyboardInterrupt: out of `wait`, once what is waited for has been
    cancelled; anywhere else at once, and out of the next `wait` if it was lost there. Before the first
    `wait` it only does the latter: configurations are read there, by a library that loses interruptions.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._taken = False
        self._pressed = False
        self._inside = True
        self._give_up: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        """Take Ctrl-C over from Python, if Python has it."""
        if threading.current_thread() is threading.main_thread():
            self._taken = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._taken:
            signal.signal(signal.SIGINT, self._press)
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the loop and give Ctrl-C back."""
        self._inside = True
        self._runner.close()
        if self._taken:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what a coroutine returns, which is made in the loop.

        Raises:
            KeyboardInterrupt: If Ctrl-C is pressed meanwhile, or was before.
        """
        self._inside = True
        try:
            found = self._runner.run(self._looking_up(ask))
        except asyncio.CancelledError:
            if self._pressed:
                raise KeyboardInterrupt from None
            raise
        finally:
            self._inside = False
        if self._pressed:
            raise KeyboardInterrupt
        return found

    def finish(self, ask: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Wait for the last that is to be done, which is quick, whatever was pressed."""
        self._inside = True
        self._runner.run(ask())

    async def _looking_up(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Wait for an answer, waking now and then, since a signal wakes nobody who is just falling asleep."""
        if self._is_pressed():
            raise asyncio.CancelledError
        loop, waited = asyncio.get_running_loop(), asyncio.ensure_future(ask())
        self._give_up = lambda: loop.call_soon_threadsafe(waited.cancel)
        try:
            while not waited.done():
                await asyncio.wait((waited,), timeout=_LOOK_SECONDS)
                if self._is_pressed():
                    waited.cancel()
            return waited.result()
        finally:
            self._give_up = None

    def _is_pressed(self) -> bool:
        return self._pressed

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self._pressed = True
        if not self._inside:
            raise KeyboardInterrupt
        if self._give_up is not None:
            self._give_up()
