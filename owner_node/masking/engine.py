"""The interface between the decisions of masking and the storage of the records.

An engine holds the original records of a data set and has four operations on them: it sorts them by (value,
tie-breaker, record number), computes statistics of their clusters or counts their values, assigns them to the
places of a released list by rank or noisy rank, and writes masked columns by record number. The mechanisms
need no more: calibration, noise on the list, isotonic regression and histograms (`mechanisms`) work on one
number per cluster or per declared value. `mask` combines the operations.

Records are numbered. Everything random about a record or a place comes from its number
(`arrays.BitSource`), so that every engine gives the same fragment under the same key. `MemoryEngine` is here;
`owner_node.engines` has the one for tables that do not fit into memory.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from common.arrays import order_of
from owner_node.masking.arrays import (
    BitSource,
    Int64Array,
    NoisyPositionArray,
    PositionArray,
    Purpose,
    SystemBits,
)
from owner_node.masking.lists import ListMechanism, ReleasedList
from owner_node.masking.order import Ranking, rank, tie_breakers
from owner_node.masking.rank_noise import PositionNoise, noisy_order
from owner_node.masking.tasks import AttributeTask, IndexOrder, check_table, own_order

DRAWN_ASIDE = 2**18
"""Number of records from which a second thread draws."""
Places_co = TypeVar("Places_co", covariant=True)
Places = TypeVar("Places")
"""The record at every place of a list: an array, or a stream."""
Entries_co = TypeVar("Entries_co", covariant=True)
Entries = TypeVar("Entries")
"""A released list: in memory, or streamed."""
Column = TypeVar("Column")
"""A column by record number: an array, or a file that is read some records at a time."""
EachMasked = Callable[[Int64Array, BitSource], Int64Array]
"""Maps values of consecutive records, and the bits from the first of them on, to released values."""


class OrderedRecords(Protocol[Places_co, Entries_co]):
    """The records in the order of one attribute."""

    @property
    def order(self) -> IndexOrder | None:
        """The order of the categories; None for the declared one."""

    def release(
        self, mechanism: ListMechanism, bits: BitSource, units: Callable[[Int64Array], Int64Array]
    ) -> Entries_co:
        """Compute the statistics of the records and make the released list from them.

        Args:
            units: Maps the list's values, from 0 to V - 1, to resolution units, in place where it can.
        """

    def assign(self) -> Places_co:
        """Assign the records to the places of the list, by rank or by noisy rank."""


class Engine(Protocol[Places, Entries, Column]):
    """The original records of one data set. They are kept no longer than the session that loaded them."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """Original values in resolution units by attribute, by record number."""

    @property
    def n_records(self) -> int:
        """Exact number of records."""

    @property
    def in_memory(self) -> bool:
        """Whether the records are in memory, so that several threads may work on them."""

    def check(self, tasks: Sequence[AttributeTask]) -> None:
        """Raise every error that would make masking fail; call this before any budget is spent.

        Raises:
            UsageError, DataError, UnusableDataError: As `tasks.check_table` says.
        """

    def select(self, records: PositionArray) -> "Engine[Places, Entries, Column]":
        """Return the records with some numbers, `(n_selected,)`, ascending; they are renumbered from 0."""

    def sample(self, most: int) -> "MemoryEngine":
        """Return all records if there are at most `most`, else so many at random, in memory.

        For forecasts, trials and explorations. A sample is drawn again at each call.
        """

    def in_order(self, task: AttributeTask, bits: BitSource) -> OrderedRecords[Places, Entries]:
        """Sort the records by (value, tie-breaker, record number) of an attribute.

        Args:
            task: How the attribute is masked; only rank noise uses tie-breakers.
        """

    def order_of(self, task: AttributeTask) -> IndexOrder | None:
        """Return the order of the categories that an attribute is masked in; None for the declared one."""

    def write(self, task: AttributeTask, released: Entries, assignment: Places) -> Column:
        """Write a masked column.

        Args:
            released: The released list in resolution units.
            assignment: The record at every place of the list.

        Returns:
            The masked value of every record by record number.
        """

    def write_each(self, task: AttributeTask, bits: BitSource, masked: EachMasked) -> Column:
        """Write a column whose records are masked by themselves.

        Args:
            masked: Masks consecutive records, in resolution units.
        """


@dataclass(frozen=True, slots=True, repr=False)
class MemoryEngine:
    """Records as numpy arrays in memory."""

    columns: Mapping[str, Int64Array]
    """Original values in resolution units by attribute, `(n_records,)` each, by record number."""

    @property
    def n_records(self) -> int:
        """As `Engine.n_records`."""
        return next(iter(self.columns.values())).size

    @property
    def in_memory(self) -> bool:
        """True."""
        return True

    def check(self, tasks: Sequence[AttributeTask]) -> None:
        """As `Engine.check`."""
        check_table(self.columns, tasks)

    def select(self, records: PositionArray) -> "MemoryEngine":
        """As `Engine.select`."""
        return MemoryEngine({name: values[records] for name, values in self.columns.items()})

    def sample(self, most: int) -> "MemoryEngine":
        """As `Engine.sample`."""
        return self if self.n_records <= most else self.select(random_records(self.n_records, most))

    def in_order(self, task: AttributeTask, bits: BitSource) -> "_Ordered":
        """As `Engine.in_order`; if there are many records, a second thread draws the noise on ranks."""
        values, order = self.columns[task.attribute.name], self.order_of(task)
        if order is not None:
            values = order.place_of[values]
        if not task.rank_noise:
            # Without rank noise ties are broken as the papers do, by record.
            return _Ordered(task, order, rank(values))
        n_records, ties = values.size, bits.of(Purpose.TIES)
        drawn, noise_bits = PositionNoise.of(task.rank_noise, n_records), bits.of(Purpose.RANK_NOISE)
        if n_records < DRAWN_ASIDE:
            ranking = rank(values, ties=tie_breakers(n_records, ties))
            return _Ordered(task, order, ranking, _Noise(bits, drawn, drawn.draw(noise_bits)))
        with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
            aside = thread.submit(drawn.draw, noise_bits)
            ranking = rank(values, ties=tie_breakers(n_records, ties))
            return _Ordered(task, order, ranking, _Noise(bits, drawn, aside.result()))

    def order_of(self, task: AttributeTask) -> IndexOrder | None:
        """As `Engine.order_of`."""
        return own_order(self.columns[task.attribute.name], task)

    def write(self, task: AttributeTask, released: ReleasedList, assignment: PositionArray) -> Int64Array:
        """As `Engine.write`."""
        masked = np.empty(assignment.size, dtype=np.int64)
        masked[assignment] = released.by_place
        return masked

    def write_each(self, task: AttributeTask, bits: BitSource, masked: EachMasked) -> Int64Array:
        """As `Engine.write_each`; if there are many records, a second thread masks half of them."""
        values = self.columns[task.attribute.name]
        middle = values.size // 2
        if values.size < DRAWN_ASIDE:
            return masked(values, bits.of(Purpose.LIST))
        with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
            first = thread.submit(masked, values[:middle], bits.of(Purpose.LIST))
            second = masked(values[middle:], bits.of(Purpose.LIST, middle))
            return np.concatenate([first.result(), second])


def random_records(n_records: int, most: int) -> PositionArray:
    """Choose records at random, each with the same probability; their numbers ascend."""
    if n_records <= most:
        return np.arange(n_records)
    chosen = np.zeros(0, dtype=np.int64)
    while chosen.size < most:
        words = SystemBits().words(most)
        # The remainder of a 64-bit word prefers some numbers by less than one in 2^30.
        chosen = np.union1d(chosen, (words % np.uint64(n_records)).astype(np.int64))
    surplus = chosen.size - most
    if surplus:
        chosen = np.delete(chosen, order_of(SystemBits().words(chosen.size))[:surplus])
    return chosen


@dataclass(frozen=True, slots=True)
class _Noise:
    """The noise on the positions of sorted records."""

    bits: BitSource
    """The key of the masking."""
    drawn: PositionNoise
    """What it was drawn by."""
    noise: NoisyPositionArray
    """Z by position, `(n_records,)`."""


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Sorted records in memory."""

    task: AttributeTask
    order: IndexOrder | None
    ranking: Ranking
    noise: _Noise | None = None
    """None without rank noise."""

    def release(
        self, mechanism: ListMechanism, bits: BitSource, units: Callable[[Int64Array], Int64Array]
    ) -> ReleasedList:
        setting = self.task.setting
        statistics = mechanism.statistics(self.ranking.values - self.task.attribute.lower, setting)
        bits_of_list, shuffles = bits.of(Purpose.LIST), bits.of(Purpose.SHUFFLE)
        return mechanism.release_from(statistics, setting, bits_of_list, shuffles).mapped(units)

    def assign(self) -> PositionArray:
        if self.noise is None:
            return self.ranking.order
        ties = tie_breakers(self.noise.noise.size, self.noise.bits.of(Purpose.RANK_TIES))
        return noisy_order(self.ranking.order, self.noise.drawn, self.noise.noise, ties)
