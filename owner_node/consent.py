"""May this plan be accepted? An owner's own arithmetic and policy, on a plan as if it came from a stranger.

Every rule is a function that yields its objections; all of them are collected, in an order that puts what
makes the plan wrong before what the policy does not want, and the balance last. The first is the one that
decides. The owner's history gets all of them in full; the aggregator hears a code and one fixed sentence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal, Inexact
from typing import TYPE_CHECKING

from common.errors import BalanceError, InternalError, RefusedError, TesseraError, UnusableDataError
from common.plan import BudgetSplit, Layout, Plan, PlannedAttribute, Task
from common.privacy import (
    EXPONENTIAL,
    LARGEST_EPSILON,
    LARGEST_JOINT,
    MECHANISMS,
    SHARE_PLACES,
    Accounting,
    charge,
    epsilon_joint,
    is_share,
    most_clusters,
    plain,
    smallest_k,
    total,
)
from common.schema import Schema, TaxonomyMethod, most_records

if TYPE_CHECKING:
    from owner_node.config import DatasetConfig, PolicyConfig

# Decimals pass `_arithmetic` before they are multiplied; a product that had to be rounded would be a fault.
_EXACT = Context(prec=60, traps=[Inexact])


@dataclass(frozen=True, slots=True)
class Accept:
    """The plan may be accepted; what is charged for it."""

    charge: Decimal
    """What the ledger takes."""
    budget: str
    """Which budget it is taken from."""
    epsilon: Decimal
    """Sum of the shares of the task's attributes."""
    epsilon_joint: Decimal | None
    """Sum of their joint bounds; None where one has none."""
    accounting: Accounting
    """Which of the two is charged."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The plan is refused."""

    error: TesseraError
    """For the owner, in full."""
    rule: str
    """The deciding rule in full, for the owner's history."""
    all_rules: tuple[str, ...]
    """Every rule that objects, the deciding one first."""


Verdict = Accept | Refuse


@dataclass(frozen=True, slots=True)
class _Request:
    """What the rules look at."""

    plan: Plan
    task: Task
    owner_id: str
    aggregator_name: str
    trust_domain: str
    policy: "PolicyConfig"
    dataset: "DatasetConfig"
    schema: Schema
    balance: Decimal
    today: date

    @property
    def charge(self) -> Decimal | None:
        return charge(self.policy.accounting, self.task.epsilon, self.task.epsilon_joint)


@dataclass(frozen=True, slots=True)
class _Objection:
    rule: str
    cause: type[TesseraError] = RefusedError


def judge(
    plan: Plan,
    task: Task,
    *,
    owner_id: str,
    aggregator_name: str,
    trust_domain: str,
    policy: "PolicyConfig",
    dataset: "DatasetConfig",
    schema: Schema,
    balance: Decimal,
    today: date,
) -> Verdict:
    """Judge a plan.

    Args:
        plan: The plan, its signature and certificate checked already.
        task: The owner's task in it.
        owner_id: This owner's id.
        aggregator_name: The aggregator that sent it, by its certificate.
        trust_domain: The configured trust domain.
        policy: The owner's policy.
        dataset: The data set that the task names.
        schema: The owner's own schema of it, made anew from the configuration.
        balance: What remains of the data set's budget.
        today: The date.

    Returns:
        Accept with the charge, or Refuse with every rule that objects.
    """
    request = _Request(
        plan, task, owner_id, aggregator_name, trust_domain, policy, dataset, schema, balance, today
    )
    return _verdict(request)


def _verdict(request: _Request) -> Verdict:
    objections = [*_parties(request), *_settings(request)]
    shares = list(_shares(request))
    # Sums of decimals that are out of bounds would be rounded, so nothing is computed with them.
    objections += shares or [each for rule in _BY_AMOUNT for each in rule(request)]
    objections += [each for rule in _BY_NAME for each in rule(request)]
    if objections:
        return _refuse(request, objections)
    task, budget, amount = request.task, request.dataset.budget, request.charge
    if amount is None:
        raise InternalError("a plan without a charge passed every rule")
    if amount > request.balance:
        error = BalanceError(budget, format(plain(amount), "f"), format(plain(request.balance), "f"))
        return Refuse(error, error.message, (error.message,))
    return Accept(amount, budget, task.epsilon, task.epsilon_joint, request.policy.accounting)


def _refuse(request: _Request, objections: list[_Objection]) -> Refuse:
    rules = tuple(dict.fromkeys(each.rule for each in objections))
    # Data that cannot take part are told as such only if nothing else stands against the plan.
    refused = [each for each in objections if each.cause is RefusedError]
    deciding = (refused or objections)[0]
    error = deciding.cause(
        deciding.rule,
        "nothing was spent; the owner's policy and data set are declared in owner.toml",
        {"release": request.plan.release, "rule": deciding.rule, "rules": list(rules)},
    )
    return Refuse(error, deciding.rule, (deciding.rule, *(rule for rule in rules if rule != deciding.rule)))


def _parties(request: _Request) -> Iterator[_Objection]:
    plan, task = request.plan, request.task
    expected = f"spiffe://{request.trust_domain}/aggregator/{request.aggregator_name}"
    if plan.aggregator != expected:
        yield _Objection(f"plan.aggregator must be {expected}, which sent the plan")
    if [each for each in plan.tasks if each.owner == request.owner_id] != [task]:
        yield _Objection(f"plan.tasks must hold exactly one task of owner {request.owner_id!r}, this one")
    if task.dataset != request.dataset.name:
        yield _Objection(f"plan.tasks must name data set {request.dataset.name!r}")
    if plan.layout is Layout.HORIZONTAL and plan.n_groups > 1:
        yield _Objection("plan.layout: a horizontal release has one group of attributes")
    if plan.layout is Layout.VERTICAL and plan.n_groups != len(plan.tasks):
        yield _Objection("plan.layout: a vertical release has one owner in every group")


def _settings(request: _Request) -> Iterator[_Objection]:
    plan, schema, policy = request.plan, request.schema, request.policy
    for planned in request.task.attributes:
        own, name = schema.by_name.get(planned.name), planned.name
        if policy.attributes and name not in policy.attributes:
            yield _Objection(f"policy.attributes does not list {name!r}")
        elif own is None:
            yield _Objection(f"dataset.attributes does not declare {name!r}")
        elif plan.attribute(name) != own:
            yield _Objection(f"attribute {name!r} is planned with other settings than declared here")
        elif (planned.mechanism == EXPONENTIAL) != (own.method is TaxonomyMethod.EXPONENTIAL):
            yield _Objection(f"method of {name!r} is {own.method} here, not mechanism {planned.mechanism}")
    if plan.identifier != schema.identifier:
        yield _Objection("the identifier rules of the plan are not those declared here")
    yield from _linking(request)
    if plan.max_records_per_person < schema.max_records_per_person:
        yield _Objection(
            f"max_records_per_person = {schema.max_records_per_person} here, "
            f"the plan protects only {plan.max_records_per_person}"
        )
    if plan.n_groups > 1 and plan.max_records_per_person > 1:
        yield _Objection("groups of attributes can only be aligned where every person has one record")


def _linking(request: _Request) -> Iterator[_Objection]:
    plan, linking = request.plan, request.plan.linking
    if linking.tokens and request.schema.identifier is None:
        yield _Objection("linking by tokens needs an identifier, and none is declared here")
    if request.schema.identifier is not None and len(plan.tasks) > 1 and not linking.tokens:
        yield _Objection("an identifier is declared here, so overlaps must be checked, and the plan does not")
    if linking.max_overlap != 1:
        yield _Objection(f"max_overlap = 1 here, the plan allows {linking.max_overlap}")
    if linking.on_mismatch != "stop":
        yield _Objection('on_mismatch must be "stop": intersecting is not allowed here')


def _shares(request: _Request) -> Iterator[_Objection]:
    task = request.task
    named = [("epsilon", request.plan.epsilon, LARGEST_EPSILON)]
    named += [(f"epsilon of {each.name!r}", each.epsilon, LARGEST_EPSILON) for each in task.attributes]
    named += [
        (f"epsilon_joint of {each.name!r}", each.epsilon_joint, LARGEST_JOINT)
        for each in task.attributes
        if each.epsilon_joint is not None
    ]
    for what, value, largest in named:
        if not is_share(value, largest):
            places = f"at most {SHARE_PLACES} decimal places"
            yield _Objection(f"{what} must be positive, at most {largest:f}, with {places}")


def _composition(request: _Request) -> Iterator[_Objection]:
    """Sequential within the owner and between groups, parallel within a group (MECHANISMS §5)."""
    plan, task = request.plan, request.task
    # Multiplied, not divided: a share that was rounded down stays comparable without rounding.
    whole = _EXACT.multiply(task.epsilon, Decimal(plan.n_groups))
    if plan.budget_split is not BudgetSplit.OWNER:
        yield from _shares_of_person(plan)
    elif whole > plan.epsilon:
        yield _Objection(
            f"the shares of this owner add up to {task.epsilon}, "
            f"more than epsilon {plan.epsilon} over {plan.n_groups} groups"
        )
    for planned in (each for each in task.attributes if each.mechanism in MECHANISMS):
        stated, found = planned.epsilon_joint, _joint(request, planned)
        if stated != found:
            told, bound = _bound_text(stated), _bound_text(found)
            yield _Objection(f"epsilon_joint of {planned.name!r} is {bound}, the plan says {told}")


def _shares_of_person(plan: Plan) -> Iterator[_Objection]:
    by_group = [[each.epsilon for each in plan.tasks if each.group == g] for g in range(plan.n_groups)]
    of_person = total(max(epsilons) for epsilons in by_group)
    if of_person > plan.epsilon:
        yield _Objection(f"the shares of one person add up to {of_person}, more than epsilon {plan.epsilon}")


def _joint(request: _Request, planned: PlannedAttribute) -> Decimal | None:
    own = request.schema.by_name.get(planned.name)
    # The order that counts is the one this owner masks with; without one the plan's is as good as any.
    settings = own if own is not None else request.plan.attribute(planned.name)
    # Of this owner's own rounded number of records: the plan's could be made to state a smaller bound.
    n_clusters = most_clusters(most_records(request.schema.records_rounded), planned.k)
    return epsilon_joint(
        planned.mechanism, planned.epsilon, frequency_order=settings.by_frequency, n_clusters=n_clusters
    )


def _bound_text(bound: Decimal | None) -> str:
    return "not bounded" if bound is None else format(plain(bound), "f")


def _amount(request: _Request) -> Iterator[_Objection]:
    policy, amount = request.policy, request.charge
    if amount is None:
        unbounded = [each.name for each in request.task.attributes if each.epsilon_joint is None]
        yield _Objection(
            f'policy.accounting = "{policy.accounting}" does not take attributes whose epsilon_joint '
            f"is not bounded: {', '.join(unbounded)}"
        )
    limit = policy.max_epsilon_per_release
    largest = max(request.task.epsilon, amount or Decimal(0))
    if limit is not None and largest > limit:
        yield _Objection(f"policy.max_epsilon_per_release = {limit}, the release would charge {largest}")


def _mechanisms(request: _Request) -> Iterator[_Objection]:
    policy, plan = request.policy, request.plan
    for mechanism in dict.fromkeys(each.mechanism for each in request.task.attributes):
        if mechanism not in policy.mechanisms or mechanism not in MECHANISMS:
            yield _Objection(f"policy.mechanisms does not list {mechanism!r}")
    for planned in request.task.attributes:
        if planned.k is not None and planned.k < policy.min_k:
            yield _Objection(
                f"policy.min_k = {policy.min_k}, {planned.name!r} is planned with k = {planned.k}"
            )
        if planned.mechanism not in MECHANISMS:
            continue
        least = smallest_k(planned.mechanism, plan.max_records_per_person)
        if least is None and planned.k is not None:
            yield _Objection(f"{planned.mechanism} takes no k, {planned.name!r} has {planned.k}")
        if least is not None and (planned.k is None or planned.k < least):
            yield _Objection(
                f"{planned.mechanism} takes k of at least {least}, {planned.name!r} has {planned.k}"
            )


def _names(request: _Request) -> Iterator[_Objection]:
    policy, plan = request.policy, request.plan
    if plan.layout not in policy.layouts:
        yield _Objection(f"policy.layouts does not list {str(plan.layout)!r}")
    if policy.aggregators and request.aggregator_name not in policy.aggregators:
        yield _Objection(f"policy.aggregators does not list {request.aggregator_name!r}")
    if policy.purposes and plan.purpose not in policy.purposes:
        yield _Objection("policy.purposes does not list the purpose of the plan, word for word")


def _dates(request: _Request) -> Iterator[_Objection]:
    first, last, today = request.policy.valid_from, request.policy.valid_until, request.today
    if first is not None and today < first:
        yield _Objection(f"policy.valid_from = {first}, today is {today}")
    if last is not None and today > last:
        yield _Objection(f"policy.valid_until = {last}, today is {today}")


def _records(request: _Request) -> Iterator[_Objection]:
    """What the rounded number of records already rules out; the exact number is judged at linking."""
    most = most_records(request.schema.records_rounded)
    for planned in request.task.attributes:
        if (planned.k or 1) > most:
            yield _Objection(
                f"k = {planned.k or 1} for {planned.name!r}: at least as many records are needed",
                UnusableDataError,
            )


_BY_AMOUNT = (_composition, _amount)
_BY_NAME = (_mechanisms, _names, _dates, _records)
