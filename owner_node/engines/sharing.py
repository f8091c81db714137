"""How works of one process share `engine.memory_limit`: they take turns, and tables in memory have a fourth.

Several aggregators may ask for work at once, and the pages, too. What needs much memory is done in turns:
all sorts for one attribute, or masking a table in memory. Turns come in the order in which they were asked
for, so that two large releases advance side by side. A work has one turn at a time and waits for nobody
during it, so that there is no deadlock.

Tables that stay in memory between linking and masking are counted. Once they have a fourth of the limit, the
next table goes to scratch.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Lock


class EngineQueue:
    """A queue of works; the first one has the turn."""

    def __init__(self) -> None:
        self._queue: deque[object] = deque()
        self._changed = Condition()

    def take(self, work: object, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Wait for a turn, or until the work is cancelled; in both cases `give_back` follows.

        Args:
            cancelled: Whether the work is not wanted any more; `give_back` lets it check again.
        """
        with self._changed:
            self._queue.append(work)
            self._changed.notify_all()
            self._changed.wait_for(lambda: cancelled() or self._queue[0] is work)

    def give_back(self, work: object) -> None:
        """Leave the queue, if the work is in it, and let the next one have the turn."""
        with self._changed:
            with suppress(ValueError):
                self._queue.remove(work)
            self._changed.notify_all()

    def wait_for_queue(self, length: int, timeout: float) -> bool:
        """Wait until so many works have or await a turn; return whether they do."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._queue) == length, timeout)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have a turn for a block."""
        work = object()
        self.take(work)
        try:
            yield
        finally:
            self.give_back(work)


class TablesInMemory:
    """Counts the bytes of the tables that are pinned in memory."""

    def __init__(self) -> None:
        self._n_bytes = 0
        self._lock = Lock()

    @property
    def n_bytes(self) -> int:
        """Bytes of all of them."""
        return self._n_bytes

    def add(self, n_bytes: int) -> None:
        """Count a table; a negative number when it is dropped."""
        with self._lock:
            self._n_bytes += n_bytes

    @contextmanager
    def loading(self) -> Iterator[Callable[[int], None]]:
        """Count a table while it is loaded; yields what is called with its bytes so far."""
        counted = 0

        def count(n_bytes: int) -> None:
            nonlocal counted
            self.add(n_bytes - counted)
            counted = n_bytes

        try:
            yield count
        finally:
            count(0)


TURNS = EngineQueue()
"""The turns of this process."""
TABLES = TablesInMemory()
"""The tables of this process."""
