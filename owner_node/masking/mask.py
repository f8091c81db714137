"""Mask attributes and whole tables: rank records, release a list, assign its entries to the records.

`Engine.check` raises every error that can be foreseen. So `mask_table` does not fail for a foreseeable reason
after the budget is spent.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from owner_node.masking.arrays import BitSource, Int64Array, PositionArray, Purpose, SystemBits
from owner_node.masking.engine import DRAWN_ASIDE, Engine, OrderedRecords
from owner_node.masking.lists import ReleasedList
from owner_node.masking.mechanisms import RecordMechanism
from owner_node.masking.tasks import AttributeTask, mechanism_of

COLUMNS_IN_FLIGHT = 5
"""Most memory that masking one attribute needs beyond its result, in columns of 64-bit values."""
FEWEST_IN_THREADS = 2**16
"""With fewer records, attributes are masked one after the other: threads would mostly wait."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MaskedAttribute:
    """A masked attribute, and the two separate products that it was made from (MECHANISMS §1)."""

    column: Int64Array
    """The masked value of every record, `(n_records,)`, by record number."""
    released: ReleasedList
    """The rank-ordered list of released values, in resolution units of the attribute."""
    assignment: PositionArray
    """The record at every place of the list, `(n_records,)`."""


def mask_attribute(records: Engine, task: AttributeTask, bits: BitSource) -> MaskedAttribute:
    """Mask one attribute whose mechanism releases a list.

    Args:
        records: The original records; `Engine.check` accepts the task.
        task: How to mask it.
        bits: The key of this masking of this attribute.

    References:
        Del Vasto-Terrientes et al. 2025, Algorithm 1.
    """
    ordered = records.in_order(task, bits)
    if records.n_records < DRAWN_ASIDE:
        released, assignment = _list_of(ordered, task, bits), ordered.assign()
    else:
        # The two products do not depend on each other.
        with ThreadPoolExecutor(1, thread_name_prefix="list") as thread:
            aside = thread.submit(_list_of, ordered, task, bits)
            assignment = ordered.assign()
            released = aside.result()
    return MaskedAttribute(records.write(released, assignment), released, assignment)


def _list_of(ordered: OrderedRecords, task: AttributeTask, bits: BitSource) -> ReleasedList:
    """Make the released list, in resolution units of the attribute."""
    released = mechanism_of(task).release_from(
        ordered.statistics(), task.setting, bits.of(Purpose.LIST), bits.of(Purpose.SHUFFLE)
    )
    if ordered.order is None:
        return replace(released, values=released.values + task.attribute.lower)
    return replace(released, values=ordered.order.category_at[released.values])


def mask_each(records: Engine, task: AttributeTask, bits: BitSource) -> Int64Array:
    """Mask every record of an attribute by itself, where its mechanism releases no list.

    Args:
        records: As in `mask_attribute`.
        task: As in `mask_attribute`.
        bits: As in `mask_attribute`.

    Returns:
        The masked value of every record, `(n_records,)`, by record number.
    """
    mechanism, lower, order = mechanism_of(task), task.attribute.lower, records.order_of(task)
    if not isinstance(mechanism, RecordMechanism):
        raise TypeError(f"{task.mechanism} masks no record by itself")

    def masked(values: Int64Array, of_records: BitSource) -> Int64Array:
        places = values - lower if order is None else order.place_of[values]
        released = mechanism.release_each(places, task.setting, of_records)
        return released + lower if order is None else order.category_at[released]

    return records.write_each(task, bits, masked)


def mask_table(records: Engine, tasks: Sequence[AttributeTask]) -> dict[str, Int64Array]:
    """Mask a table with the operating system's randomness; no other source can be passed.

    Attributes are masked in parallel threads, as many as keep the additional memory below that of the result.
    Every attribute has a fresh key, which is erased afterwards.

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

    def masked(task: AttributeTask) -> Int64Array:
        bits = SystemBits()
        try:
            if task.rules.listed:
                return mask_attribute(records, task, bits).column
            return mask_each(records, task, bits)
        finally:
            bits.erase()

    names = [task.attribute.name for task in tasks]
    return dict(zip(names, for_each(masked, tasks, records.n_records), strict=True))


def for_each(work: Callable[[AttributeTask], _T], tasks: Sequence[AttributeTask], n_records: int) -> list[_T]:
    """Call `work` for every task, in as many threads as keep the added memory below that of a table."""
    n_threads = min(os.cpu_count() or 1, len(tasks) // COLUMNS_IN_FLIGHT)
    if n_threads < 2 or n_records < FEWEST_IN_THREADS:
        return list(map(work, tasks))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="mask") as threads:
        return list(threads.map(work, tasks))
