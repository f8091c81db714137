"""The interface between the decisions of masking and the storage of the records.

An engine holds the original records of a data set and has four operations on them: it sorts them by (value,
tie-breaker, record number), computes statistics of their clusters, assigns the entries of a released list to
them by rank or noisy rank, and writes masked columns by record. The mechanisms need no more: calibration,
noise on the list, isotonic regression and histograms (`mechanisms`) work on one number per cluster or per
declared value. `mask` combines the operations.

Every operation that draws takes its source of random bits as an argument.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from owner_node.masking.arrays import BitSource, EntryArray, Int64Array, NoisyPositionArray, PositionArray
from owner_node.masking.lists import ReleasedList
from owner_node.masking.order import (
    CountedRecords,
    Ranking,
    SortedRecords,
    are_counted,
    count_with_random_ties,
    rank,
    rank_with_random_ties,
)
from owner_node.masking.rank_noise import (
    PositionNoise,
    add_positions,
    by_noisy_position,
    by_rank,
    noise_scale,
)
from owner_node.masking.tasks import AttributeTask, IndexOrder, check_table, mechanism_of, own_order

DRAWN_ASIDE = 2**18
"""Number of records from which noise is drawn in two threads, or rank noise during the ranking."""
RECORDS_PER_BLOCK = 2**16
"""Records written at a time: intermediate results stay in the processor's caches."""


class OrderedRecords(Protocol):
    """The records in the order of one attribute. Each operation is called once, `release` first."""

    @property
    def order(self) -> IndexOrder | None:
        """The order of the categories; None for the declared one."""

    def release(self, bits: BitSource) -> ReleasedList:
        """Compute the statistics of the clusters, and let the mechanism make the released list from them.

        Args:
            bits: Source of random bits for the noise on the list.

        Returns:
            The released list, from 0 to V - 1, in the order that the attribute is masked in.
        """

    def assign(self, sizes: Int64Array, bits: BitSource) -> EntryArray:
        """Assign the entries of a released list to the records, by rank or by noisy rank.

        Args:
            sizes: How many ranks have each entry, `(n_entries,)`; they sum to the number of records.
            bits: Source of random bits for the noise on ranks and for its ties.

        Returns:
            The entry of every record, `(n_records,)`, by record number.
        """


class Engine(Protocol):
    """The original records of one data set. They are kept no longer than the session that loaded them."""

    @property
    def n_records(self) -> int:
        """Exact number of records."""

    @property
    def columns(self) -> Mapping[str, Int64Array]:
        """Original values in resolution units by attribute, `(n_records,)` each, by record number.

        For forecasts and explorations, which read every record in memory.
        """

    def check(self, tasks: Sequence[AttributeTask]) -> None:
        """Raise every error that would make masking fail; call this before any budget is spent.

        Raises:
            UsageError, DataError, UnusableDataError: As `tasks.check_table` says.
        """

    def select(self, records: PositionArray) -> "Engine":
        """Return the records with some numbers, `(n_selected,)`, ascending; they are renumbered from 0."""

    def in_order(self, task: AttributeTask, bits: BitSource) -> AbstractContextManager[OrderedRecords]:
        """Sort the records by (value, tie-breaker, record number) of an attribute.

        Args:
            task: How the attribute is masked; only rank noise uses tie-breakers.
            bits: Source of random bits for tie-breakers and for noise that is drawn at the same time.
        """

    def write(self, values: Int64Array, entries: EntryArray) -> Int64Array:
        """Write a masked column.

        Args:
            values: The released list in resolution units, `(n_entries,)`.
            entries: What `OrderedRecords.assign` returned.

        Returns:
            The masked value of every record, `(n_records,)`, by record number.
        """


@dataclass(frozen=True, slots=True, repr=False)
class MemoryEngine:
    """Records as numpy arrays in memory."""

    columns: Mapping[str, Int64Array]
    """As `Engine.columns`."""

    @property
    def n_records(self) -> int:
        """As `Engine.n_records`."""
        return next(iter(self.columns.values())).size

    def check(self, tasks: Sequence[AttributeTask]) -> None:
        """As `Engine.check`."""
        check_table(self.columns, tasks)

    def select(self, records: PositionArray) -> "MemoryEngine":
        """As `Engine.select`."""
        return MemoryEngine({name: values[records] for name, values in self.columns.items()})

    @contextmanager
    def in_order(self, task: AttributeTask, bits: BitSource) -> Iterator[OrderedRecords]:
        """As `Engine.in_order`."""
        values = self.columns[task.attribute.name]
        order = own_order(values, task)
        if order is not None:
            values = order.place_of[values]
        if not task.rules.listed:
            yield _ByThemselves(task, order, values - task.attribute.lower)
        elif not task.rank_noise:
            # Without rank noise ties are broken as the papers do, by record.
            yield _Ranked.of(task, order, rank(values))
        else:
            with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
                yield _with_rank_noise(task, order, values, bits, thread)

    def write(self, values: Int64Array, entries: EntryArray) -> Int64Array:
        """As `Engine.write`."""
        masked = np.empty(entries.size, dtype=np.int64)
        for first in range(0, masked.size, RECORDS_PER_BLOCK):
            block = slice(first, first + RECORDS_PER_BLOCK)
            # "clip" is quicker than a check; no entry is outside.
            np.take(values, entries[block], out=masked[block], mode="clip")
        return masked


_NO_VALUES = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _ByThemselves:
    """Records that each get their own value, so that sorting is unnecessary."""

    task: AttributeTask
    order: IndexOrder | None
    values: Int64Array
    """By record number, `(n_records,)`, from 0 to V - 1; released once the list is made."""

    def release(self, bits: BitSource) -> ReleasedList:
        values, self.values = self.values, _NO_VALUES
        release, setting, middle = mechanism_of(self.task).release, self.task.setting, values.size // 2
        if values.size < DRAWN_ASIDE:
            return release(values, setting, bits)
        with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
            first = thread.submit(release, values[:middle], setting, bits.spawn())
            second = release(values[middle:], setting, bits)
            both = first.result(), second
        own = np.concatenate([each.values for each in both])
        return ReleasedList(own, np.broadcast_to(both[0].sizes[0], own.size))

    def assign(self, sizes: Int64Array, _bits: BitSource) -> EntryArray:
        return np.arange(sizes.size, dtype=np.int32)


@dataclass(slots=True)
class _Ranked:
    """Sorted records, which get the entries in rank order."""

    task: AttributeTask
    order: IndexOrder | None
    original: SortedRecords
    values: Int64Array
    """In that order, `(n_records,)`; released once the list is made."""

    @classmethod
    def of(cls, task: AttributeTask, order: IndexOrder | None, ranking: Ranking) -> "_Ranked":
        return cls(task, order, SortedRecords(ranking.order), ranking.values)

    def release(self, bits: BitSource) -> ReleasedList:
        ascending, self.values = self.values, _NO_VALUES
        np.subtract(ascending, self.task.attribute.lower, out=ascending)
        return mechanism_of(self.task).release(ascending, self.task.setting, bits)

    def assign(self, sizes: Int64Array, _bits: BitSource) -> EntryArray:
        return by_rank(self.original.order, sizes)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Records that are counted by value instead of sorted."""

    task: AttributeTask
    order: IndexOrder | None
    original: CountedRecords

    def release(self, bits: BitSource) -> ReleasedList:
        return mechanism_of(self.task).release_counts(self.original.counts, self.task.setting, bits)


@dataclass(frozen=True, slots=True)
class _WithRankNoise:
    """Records that get the entries by noisy rank."""

    records: _Ranked | _Counted
    noise: PositionNoise
    aside: Future[NoisyPositionArray] | None
    """A second thread that draws the noise; None for few records."""

    @property
    def order(self) -> IndexOrder | None:
        return self.records.order

    def release(self, bits: BitSource) -> ReleasedList:
        return self.records.release(bits)

    def assign(self, sizes: Int64Array, bits: BitSource) -> EntryArray:
        noise, original = self.noise.draw(), self.records.original
        if self.aside is not None:
            self.aside.result()
        return by_noisy_position(original, add_positions(noise, original), sizes, bits)


def _with_rank_noise(
    task: AttributeTask, order: IndexOrder | None, values: Int64Array, bits: BitSource, thread: Executor
) -> _WithRankNoise:
    """Order records with random ties; if there are many, a second thread draws their noise in parallel."""
    scale = noise_scale(task.rank_noise, values.size)
    counted = are_counted(task.attribute.n_values, values.size, scale)
    steps = CountedRecords.steps if counted else SortedRecords.steps
    noise = PositionNoise(values.size, scale * steps, bits)
    aside = thread.submit(noise.draw) if values.size >= DRAWN_ASIDE else None
    records: _Ranked | _Counted
    if counted:
        records = _Counted(task, order, count_with_random_ties(values, task.attribute, bits))
    else:
        records = _Ranked.of(task, order, rank_with_random_ties(values, bits))
    return _WithRankNoise(records, noise, aside)
