"""Rules of the owner's policy: each stands for a key of `[policy]`.

A new rule is a key of `[policy]` and a function here, listed in the tuple below for the work that it judges.
`owner_node.consent.judge` applies the rules to releases, `owner_node.local.charge` to masks and queries that
an owner makes for itself. Layouts, aggregators, co-owners, purposes and linking concern releases only.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from common.model.products import Product
from common.planning.limits import (
    by_audit,
    by_charge,
    by_colluding,
    by_layout,
    by_linking,
    by_matching,
    by_mechanism,
    by_product,
    by_rank_noise,
)
from owner_node.consent.plan_rules import JudgedWork, Objection, PlannedWork, Request
from owner_node.ledger import deltas, rank_losses

if TYPE_CHECKING:
    from owner_node.config import PolicyConfig


def attributes(work: JudgedWork) -> Iterator[Objection]:
    """Object to attributes that the policy does not list."""
    for name in work.attributes:
        if work.policy.attributes and name not in work.policy.attributes:
            yield Objection(f"policy.attributes does not list {name!r}")


def amount(work: JudgedWork) -> Iterator[Objection]:
    """Object to a charge without a bound under the policy's accounting, and to one above its limit."""
    most, planned = work.most, work.assignment.attributes if isinstance(work, PlannedWork) else ()
    for rule in by_charge(work.policy.limits, planned, most.epsilon, most.epsilon_joint):
        yield Objection(rule)


def delta(work: JudgedWork) -> Iterator[Objection]:
    """Object to a δ that the policy does not allow."""
    rule = deltas.objection(work.delta_spent, work.most.delta, work.policy.total_delta, work.dataset.budget)
    if rule:
        yield Objection(rule)


def products(product: Product, policy: "PolicyConfig") -> Iterator[Objection]:
    """Object to a product that the policy does not list."""
    for rule in by_product(policy.limits, product):
        yield Objection(rule)


def mechanisms(work: PlannedWork) -> Iterator[Objection]:
    """Object to mechanisms that the policy does not list, and to k below its minimum."""
    for rule in by_mechanism(work.policy.limits, work.assignment.attributes):
        yield Objection(rule)


def rank_noise(work: PlannedWork) -> Iterator[Objection]:
    """Object to rank noise below the least of policy or data set, and to a rank loss above its limit."""
    for rule in by_rank_noise(work.policy.limits, work.assignment.attributes):
        yield Objection(rule)
    dataset, least = work.dataset, work.dataset.rank_noise or Decimal(0)
    for planned in work.assignment.attributes:
        if planned.rules.listed and planned.rank_noise < least:
            yield Objection(
                f"rank_noise of data set {dataset.name!r} = {least:f}, {planned.name!r} is planned with rank "
                f"noise {planned.rank_noise:f}"
            )
    rule = rank_losses.objection(
        work.rank_lost, work.most.rank_loss, work.policy.total_rank_loss, dataset.budget
    )
    if rule:
        yield Objection(rule)


def dates(work: JudgedWork) -> Iterator[Objection]:
    """Object to work outside the policy's dates of validity."""
    first, last = work.policy.valid_from, work.policy.valid_until
    if first is not None and work.today < first:
        yield Objection(f"policy.valid_from = {first}, today is {work.today}")
    if last is not None and work.today > last:
        yield Objection(f"policy.valid_until = {last}, today is {work.today}")


def names(request: Request) -> Iterator[Objection]:
    """Object to a layout, audit, aggregator, co-owner or purpose that the policy does not list."""
    policy, plan = request.policy, request.plan
    yield from products(plan.product, policy)
    for rule in (*by_colluding(policy.limits, plan), *by_audit(policy.limits, plan)):
        yield Objection(rule)
    for rule in by_layout(policy.limits, plan.layout):
        yield Objection(rule)
    if policy.aggregators and request.aggregator_name not in policy.aggregators:
        yield Objection(f"policy.aggregators does not list {request.aggregator_name!r}")
    if policy.co_owners:
        for owner in (name for name in plan.owners if name != request.owner_id and name not in policy.pins):
            yield Objection(f"policy.co_owners does not list {owner!r}")
    if policy.purposes and plan.purpose not in policy.purposes:
        yield Objection("policy.purposes does not list the purpose of the plan, word for word")


def linking(request: Request) -> Iterator[Objection]:
    """Object to linking, and to a column of owners, that the policy does not allow."""
    policy, bounds = request.policy, request.plan.linking
    if bounds.max_overlap > policy.max_overlap:
        yield Objection(f"policy.max_overlap = {policy.max_overlap}, the plan allows {bounds.max_overlap}")
    for rule in by_matching(policy.limits, request.plan):
        yield Objection(rule)
    if request.plan.owner_column and not policy.allow_owner_column:
        yield Objection("policy.allow_owner_column = false, and the release states the owner of every record")
    for rule in by_linking(policy.limits, request.plan):
        yield Objection(rule)


OF_ALL_WORK = (attributes, dates, delta)
"""Rules for releases, masks, queries and synthetic tables."""
OF_LISTS = (mechanisms,)
"""Rules for work that masks attributes or asks about one."""
OF_AMOUNTS = (amount, rank_noise)
"""Rules for such work that compute with its shares; applied only where their sums are exact."""
OF_RELEASES = (names, linking)
"""Rules for releases only."""
