"""Mask attributes and whole tables: rank, release a list, give every record an entry of the list.

`check_table` raises everything that can be foreseen, so that after the budget is spent `mask_table` does not
fail for a reason that could have been known before.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

import numpy as np

from common.errors import DataError, UnusableDataError, UsageError
from common.privacy import EXPONENTIAL, HISTOGRAM, MECHANISMS, is_rank_noise, smallest_k
from common.schema import Attribute, TaxonomyMethod
from owner_node.masking.arrays import EntryArray, Int64Array
from owner_node.masking.assignment import by_noisy_position, by_rank
from owner_node.masking.bits import BitSource, SystemBits
from owner_node.masking.calibration import Setting
from owner_node.masking.categories import IndexOrder, frequency_order, taxonomy_order
from owner_node.masking.exponential import TaxonomyMechanism
from owner_node.masking.histogram import HistogramMechanism
from owner_node.masking.mechanisms import Mechanism, mechanism
from owner_node.masking.original_order import (
    OriginalOrder,
    SortedRecords,
    are_counted,
    count_with_random_ties,
    rank_with_random_ties,
)
from owner_node.masking.rank_noise import PositionNoise, add_positions
from owner_node.masking.ranking import Ranking, rank
from owner_node.masking.released import ReleasedList
from owner_node.masking.taxonomy import Taxonomy

COLUMNS_IN_FLIGHT = 5
"""Memory that masking one attribute needs beyond its result, at most, in columns of 64-bit values."""
FEWEST_IN_THREADS = 2**16
"""Attributes of fewer records are done one after the other: threads would mostly wait for each other."""
RECORDS_PER_BLOCK = 2**16
DRAWN_ASIDE = 2**18
"""From so many records on noise is drawn in two threads, or the noise on ranks while they are ranked."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class AttributeTask:
    """How one attribute of one fragment is masked."""

    attribute: Attribute
    """The attribute as the schema declares it."""
    epsilon: Decimal
    """The attribute's share of the budget."""
    k: int | None
    """Minimum cluster size; None where the mechanism makes no clusters."""
    mechanism: str
    """Mechanism id."""
    max_records_per_person: int = 1
    """g, the most records that one person has."""
    taxonomy: Taxonomy | None = None
    """The taxonomy of its categories, exactly if the attribute has one."""
    rank_noise: Decimal = Decimal(0)
    """w, the scale of the noise on ranks as a share of the number of records; 0 for none."""

    @property
    def setting(self) -> Setting:
        """What calibration needs of this."""
        attribute = self.attribute
        return Setting(
            attribute.name, attribute.n_values, self.epsilon, self.k or 1, self.max_records_per_person
        )


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


def check_table(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask]) -> None:
    """Raise whatever would make `mask_table` fail; to be called before anything is spent.

    Args:
        columns: As in `mask_table`.
        tasks: As in `mask_table`.

    Raises:
        UsageError: If a setting makes no sense: k, epsilon, mechanism, an attribute twice.
        DataError: If a column is absent, has another length, or values outside its domain.
        UnusableDataError: If there are fewer records than k, or a domain is too wide for exact sums.
    """
    names = [task.attribute.name for task in tasks]
    if len(set(names)) != len(names):
        raise UsageError("an attribute is to be masked twice", "name every attribute once")
    absent = [name for name in names if name not in columns]
    if absent:
        raise DataError(f"no column for: {', '.join(absent)}", "load every attribute that is to be masked")
    if len({columns[name].size for name in names}) > 1:
        raise DataError("columns differ in their number of records", "load all attributes from one source")
    for task in tasks:
        check_attribute(columns[task.attribute.name], task)


def check_attribute(values: Int64Array, task: AttributeTask) -> None:
    """Raise whatever would make `mask_attribute` fail; arguments and errors as in `check_table`."""
    name, n_records = task.attribute.name, values.size
    setting = task.setting
    _check_taxonomy(task)
    chosen = mechanism_of(task)
    _check_k(task)
    _check_rank_noise(task)
    if n_records < setting.k:
        k = "" if task.k is None else f", k = {task.k}"
        raise UnusableDataError(
            f"{n_records} records{k}: at least {setting.k} are needed",
            "ask for a smaller k, or leave this owner out",
            {"attribute": name, "records": n_records, "k": task.k},
        )
    chosen.check(setting)
    _check_domain(values, task.attribute)


def _check_k(task: AttributeTask) -> None:
    name = task.attribute.name
    needed = smallest_k(task.mechanism, task.max_records_per_person)
    if needed is None:
        if task.k is not None:
            raise UsageError(
                f"attribute {name!r}: {task.mechanism} makes no clusters and takes no k",
                "leave k out, or choose a mechanism that makes clusters",
                {"attribute": name, "k": task.k},
            )
    elif task.k is None or task.k < needed:
        found = "no k is given" if task.k is None else f"k = {task.k} is too small"
        raise UsageError(
            f"attribute {name!r}: {found}, {task.mechanism} takes at least {needed}",
            f"ask for k of at least {needed}",
            {"attribute": name, "k": task.k, "least": needed},
        )


def _check_rank_noise(task: AttributeTask) -> None:
    name, rank_noise = task.attribute.name, task.rank_noise
    if not is_rank_noise(rank_noise):
        raise UsageError(
            f"attribute {name!r}: rank noise is a share of the ranks, not {rank_noise}",
            "give a decimal number from 0 to 1, for example 0.03",
            {"attribute": name},
        )
    if rank_noise and not MECHANISMS[task.mechanism].listed:
        raise UsageError(
            f"attribute {name!r}: {task.mechanism} releases no list in rank order and takes no rank noise",
            "leave rank noise out, or choose another mechanism",
            {"attribute": name},
        )


def _check_domain(values: Int64Array, attribute: Attribute) -> None:
    if values.dtype != np.int64 or values.ndim != 1:
        raise DataError(f"attribute {attribute.name!r}: not a column of 64-bit integers")
    if int(values.min()) >= attribute.lower and int(values.max()) <= attribute.upper:
        return
    outside = int(np.count_nonzero((values < attribute.lower) | (values > attribute.upper)))
    raise DataError(
        f"attribute {attribute.name!r}: {outside} of {values.size} values are outside the declared domain",
        'correct the source, declare a wider domain, or set outside = "clamp"',
        {"attribute": attribute.name, "outside": outside, "records": int(values.size)},
    )


def _check_taxonomy(task: AttributeTask) -> None:
    attribute, taxonomy = task.attribute, task.taxonomy
    n_expected = attribute.n_values if attribute.taxonomy else None
    n_found = taxonomy.n_categories if taxonomy is not None else None
    if n_found != n_expected:
        raise UsageError(
            f"attribute {attribute.name!r}: the taxonomy that was read is not the one it was declared with",
            "declare the hierarchy file as taxonomy of the attribute",
            {"attribute": attribute.name, "categories": n_found, "expected": n_expected},
        )


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
    attribute = task.attribute
    order = own_order(values, task)
    if order is not None:
        values = order.place_of[values]
    if not MECHANISMS[task.mechanism].listed:
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
    noise = PositionNoise(values.size, task.rank_noise, bits)
    with ThreadPoolExecutor(1, thread_name_prefix="draw") as thread:
        drawn = thread.submit(noise.draw) if values.size >= DRAWN_ASIDE else None
        released, original = _listed(values, task, bits)
        noisy = noise.draw()
        if drawn is not None:
            drawn.result()
    return released, by_noisy_position(original, add_positions(noisy, original), released.sizes, bits)


def _listed(values: Int64Array, task: AttributeTask, bits: BitSource) -> tuple[ReleasedList, OriginalOrder]:
    """Release a list, and return the original order that rank noise begins with."""
    chosen, setting = mechanism_of(task), task.setting
    if not are_counted(setting.n_values, values.size):
        return _released(rank_with_random_ties(values, bits), task, bits)
    original = count_with_random_ties(values, task.attribute, bits)
    if isinstance(chosen, HistogramMechanism):
        return chosen.release_counts(original.counts, setting, bits), original
    ascending = np.repeat(np.arange(setting.n_values), original.counts)
    return chosen.release(ascending, setting, bits), original


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


def mechanism_of(task: AttributeTask) -> Mechanism:
    """Return the mechanism that a task names.

    Raises:
        UsageError: If there is none of that name, or it does not go with the attribute.
    """
    exponential = task.attribute.method is TaxonomyMethod.EXPONENTIAL
    if (task.mechanism == EXPONENTIAL) != exponential:
        raise UsageError(
            f"attribute {task.attribute.name!r}: mechanism {task.mechanism} does not go with its method",
            'mechanism exponential goes with method = "exponential" of a taxonomy, and only with it',
        )
    if exponential and task.taxonomy is not None:
        return TaxonomyMechanism(task.taxonomy)
    return mechanism(task.mechanism)


def own_order(values: Int64Array, task: AttributeTask) -> IndexOrder | None:
    """Return the order of categories that an attribute is masked in, if it is not the declared one."""
    if task.taxonomy is not None:
        return taxonomy_order(task.taxonomy)
    # Counts are the same in any order: no need for one that the data make, which no bound covers.
    if not task.attribute.by_frequency or task.mechanism == HISTOGRAM:
        return None
    return frequency_order(values, task.attribute.n_values)


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
        return mask_attribute(columns[task.attribute.name], task, bits).by_record()

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
