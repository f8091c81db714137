"""The interface between the decisions of masking and the storage of the records.

An engine holds the original records of a data set and has four operations on them: it sorts them by (value,
tie-breaker, record number), computes statistics of their clusters or counts their values, assigns them to the
places of a released list by rank or noisy rank, and writes masked columns by record number. The mechanisms
need no more: calibration, noise on the list, isotonic regression and histograms (`mechanisms`) work on one
number per cluster or per declared value. `mask` combines the operations.

Records are numbered. Everything random about a record comes from its number (`arrays.BitSource`), so that
every engine gives the same fragment under the same key.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from owner_node.masking.arrays import BitSource, Int64Array, NoisyPositionArray, PositionArray, Purpose
from owner_node.masking.lists import ReleasedList, Statistics, statistics_of
from owner_node.masking.order import Ranking, rank, tie_breakers
from owner_node.masking.rank_noise import noisy_order, position_noise
from owner_node.masking.tasks import AttributeTask, IndexOrder, check_table, mechanism_of, own_order

DRAWN_ASIDE = 2**18
"""Number of records from which a second thread draws."""


class OrderedRecords(Protocol):
    """The records in the order of one attribute."""

    @property
    def order(self) -> IndexOrder | None:
        """The order of the categories; None for the declared one."""

    def statistics(self) -> Statistics:
        """Return what the attribute's mechanism makes its list from."""

    def assign(self) -> PositionArray:
        """Assign the records to the places of the list, by rank or by noisy rank.

        Returns:
            The record at every place, `(n_records,)`.
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

    def in_order(self, task: AttributeTask, bits: BitSource) -> OrderedRecords:
        """Sort the records by (value, tie-breaker, record number) of an attribute.

        Args:
            task: How the attribute is masked; only rank noise uses tie-breakers.
            bits: The key of the masking.
        """

    def order_of(self, task: AttributeTask) -> IndexOrder | None:
        """Return the order of the categories that an attribute is masked in; None for the declared one."""

    def write(self, released: ReleasedList, assignment: PositionArray) -> Int64Array:
        """Write a masked column.

        Args:
            released: The released list in resolution units.
            assignment: The record at every place of the list, `(n_records,)`.

        Returns:
            The masked value of every record, `(n_records,)`, by record number.
        """

    def write_each(
        self, task: AttributeTask, bits: BitSource, masked: Callable[[Int64Array, BitSource], Int64Array]
    ) -> Int64Array:
        """Write a column whose records are masked by themselves.

        Args:
            task: How the attribute is masked.
            bits: The bits of the noise on records.
            masked: Maps values of consecutive records, and the bits from the first of them on, to released
                values, in resolution units.
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

    def in_order(self, task: AttributeTask, bits: BitSource) -> OrderedRecords:
        """As `Engine.in_order`; if there are many records, a second thread draws the noise on ranks."""
        values, order = self.columns[task.attribute.name], self.order_of(task)
        if order is not None:
            values = order.place_of[values]
        if not task.rank_noise:
            # Without rank noise ties are broken as the papers do, by record.
            return _Ordered(task, order, rank(values))
        n_records, ties = values.size, bits.of(Purpose.TIES)
        if n_records < DRAWN_ASIDE:
            noise = position_noise(task.rank_noise, n_records, bits.of(Purpose.RANK_NOISE))
            return _Ordered(task, order, rank(values, ties=tie_breakers(n_records, ties)), bits, noise)
        with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
            aside = thread.submit(position_noise, task.rank_noise, n_records, bits.of(Purpose.RANK_NOISE))
            ranking = rank(values, ties=tie_breakers(n_records, ties))
            return _Ordered(task, order, ranking, bits, aside.result())

    def order_of(self, task: AttributeTask) -> IndexOrder | None:
        """As `Engine.order_of`."""
        return own_order(self.columns[task.attribute.name], task)

    def write(self, released: ReleasedList, assignment: PositionArray) -> Int64Array:
        """As `Engine.write`."""
        masked = np.empty(assignment.size, dtype=np.int64)
        masked[assignment] = released.by_place
        return masked

    def write_each(
        self, task: AttributeTask, bits: BitSource, masked: Callable[[Int64Array, BitSource], Int64Array]
    ) -> Int64Array:
        """As `Engine.write_each`; if there are many records, a second thread masks half of them."""
        values = self.columns[task.attribute.name]
        middle = values.size // 2
        if values.size < DRAWN_ASIDE:
            return masked(values, bits.of(Purpose.LIST))
        with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
            first = thread.submit(masked, values[:middle], bits.of(Purpose.LIST))
            second = masked(values[middle:], bits.of(Purpose.LIST, middle))
            return np.concatenate([first.result(), second])


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Sorted records in memory."""

    task: AttributeTask
    order: IndexOrder | None
    ranking: Ranking
    bits: BitSource | None = None
    """The key of the masking; None without rank noise, as the next one."""
    noise: NoisyPositionArray | None = None
    """Noise on positions by record number, `(n_records,)`."""

    def statistics(self) -> Statistics:
        ascending, setting = self.ranking.values - self.task.attribute.lower, self.task.setting
        return statistics_of(ascending, setting, mechanism_of(self.task).depth(setting))

    def assign(self) -> PositionArray:
        if self.noise is None or self.bits is None:
            return self.ranking.order
        ties = tie_breakers(self.noise.size, self.bits.of(Purpose.RANK_TIES))
        return noisy_order(self.ranking.order, self.noise, ties)
