"""How an epsilon is divided among attributes, and how each attribute is planned.

From public quantities only, so that an aggregator plans the same as an owner would for itself. Every group's
attributes are about the same persons, so all shares add up (sequential composition); the owners of a group
hold different persons and each gets the group's shares whole (parallel composition).

References:
    Del Vasto-Terrientes et al. 2025, Theorems 1 and 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from common.errors import UnusableDataError, UsageError
from common.model.mechanisms import PublicNumbers, fault_of_k, resolve
from common.model.plan import BudgetSplit
from common.model.privacy import SMALLEST_K, share, total, weighted_share
from common.model.schema import Attribute, Schema, most_records
from common.model.task import PlannedAttribute, Task, planned_attribute
from common.planning.arguments import NONE, RankNoise


def plan_attribute(
    attribute: Attribute,
    *,
    mechanism: str,
    epsilon: Decimal,
    k: int | None,
    records_rounded: int,
    fewest_records: int | None = None,
    g: int = 1,
    least_k: int = SMALLEST_K,
    rank_noise: RankNoise = NONE,
    owners_rank_noise: Decimal | None = None,
) -> PlannedAttribute:
    """Plan one attribute.

    Args:
        attribute: Its settings.
        mechanism: The requested mechanism, or "auto"; attributes that are declared so are drawn from their
            taxonomy instead.
        epsilon: Its share of the budget.
        k: The requested minimum cluster size; None to choose it. A mechanism without clusters
            takes none.
        records_rounded: The owner's number of records, rounded down to its leading digit.
        fewest_records: That of the owner of its group with the fewest, which decides about "auto" for all of
            them; None for this owner.
        g: The most records that one person has.
        least_k: The smallest k that all policies accept.
        rank_noise: The requested rank noise.
        owners_rank_noise: What the owner's schema states; None for nothing.

    Raises:
        UsageError: If it has too many possible values to be counted.
    """
    public = PublicNumbers(records_rounded, attribute.n_values, epsilon, g)
    fewest = records_rounded if fewest_records is None else fewest_records
    chosen = resolve(attribute, mechanism, replace(public, n_records=fewest))
    of_list = replace(public, epsilon=epsilon - chosen.epsilon_of_spikes(attribute, epsilon))
    size = (k if chosen.clustered else None) or chosen.choose_k(of_list, least_k)
    return planned_attribute(
        attribute, chosen, size, public, rank_noise.of(attribute.name, chosen.id, owners_rank_noise)
    )


def check_k(mechanism: str, k: int | None, g: int) -> None:
    """Check the requested k.

    Args:
        mechanism: Mechanism id, or "auto".
        k: Minimum cluster size; None to choose it.
        g: The most records that one person has.

    Raises:
        UsageError: If the mechanism does not take it.
    """
    fault = None if k is None else fault_of_k(mechanism, k, g)
    if fault:
        raise UsageError(f"mechanism {fault}, k = {k} was requested", "choose another k, or auto")


def smallest_accepted_k(schemas: Sequence[Schema]) -> int:
    """Return the smallest k that the policies of all owners accept."""
    return max(SMALLEST_K, *(schema.limits.min_k for schema in schemas))


def check_records(tasks: Sequence[Task], schemas: Mapping[str, Schema]) -> None:
    """Check that every owner can have as many records as its largest k, and that noisy sums fit 63 bits.

    Numbers of records are rounded down. Only those that are too small in any case are refused here.

    Raises:
        UnusableDataError: Naming every owner that cannot, or every attribute whose sums do not fit.
    """
    _check_sums(tasks, schemas)
    short = []
    for task in tasks:
        most = most_records(schemas[task.owner].records_rounded)
        k = max((each.k for each in task.attributes if each.k is not None), default=1)
        if most < k:
            short.append({"owner": task.owner, "k": k})
    if short:
        named = ", ".join(f"{each['owner']} (k = {each['k']})" for each in short)
        raise UnusableDataError(
            f"fewer than k records at {named}: at least k are needed",
            "ask for a smaller k, or for a release without these owners; nothing was spent",
            {"owners": short},
        )


def _check_sums(tasks: Sequence[Task], schemas: Mapping[str, Schema]) -> None:
    g = max(schemas[task.owner].max_records_per_person for task in tasks)
    wide: dict[str, int] = {}
    for task in tasks:
        for each in task.attributes:
            n_values = schemas[task.owner].by_name[each.name].n_values
            if not each.rules.sums_fit(
                each.k, PublicNumbers(task.records_rounded, n_values, each.epsilon_list, g)
            ):
                wide[each.name] = n_values
    if wide:
        named = ", ".join(f"{name!r} ({n_values:,} possible values)" for name, n_values in wide.items())
        raise UnusableDataError(
            f"sums of clusters and their noise do not fit 63 bits for {named}",
            "have fewer decimals or a narrower domain declared, ask for a larger epsilon or a smaller k, or "
            "leave the attributes out; nothing was spent",
            {"attributes": list(wide)},
        )


def shares(
    epsilon: Decimal,
    groups: Sequence[Sequence[str]],
    split: BudgetSplit = BudgetSplit.OWNER,
    weights: Mapping[str, Decimal] | None = None,
) -> dict[str, Decimal]:
    """Divide an epsilon.

    Returns:
        Every attribute's share, each rounded down, so that they never sum to more than the whole.

    Raises:
        UsageError: If epsilon cannot be divided so finely, or weights do not fit the attributes.
    """
    names = [name for group in groups for name in group]
    if split is BudgetSplit.ATTRIBUTE:
        return dict.fromkeys(names, share(epsilon, len(names)))
    if split is BudgetSplit.WEIGHTS:
        fitting = _fitting(weights or {}, names)
        whole = total(fitting.values())
        return {name: weighted_share(epsilon, fitting[name], whole) for name in names}
    of_group = share(epsilon, len(groups))
    return {name: share(of_group, len(group)) for group in groups for name in group}


def _fitting(weights: Mapping[str, Decimal], names: Sequence[str]) -> Mapping[str, Decimal]:
    lacking = [name for name in names if name not in weights]
    unknown = [name for name in weights if name not in names]
    if lacking or unknown:
        faults = [f"no weight for {', '.join(lacking)}"] if lacking else []
        faults += [f"a weight for {', '.join(unknown)}, not released"] if unknown else []
        raise UsageError(
            f"the weights do not fit the attributes: {'; '.join(faults)}",
            "give every attribute of the release one weight: --weights age=2,income=1",
            {"lacking": lacking, "unknown": unknown},
        )
    return weights
