"""The engine for tables that do not fit into memory: streams of records, sorted on disk.

An attribute with rank noise takes three sorts, each fed by the one before it:

    records with value, tie-breaker and noise  → by (value, tie-breaker, record)   statistics, positions
    records with noisy position and tie        → by (noisy position, tie, record)  places of the list
    records with masked value                  → by record                         the masked column

Random bits are those of the record's number, a batch at a time. What decides anything is computed in this
process from one number per cluster or per declared value, by the same code as in memory.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from shutil import disk_usage
from typing import Any, Self

import numpy as np

from common.errors import CannotStoreError, DataError, UnusableDataError
from common.progress import Progress
from common.words.numbers import size_text
from common.workspace import Workspace
from owner_node.engines.column_files import ColumnFile, ColumnWriter, integers_between
from owner_node.engines.sizes import masking_bytes
from owner_node.engines.sorting import BATCH_RECORDS, Key, Sorter, ascending_from, numbered, together
from owner_node.masking.arrays import BitSource, Int64Array, PositionArray, Purpose
from owner_node.masking.clusters import Clusters, StreamedStatistics
from owner_node.masking.engine import EachMasked, MemoryEngine, random_records
from owner_node.masking.lists import ListMechanism, ReleasedList, Statistics, StreamedList
from owner_node.masking.order import TIE_BITS, tie_breakers
from owner_node.masking.rank_noise import PositionNoise
from owner_node.masking.tasks import (
    AttributeTask,
    IndexOrder,
    check_names,
    check_setting,
    mechanism_of,
    order_from_counts,
)

_log = logging.getLogger(__name__)
STATISTICS_SHARE = 4
"""Statistics of clusters get one part in so many of the memory."""
STATISTICS_FACTOR = 4
"""Memory that statistics of clusters take while scales and sums are computed, in sizes of their own."""


@dataclass(frozen=True, slots=True)
class SortingFolder:
    """Where the files of one data set lie, and what sorts its records."""

    folder: Path
    sorter: Sorter
    memory: int
    """Bytes of memory that masking may take."""
    batch_records: int = BATCH_RECORDS
    """Records that are processed at a time."""
    progress: Progress = field(default_factory=Progress)
    """Advanced by whatever reads, sorts or writes the records."""
    numbers: "count[int]" = count()  # noqa: RUF009 - file names of all desks are numbered together

    @classmethod
    def at(
        cls,
        folder: Path,
        workspace: Workspace,
        batch_records: int = BATCH_RECORDS,
        progress: Progress | None = None,
    ) -> "SortingFolder":
        """Start a sorter for the files of a folder."""
        sorter = Sorter(workspace, batch_records)
        return cls(folder, sorter, workspace.memory, batch_records, progress or Progress())

    def column(self, kind: Any, *, distinct: bool = False) -> ColumnWriter:
        """Start a new column file."""
        path = self.folder / f"{next(self.numbers)}.parquet"
        return ColumnWriter(path, kind, self.batch_records, distinct=distinct)

    def keep(self, kind: Any, blocks: Iterable[Any]) -> ColumnFile:
        """Write a column."""
        with self.column(kind) as writer:
            for block in blocks:
                writer.write(block)
        return writer.result()


@dataclass(frozen=True, slots=True, repr=False)
class StreamedEngine:
    """Records as column files, whatever sorts them: what does not depend on that."""

    desk: SortingFolder
    columns: Mapping[str, ColumnFile]
    """Original values in resolution units by attribute, by record number."""

    @property
    def n_records(self) -> int:
        """As `Engine.n_records`."""
        return len(next(iter(self.columns.values())))

    @property
    def in_memory(self) -> bool:
        """False."""
        return False

    def close(self) -> None:
        """Interrupt what works on the records."""
        self.desk.sorter.close()

    def check(self, tasks: Sequence[AttributeTask]) -> None:
        """As `Engine.check`; and statistics of clusters must fit into the memory."""
        check_names(self.columns, tasks)
        self._check_room(len(tasks))
        for task in tasks:
            check_setting(self.n_records, task)
            column, name = self.columns[task.attribute.name], task.attribute.name
            if column.lowest < task.attribute.lower or column.highest > task.attribute.highest:
                raise DataError(
                    f"attribute {name!r}: values are outside the declared domain",
                    'correct the source, declare a wider domain, or set outside = "clamp"',
                    {"attribute": name},
                )
            needed = _statistics_bytes(self.n_records, task)
            if needed > self.desk.memory // STATISTICS_SHARE:
                of, less = f" with k = {task.k}", "ask for a larger k"
                if task.k is None:
                    of, less = f" of {task.attribute.n_values:,} possible values", "declare a narrower domain"
                raise UnusableDataError(
                    f"attribute {name!r}: masking {self.n_records:,} records{of} needs "
                    f"{size_text(needed)} of memory, a fourth of engine.memory_limit is "
                    f"{size_text(self.desk.memory / STATISTICS_SHARE)}",
                    f"raise engine.memory_limit in owner.toml, or {less}",
                    {"attribute": name, "needed": needed, "memory_limit": self.desk.memory},
                )

    def _check_room(self, n_columns: int) -> None:
        """Raise if scratch has no room for the masked columns and what is spilled while they are sorted."""
        needed, free = masking_bytes(self.n_records, n_columns), disk_usage(self.desk.folder).free
        if needed > free:
            raise CannotStoreError(
                f"masking needs {size_text(needed)} in scratch, {size_text(free)} are free",
                hint=f"free some in {self.desk.folder.parent}, or set engine.scratch to a larger disk",
            )

    def select(self, records: PositionArray) -> Self:
        """As `Engine.select`."""
        chosen = np.zeros(self.n_records, dtype=np.bool_)
        chosen[records] = True
        columns = {name: filter_column(self.desk, column, chosen) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    def sample(self, most: int) -> MemoryEngine:
        """As `Engine.sample`."""
        chosen = random_records(self.n_records, most)
        return MemoryEngine({name: _pick(column, chosen) for name, column in self.columns.items()})

    def order_of(self, task: AttributeTask) -> IndexOrder | None:
        """As `Engine.order_of`."""

        def counts() -> Int64Array:
            total = np.zeros(task.attribute.n_values, dtype=np.int64)
            for values in self.columns[task.attribute.name]:
                total += np.bincount(values, minlength=total.size)
            return total

        return order_from_counts(counts, task)

    def _masked_column(self, task: AttributeTask) -> ColumnWriter:
        return self.desk.column(integers_between(task.attribute.lower, task.attribute.highest), distinct=True)


@dataclass(frozen=True, slots=True, repr=False)
class DiskEngine(StreamedEngine):
    """Records as column files, masked by sorting streams in this process."""

    def in_order(self, task: AttributeTask, bits: BitSource) -> "_OrderedColumn":
        """As `Engine.in_order`."""
        return _OrderedColumn(self, task, bits, self.order_of(task))

    def write(
        self, task: AttributeTask, released: ReleasedList | StreamedList, assignment: Iterable[PositionArray]
    ) -> ColumnFile:
        """As `Engine.write`."""
        lower = task.attribute.lower
        key = Key((self.n_records - 1).bit_length(), (task.attribute.n_values - 1).bit_length())
        pairs = together(assignment, released.blocks())
        records_to_sort = ((records, values - lower) for records, values in pairs)

        with self._masked_column(task) as writer:
            first = 0
            for records, values in key.sorted_by(self.desk.sorter, records_to_sort):
                first += ascending_from(records, first).size
                writer.write(values + lower)
                self.desk.progress.advance(records.size / passes_of(task))
        _log.info("attribute masked", extra={"attribute": task.attribute.name})
        return writer.result()

    def write_each(self, task: AttributeTask, bits: BitSource, masked: EachMasked) -> ColumnFile:
        """As `Engine.write_each`."""
        with self._masked_column(task) as writer:
            for first, values in numbered(self.columns[task.attribute.name]):
                writer.write(masked(values, bits.of(Purpose.LIST, first)))
                self.desk.progress.advance(values.size)
        return writer.result()


class _OrderedColumn:
    """The records in the order of one attribute: sorted when the list is made, assigned afterwards."""

    def __init__(
        self, engine: DiskEngine, task: AttributeTask, bits: BitSource, order: IndexOrder | None
    ) -> None:
        self.order = order
        self._engine, self._task, self._bits = engine, task, bits
        self._n_records = engine.n_records
        self._record_bits = (self._n_records - 1).bit_length()
        self._places: Iterable[PositionArray] | None = None

    def release(
        self, mechanism: ListMechanism, bits: BitSource, units: Callable[[Int64Array], Int64Array]
    ) -> ReleasedList | StreamedList:
        """As `OrderedRecords.release`."""
        released = mechanism.stream_from(
            self._sort(), self._task.setting, bits.of(Purpose.LIST), bits.of(Purpose.SHUFFLE)
        )
        return released.mapped(units)

    def assign(self) -> Iterator[PositionArray]:
        """As `OrderedRecords.assign`: the records of consecutive places, once."""
        if self._places is None:
            self._sort()
        places, self._places = self._places or (), None
        return iter(places)

    def _sort(self) -> Statistics:
        """Sort by value, and with rank noise by noisy position; return the statistics."""
        statistics = _Statistics(self._n_records, self._task)
        if self._task.rank_noise:
            noisy = self._by_noisy_position(statistics)
            # The second sort takes all records in before it gives the first one back.
            first = next(noisy)
            self._places = chain([first], noisy)
        else:
            kind = integers_between(0, self._n_records)
            self._places = self._engine.desk.keep(kind, self._by_value(statistics))
        return statistics.result()

    def _by_value(self, statistics: "_Statistics") -> Iterator[PositionArray]:
        """Return the records in order."""
        attribute, noisy, record_bits = self._task.attribute, bool(self._task.rank_noise), self._record_bits
        key = Key((attribute.n_values - 1).bit_length(), record_bits + TIE_BITS * noisy)

        def records_to_sort() -> Iterator[tuple[Int64Array, Int64Array]]:
            for first, units in numbered(self._engine.columns[attribute.name]):
                # From 0 to V - 1, in the order that the attribute is masked in.
                values = units - attribute.lower if self.order is None else self.order.place_of[units]
                low = np.arange(first, first + values.size)
                if noisy:
                    ties = tie_breakers(values.size, self._bits.of(Purpose.TIES, first))
                    low |= ties.astype(np.int64) << record_bits
                yield values, low
                self._note_passed(values)

        for values, low in key.sorted_by(self._engine.desk.sorter, records_to_sort()):
            statistics.add(values)
            self._note_passed(values)
            yield low & ((1 << record_bits) - 1)

    def _by_noisy_position(self, statistics: "_Statistics") -> Iterator[PositionArray]:
        """Sort records by noisy position, ties by fresh random numbers, then by record number."""
        record_bits, drawn = self._record_bits, PositionNoise.of(self._task.rank_noise, self._n_records)
        noise_bits, tie_bits = self._bits.of(Purpose.RANK_NOISE), self._bits.of(Purpose.RANK_TIES)
        key = Key((drawn.width - 1).bit_length(), TIE_BITS + record_bits)

        def records_to_sort() -> Iterator[tuple[Int64Array, Int64Array]]:
            for first, records in numbered(self._by_value(statistics)):
                positions = drawn.noisy_positions(drawn.draw(noise_bits, records.size), first)
                ties = tie_breakers(records.size, tie_bits).astype(np.int64)
                yield positions, (ties << record_bits) | records

        for _, low in key.sorted_by(self._engine.desk.sorter, records_to_sort()):
            self._note_passed(low)
            yield low & ((1 << record_bits) - 1)

    def _note_passed(self, records: Int64Array) -> None:
        """Note that some records passed into a sort, or out of it."""
        self._engine.desk.progress.advance(records.size / passes_of(self._task))


def passes_of(task: AttributeTask) -> int:
    """Return how often every record passes into the first sort of an attribute, or out of any."""
    return 4 if task.rank_noise else 3


class _Statistics:
    """What the list of an attribute is made from, computed from values in order."""

    def __init__(self, n_records: int, task: AttributeTask) -> None:
        mechanism, setting = mechanism_of(task), task.setting
        depth, tail = mechanism.depth(setting), mechanism.tail(setting, n_records)
        self._counts = np.zeros(task.attribute.n_values if depth is None else 0, dtype=np.int64)
        self._clusters = (
            None
            if depth is None
            else StreamedStatistics(Clusters(n_records, setting.k), depth, tail, setting.spikes)
        )

    def add(self, values: Int64Array) -> None:
        """Add the next values, ascending, from 0 to V - 1."""
        if self._clusters is not None:
            self._clusters.add(values)
            return
        starts = np.append(0, np.flatnonzero(np.diff(values)) + 1)
        self._counts[values[starts]] += np.diff(starts, append=values.size)

    def result(self) -> Statistics:
        """Return the statistics, once all values were added."""
        return self._counts if self._clusters is None else self._clusters.result()


def _statistics_bytes(n_records: int, task: AttributeTask) -> int:
    """Return about how much memory the statistics of an attribute take."""
    if not task.rules.listed:
        return 0
    depth = mechanism_of(task).depth(task.setting)
    n_clusters = 0 if task.k is None else n_records // task.k
    if depth is None:
        return 8 * STATISTICS_FACTOR * (task.attribute.n_values + n_clusters)
    return 8 * (2 * depth + 1 + STATISTICS_FACTOR) * n_clusters


def filter_column(desk: SortingFolder, column: ColumnFile, chosen: Any) -> ColumnFile:
    """Write the chosen values of a column, `(n_records,)` booleans by record number."""

    def chosen_values() -> Iterator[Any]:
        for first, values in numbered(column):
            yield values[chosen[first : first + len(values)]]
            desk.progress.advance(len(values))

    return desk.keep(column.kind, chosen_values())


def _pick(column: ColumnFile, chosen: PositionArray) -> Int64Array:
    """Return the values of some records, by ascending numbers."""
    picked = []
    for first, values in numbered(column):
        low, high = np.searchsorted(chosen, [first, first + values.size])
        picked.append(values[chosen[low:high] - first])
    return np.concatenate(picked)
