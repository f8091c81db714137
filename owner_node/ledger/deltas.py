"""The δ of all releases of a budget: the sum of their δ, beside ε and never a part of it.

Releases that are (ε, δ)-differentially private add up to the sum of all ε and the sum of all δ (basic
composition; Dwork, Kenthapadi, McSherry, Mironov, Naor 2006, Theorem 1).
"""

from collections.abc import Iterable
from decimal import Decimal

from common.errors import RefusedError
from owner_node.ledger.entry import Entry, exact_sum, standing_charges, text


def deltas(lines: Iterable[Entry]) -> Decimal:
    """Add up the δ of all charges that were not returned.

    Args:
        lines: Lines of the ledger about one budget, oldest first.
    """
    return exact_sum(line.delta for line in standing_charges(lines))


def objection(earlier: Decimal, delta: Decimal, limit: Decimal, budget: str) -> str:
    """Return the objection of a policy's limit to one more δ; empty if there is none.

    Args:
        limit: `policy.total_delta`; 0 where only ε-differential privacy is allowed.
    """
    if not delta or exact_sum([earlier, delta]) <= limit:
        return ""
    return (
        f"policy.total_delta = {text(limit)}: budget {budget!r} has had δ {text(earlier)}, "
        f"this would be {text(delta)} more"
    )


def check(lines: Iterable[Entry], delta: Decimal, limit: Decimal, budget: str) -> None:
    """Refuse a δ that exceeds the limit. Call it in the transaction of the charge."""
    rule = objection(deltas(lines), delta, limit, budget)
    if rule:
        raise RefusedError(rule, "a release without δ needs none of it", {"rule": rule})
