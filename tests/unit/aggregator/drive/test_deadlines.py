"""Deadlines: each step gets its own time, whatever the machine's clock is set to meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from aggregator.drive.deadlines import Deadlines, elapsed
from aggregator.protocol.release import Release
from aggregator.protocol.states import State
from tests.fakes.protocol_peers import new_release

DAY = 86_400
ALLOWED = 30


class Time:
    """A clock that people set, and time that passes."""

    def __init__(self) -> None:
        self.clock, self.passed = 1_000_000.0, 5.0

    def wait(self, seconds: float) -> None:
        """Let time pass for both."""
        self.clock += seconds
        self.passed += seconds


def begun(time: Time) -> Release:
    """Return a release whose step has begun now."""
    release = new_release("a", "b")
    return replace(release, entered=int(time.clock), allowed={State.INVITING: ALLOWED, State.LINKING: 5})


def watching(time: Time, passed: Callable[[str], object] = print) -> Deadlines:
    """Return what watches under these clocks."""
    return Deadlines(passed, lambda: time.clock, lambda: time.passed)


@pytest.mark.parametrize("jump", [0, DAY, -DAY, 400 * DAY])
async def test_the_clock_is_set_during_a_step(jump):
    """A clock set forwards cuts a step not short, and one set back does not prolong it."""
    time = Time()
    deadlines, release = watching(time), begun(time)
    deadlines.watch(release)
    time.clock += jump
    time.wait(ALLOWED - 1)
    assert not deadlines.over(release.id)
    time.wait(1)
    assert deadlines.over(release.id)
    deadlines.stop()


@pytest.mark.parametrize(("away", "left"), [(0, 30), (10, 20), (300, 0), (-DAY, 30)])
async def test_a_restart_goes_by_the_clock(away, left):
    """After a restart a step has what the clock left of its time, and never more than all of it."""
    time = Time()
    release = begun(time)
    time.clock += away
    deadlines = watching(time)
    deadlines.watch(release)
    assert deadlines.over(release.id) is (left == 0)
    time.wait(max(left - 1, 0))
    assert deadlines.over(release.id) is (left == 0)
    time.wait(1)
    assert deadlines.over(release.id)
    deadlines.stop()


async def test_every_step_has_its_own():
    """The next step's deadline replaces the last one's, and a step without one, or an end, has none."""
    time = Time()
    deadlines, release = watching(time), begun(time)
    deadlines.watch(release)
    time.wait(ALLOWED)
    deadlines.watch(replace(release, state=State.LINKING, entered=int(time.clock)))
    assert not deadlines.over(release.id)
    time.wait(5)
    assert deadlines.over(release.id)
    deadlines.watch(replace(release, state=State.JOINING))
    assert not deadlines.over(release.id)


async def test_who_is_late_is_told_once():
    """A deadline that passed is told by itself; a timer that comes too early waits again."""
    time, told, late = Time(), list[str](), asyncio.Event()

    def passed(release: str) -> None:
        told.append(release)
        late.set()

    deadlines, release = watching(time, passed), begun(time)
    deadlines.watch(release)
    deadlines._check(release.id)
    assert told == []
    time.wait(ALLOWED)
    deadlines.watch(release)
    await late.wait()
    assert told == [release.id]
    deadlines.stop()


def test_time_that_nobody_sets_passes():
    """The time by which deadlines go runs forwards."""
    assert elapsed() <= elapsed()
