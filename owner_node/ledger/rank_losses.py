"""Privacy loss of the record-to-rank assignment over all releases: the sum of their rank losses.

A release with rank noise w has a rank loss of at most 2g/w per attribute (`common.model.privacy.rank_loss`),
and the losses of releases of the same data add up. A release without rank noise, with an order of categories
that comes from the data, has no bound: it is counted separately, since no sum can include it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from common.errors import RefusedError
from owner_node.ledger.entry import Entry, exact_sum, standing_charges, text


@dataclass(frozen=True, slots=True)
class RankLosses:
    """Rank losses of one budget."""

    bounded: Decimal
    """Sum of the bounded rank losses of reservations and spends."""
    unbounded: int
    """Number of charges without a bound."""


def rank_losses(lines: Iterable[Entry]) -> RankLosses:
    """Add up the rank losses of all charges that were not returned.

    Args:
        lines: Lines of the ledger about one budget, oldest first.
    """
    bounds = [line.rank_loss for line in standing_charges(lines)]
    return RankLosses(exact_sum(bound for bound in bounds if bound is not None), bounds.count(None))


def objection(earlier: Decimal, loss: Decimal | None, limit: Decimal | None, budget: str) -> str:
    """Return the objection of a policy's limit to one more loss; empty if there is none.

    Args:
        loss: The additional loss; None where it is unbounded.
        limit: `policy.total_rank_loss`; None for no limit.
    """
    if limit is None:
        return ""
    if loss is None:
        return (
            f"policy.total_rank_loss = {text(limit)} takes no lists without rank noise, and none of "
            "categories in an order that depends on the data"
        )
    # The limit does not apply to work without a rank loss, whatever the sum of earlier losses.
    if not loss or exact_sum([earlier, loss]) <= limit:
        return ""
    return (
        f"policy.total_rank_loss = {text(limit)}: budget {budget!r} has lost {text(earlier)}, "
        f"this would be {text(loss)} more"
    )


def check(lines: Iterable[Entry], loss: Decimal | None, limit: Decimal | None, budget: str) -> None:
    """Refuse a loss that exceeds the limit. Call it in the transaction of the charge."""
    rule = objection(rank_losses(lines).bounded, loss, limit, budget)
    if rule:
        raise RefusedError(rule, "more rank noise lowers the rank loss", {"rule": rule})
