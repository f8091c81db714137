"""How an epsilon is divided among groups and attributes (MECHANISMS §5).

Every group's attributes are about the same persons, so all shares add up (sequential composition); the
owners of a group hold different persons and each gets the group's shares whole (parallel composition).

References:
    Del Vasto-Terrientes et al. 2025, Theorems 1 and 2.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from common.errors import UsageError
from common.model.plan import BudgetSplit
from common.model.privacy import share, total, weighted_share


def shares(
    epsilon: Decimal,
    groups: Sequence[Sequence[str]],
    split: BudgetSplit = BudgetSplit.OWNER,
    weights: Mapping[str, Decimal] | None = None,
) -> dict[str, Decimal]:
    """Divide an epsilon.

    Args:
        epsilon: The whole.
        groups: The names of each group's attributes.
        split: How it is divided.
        weights: Every attribute's weight, for a split by weights.

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
        told = [f"no weight for {', '.join(lacking)}"] if lacking else []
        told += [f"a weight for {', '.join(unknown)}, not released"] if unknown else []
        raise UsageError(
            f"the weights do not fit the attributes: {'; '.join(told)}",
            "give every attribute of the release one weight: --weights age=2,income=1",
            {"lacking": lacking, "unknown": unknown},
        )
    return weights
