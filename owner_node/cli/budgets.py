"""What is left of every budget, as `status` and `ledger` show it."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from common import console
from common.shown_bounds import bound_cell
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
        Documents with budget, total, reserved, spent, remaining and rank_loss, what was told about who got
        which entries of lists; charges without a bound on that are not in it, but counted. Total and
        remaining are None for a budget that is not configured any more.
    """
    totals = {dataset.budget: dataset.total_epsilon for dataset in owner.datasets}
    charged = {entry.budget: None for entry in ledger.entries()}
    wanted = {**dict.fromkeys(totals), **charged} if budgets is None else dict.fromkeys(budgets)
    return [_document(name, ledger, totals.get(name)) for name in wanted]


def _document(name: str, ledger: Ledger, total: Decimal | None) -> dict[str, Any]:
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


def note_raised(owner: OwnerConfig, ledger: Ledger) -> None:
    """Say of every budget whose configured total is larger than the recorded one what that means."""
    for name, total in {each.budget: each.total_epsilon for each in owner.datasets}.items():
        recorded = ledger.total(name)
        if recorded is not None and total > recorded:
            console.note(
                f"warning: total_epsilon = {total:f} for budget {name!r}, the ledger has recorded "
                f"{recorded:f}: everything is refused until it is set back, or the change recorded with "
                "owner-node ledger budget"
            )


def show_balances(documents: list[dict[str, Any]]) -> None:
    """Print balances as a table."""
    columns = ("budget", "total", "reserved", "spent", "remaining")
    rows = [
        [*(each[column] for column in columns), bound_cell(each["rank_loss"]), each["without_rank_loss"]]
        for each in documents
    ]
    console.table("Budgets (epsilon)", (*columns, "rank loss", "charges without one"), rows)
