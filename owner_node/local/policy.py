"""What the owner's policy says about work at the owner itself, which no aggregator asks for.

Layouts, aggregators, purposes and co-owners speak of releases; whoever runs a command here is the person
that `approval` would ask. Everything else holds as it does for a release (`owner_node.consent.judge`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from common.errors import RefusedError
from common.privacy import is_listed

if TYPE_CHECKING:
    from owner_node.config import PolicyConfig


@dataclass(frozen=True, slots=True)
class Use:
    """What is done with one attribute."""

    attribute: str
    """Its name."""
    mechanism: str
    """Mechanism id."""
    k: int | None = None
    """Minimum cluster size; None where there are no clusters."""
    unbounded: bool = False
    """Whether there is no joint bound."""
    rank_noise: Decimal = Decimal(0)
    """w; 0 for none."""


def check_policy(
    policy: "PolicyConfig", uses: Sequence[Use], *, epsilon: Decimal, charge: Decimal | None, today: date
) -> None:
    """Refuse what the policy does not allow.

    Args:
        policy: The owner's policy.
        uses: What is done, attribute by attribute.
        epsilon: The sum of the attributes' shares.
        charge: What the ledger would take; None if this way of accounting has no bound for it.
        today: The date.

    Raises:
        RefusedError: With every rule that objects.
    """
    rules = list(dict.fromkeys([*_attributes(policy, uses), *_amount(policy, uses, epsilon, charge)]))
    check_rules([*rules, *outside_dates(policy, today)])


def check_rules(rules: Sequence[str]) -> None:
    """Refuse if any rule objects.

    Args:
        rules: The objections, in full.

    Raises:
        RefusedError: With all of them, the first as the deciding one.
    """
    if rules:
        raise RefusedError(
            "\n  ".join(rules),
            "nothing was spent; the policy is declared in owner.toml",
            {"rule": rules[0], "rules": list(rules)},
        )


def _attributes(policy: "PolicyConfig", uses: Sequence[Use]) -> Iterator[str]:
    for use in uses:
        if policy.attributes and use.attribute not in policy.attributes:
            yield f"policy.attributes does not list {use.attribute!r}"
        if use.mechanism not in policy.mechanisms:
            yield f"policy.mechanisms does not list {use.mechanism!r}"
        if use.k is not None and use.k < policy.min_k:
            yield f"policy.min_k = {policy.min_k}, {use.attribute!r} would be masked with k = {use.k}"
        if is_listed(use.mechanism) and use.rank_noise < policy.min_rank_noise:
            yield (
                f"policy.min_rank_noise = {policy.min_rank_noise:f}, {use.attribute!r} would be masked with "
                f"rank noise {use.rank_noise:f}"
            )


def _amount(
    policy: "PolicyConfig", uses: Sequence[Use], epsilon: Decimal, charge: Decimal | None
) -> Iterator[str]:
    if charge is None:
        unbounded = ", ".join(use.attribute for use in uses if use.unbounded)
        yield (
            f'policy.accounting = "{policy.accounting}" does not take attributes whose epsilon_joint '
            f"is not bounded: {unbounded}"
        )
    limit, largest = policy.max_epsilon_per_release, max(epsilon, charge or Decimal(0))
    if limit is not None and largest > limit:
        yield f"policy.max_epsilon_per_release = {limit}, this would charge {largest}"


def outside_dates(policy: "PolicyConfig", today: date) -> Iterator[str]:
    """Return the rules that object to a day on which the policy does not hold."""
    first, last = policy.valid_from, policy.valid_until
    if first is not None and today < first:
        yield f"policy.valid_from = {first}, today is {today}"
    if last is not None and today > last:
        yield f"policy.valid_until = {last}, today is {today}"
