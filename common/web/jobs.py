"""Work that takes longer than a page may: one piece at a time, its results kept while there is room."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

MOST_RESULTS = 32
"""Results that are kept; the oldest goes first."""


class Jobs:
    """Results by key. Work with the same key is done once."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="job")
        self._jobs: dict[Hashable, Future[Any]] = {}

    def result(self, key: Hashable, work: Callable[[], Any] | None = None) -> Future[Any] | None:
        """Return the work of a key, begun if it is not there and `work` is given.

        Args:
            key: Names the work.
            work: Does it, in another thread.

        Returns:
            The work, done or under way; None if there is none.
        """
        if key not in self._jobs and work is not None:
            while len(self._jobs) >= MOST_RESULTS:
                self._jobs.pop(next(iter(self._jobs))).cancel()
            self._jobs[key] = self._thread.submit(work)
        return self._jobs.get(key)

    def forget(self, key: Hashable) -> None:
        """Drop a result, so that the work can be done again."""
        job = self._jobs.get(key)
        if job is not None and job.done():
            del self._jobs[key]
