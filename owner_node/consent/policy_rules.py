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
from common.model.privacy import MECHANISMS, is_listed, smallest_k
from owner_node.consent.plan_rules import Objection, Request
from owner_node.ledger.rank_losses import objection

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


def amount(request: Request) -> Iterator[Objection]:
    """Object to a charge that the policy has no bound for, or that is above its limit."""
    policy, amount = request.policy, request.charge
    if amount is None:
        unbounded = [each.name for each in request.assignment.attributes if each.epsilon_joint is None]
        yield Objection(
            f'policy.accounting = "{policy.accounting}" does not take attributes whose epsilon_joint '
            f"is not bounded: {', '.join(unbounded)}"
        )
    limit = policy.max_epsilon_per_release
    largest = max(request.most.epsilon, amount or Decimal(0))
    if limit is not None and largest > limit:
        yield Objection(f"policy.max_epsilon_per_release = {limit}, the release would charge {largest}")


def mechanisms(request: Request) -> Iterator[Objection]:
    """Object to mechanisms and cluster sizes."""
    policy, plan = request.policy, request.plan
    for mechanism in dict.fromkeys(each.mechanism for each in request.assignment.attributes):
        if mechanism not in policy.mechanisms or mechanism not in MECHANISMS:
            yield Objection(f"policy.mechanisms does not list {mechanism!r}")
    for planned in request.assignment.attributes:
        if planned.k is not None and planned.k < policy.min_k:
            yield Objection(
                f"policy.min_k = {policy.min_k}, {planned.name!r} is planned with k = {planned.k}"
            )
        if planned.mechanism not in MECHANISMS:
            continue
        least = smallest_k(planned.mechanism, plan.max_records_per_person)
        if least is None and planned.k is not None:
            yield Objection(f"{planned.mechanism} takes no k, {planned.name!r} has {planned.k}")
        if least is not None and (planned.k is None or planned.k < least):
            yield Objection(
                f"{planned.mechanism} takes k of at least {least}, {planned.name!r} has {planned.k}"
            )


def rank_noise(request: Request) -> Iterator[Objection]:
    """Object to little rank noise, and to more being told about ranks than the policy allows."""
    policy = request.policy
    for planned in request.assignment.attributes:
        if is_listed(planned.mechanism) and planned.rank_noise < policy.min_rank_noise:
            yield Objection(
                f"policy.min_rank_noise = {policy.min_rank_noise:f}, {planned.name!r} is planned with rank "
                f"noise {planned.rank_noise:f}"
            )
    rule = objection(
        request.rank_lost, request.most.rank_loss, policy.total_rank_loss, request.dataset.budget
    )
    if rule:
        yield Objection(rule)


def names(request: Request) -> Iterator[Objection]:
    """Object to a layout, aggregator, co-owner or purpose that the policy does not list."""
    policy, plan = request.policy, request.plan
    if plan.layout not in policy.layouts:
        yield Objection(f"policy.layouts does not list {str(plan.layout)!r}")
    if policy.aggregators and request.aggregator_name not in policy.aggregators:
        yield Objection(f"policy.aggregators does not list {request.aggregator_name!r}")
    if policy.co_owners:
        for owner in (each for each in plan.owners if each != request.owner_id and each not in policy.pins):
            yield Objection(f"policy.co_owners does not list {owner!r}")
    if policy.purposes and plan.purpose not in policy.purposes:
        yield Objection("policy.purposes does not list the purpose of the plan, word for word")


def linking(request: Request) -> Iterator[Objection]:
    """Object to more being allowed of what linking may find than the policy does."""
    policy, bounds = request.policy, request.plan.linking
    if bounds.max_overlap > policy.max_overlap:
        yield Objection(f"policy.max_overlap = {policy.max_overlap}, the plan allows {bounds.max_overlap}")
    if bounds.intersects and not policy.allow_intersect:
        yield Objection("policy.allow_intersect = false, and the plan intersects groups that differ")


def dates(request: Request) -> Iterator[Objection]:
    """Object outside the days on which the policy holds."""
    yield from map(Objection, outside_dates(request.policy, request.today))
