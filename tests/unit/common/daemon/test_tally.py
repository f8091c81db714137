"""What daemons count: durations fall where they belong, threads lose nothing, and no name is new."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from common.daemon.metrics import BOUNDS, Stopwatch, Tally


@pytest.fixture
def tally():
    """A tally of two steps."""
    return Tally(["link", "mask"], ["tokens", "fragment"])


def test_durations_fall_where_they_belong(tally):
    """Counts are of what took at most so long, an exact bound included, and the last one is of everything."""
    for seconds in (0.05, BOUNDS[0], 0.2, BOUNDS[-1] + 1):
        tally.took("mask", seconds)
    found = tally.durations["mask"]
    assert found.counts[:3] == (2, 3, 3)
    assert found.counts[-2:] == (3, 4)
    assert found.seconds == pytest.approx(0.35 + BOUNDS[-1] + 1)
    assert tally.durations["link"].counts == (0,) * (len(BOUNDS) + 1)


def test_names_are_the_programs_own(tally):
    """A step that a peer made up gets no series of its own."""
    tally.took("invented", 1)
    assert set(tally.durations) == {"link", "mask"}
    with pytest.raises(KeyError):
        tally.moved("invented", 1)


def test_a_step_that_fails_took_time(tally):
    """Work that ends with an error is counted like any other."""
    with pytest.raises(ZeroDivisionError), tally.timing("link"):
        raise ZeroDivisionError
    assert tally.durations["link"].counts[-1] == 1


def test_threads_do_not_lose_counts(tally):
    """What many threads count at a time is all there."""

    def count(_number: int) -> None:
        for _ in range(500):
            tally.moved("tokens", 3)
            tally.took("mask", 1.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert tally.n_bytes == {"tokens": 12_000, "fragment": 0}
    assert tally.durations["mask"].counts[-1] == 4000


def test_time_in_each_step(tally):
    """A stopwatch counts a step when it is left, each thing for itself, also what was begun before."""
    now = 100.0
    watch = Stopwatch(tally, lambda: now)
    watch.enters("old", "mask", ago=50)
    watch.enters("new", "link")
    now = 110.0
    assert tally.durations["mask"].counts[-1] == 0
    watch.enters("old", "")
    watch.enters("new", "mask", ago=999)
    now = 117.0
    watch.enters("new", "")
    watch.enters("new", "")
    assert (tally.durations["mask"].counts[-1], tally.durations["mask"].seconds) == (2, 67.0)
    assert (tally.durations["link"].counts[-1], tally.durations["link"].seconds) == (1, 10.0)


def test_a_clock_that_was_set_back(tally):
    """What seems to have begun in the future began now; no duration is negative."""
    watch = Stopwatch(tally, lambda: 5.0)
    watch.enters("r1", "mask", ago=-100)
    watch.enters("r1", "")
    assert tally.durations["mask"].seconds == 0.0
