"""What releases together tell about who got which entry of the lists: the sum of their rank losses.

Every release with rank noise w tells 2g/w at most per attribute (`common.model.privacy.rank_loss`), and
releases of the same data add up. What was released without rank noise, in an order of categories that comes
from the data, or by a version that recorded none, has no bound: it is counted, and no sum can have it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from common.errors import RefusedError
from owner_node.ledger.entry import CHARGES, Entry, Kind, added, text


@dataclass(frozen=True, slots=True)
class RankLosses:
    """What was told about ranks, from one budget."""

    told: Decimal
    """Sum of the rank losses of what was reserved or spent."""
    unbounded: int
    """How many charges had none, or none that was recorded."""


def rank_losses(lines: Iterable[Entry]) -> RankLosses:
    """Add up the rank losses of all charges that were not returned.

    Args:
        lines: What the ledger says about one budget, oldest first.
    """
    of_release: dict[tuple[str, str], dict[Kind, Entry]] = {}
    for line in (each for each in lines if each.kind in CHARGES):
        of_release.setdefault((line.aggregator, line.release), {})[line.kind] = line
    bounds = [
        found.get(Kind.SPEND, found[Kind.RESERVE]).rank_loss
        for found in of_release.values()
        # Beside a spend only what was not needed of the reservation is returned.
        if Kind.SPEND in found or Kind.RETURN not in found
    ]
    return RankLosses(added(each for each in bounds if each is not None), bounds.count(None))


def objection(told: Decimal, loss: Decimal | None, limit: Decimal | None, budget: str) -> str:
    """Return what a policy's limit has against one more loss; empty if nothing.

    Args:
        told: What was told before.
        loss: What would be told; None where it is not bounded.
        limit: `policy.total_rank_loss`; None for no limit.
        budget: Name of the budget.
    """
    if limit is None:
        return ""
    if loss is None:
        return (
            f"policy.total_rank_loss = {text(limit)} takes no lists without rank noise, and none of "
            "categories in an order that depends on the data"
        )
    # What tells nothing about ranks is no matter of this limit, whatever was told before.
    if not loss or added([told, loss]) <= limit:
        return ""
    return (
        f"policy.total_rank_loss = {text(limit)}: budget {budget!r} has lost {text(told)}, "
        f"this would be {text(loss)} more"
    )


def check(lines: Iterable[Entry], loss: Decimal | None, limit: Decimal | None, budget: str) -> None:
    """Refuse a loss that passes the limit; to be called in the transaction of the charge.

    Raises:
        RefusedError: If it does.
    """
    rule = objection(rank_losses(lines).told, loss, limit, budget)
    if rule:
        raise RefusedError(rule, "ask for more rank noise: less is told then", {"rule": rule})
