"""What the owner's policy has against a plan that is what it says."""

from collections.abc import Iterator
from decimal import Decimal

from common.privacy import MECHANISMS, is_listed, smallest_k
from owner_node.consent.request import Objection, Request
from owner_node.ledger.rank_losses import objection
from owner_node.local.policy import outside_dates


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
