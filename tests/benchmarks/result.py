"""What a benchmark reports: a ratio measured in one run, and the most it may be."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One measured ratio."""

    name: str
    """What was measured against what."""
    ratio: float
    """Measured cost by the cost it is compared with."""
    limit: float
    """The largest ratio that is good enough."""
    detail: str
    """The two costs, with units."""

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its limit."""
        return self.ratio <= self.limit


def medians(repetitions: int, *measured: Callable[[], object]) -> list[float]:
    """Time several things in turns, so that a busy moment of the machine meets all of them.

    Args:
        repetitions: Number of turns, after one that is not counted.
        measured: What to time.

    Returns:
        The median of each, in seconds.
    """
    times: list[list[float]] = [[] for _ in measured]
    for turn in range(repetitions + 1):
        for action, taken in zip(measured, times, strict=True):
            start = time.perf_counter()
            action()
            if turn:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]
