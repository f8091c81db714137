"""Ctrl-C while the command line waits for the daemon: never lost, and nothing is left half-way."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from aggregator.cli.waiting import Waiter


def press() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


async def ready() -> str:
    """Be an answer that is there at once."""
    return "answer"


def pressed_then(rest: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Return an answer during which Ctrl-C is pressed."""

    async def answer() -> Any:
        press()
        return await rest()

    return answer


class Forgotten:
    """Something during whose end Ctrl-C is pressed, where Python drops what is raised."""

    def __del__(self) -> None:
        """Be forgotten."""
        press()


def test_what_is_waited_for_is_cancelled() -> None:
    """A Ctrl-C ends the waiting, and what was waited for gets to clean up after itself."""
    ended = []

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with Waiter() as waiter:
        with pytest.raises(KeyboardInterrupt):
            waiter.wait(pressed_then(for_ever))
        assert ended == ["cancelled"]
        waiter.finish(ready)


def test_an_answer_that_comes_all_the_same() -> None:
    """What cannot be cancelled any more is waited for, and the Ctrl-C holds."""
    with Waiter() as waiter, pytest.raises(KeyboardInterrupt):
        waiter.wait(pressed_then(ready))


def test_what_does_not_let_itself_be_cancelled_is_still_interrupted() -> None:
    """An answer that ends its own way when it is cancelled does not make the Ctrl-C undone."""

    async def stubborn() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "answer"

    with Waiter() as waiter, pytest.raises(KeyboardInterrupt):
        waiter.wait(pressed_then(stubborn))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_python_dropped_ends_the_next_waiting() -> None:
    """Pressed where nothing can be raised, it is not lost: the daemon is asked nothing more."""
    with Waiter() as waiter:
        assert waiter.wait(ready) == "answer"
        forgotten = Forgotten()
        del forgotten
        with pytest.raises(KeyboardInterrupt):
            waiter.wait(ready)


def test_outside_of_waiting_it_is_raised_at_once() -> None:
    """A question at the terminal can be left with Ctrl-C."""
    with Waiter() as waiter:
        waiter.wait(ready)
        with pytest.raises(KeyboardInterrupt):
            press()


def test_before_the_first_waiting_it_is_kept_for_it() -> None:
    """While libraries are loaded and the configuration is read, nothing is raised out of them."""
    with Waiter() as waiter:
        press()
        with pytest.raises(KeyboardInterrupt):
            waiter.wait(ready)


def test_ctrl_c_is_given_back() -> None:
    """Afterwards Python has Ctrl-C again; who had it other than Python keeps it."""
    with Waiter():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with Waiter() as waiter:
            press()
            assert waiter.wait(ready) == "answer"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_cancellation_that_nobody_pressed() -> None:
    """A call that is cancelled otherwise is no Ctrl-C."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with Waiter() as waiter, pytest.raises(asyncio.CancelledError):
        waiter.wait(cancelled)
