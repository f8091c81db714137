"""Mask attributes and whole tables: rank, release a list, give every record an entry of the list.

`checks` raises everything that can be foreseen, so that after the budget is spent `mask_table` does not fail
for a reason that could have been known before.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from owner_node.masking.arrays import BitSource, EntryArray, Int64Array, SystemBits
from owner_node.masking.lists import ReleasedList
from owner_node.masking.order import (
    CountedRecords,
    OriginalOrder,
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
from owner_node.masking.tasks import AttributeTask, check_attribute, check_table, mechanism_of, own_order

COLUMNS_IN_FLIGHT = 5
"""Memory that masking one attribute needs beyond its result, at most, in columns of 64-bit values."""
FEWEST_IN_THREADS = 2**16
"""Attributes of fewer records are done one after the other: threads would mostly wait for each other."""
RECORDS_PER_BLOCK = 2**16
DRAWN_ASIDE = 2**18
"""From so many records on noise is drawn in two threads, or the noise on ranks while they are ranked."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MaskedAttribute:
    """The two products of masking an attribute, kept apart (MECHANISMS §1)."""

    released: ReleasedList
    """The rank-ordered list of released values, in resolution units of the attribute."""
    entries: EntryArray
    """The assignment, `(n_records,)`: record i gets entry `entries[i]` of the list."""

    def by_record(self) -> Int64Array:
        """Return the masked value of every record, `(n_records,)`, in the order of the original records."""
        values = np.empty(self.entries.size, dtype=np.int64)
        for first in range(0, values.size, RECORDS_PER_BLOCK):
            block = slice(first, first + RECORDS_PER_BLOCK)
            # "clip" is quicker than a check; no entry is outside.
            np.take(self.released.values, self.entries[block], out=values[block], mode="clip")
        return values


def mask_attribute(values: Int64Array, task: AttributeTask, bits: BitSource) -> MaskedAttribute:
    """Mask one attribute.

    Args:
        values: One value per record, `(n_records,)`, in resolution units of the attribute; categories and
            booleans as declared indices.
        task: How to mask it.
        bits: Source of random bits.

    Returns:
        The released list and the assignment of records to it.

    Raises:
        UsageError, DataError, UnusableDataError: As `check_table` says.

    References:
        Del Vasto-Terrientes et al. 2025, Algorithm 1.
    """
    check_attribute(values, task)
    return _masked(values, task, bits)


def _masked(values: Int64Array, task: AttributeTask, bits: BitSource) -> MaskedAttribute:
    """Mask one attribute that is checked."""
    attribute = task.attribute
    order = own_order(values, task)
    if order is not None:
        values = order.place_of[values]
    if not task.rules.listed:
        released, entries = _by_themselves(values - attribute.lower, task, bits)
    elif task.rank_noise:
        released, entries = _with_rank_noise(values, task, bits)
    else:
        # Without rank noise ties are broken as the papers do, by record.
        released, original = _released(rank(values), task, bits)
        entries = by_rank(original.order, released.sizes)
    shown = released.values + attribute.lower if order is None else order.category_at[released.values]
    return MaskedAttribute(ReleasedList(shown, released.sizes), entries)


def _released(ranking: Ranking, task: AttributeTask, bits: BitSource) -> tuple[ReleasedList, SortedRecords]:
    """Release a list of records that are sorted."""
    np.subtract(ranking.values, task.attribute.lower, out=ranking.values)
    return mechanism_of(task).release(ranking.values, task.setting, bits), SortedRecords(ranking.order)


def _with_rank_noise(
    values: Int64Array, task: AttributeTask, bits: BitSource
) -> tuple[ReleasedList, EntryArray]:
    """Release a list and assign it by noisy positions, the noise of many drawn in a second thread."""
    scale = noise_scale(task.rank_noise, values.size)
    if are_counted(task.attribute.n_values, values.size, scale):
        listed, steps = _counted, CountedRecords.steps
    else:
        listed, steps = _sorted, SortedRecords.steps
    noise = PositionNoise(values.size, scale * steps, bits)
    with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
        drawn = thread.submit(noise.draw) if values.size >= DRAWN_ASIDE else None
        released, original = listed(values, task, bits)
        noisy = noise.draw()
        if drawn is not None:
            drawn.result()
    return released, by_noisy_position(original, add_positions(noisy, original), released.sizes, bits)


def _sorted(values: Int64Array, task: AttributeTask, bits: BitSource) -> tuple[ReleasedList, OriginalOrder]:
    return _released(rank_with_random_ties(values, bits), task, bits)


def _counted(values: Int64Array, task: AttributeTask, bits: BitSource) -> tuple[ReleasedList, OriginalOrder]:
    original = count_with_random_ties(values, task.attribute, bits)
    return mechanism_of(task).release_counts(original.counts, task.setting, bits), original


def _by_themselves(
    values: Int64Array, task: AttributeTask, bits: BitSource
) -> tuple[ReleasedList, EntryArray]:
    """Release a value of its own for every record, for which none need be sorted; many in two threads."""
    release, middle = mechanism_of(task).release, values.size // 2
    if values.size < DRAWN_ASIDE:
        released = release(values, task.setting, bits)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
            first = thread.submit(release, values[:middle], task.setting, bits.apart())
            second = release(values[middle:], task.setting, bits)
            both = first.result(), second
        own = np.concatenate([each.values for each in both])
        released = ReleasedList(own, np.broadcast_to(both[0].sizes[0], own.size))
    return released, np.arange(values.size, dtype=np.int32)


def mask_table(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask]) -> dict[str, Int64Array]:
    """Mask a table with the operating system's randomness; no other source can be handed in.

    Attributes are masked in parallel threads, as many as keep the additional memory below that of the result.

    Args:
        columns: One column per attribute, `(n_records,)` each, in resolution units of the attribute.
        tasks: The attributes to mask and how.

    Returns:
        The masked columns, `(n_records,)` each, in resolution units within the declared domains, records in
        their original order, attributes in the order of the tasks.

    Raises:
        UsageError, DataError, UnusableDataError: As `check_table` says, before any noise is drawn.
    """
    check_table(columns, tasks)
    bits = SystemBits()

    def masked(task: AttributeTask) -> Int64Array:
        return _masked(columns[task.attribute.name], task, bits).by_record()

    names = [task.attribute.name for task in tasks]
    n_records = next((column.size for column in columns.values()), 0)
    return dict(zip(names, for_each(masked, tasks, n_records), strict=True))


def for_each(work: Callable[[AttributeTask], _T], tasks: Sequence[AttributeTask], n_records: int) -> list[_T]:
    """Do some work on every attribute, in as many threads as keep its memory below that of a table."""
    n_threads = min(os.cpu_count() or 1, len(tasks) // COLUMNS_IN_FLIGHT)
    if n_threads < 2 or n_records < FEWEST_IN_THREADS:
        return list(map(work, tasks))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="mask") as threads:
        return list(threads.map(work, tasks))
