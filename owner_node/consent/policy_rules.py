"""The owner's policy: every rule that a key of `[policy]` stands for, and nothing else.

A new rule is a key of `[policy]` and a function here, in the tuple below of the work that it is for.
`owner_node.consent.judge` applies them, to releases and to masks and queries that an owner makes for itself.
Layouts, aggregators, co-owners, purposes and linking speak of releases alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from common.model.mechanisms import MECHANISMS
from owner_node.consent.plan_rules import Objection, Request, Work
from owner_node.ledger.rank_losses import objection
from owner_node.masking.foreseen import Forecast

if TYPE_CHECKING:
    from owner_node.config import PolicyConfig
    from owner_node.masking.engine import Engine
    from owner_node.masking.tasks import AttributeTask

DEVIATIONS = 4
"""How many standard errors an estimate has to be away from a limit to decide about it."""


def attributes(work: Work) -> Iterator[Objection]:
    """Object to attributes that may not take part."""
    for planned in work.assignment.attributes:
        if work.policy.attributes and planned.name not in work.policy.attributes:
            yield Objection(f"policy.attributes does not list {planned.name!r}")


def amount(work: Work) -> Iterator[Objection]:
    """Object to a charge that the policy has no bound for, or that is above its limit."""
    policy, amount = work.policy, work.charge
    if amount is None:
        unbounded = [each.name for each in work.assignment.attributes if each.epsilon_joint is None]
        yield Objection(
            f'policy.accounting = "{policy.accounting}" does not take attributes whose epsilon_joint '
            f"is not bounded: {', '.join(unbounded)}"
        )
    limit = policy.max_epsilon_per_release
    largest = max(work.most.epsilon, amount or Decimal(0))
    if limit is not None and largest > limit:
        yield Objection(f"policy.max_epsilon_per_release = {limit}, the release would charge {largest}")


def mechanisms(work: Work) -> Iterator[Objection]:
    """Object to mechanisms and cluster sizes."""
    policy, planned = work.policy, work.assignment.attributes
    for mechanism in dict.fromkeys(each.mechanism for each in planned):
        if mechanism not in policy.mechanisms or mechanism not in MECHANISMS:
            yield Objection(f"policy.mechanisms does not list {mechanism!r}")
    for each in planned:
        if each.k is not None and each.k < policy.min_k:
            yield Objection(f"policy.min_k = {policy.min_k}, {each.name!r} is planned with k = {each.k}")


def rank_noise(work: Work) -> Iterator[Objection]:
    """Object to less rank noise than the policy asks for, and to more rank loss than it allows."""
    policy = work.policy
    for planned in work.assignment.attributes:
        if planned.rules.listed and planned.rank_noise < policy.min_rank_noise:
            yield Objection(
                f"policy.min_rank_noise = {policy.min_rank_noise:f}, {planned.name!r} is planned with rank "
                f"noise {planned.rank_noise:f}"
            )
    rule = objection(work.rank_lost, work.most.rank_loss, policy.total_rank_loss, work.dataset.budget)
    if rule:
        yield Objection(rule)


def dates(work: Work) -> Iterator[Objection]:
    """Object outside the days on which the policy holds."""
    first, last = work.policy.valid_from, work.policy.valid_until
    if first is not None and work.today < first:
        yield Objection(f"policy.valid_from = {first}, today is {work.today}")
    if last is not None and work.today > last:
        yield Objection(f"policy.valid_until = {last}, today is {work.today}")


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
    """Object to bounds for linking that are wider than the policy's."""
    policy, bounds = request.policy, request.plan.linking
    if bounds.max_overlap > policy.max_overlap:
        yield Objection(f"policy.max_overlap = {policy.max_overlap}, the plan allows {bounds.max_overlap}")
    if bounds.intersects and not policy.allow_intersect:
        yield Objection("policy.allow_intersect = false, and the plan intersects groups that differ")


OF_ALL_WORK = (attributes, mechanisms, dates)
"""Rules for releases, masks and queries."""
OF_AMOUNTS = (amount, rank_noise)
"""Rules for all work that compute with its shares; applied where sums of them are exact."""
OF_RELEASES = (names, linking)
"""Rules for releases alone."""


# --- limits on a forecast --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Limit:
    """One number of a forecast and the most that a policy allows."""

    key: str
    most: Decimal
    found: Decimal
    deviation: Decimal
    what: str

    @property
    def objection(self) -> str:
        return f"policy.{self.key} = {self.most}: {self.found} of {self.what}"


def forecast_objections(forecast: Forecast, policy: "PolicyConfig") -> tuple[str, ...]:
    """Return every limit of a policy that a forecast exceeds, in full, for the owner alone.

    What is judged is an expectation, never a fragment: refusing fragments by what was drawn would change the
    probabilities that the guarantee speaks of.
    """
    return tuple(limit.objection for limit in _limits(forecast, policy) if limit.found > limit.most)


def has_limits(policy: "PolicyConfig") -> bool:
    """Whether a policy limits anything that is foreseen, so that an acceptance says something of the data."""
    limits = (policy.max_zero_noise_share, policy.max_unchanged_share, policy.max_unchanged_record_share)
    return any(each is not None for each in limits)


def is_close(forecast: Forecast, policy: "PolicyConfig") -> bool:
    """Whether chance could have put a number of a forecast on the wrong side of a limit."""
    return any(
        abs(limit.found - limit.most) <= DEVIATIONS * limit.deviation and limit.deviation > 0
        for limit in _limits(forecast, policy)
    )


def _limits(forecast: Forecast, policy: "PolicyConfig") -> Iterator[_Limit]:
    zero_noise, values, records = (
        (forecast.zero_noise, Decimal(0), "the values would get no noise"),
        (forecast.unchanged_values, forecast.deviation, "the values are expected to leave unchanged"),
        (
            forecast.unchanged_records,
            # A share of whole records moves by at most about what the shares of all attributes move by.
            forecast.deviation * len(forecast.attributes),
            "the records are expected to leave unchanged as a whole",
        ),
    )
    for key, most, number in (
        ("max_zero_noise_share", policy.max_zero_noise_share, zero_noise),
        # It stands for records too: a record leaves unchanged with all its values, so no more of them can.
        ("max_unchanged_share", policy.max_unchanged_share, values),
        ("max_unchanged_record_share", policy.max_unchanged_record_share, records),
    ):
        if most is not None:
            yield _Limit(key, most, *number)


def foresee(records: "Engine", tasks: "Sequence[AttributeTask]", policy: "PolicyConfig") -> Forecast:
    """Compute what masking is expected to do to an owner's data, more closely where it is near a limit.

    For their owner alone: it depends on the data.

    Args:
        records: The original records.
        tasks: How each attribute is masked.
        policy: The owner's policy.
    """
    from owner_node.masking.forecast import forecast

    found = forecast(records.columns, tasks)
    return forecast(records.columns, tasks, closely=True) if is_close(found, policy) else found
