"""Mask attributes and whole tables: rank records, release a list, assign its entries to the records.

`Engine.check` raises every error that can be foreseen. So `mask_table` does not fail for a foreseeable reason
after the budget is spent.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from owner_node.masking.arrays import BitSource, Int64Array, SystemBits
from owner_node.masking.engine import DRAWN_ASIDE, Column, Engine, Entries, OrderedRecords, Places
from owner_node.masking.mechanisms import RecordMechanism
from owner_node.masking.tasks import AttributeTask, mechanism_of

COLUMNS_IN_FLIGHT = 5
"""Most memory that masking one attribute needs beyond its result, in columns of 64-bit values."""
FEWEST_IN_THREADS = 2**16
"""With fewer records, attributes are masked one after the other: threads would mostly wait."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MaskedAttribute(Generic[Places, Entries, Column]):
    """A masked attribute, and the two separate products that it was made from: list and assignment."""

    column: Column
    """The masked value of every record by record number."""
    released: Entries
    """The rank-ordered list of released values, in resolution units of the attribute."""
    assignment: Places
    """The record at every place of the list."""


def mask_attribute(
    records: Engine[Places, Entries, Column], task: AttributeTask, bits: BitSource
) -> MaskedAttribute[Places, Entries, Column]:
    """Mask one attribute whose mechanism releases a list.

    Args:
        records: The original records; `Engine.check` accepts the task.

    References:
        Del Vasto-Terrientes et al. 2025, Algorithm 1.
    """
    ordered = records.in_order(task, bits)
    if not records.in_memory or records.n_records < DRAWN_ASIDE:
        released, assignment = _list_of(ordered, task, bits), ordered.assign()
    else:
        # The two products do not depend on each other.
        with ThreadPoolExecutor(1, thread_name_prefix="list") as thread:
            aside = thread.submit(_list_of, ordered, task, bits)
            assignment = ordered.assign()
            released = aside.result()
    return MaskedAttribute(records.write(task, released, assignment), released, assignment)


def _list_of(ordered: OrderedRecords[Places, Entries], task: AttributeTask, bits: BitSource) -> Entries:
    """Make the released list, in resolution units of the attribute."""
    order, lower = ordered.order, task.attribute.lower

    def units(values: Int64Array) -> Int64Array:
        if order is not None:
            return order.category_at[values]
        values += lower  # in place: beside a list of an entry for every record a second one takes memory
        return values

    return ordered.release(mechanism_of(task), bits, units)


def mask_each(records: Engine[Places, Entries, Column], task: AttributeTask, bits: BitSource) -> Column:
    """Mask every record of an attribute by itself, where its mechanism releases no list.

    The arguments are those of `mask_attribute`.

    Returns:
        The masked value of every record by record number.
    """
    mechanism, lower, order = mechanism_of(task), task.attribute.lower, records.order_of(task)
    if not isinstance(mechanism, RecordMechanism):
        raise TypeError(f"{task.mechanism} masks no record by itself")

    def masked(values: Int64Array, of_records: BitSource) -> Int64Array:
        places = values - lower if order is None else order.place_of[values]
        released = mechanism.release_each(places, task.setting, of_records)
        return released + lower if order is None else order.category_at[released]

    return records.write_each(task, bits, masked)


def mask_table(
    records: Engine[Places, Entries, Column],
    tasks: Sequence[AttributeTask],
    reach: Callable[[int], None] = lambda _: None,
) -> dict[str, Column]:
    """Mask a table with the operating system's randomness; no other source can be passed.

    In memory, attributes are masked in parallel threads, as many as keep the additional memory below that of
    the result. Every attribute has a fresh key, which is erased afterwards.

    Args:
        reach: Called with the number of values that are masked at least, whenever an attribute is.

    Returns:
        The masked columns, in resolution units within the declared domains, records in their original order,
        attributes in the order of the tasks.

    Raises:
        UsageError, DataError, UnusableDataError: As `Engine.check` says, before any noise is drawn.
    """
    records.check(tasks)
    finished = count(1)

    def masked(task: AttributeTask) -> Column:
        bits = SystemBits()
        try:
            column = mask_with(records, task, bits)
        finally:
            bits.erase()
        reach(next(finished) * records.n_records)
        return column

    names = [task.attribute.name for task in tasks]
    n_records = records.n_records if records.in_memory else 0
    return dict(zip(names, for_each(masked, tasks, n_records), strict=True))


def mask_with(records: Engine[Places, Entries, Column], task: AttributeTask, bits: BitSource) -> Column:
    """Mask one attribute under a key; arguments as in `mask_attribute`, result as in `mask_each`."""
    if task.rules.listed:
        return mask_attribute(records, task, bits).column
    return mask_each(records, task, bits)


def for_each(work: Callable[[AttributeTask], _T], tasks: Sequence[AttributeTask], n_records: int) -> list[_T]:
    """Call `work` for every task, in as many threads as keep the added memory below that of a table."""
    n_threads = min(os.cpu_count() or 1, len(tasks) // COLUMNS_IN_FLIGHT)
    if n_threads < 2 or n_records < FEWEST_IN_THREADS:
        return list(map(work, tasks))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="mask") as threads:
        return list(threads.map(work, tasks))
