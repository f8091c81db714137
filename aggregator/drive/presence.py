"""Which owners are connected, signals that wake waiting tasks, and turns between tasks that are all due."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from common.progress import StepEstimate


class Signal:
    """Something that changes occasionally, and that any number of tasks wait for.

    A task that takes `ticket()` before it looks, and then waits on the ticket, misses no change.
    """

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ticket(self) -> asyncio.Event:
        """Return an event that is set at the next change after this call."""
        return self._next

    def fire(self) -> None:
        """Wake all waiting tasks."""
        self._next, changed = asyncio.Event(), self._next
        changed.set()


async def wait(ticket: asyncio.Event, seconds: float | None) -> bool:
    """Wait for a change, with None as long as it takes; returns whether there was one."""
    try:
        async with asyncio.timeout(seconds):
            await ticket.wait()
    except TimeoutError:
        return False
    return True


class LoopTurns:
    """Lets one of many tasks continue per pass of the event loop.

    Hundreds of owners call at the same moment, or are woken by the same change. Without turns, a call of the
    command line would wait until all of them have been answered.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a turn, in the order of the calls."""
        async with self._one:
            await asyncio.sleep(0)

    async def in_thread(self, function: Callable[[], Any]) -> None:
        """Call a function in a thread, then wait for a turn: calls for many owners return at once."""
        await asyncio.to_thread(function)
        await self.take()


GRACE_SECONDS = 30
"""An owner counts as connected for so long after its last call: it polls again at once."""


class OwnerPresence:
    """Which owners are connected, from their calls."""

    def __init__(self, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._clock, self._elapsed = clock, elapsed
        self.turns = LoopTurns()
        """For the calls of all owners."""
        self._held: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._until: dict[str, float] = {}
        self._gone: set[str] = set()
        self._since: dict[str, float] = {}
        self._signals: dict[str, Signal] = {}
        self._progress: dict[str, Mapping[str, StepEstimate]] = {}

    def heard(self, owner: str) -> None:
        """Note that an owner has called."""
        if not self.is_connected(owner):
            self._since[owner] = self._clock()
        self._note(owner)
        self._gone.discard(owner)

    @contextmanager
    def polling(self, owner: str) -> Iterator[None]:
        """Count an owner as connected while its poll is held and, if it was answered, for the grace after.

        If the poll is cut off, the owner counts as disconnected: it hung up or died.
        """
        self.heard(owner)
        self._held[owner] = self._held.get(owner, 0) + 1
        try:
            yield
        except BaseException:
            self._gone.add(owner)
            raise
        else:
            self._gone.discard(owner)
        finally:
            self._held[owner] -= 1
            self._note(owner)

    def is_connected(self, owner: str) -> bool:
        """Whether an owner is connected."""
        if self._held.get(owner, 0) > 0:
            return True
        until = self._until.get(owner)
        return until is not None and self._elapsed() <= until and owner not in self._gone

    def note_progress(self, owner: str, progress: Mapping[str, StepEstimate]) -> None:
        """Note how far an owner's masking is, by release, until it polls again."""
        self._progress[owner] = progress

    def progress(self, owner: str, release: str) -> StepEstimate | None:
        """Return how far the masking of a connected owner was when it last polled."""
        return self._progress.get(owner, {}).get(release) if self.is_connected(owner) else None

    def since(self, owner: str) -> int:
        """Return since when an owner is connected, or the time of its last call; 0 if none in this run."""
        times = self._since if self.is_connected(owner) else self._heard
        return int(times.get(owner, 0))

    def count(self) -> int:
        """Return how many owners are connected."""
        return sum(self.is_connected(owner) for owner in self._heard)

    def signal(self, owner: str) -> Signal:
        """Return the signal that wakes an owner's poll."""
        return self._signals.setdefault(owner, Signal())

    def _note(self, owner: str) -> None:
        self._heard[owner] = self._clock()
        self._until[owner] = self._elapsed() + GRACE_SECONDS

    def wake_all(self) -> None:
        """Wake every poll that is held."""
        for signal in self._signals.values():
            signal.fire()
