"""Limits of owners' policies that are public: an aggregator decides by them before it asks anybody.

The owner applies the same rules to its own policy before it consents, whatever an aggregator did.
Every rule yields texts that name the key of `[policy]`.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from common.errors import RefusedError
from common.model.mechanisms import MECHANISMS
from common.model.plan import Layout, Plan
from common.model.privacy import charge
from common.model.products import Product
from common.model.schema import Limits, Schema
from common.model.task import PlannedAttribute


def by_layout(limits: Limits, layout: Layout) -> Iterator[str]:
    """Object to a layout that a policy does not list."""
    if limits.layouts is not None and layout not in limits.layouts:
        yield f"policy.layouts does not list {str(layout)!r}"


def by_product(limits: Limits, product: Product) -> Iterator[str]:
    """Object to a product that a policy does not list."""
    if limits.products is not None and product not in limits.products:
        yield f"policy.products does not list {str(product)!r}"


def by_delta(limits: Limits, delta: Decimal) -> Iterator[str]:
    """Object to a δ above all that a policy allows."""
    if delta > limits.total_delta:
        yield f"policy.total_delta = {limits.total_delta:f}, the release would have δ {delta:f}"


def by_colluding(limits: Limits, plan: Plan) -> Iterator[str]:
    """Object to noise that allows fewer owners to collude than a policy asks for, or than there are."""
    if plan.synthesis is None:
        return
    # An owner that is alone in its group adds the whole noise: there all others may collude.
    n_others = max(map(len, plan.groups)) - 1
    needed = min(limits.min_colluding, n_others)
    if plan.synthesis.colluding < needed:
        yield (
            f"policy.min_colluding = {limits.min_colluding}, the noise of the plan allows "
            f"{plan.synthesis.colluding} of {n_others} co-owners to collude with the aggregator"
        )


def by_audit(limits: Limits, plan: Plan) -> Iterator[str]:
    """Object to counts of owners that keep what an audit needs for less time than a policy asks for."""
    if plan.product.rules.in_rounds and plan.audit_days < limits.audit_days:
        asked = f"one for {plan.audit_days} days" if plan.audit_days else "none"
        yield f'policy.require_audit = "{limits.audit_days}d", the plan asks for {asked}'


def by_mechanism(limits: Limits, attributes: Sequence[PlannedAttribute]) -> Iterator[str]:
    """Object to mechanisms that a policy does not list, and to k below its minimum."""
    allowed = MECHANISMS if limits.mechanisms is None else limits.mechanisms
    for mechanism in dict.fromkeys(each.mechanism for each in attributes):
        if mechanism not in allowed:
            yield f"policy.mechanisms does not list {mechanism!r}"
    for each in attributes:
        if each.k is not None and each.k < limits.min_k:
            yield f"policy.min_k = {limits.min_k}, {each.name!r} is planned with k = {each.k}"


def by_charge(
    limits: Limits, attributes: Sequence[PlannedAttribute], epsilon: Decimal, joint: Decimal | None
) -> Iterator[str]:
    """Object to a charge without a bound under a policy's accounting, and to one above its limit."""
    amount = charge(limits.accounting, epsilon, joint)
    if amount is None:
        unbounded = [each.name for each in attributes if each.epsilon_joint is None]
        yield (
            f'policy.accounting = "{limits.accounting}" does not take attributes whose epsilon_joint '
            f"is not bounded: {', '.join(unbounded)}"
        )
    limit, largest = limits.max_epsilon_per_release, max(epsilon, amount or Decimal(0))
    if limit is not None and largest > limit:
        yield f"policy.max_epsilon_per_release = {limit:f}, the release would charge {largest:f}"


def by_rank_noise(limits: Limits, attributes: Sequence[PlannedAttribute]) -> Iterator[str]:
    """Object to rank noise below a policy's minimum."""
    for each in attributes:
        if each.rules.listed and each.rank_noise < limits.min_rank_noise:
            yield (
                f"policy.min_rank_noise = {limits.min_rank_noise:f}, {each.name!r} is planned with rank "
                f"noise {each.rank_noise:f}"
            )


def by_matching(limits: Limits, plan: Plan) -> Iterator[str]:
    """Object to passes of match keys that a policy does not list, and to a quality below its minimum."""
    for each in plan.passes:
        if limits.passes is not None and each.name not in limits.passes:
            yield f"policy.passes does not list {each.name!r}"
    if plan.passes and plan.linking.min_match_quality < limits.min_match_quality:
        yield (
            f"policy.min_match_quality = {limits.min_match_quality:f}, the plan asks for "
            f"{plan.linking.min_match_quality:f}"
        )


def by_linking(limits: Limits, plan: Plan) -> Iterator[str]:
    """Object to an intersection that a policy does not allow, and to tokens without a linkage key."""
    if plan.linking.intersects and not limits.allow_intersect:
        yield "policy.allow_intersect = false, and the plan intersects groups that differ"
    if plan.linking.tokens and not limits.linkage_key:
        yield "there is no linkage key (owner-node linkage-key new at one owner, import at the others)"


def differing_counts(plan: Plan) -> str:
    """Name the numbers of records of owners that have to hold the same persons and cannot, or return "".

    The numbers are those that owners state, rounded down to their leading digits.
    """
    counts = {each.owner: each.records_rounded for each in plan.tasks}
    comparable = len(counts) == len(plan.groups) and plan.max_records_per_person == 1
    needs_equal = plan.linking.tokens and plan.linking.on_mismatch == "stop"
    if not (comparable and needs_equal) or len(set(counts.values())) == 1:
        return ""
    return ", ".join(f"{owner} has at least {count:,} records" for owner, count in counts.items())


def objections(plan: Plan, owner: str, limits: Limits) -> tuple[str, ...]:
    """Return every public limit of an owner that a plan exceeds."""
    own, most = plan.assignment_of(owner), plan.most_multiples
    return (
        *by_layout(limits, plan.layout),
        *by_product(limits, plan.product),
        *by_delta(limits, plan.delta),
        *by_colluding(limits, plan),
        *by_audit(limits, plan),
        *by_mechanism(limits, own.attributes),
        *by_charge(limits, own.attributes, own.epsilon_at(most), own.epsilon_joint_at(most)),
        *by_rank_noise(limits, own.attributes),
        *by_matching(limits, plan),
        *by_linking(limits, plan),
    )


def check_limits(plan: Plan, schemas: Mapping[str, Schema]) -> None:
    """Check a plan against the limits in the owners' schemas.

    Raises:
        RefusedError: Naming every limit that it exceeds.
    """
    found = {owner: objections(plan, owner, schemas[owner].limits) for owner in plan.owners}
    lines = [f"{owner}: {each}" for owner, rules in found.items() for each in rules]
    if lines:
        differing = differing_counts(plan)
        same_persons = f"; their persons differ ({differing}): see --on-mismatch" if differing else ""
        raise RefusedError(
            f"refused by limits that owners state in their schemas: {'; '.join(lines)}",
            "no owner was asked and nothing is charged; change the arguments, or leave these owners out"
            f"{same_persons}",
            {"owners": {owner: list(rules) for owner, rules in found.items() if rules}},
        )
