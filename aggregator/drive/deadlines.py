"""Deadlines of the steps of releases, by a monotonic clock.

While this process runs, elapsed time is counted: setting the system's clock neither shortens nor prolongs a
step. Across a restart only the system's clock shows how much time has passed; a step then gets at most its
full duration again.
"""

import asyncio
import time
from collections.abc import Callable

from aggregator.protocol.release import Release

_LONGEST_TIMER = 3600.0
"""A distant deadline is checked every hour, because timers stand still while a machine sleeps."""


def elapsed() -> float:
    """Return monotonic seconds; where the system allows, they include the time that it was asleep."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Deadlines:
    """Calls `passed` with the id of a release whose deadline is over; needs a running event loop."""

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
        """Stop watching all deadlines."""
        for release in list(self._timers):
            self._cancel(release)

    def _wait(self, release: str) -> None:
        seconds = min(max(self._ends[release] - self._elapsed(), 0.0), _LONGEST_TIMER)
        self._timers[release] = asyncio.get_running_loop().call_later(seconds, self._check, release)

    def _check(self, release: str) -> None:
        if self.over(release):
            self._passed(release)
        else:
            self._wait(release)

    def _cancel(self, release: str) -> None:
        timer = self._timers.pop(release, None)
        if timer is not None:
            timer.cancel()
