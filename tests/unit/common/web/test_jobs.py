"""Work that takes longer than a page may: what is kept, and for how long."""

import weakref
from concurrent.futures import wait
from itertools import count
from threading import Event

import pytest

from common.progress import StepStoppedError
from common.web.jobs import Job, Jobs


def test_an_old_result_is_made_again():
    """A result that may be stale is dropped after its time; without a time it is kept."""
    now, numbers = [0.0], count(1)
    jobs = Jobs(clock=lambda: now[0])

    def result(keep_seconds: float) -> object:
        job = jobs.start("key", lambda _: next(numbers), keep_seconds)
        wait([job.future])
        return job.result

    assert result(60) == 1
    now[0] = 60
    assert result(60) == 1
    now[0] = 61
    assert result(60) == 2
    now[0] = 1000
    assert jobs.start("key", lambda _: None).result == 2


class Table:
    """Stands for an original table."""


def test_a_failed_work_keeps_nothing_but_its_error():
    """What it held is freed as soon as it fails, also what an earlier error of it came from held."""
    held = []

    def load() -> None:
        table = Table()
        held.append(weakref.ref(table))
        raise ValueError(len(held))

    def work(_: Job) -> None:
        table = Table()
        held.append(weakref.ref(table))
        try:
            load()
        except ValueError as error:
            raise KeyError("wrong") from error

    job = Jobs().start("key", work)
    wait([job.future])
    assert str(job.error) == "'wrong'"
    assert [each() for each in held] == [None, None]


@pytest.mark.parametrize("note", [lambda job: job.note(1, 2), lambda job: job.progress.advance(1)])
def test_closing_stops_the_work_under_way_and_begins_no_other(note):
    """Otherwise the process would not end before all of it is done."""
    jobs, begun, closed = Jobs(), Event(), Event()

    def work(job: Job) -> None:
        begun.set()
        closed.wait()
        note(job)

    running, waiting = jobs.start("running", work), jobs.start("waiting", work)
    begun.wait()
    jobs.close()
    closed.set()
    wait([running.future])
    assert isinstance(running.error, StepStoppedError)
    assert waiting.future.cancelled()
