"""Until when the steps of releases must be over, by a clock that nobody sets.

While this process runs, the time of a step is counted: a machine whose clock is set forwards cuts no step
short, and one whose clock is set back prolongs none. Across a restart only the clock can tell how much time
has passed; then a step gets at most its own time anew.
"""

import asyncio
import time
from collections.abc import Callable

from aggregator.protocol.release import Release

_LONGEST_TIMER = 3600.0
"""A deadline days away is looked at again every hour: timers stand still while a machine sleeps."""


def elapsed() -> float:
    """Return seconds that pass whatever the clock is set to; where the system can tell, asleep or not."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Deadlines:
    """Watches the deadlines of releases; needs a running event loop.

    Args:
        passed: Is told of a release whose deadline has passed.
        clock: The time in Unix seconds.
        elapsed: Seconds that pass whatever the clock is set to, from any beginning.
    """

    def __init__(
        self, passed: Callable[[str], object], clock: Callable[[], float], elapsed: Callable[[], float]
    ) -> None:
        self._passed, self._clock, self._elapsed = passed, clock, elapsed
        self._ends: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def watch(self, release: Release) -> None:
        """Watch the step that a release is in now, and no earlier one."""
        self._cancel(release.id)
        self._ends.pop(release.id, None)
        if release.deadline is not None:
            left = min(release.deadline - self._clock(), release.deadline - release.entered)
            self._ends[release.id] = self._elapsed() + max(left, 0)
            self._wait(release.id)

    def over(self, release: str) -> bool:
        """Whether the deadline of a release's step has passed."""
        ends = self._ends.get(release)
        return ends is not None and self._elapsed() >= ends

    def stop(self) -> None:
        """Watch nothing any more."""
        for release in list(self._timers):
            self._cancel(release)

    def _wait(self, release: str) -> None:
        seconds = min(max(self._ends[release] - self._elapsed(), 0.0), _LONGEST_TIMER)
        self._timers[release] = asyncio.get_running_loop().call_later(seconds, self._look, release)

    def _look(self, release: str) -> None:
        if self.over(release):
            self._passed(release)
        else:
            self._wait(release)

    def _cancel(self, release: str) -> None:
        timer = self._timers.pop(release, None)
        if timer is not None:
            timer.cancel()
