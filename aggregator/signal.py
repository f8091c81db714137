"""Waking whoever waits for a change, without polling."""

import asyncio


class Signal:
    """Something that changes now and then, and that any number of tasks wait for.

    A task that looks, takes `ticket()` before looking, and then waits on it, misses no change.
    """

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ticket(self) -> asyncio.Event:
        """Return an event that is set at the next change after this call."""
        return self._next

    def fire(self) -> None:
        """Tell everyone who waits that something has changed."""
        self._next, changed = asyncio.Event(), self._next
        changed.set()


async def wait(ticket: asyncio.Event, seconds: float | None) -> bool:
    """Wait for a change.

    Args:
        ticket: From `Signal.ticket`.
        seconds: The longest wait; None for as long as it takes.

    Returns:
        Whether something has changed.
    """
    try:
        async with asyncio.timeout(seconds):
            await ticket.wait()
    except TimeoutError:
        return False
    return True
