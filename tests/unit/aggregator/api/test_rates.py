"""How often one owner can call, by a clock that the test sets."""

import logging
from collections.abc import Awaitable, Callable

import pytest

from aggregator.api import rates
from aggregator.api.rates import CALLS_PER_SECOND, Rates
from common.errors import NotConnectedError


class Clock:
    """Seconds that pass only while something sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr("aggregator.api.rates.asyncio.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


async def many(take: Callable[[], Awaitable[None]], count: int) -> int:
    """Call so often; return how many calls were refused."""
    refused = 0
    for _ in range(count):
        try:
            await take()
        except NotConnectedError:
            refused += 1
    return refused


async def test_calls_are_slowed_down_to_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst passes at once, what follows at the rate; nothing is refused of an owner that waits."""
    clock = Clock(monkeypatch)
    taken = Rates(lambda: clock.now)
    assert await many(lambda: taken.take("a", 0), rates._BURST) == 0
    assert clock.now == pytest.approx(0, abs=1e-9)
    assert await many(lambda: taken.take("a", 0), 100) == 0
    assert clock.now == pytest.approx(100 / CALLS_PER_SECOND)
    await taken.take("b", 0)
    assert clock.now == pytest.approx(100 / CALLS_PER_SECOND)


async def test_calls_that_do_not_wait_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are bounded in number and bytes, logged once, and taken again after a pause."""
    clock = Clock(monkeypatch)
    taken = Rates(lambda: clock.now)
    monkeypatch.setattr(rates, "_LONGEST_SECONDS", 0.0)
    with caplog.at_level(logging.INFO):
        refused = await many(lambda: taken.take("a", 0), 10 * rates._BURST)
        assert await many(lambda: taken.take("b", 2 << 20), 100) == 100 - rates._BURST // 33
    assert 9 * rates._BURST <= refused <= 9 * rates._BURST + 1
    assert len(caplog.records) == 2
    clock.now += 1.5 / CALLS_PER_SECOND
    assert await many(lambda: taken.take("a", 0), 1) == 0
