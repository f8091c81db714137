"""The budgets of an owner: totals, what is spent, what is left."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from common.errors import TesseraError
from owner_node.config import OwnerConfig
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import FILE_NAME


def balances(
    owner: OwnerConfig, ledger: Ledger, budgets: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Return the balances of budgets, in the order of the configuration.

    Args:
        owner: The configuration, which holds the totals.
        budgets: Which ones; None for every configured one, and every other that the ledger ever charged.

    Returns:
        Documents with budget, total, reserved, spent, remaining, rank_loss (privacy loss of record-to-rank
        assignments), without_rank_loss (number of charges without a bound on it, which are not in the sum)
        and delta (the sum of δ). Total and remaining are None for a budget that is no longer configured.
    """
    totals = {dataset.budget: dataset.total_epsilon for dataset in owner.datasets}
    if budgets is None:
        budgets = (*totals, *(entry.budget for entry in ledger.entries()))
    wanted = dict.fromkeys(budgets)
    return [_budget_document(name, ledger, totals.get(name)) for name in wanted]


def _budget_document(name: str, ledger: Ledger, total: Decimal | None) -> dict[str, Any]:
    losses = ledger.rank_losses(name)
    balance = ledger.balance(name, Decimal(0) if total is None else total)
    return {
        "budget": name,
        "total": None if total is None else balance.total,
        "reserved": balance.reserved,
        "spent": balance.spent,
        "remaining": None if total is None else balance.remaining,
        "rank_loss": losses.bounded,
        "without_rank_loss": losses.unbounded,
        "delta": ledger.deltas(name),
    }


def unrecorded(owner: OwnerConfig, ledger: Ledger) -> TesseraError | None:
    """Return the error for budgets whose configured total is larger than the recorded one; None if none."""
    try:
        ledger.check_totals({dataset.budget: dataset.total_epsilon for dataset in owner.datasets})
    except TesseraError as error:
        return error
    return None


def ledger_warnings(owner: OwnerConfig, ledger: Ledger) -> list[str]:
    """Return why the balances may not be what they seem: a ledger that is absent, lost or behind."""
    warnings = []
    if not (owner.owner.state_dir / FILE_NAME).is_file():
        enrolled = owner.tls.cert.is_file()
        text = f"there is no ledger in {owner.owner.state_dir}: these balances are the totals of owner.toml"
        if enrolled:
            text += (
                ". This owner has a certificate; if it has charged anything before, the ledger is lost: put "
                "the newest backup back (owner-node restore), or let aggregators say what was released "
                "(owner-node ledger recover), and start nothing before"
            )
        warnings.append(f"{text}; is state_dir the right folder?")
    problem, halted = unrecorded(owner, ledger), ledger.losses.reason()
    if problem is not None:
        warnings.append(f"{problem.message}; {problem.hint}")
    if halted is not None:
        warnings.append(f"no work is done: {halted.message}; {halted.hint}")
    return warnings
