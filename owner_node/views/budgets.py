"""The budgets of an owner: totals, what is spent, what is left."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from owner_node.config import OwnerConfig
from owner_node.ledger.ledger import Ledger


def balances(
    owner: OwnerConfig, ledger: Ledger, budgets: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Return the balances of budgets, in the order of the configuration.

    Args:
        owner: The configuration, which holds the totals.
        ledger: The ledger.
        budgets: Which ones; None for every configured one, and every other that the ledger ever charged.

    Returns:
        Documents with budget, total, reserved, spent, remaining, rank_loss (privacy loss of record-to-rank
        assignments) and without_rank_loss (number of charges without a bound on it, which are not in the
        sum). Total and remaining are None for a budget that is no longer configured.
    """
    totals = {dataset.budget: dataset.total_epsilon for dataset in owner.datasets}
    charged = {entry.budget: None for entry in ledger.entries()}
    wanted = {**dict.fromkeys(totals), **charged} if budgets is None else dict.fromkeys(budgets)
    return [_budget_document(name, ledger, totals.get(name)) for name in wanted]


def _budget_document(name: str, ledger: Ledger, total: Decimal | None) -> dict[str, Any]:
    losses = ledger.rank_losses(name)
    found = ledger.balance(name, Decimal(0) if total is None else total)
    return {
        "budget": name,
        "total": None if total is None else found.total,
        "reserved": found.reserved,
        "spent": found.spent,
        "remaining": None if total is None else found.remaining,
        "rank_loss": losses.told,
        "without_rank_loss": losses.unbounded,
    }


def raised(owner: OwnerConfig, ledger: Ledger) -> Iterator[str]:
    """Yield a warning for every budget whose configured total is larger than the recorded one."""
    for name, total in {each.budget: each.total_epsilon for each in owner.datasets}.items():
        recorded = ledger.total(name)
        if recorded is not None and total > recorded:
            yield (
                f"total_epsilon = {total:f} for budget {name!r}, the ledger has recorded "
                f"{recorded:f}: everything is refused until it is set back, or the change recorded with "
                "owner-node ledger budget"
            )
