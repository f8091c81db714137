"""Work that takes longer than a page may: one piece at a time, its results kept while there is room."""

import math
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from traceback import clear_frames
from typing import Any

from common.progress import Progress, StepStoppedError

MOST_RESULTS = 32
"""Results that are kept; the oldest goes first."""


@dataclass(slots=True)
class Job:
    """A piece of work, done or under way."""

    done: int = 0
    """Steps that are done."""
    of: int = 0
    """All steps; 0 while unknown."""
    future: Future[Any] = field(default_factory=Future)
    """Its result."""
    ended: float = math.inf
    """When it ended, by the clock of its `Jobs`."""
    progress: Progress = field(default_factory=Progress)
    """For steps that are advanced one by one, which end when the work is to stop. It is not shown."""

    @property
    def running(self) -> bool:
        """Whether it is not done yet."""
        return not self.future.done()

    @property
    def result(self) -> Any:
        """The result; None while it runs."""
        return self.future.result() if self.future.done() else None

    @property
    def error(self) -> BaseException | None:
        """What ended the work; None if nothing did."""
        return self.future.exception() if self.future.done() else None

    def note(self, done: int, of: int) -> None:
        """Note progress; the work calls this after every step."""
        self.done, self.of = done, of
        if self.progress.stopped:
            raise StepStoppedError

    def stop(self) -> None:
        """Let the work end at its next step."""
        self.progress.stop()


Work = Callable[[Job], Any]
"""Gets the job to report to: through `note`, or through `progress`."""


class Jobs:
    """Results by key. Work with the same key is done once."""

    def __init__(self, name: str = "job", clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._jobs: dict[Hashable, Job] = {}
        self._lock = Lock()

    def of(self, key: Hashable) -> Job | None:
        """Return the work of a key; None if there is none."""
        return self._jobs.get(key)

    def start(self, key: Hashable, work: Work, keep_seconds: float = math.inf) -> Job:
        """Return the work of a key, started if it is not there.

        Args:
            keep_seconds: A result that is older is dropped, and the work done again.
        """
        with self._lock:
            known = self._jobs.get(key)
            if known is None or self._clock() - known.ended > keep_seconds:
                self._jobs.pop(key, None)
                while len(self._jobs) >= MOST_RESULTS:
                    oldest = self._jobs.pop(next(iter(self._jobs)))
                    oldest.stop()
                    oldest.future.cancel()
                job = Job()
                job.future = self._thread.submit(self._run, work, job)
                self._jobs[key] = job
            return self._jobs[key]

    def _run(self, work: Work, job: Job) -> Any:
        job.progress.begin("work of a page")
        try:
            return work(job)
        except BaseException as error:
            # The error is kept as long as a result. Its frames, and the errors that it came from, hold what
            # the work held, such as a table.
            error.__cause__ = error.__context__ = None
            clear_frames(error.__traceback__)
            raise
        finally:
            job.ended = self._clock()

    def forget(self, key: Hashable) -> None:
        """Drop a result, so that the work can be done again; work under way continues."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and not job.running:
                del self._jobs[key]

    def close(self) -> None:
        """Begin no more work, and let the work under way end at its next step: the process waits for it."""
        with self._lock:
            for job in self._jobs.values():
                job.stop()
            self._thread.shutdown(wait=False, cancel_futures=True)
