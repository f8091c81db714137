"""Works of one process share the memory limit: turns for what needs much, a fourth for tables in memory."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from common.errors import CancelledError
from common.model.schema import Attribute, AttributeType
from common.progress import Progress
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import pin
from owner_node.engines.sharing import TABLES, TURNS, EngineQueue
from owner_node.engines.sorting import Sorter
from owner_node.masking.engine import MemoryEngine

MEMORY = 256 * 10**6
SECONDS = 30.0
SCHEMA = pa.schema([("value", pa.int64())])


def batches(values: Any, before: Any = lambda: None) -> Iterator[Any]:
    """Yield a batch of records, after a function was called."""
    before()
    yield pa.record_batch([pa.array(values)], schema=SCHEMA)


def sort(sorter: Sorter, stream: Iterator[Any]) -> list[int]:
    """Sort a stream of records."""
    return [each for batch in sorter.sort(stream, SCHEMA, ["value"]) for each in batch.column(0).to_pylist()]


@pytest.fixture
def sorters(tmp_path: Path) -> Iterator[list[Sorter]]:
    """Sorters of three releases."""
    made = [Sorter(Workspace(MEMORY, tmp_path, 1)) for _ in range(3)]
    yield made
    for each in made:
        each.close()


def test_one_sorts_at_a_time_and_the_others_in_their_order(sorters: list[Sorter]) -> None:
    """What waits reads nothing; who asked first is next."""
    course: list[str] = []
    begun, goes_on = Event(), Event()

    def hold() -> None:
        course.append("first begins")
        begun.set()
        assert goes_on.wait(SECONDS)
        course.append("first ends")

    with ThreadPoolExecutor() as threads:
        first = threads.submit(sort, sorters[0], batches([3, 1, 2], hold))
        assert begun.wait(SECONDS)
        second = threads.submit(sort, sorters[1], batches([2, 1], lambda: course.append("second")))
        assert TURNS.wait_for_queue(2, SECONDS)
        third = threads.submit(sort, sorters[2], batches([5], lambda: course.append("third")))
        assert TURNS.wait_for_queue(3, SECONDS)
        goes_on.set()
        assert [each.result(SECONDS) for each in (first, second, third)] == [[1, 2, 3], [1, 2], [5]]
    assert course == ["first begins", "first ends", "second", "third"]
    assert TURNS.wait_for_queue(0, 0)


def test_sorts_that_feed_each_other_have_one_turn(sorters: list[Sorter]) -> None:
    """The inner sort belongs to the turn of the outer one, so that it never waits for it."""
    sorter = sorters[0]
    inner = sorter.sort(batches([3, 1, 2]), SCHEMA, ["value"])
    with ThreadPoolExecutor() as threads:
        assert threads.submit(sort, sorter, inner).result(SECONDS) == [1, 2, 3]
    assert TURNS.wait_for_queue(0, 0)


def test_a_cancelled_work_waits_no_longer(sorters: list[Sorter]) -> None:
    """It leaves the queue at once, while another one has the turn; so does one that fails during its turn."""
    with ThreadPoolExecutor() as threads, TURNS.turn():
        waiting = threads.submit(sort, sorters[0], batches([1]))
        assert TURNS.wait_for_queue(2, SECONDS)
        sorters[0].close()
        with pytest.raises(CancelledError):
            waiting.result(SECONDS)
        assert TURNS.wait_for_queue(1, 0)

    def fail() -> None:
        raise CancelledError("stopped", "")

    with pytest.raises(CancelledError):
        sort(sorters[1], batches([1], fail))
    assert TURNS.wait_for_queue(0, 0)
    assert sort(sorters[2], batches([2, 1])) == [1, 2]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No garbage collection: an idle daemon has none for hours."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_a_cancelled_sort_and_the_one_that_feeds_it_give_their_turn_back(sorters: list[Sorter]) -> None:
    """The inner one is suspended when the outer one is cancelled, and nothing may keep it."""
    sorter = sorters[0]

    def cancelled() -> Iterator[Any]:
        for batch in sorter.sort(batches([2, 1]), SCHEMA, ["value"]):
            sorter.close()
            yield batch

    with suppress(CancelledError):
        list(sorter.sort(cancelled(), SCHEMA, ["value"]))
        pytest.fail("it was not cancelled")
    assert TURNS.wait_for_queue(0, 0)


def test_turns_are_given_back_after_an_error() -> None:
    """An error in the block is no reason for others to wait for ever."""
    turns = EngineQueue()
    with pytest.raises(ValueError, match="wrong"), turns.turn():
        raise ValueError("wrong")
    assert turns.wait_for_queue(0, 0)


def test_tables_in_memory_have_a_fourth_of_the_limit_together(tmp_path: Path) -> None:
    """The next table goes to scratch until another is dropped; one that is being loaded counts, too."""
    n_records = 300_000
    np.savetxt(tmp_path / "people.csv", np.arange(n_records), fmt="%d", header="age", comments="")
    dataset = DatasetConfig(
        name="people", source=str(tmp_path / "people.csv"), budget="people", total_epsilon=Decimal(1),
        attributes=(Attribute("age", AttributeType.INTEGER, 0, n_records),),
    )  # fmt: skip
    workspace = Workspace(8 * n_records * 4 * 3 // 2, tmp_path / "scratch", 1)
    before = TABLES.n_bytes

    def is_in_memory() -> bool:
        with closing(pin(dataset, None, EngineKind.AUTO, workspace)) as data:
            return isinstance(data.records.engine, MemoryEngine)

    with closing(pin(dataset, None, EngineKind.AUTO, workspace)) as first:
        assert isinstance(first.records.engine, MemoryEngine)
        assert TABLES.n_bytes == before + 8 * n_records
        assert not is_in_memory()
    assert TABLES.n_bytes == before
    assert is_in_memory()

    found: list[bool] = []

    def look() -> bool:
        if TABLES.n_bytes > before and not found:
            found.append(is_in_memory())
        return True

    with closing(pin(dataset, None, EngineKind.AUTO, workspace, progress=Progress(is_due=look))) as data:
        assert isinstance(data.records.engine, MemoryEngine)
    assert (found, TABLES.n_bytes) == ([False], before)
