"""Who counts as connected, and waking those who wait."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from aggregator.drive.presence import GRACE_SECONDS, LoopTurns, OwnerPresence, Signal, wait


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time that was set."""
        return self.now


def test_connected_while_polling_and_for_a_grace():
    """Between two polls an owner stays connected; one that does not come back does not."""
    clock = Clock()
    presence = OwnerPresence(clock, clock)
    assert not presence.is_connected("a")
    with presence.polling("a"):
        clock.now += 10 * GRACE_SECONDS
        assert presence.is_connected("a")
        assert presence.since("a") == 1000
    clock.now += GRACE_SECONDS
    assert (presence.is_connected("a"), presence.count()) == (True, 1)
    clock.now += 1
    assert (presence.is_connected("a"), presence.count()) == (False, 0)
    assert presence.since("a") == int(clock.now) - GRACE_SECONDS - 1


def test_an_owner_that_hangs_up_is_gone_at_once():
    """A poll that is cut off ends the connection without a grace, unless another one is held."""
    presence = OwnerPresence(Clock(), Clock())
    with presence.polling("a"):
        with pytest.raises(asyncio.CancelledError), presence.polling("a"):
            raise asyncio.CancelledError
        assert presence.is_connected("a")
    with pytest.raises(asyncio.CancelledError), presence.polling("a"):
        raise asyncio.CancelledError
    assert not presence.is_connected("a")
    presence.heard("a")
    assert presence.is_connected("a")


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_a_clock_that_is_set_connects_nobody(jump):
    """An owner stays connected for its grace and no longer, whatever the clock says meanwhile."""
    clock, passing = Clock(), Clock()
    presence = OwnerPresence(clock, passing)
    presence.heard("a")
    clock.now += jump
    passing.now += GRACE_SECONDS
    assert presence.is_connected("a")
    passing.now += 1
    assert not presence.is_connected("a")


def test_since_is_the_beginning_of_the_connection():
    """Calls within a connection do not make it younger; a new connection after a gap does."""
    clock = Clock()
    presence = OwnerPresence(clock, clock)
    presence.heard("a")
    clock.now += GRACE_SECONDS
    presence.heard("a")
    assert presence.since("a") == 1000
    clock.now += 2 * GRACE_SECONDS
    presence.heard("a")
    assert presence.since("a") == int(clock.now)


async def test_no_change_is_missed():
    """A change between looking and waiting wakes the waiter at once."""
    changes = Signal()
    ticket = changes.ticket()
    changes.fire()
    assert await wait(ticket, None)
    assert not await wait(changes.ticket(), 0)


async def test_everyone_who_waits_is_woken():
    """One change wakes all polls; the end of the daemon wakes the polls of all owners."""
    presence = OwnerPresence(Clock(), Clock())
    waiting = [asyncio.create_task(wait(presence.signal(owner).ticket(), None)) for owner in ("a", "a", "b")]
    await asyncio.wait(waiting, timeout=0)
    presence.wake_all()
    assert await asyncio.gather(*waiting) == [True, True, True]


async def test_calls_that_return_from_threads_at_once_take_turns():
    """Between two of them the event loop answers others, as `aggregator status`."""
    turns, gate, log = LoopTurns(), threading.Event(), []
    pool = ThreadPoolExecutor()
    asyncio.get_running_loop().set_default_executor(pool)

    async def owner() -> None:
        await turns.in_thread(gate.wait)
        log.append("owner")

    async def operator() -> None:
        while log.count("owner") < 4:
            log.append("operator")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(owner())
        # All threads end while the loop does nothing else, as in a step that takes long.
        await asyncio.sleep(0)
        gate.set()
        pool.shutdown()
        tasks.create_task(operator())
    assert ("owner", "owner") not in set(pairwise(log))
