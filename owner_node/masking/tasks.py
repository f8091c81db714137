"""Masking tasks: the attributes of a plan with an owner's settings for them, and the checks before masking.

A task says how one attribute is masked: the agreed settings, the mechanism, and the order of its categories.

The order of a taxonomy is public. The frequency order is computed from the fragment itself: one record can
swap two categories and so change every record's index, which no mechanism's joint bound covers
(docs/guarantee.md, "The list: what epsilon_joint bounds").

References:
    Del Vasto-Terrientes et al. 2025, §5.1.1 (frequency).
    Sánchez et al. 2016, §3.4 (taxonomy).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from common.errors import DataError, UnusableDataError, UsageError
from common.model.mechanisms import Mechanism, fault_of_k, fault_of_rank_noise, has_no_order, rules_of
from common.model.plan import Plan
from common.model.privacy import NO_RANK_NOISE, is_rank_noise
from common.model.schema import Attribute
from common.model.task import PlannedAttribute
from owner_node.masking.arrays import Int64Array
from owner_node.masking.clusters import Setting
from owner_node.masking.lists import ListMechanism
from owner_node.masking.mechanisms import MECHANISMS
from owner_node.values.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class IndexOrder:
    """An order of categories and how declared indices map to it."""

    place_of: Int64Array
    """Place of each category, `(n_categories,)`, by declared index."""
    category_at: Int64Array
    """Declared index at each place, `(n_categories,)`; the inverse of `place_of`."""


def frequency_order(indices: Int64Array, n_categories: int) -> IndexOrder:
    """Order categories by frequency, the most frequent first, ties in declared order.

    Args:
        indices: Declared index of each record's category, `(n_records,)`, from 0 to n_categories - 1.
        n_categories: Number of declared categories; one that does not occur comes last.

    Returns:
        The order and its inverse.
    """
    return _by_frequency(np.bincount(indices, minlength=n_categories))


def _by_frequency(counts: Int64Array) -> IndexOrder:
    return _with_inverse(np.argsort(-counts, kind="stable"))


def _with_inverse(category_at: Int64Array) -> IndexOrder:
    place_of = np.empty_like(category_at)
    place_of[category_at] = np.arange(category_at.size)
    return IndexOrder(place_of, category_at)


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
    max_records_per_person: int = 1
    """g, the most records that one person has."""
    taxonomy: Taxonomy | None = None
    """The taxonomy of its categories; None if the attribute has none."""
    rank_noise: Decimal = NO_RANK_NOISE
    """w, the scale of the noise on ranks as a share of the number of records; 0 for none."""
    epsilon_spikes: Decimal = Decimal(0)
    """The part of epsilon that the counts of its spikes get; 0 where they are not counted."""

    @property
    def rules(self) -> Mechanism:
        """The public half of its mechanism."""
        return rules_of(self.mechanism)

    @property
    def setting(self) -> Setting:
        """The settings that its mechanism needs."""
        attribute, g = self.attribute, self.max_records_per_person
        ordered = not has_no_order(attribute)
        spikes = [spike - attribute.lower for spike in attribute.spikes if self.epsilon_spikes]
        # A logarithmic scale is not used here: lists are made from ranks, and noise is added to values.
        return Setting(
            attribute.name,
            attribute.n_values,
            self.epsilon - self.epsilon_spikes,
            self.k or 1,
            g,
            self.taxonomy,
            ordered,
            attribute.keeps_missing,
            tuple(spikes),
            self.epsilon_spikes,
        )


def mechanism_of(task: AttributeTask) -> ListMechanism:
    """Return the mechanism that a task names.

    Raises:
        UsageError: If there is none of that name, or it does not apply to the attribute.
    """
    if task.mechanism not in MECHANISMS:
        raise UsageError(
            f"unknown mechanism {task.mechanism!r}", f"mechanisms are: {', '.join(sorted(MECHANISMS))}"
        )
    if not task.rules.goes_with(task.attribute):
        raise UsageError(
            f"attribute {task.attribute.name!r}: mechanism {task.mechanism} does not go with its method",
            'mechanism exponential goes with method = "exponential" of a taxonomy, and only with it; numbers '
            'and dates with missing = "category" go with dp-hist',
        )
    return MECHANISMS[task.mechanism]


def own_order(values: Int64Array, task: AttributeTask) -> IndexOrder | None:
    """Return the order of categories that an attribute is masked in; None for the declared one."""
    return order_from_counts(lambda: np.bincount(values, minlength=task.attribute.n_values), task)


def order_from_counts(counts: Callable[[], Int64Array], task: AttributeTask) -> IndexOrder | None:
    """Return the order of categories that an attribute is masked in; None for the declared one.

    Args:
        counts: Returns how many records have each category, `(V,)`; called only where the order needs it.
    """
    if task.taxonomy is not None:
        return _with_inverse(np.array(task.taxonomy.order(), dtype=np.int64))
    # If the list is the same in any order, no data-dependent order is used, since no bound covers one.
    if not task.rules.is_ordered_by_data(frequency_order=task.attribute.by_frequency):
        return None
    return _by_frequency(counts())


def check_table(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask]) -> None:
    """Raise every error that would make `mask_table` fail; call this before any budget is spent.

    Args:
        columns: Original values in resolution units by attribute, `(n_records,)` each.

    Raises:
        UsageError: If a setting makes no sense: k, epsilon, mechanism, an attribute twice.
        DataError: If a column is absent, has another length, or values outside its domain.
        UnusableDataError: If there are fewer records than k, or a domain is too wide for exact sums.
    """
    names = check_names(columns, tasks)
    if len({columns[name].size for name in names}) > 1:
        raise DataError("columns differ in their number of records", "load all attributes from one source")
    for task in tasks:
        check_setting(columns[task.attribute.name].size, task)
        check_domain(columns[task.attribute.name], task.attribute)


def check_names(columns: Collection[str], tasks: Sequence[AttributeTask]) -> list[str]:
    """Return the names of the attributes to mask; each is masked once, and has a column."""
    names = [task.attribute.name for task in tasks]
    if len(set(names)) != len(names):
        raise UsageError("an attribute is to be masked twice", "name every attribute once")
    absent = [name for name in names if name not in columns]
    if absent:
        raise DataError(f"no column for: {', '.join(absent)}", "load every attribute that is to be masked")
    return names


def check_setting(n_records: int, task: AttributeTask) -> None:
    """Raise every error that would make masking `n_records` records fail, whatever their values are.

    Raises:
        UsageError, UnusableDataError: As `check_table` says.
    """
    name, setting = task.attribute.name, task.setting
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


def _check_k(task: AttributeTask) -> None:
    fault = fault_of_k(task.mechanism, task.k, task.max_records_per_person)
    if fault:
        given = "no k is given" if task.k is None else f"k = {task.k} is given"
        raise UsageError(
            f"attribute {task.attribute.name!r}: {fault}, {given}",
            "ask for another k or mechanism",
            {"attribute": task.attribute.name, "k": task.k},
        )


def _check_rank_noise(task: AttributeTask) -> None:
    name, rank_noise = task.attribute.name, task.rank_noise
    if not is_rank_noise(rank_noise):
        raise UsageError(
            f"attribute {name!r}: rank noise is a share of the ranks, not {rank_noise}",
            "give a decimal number from 0 to 1, for example 0.03",
            {"attribute": name},
        )
    fault = fault_of_rank_noise(task.mechanism, rank_noise)
    if fault:
        raise UsageError(
            f"attribute {name!r}: {fault}",
            "leave rank noise out, or choose another mechanism",
            {"attribute": name},
        )


def check_domain(values: Int64Array, attribute: Attribute) -> None:
    """Raise if values are not within the domain of their attribute.

    Args:
        values: `(n_records,)`, at least one, in resolution units.

    Raises:
        DataError: As `check_table` says.
    """
    if values.dtype != np.int64 or values.ndim != 1:
        raise DataError(f"attribute {attribute.name!r}: not a column of 64-bit integers")
    if int(values.min()) >= attribute.lower and int(values.max()) <= attribute.highest:
        return
    outside = int(np.count_nonzero((values < attribute.lower) | (values > attribute.highest)))
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


def mask_tasks(
    plan: Plan, attributes: Iterable[PlannedAttribute], taxonomies: Mapping[str, Taxonomy]
) -> tuple[AttributeTask, ...]:
    """Return how to mask each attribute.

    Args:
        taxonomies: The owner's taxonomies by attribute.
    """
    return tuple(
        AttributeTask(
            plan.attribute(planned.name),
            planned.epsilon,
            planned.k,
            planned.mechanism,
            plan.max_records_per_person,
            taxonomies.get(planned.name),
            planned.rank_noise,
            planned.epsilon_spikes,
        )
        for planned in attributes
    )
