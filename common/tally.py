"""What a daemon counts while it runs: bytes that moved, and how long steps took. Counted if asked or not.

Nothing here is about a record: names of steps and of kinds of data are the program's own, and few.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
"""Seconds that the counts of durations are divided at: from a tenth of a second to a week."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How long one step took, over all times that it was taken."""

    counts: tuple[int, ...]
    """How often it took at most each of `BOUNDS`, and at last how often it was taken; never falling."""
    seconds: float
    """How long it took altogether."""


class Tally:
    """Counts since the start of a daemon; may be used from any thread.

    Args:
        steps: Names of the steps that take time.
        kinds: Names of the kinds of data whose bytes are counted.
    """

    def __init__(self, steps: Iterable[str], kinds: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._counts = {step: [0] * (len(BOUNDS) + 1) for step in steps}
        self._seconds = dict.fromkeys(self._counts, 0.0)
        self._bytes = dict.fromkeys(kinds, 0)

    def took(self, step: str, seconds: float) -> None:
        """Count a step that is over; one of another name is not counted."""
        counts = self._counts.get(step)
        if counts is not None:
            with self._lock:
                counts[bisect_left(BOUNDS, seconds)] += 1
                self._seconds[step] += seconds

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        """Count the step that the block is, however it ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.took(step, time.monotonic() - began)

    def moved(self, kind: str, n_bytes: int) -> None:
        """Count bytes that were sent or received."""
        with self._lock:
            self._bytes[kind] += n_bytes

    @property
    def n_bytes(self) -> Mapping[str, int]:
        """Bytes by kind of data."""
        with self._lock:
            return dict(self._bytes)

    @property
    def durations(self) -> Mapping[str, Durations]:
        """Durations by step."""
        with self._lock:
            return {step: self._durations(step) for step in self._counts}

    def _durations(self, step: str) -> Durations:
        total, counts = 0, []
        for count in self._counts[step]:
            total += count
            counts.append(total)
        return Durations(tuple(counts), self._seconds[step])


class Stopwatch:
    """Tells a tally how long each of many things was in each of its steps.

    Args:
        tally: Counts.
        elapsed: Seconds that pass whatever the clock is set to.
    """

    def __init__(self, tally: Tally, elapsed: Callable[[], float]) -> None:
        self._tally, self._elapsed = tally, elapsed
        self._entered: dict[str, tuple[str, float]] = {}

    def enters(self, name: str, step: str, ago: float = 0.0) -> None:
        """Note that something has entered a step, which ends the one that it was in.

        Args:
            name: What it is.
            step: The step; empty if there is none after the last one.
            ago: How many seconds ago it was; only counts for what this does not know yet.
        """
        now = self._elapsed()
        before = self._entered.pop(name, None)
        if before is not None:
            self._tally.took(before[0], now - before[1])
        if step:
            self._entered[name] = (step, now if before is not None else now - max(ago, 0.0))
