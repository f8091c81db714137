"""Mask attributes and whole tables: rank records, release a list, assign its entries to the records.

`Engine.check` raises every error that can be foreseen. So `mask_table` does not fail for a foreseeable reason
after the budget is spent.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from owner_node.masking.arrays import BitSource, EntryArray, Int64Array, SystemBits
from owner_node.masking.engine import Engine
from owner_node.masking.lists import ReleasedList
from owner_node.masking.tasks import AttributeTask

COLUMNS_IN_FLIGHT = 5
"""Most memory that masking one attribute needs beyond its result, in columns of 64-bit values."""
FEWEST_IN_THREADS = 2**16
"""With fewer records, attributes are masked one after the other: threads would mostly wait."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MaskedAttribute:
    """The two separate products of masking an attribute (MECHANISMS §1)."""

    released: ReleasedList
    """The rank-ordered list of released values, in resolution units of the attribute."""
    entries: EntryArray
    """The assignment, `(n_records,)`: record i gets entry `entries[i]` of the list."""


def mask_attribute(records: Engine, task: AttributeTask, bits: BitSource) -> MaskedAttribute:
    """Mask one attribute.

    Args:
        records: The original records; `Engine.check` accepts the task.
        task: How to mask it.
        bits: Source of random bits.

    Returns:
        The released list and the assignment of records to it.

    References:
        Del Vasto-Terrientes et al. 2025, Algorithm 1.
    """
    with records.in_order(task, bits) as ordered:
        released = ordered.release(bits)
        entries = ordered.assign(released.sizes, bits)
        order = ordered.order
    shown = released.values + task.attribute.lower if order is None else order.category_at[released.values]
    return MaskedAttribute(ReleasedList(shown, released.sizes), entries)


def mask_table(records: Engine, tasks: Sequence[AttributeTask]) -> dict[str, Int64Array]:
    """Mask a table with the operating system's randomness; no other source can be passed.

    Attributes are masked in parallel threads, as many as keep the additional memory below that of the result.

    Args:
        records: The original records.
        tasks: The attributes to mask and how.

    Returns:
        The masked columns, `(n_records,)` each, in resolution units within the declared domains, records in
        their original order, attributes in the order of the tasks.

    Raises:
        UsageError, DataError, UnusableDataError: As `Engine.check` says, before any noise is drawn.
    """
    records.check(tasks)
    bits = SystemBits()

    def masked(task: AttributeTask) -> Int64Array:
        found = mask_attribute(records, task, bits)
        return records.write(found.released.values, found.entries)

    names = [task.attribute.name for task in tasks]
    return dict(zip(names, for_each(masked, tasks, records.n_records), strict=True))


def for_each(work: Callable[[AttributeTask], _T], tasks: Sequence[AttributeTask], n_records: int) -> list[_T]:
    """Call `work` for every task, in as many threads as keep the added memory below that of a table."""
    n_threads = min(os.cpu_count() or 1, len(tasks) // COLUMNS_IN_FLIGHT)
    if n_threads < 2 or n_records < FEWEST_IN_THREADS:
        return list(map(work, tasks))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="mask") as threads:
        return list(threads.map(work, tasks))
