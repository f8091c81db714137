"""Rules that make a plan invalid whatever the owner's policy: it contradicts itself or this owner's data set.

`PlannedWork` and `Request` are the input of all rules of consent, and `Objection` is their output.
`check_texts` checks the texts of a plan before any of it is stored: a person reads them, and decides by what
is shown.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal, Inexact
from typing import TYPE_CHECKING

from common.errors import ProtocolError, RefusedError, TesseraError, UnusableDataError, UsageError
from common.model.compatibility import is_version
from common.model.mechanisms import MECHANISMS, PublicNumbers, fault_of_k, fault_of_rank_noise
from common.model.plan import BudgetSplit, Layout, Plan, is_purpose
from common.model.privacy import (
    LARGEST_EPSILON,
    LARGEST_JOINT,
    SHARE_PLACES,
    charge,
    is_rank_noise,
    is_share,
    plain,
)
from common.model.schema import Schema, fault_of_cell, most_records
from common.model.structural_zeros import rules_of
from common.model.task import Assignment, PlannedAttribute, Task, planned_attribute
from common.trust.identity import is_name
from owner_node.ledger.entry import Part

if TYPE_CHECKING:
    from owner_node.config import DatasetConfig, PolicyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedWork(ABC):
    """Work that an owner's policy judges, whatever it makes."""

    policy: "PolicyConfig"
    dataset: "DatasetConfig"
    today: date
    rank_lost: Decimal = Decimal(0)
    """Rank loss of earlier charges to the data set's budget."""
    delta_spent: Decimal = Decimal(0)
    """δ of earlier charges to it."""

    @property
    @abstractmethod
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes that it uses."""

    @property
    @abstractmethod
    def most(self) -> Part:
        """The most that the ledger may have to charge, of each kind."""

    @property
    def charge(self) -> Decimal | None:
        """The amount to reserve; None where the owner's accounting has no bound."""
        return charge(self.policy.accounting, self.most.epsilon, self.most.epsilon_joint)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork(JudgedWork):
    """An owner's share of a release, or a mask or query for itself."""

    assignment: Assignment
    """Tasks for its attributes. A query counts as an attribute masked without clusters."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes that it uses."""
        return self.assignment.names

    @property
    def most(self) -> Part:
        """The most that the ledger may have to charge, of each kind."""
        own = self.assignment
        return Part(own.epsilon, own.epsilon_joint, own.rank_loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticWork(JudgedWork):
    """A synthetic table: one ε for whole records, whatever attributes they have."""

    attributes: tuple[str, ...]
    """Names of the attributes that are modelled."""
    epsilon: Decimal
    """ε of the whole table."""
    delta: Decimal = Decimal(0)
    """δ of the whole table."""

    @property
    def most(self) -> Part:
        """The charge: no list of values and no ranks are released, so all bounds are ε."""
        return Part(self.epsilon, self.epsilon, Decimal(0), self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(PlannedWork):
    """An aggregator's request that the owner takes part in a release."""

    plan: Plan
    owner_id: str
    aggregator_name: str
    """The aggregator that sent it, by its certificate."""
    trust_domain: str
    schema: Schema
    """The owner's own schema of the data set: from the configuration as it is now, with the number of records
    that was sent for this release, so that no answer depends on the data beyond that."""
    balance: Decimal
    """Remaining balance of its budget."""

    @property
    def most(self) -> Part:
        """The owner's shares, times the multiplicity that the plan allows per person."""
        own, multiples = self.assignment, self.plan.most_multiples
        joint, ranks = own.epsilon_joint_at(multiples), own.rank_loss_at(multiples)
        return Part(own.epsilon_at(multiples), joint, ranks, self.plan.delta)


@dataclass(frozen=True, slots=True)
class Objection:
    """The objection of a rule to a plan."""

    rule: str
    """The rule in full, for the owner."""
    cause: type[TesseraError] = RefusedError
    """Error class of the refusal."""


# Decimals pass `shares` before they are multiplied, so that a product is never rounded.
_EXACT = Context(prec=60, traps=[Inexact])


def parties(request: Request) -> Iterator[Objection]:
    """Object to a plan for other parties, and to tasks that contradict its layout."""
    plan, own = request.plan, request.assignment
    expected = f"spiffe://{request.trust_domain}/aggregator/{request.aggregator_name}"
    if plan.aggregator != expected:
        yield Objection(f"plan.aggregator must be {expected}, which sent the plan")
    if tuple(task for task in plan.tasks if task.owner == request.owner_id) != own.tasks:
        yield Objection(f"plan.tasks must hold exactly the tasks of owner {request.owner_id!r}")
    if own.dataset != request.dataset.name:
        yield Objection(f"plan.tasks must name data set {request.dataset.name!r}")
    if plan.layout is Layout.HORIZONTAL and plan.n_groups > 1:
        yield Objection("plan.layout: a horizontal release has one group of attributes")
    if plan.layout is Layout.VERTICAL and not plan.n_groups == len(plan.tasks) == len(plan.owners):
        yield Objection("plan.layout: a vertical release has one owner in every group")
    if plan.layout is Layout.MIXED and plan.n_groups == 1:
        yield Objection("plan.layout: a mixed release has several groups of attributes")


def settings(request: Request) -> Iterator[Objection]:
    """Object to attributes, identifiers, linking or numbers of records that differ from those declared."""
    plan, schema = request.plan, request.schema
    yield from _attributes(request)
    for task in request.assignment.tasks:
        if task.records_rounded != schema.records_rounded:
            yield Objection(
                f"records_rounded of this owner is {schema.records_rounded}, "
                f"the plan says {task.records_rounded}"
            )
    if plan.identifier != schema.identifier:
        yield Objection("the identifier rules of the plan are not those declared here")
    elif plan.identifier and schema.identifier and plan.identifier.texts > schema.identifier.texts:
        yield Objection("the plan asks for texts of identifiers that are not known here")
    yield from _linking(request)
    if plan.max_records_per_person < schema.max_records_per_person:
        yield Objection(
            f"max_records_per_person = {schema.max_records_per_person} here, "
            f"the plan protects only {plan.max_records_per_person}"
        )
    if plan.n_groups > 1 and plan.max_records_per_person > 1:
        yield Objection("groups of attributes can only be aligned where every person has one record")


def _attributes(request: Request) -> Iterator[Objection]:
    plan, schema, policy = request.plan, request.schema, request.policy
    for name in request.assignment.names:
        if policy.attributes and name not in policy.attributes:
            continue  # `policy_rules.attributes` objects
        if name not in schema.by_name:
            yield Objection(f"dataset.attributes does not declare {name!r}")
        elif plan.attribute(name) != schema.by_name[name]:
            yield Objection(f"attribute {name!r} is planned with other settings than declared here")
    yield from _derived(request)
    for planned in request.assignment.attributes:
        own, name = schema.by_name.get(planned.name), planned.name
        if own is not None and plan.attribute(name) == own and not planned.rules.goes_with(own):
            key, declared = ("missing", '"category"') if own.keeps_missing else ("method", own.method)
            yield Objection(f"{key} of {name!r} is {declared} here, not mechanism {planned.mechanism}")


def _derived(request: Request) -> Iterator[Objection]:
    """Object to attributes that are derived otherwise than declared here, or stated facts allow.

    A fact may derive an attribute that this owner declares to be counted. It changes no settings of it, and
    no table of this owner.
    """
    plan, schema = request.plan, request.schema
    stated = () if plan.synthesis is None else plan.synthesis.stated_following
    own = {each.name for each in schema.following}
    for each in plan.following:
        by_operator = each.name in stated
        if each not in schema.following and (
            each.name in own if by_operator else each.base in request.assignment.names
        ):
            yield Objection(f"attribute {each.name!r} is derived otherwise than declared here")
        elif by_operator and schema.by_name.get(each.name) not in (None, each.without_derivation):
            yield Objection(f"attribute {each.name!r} is derived with other settings than declared here")


def _linking(request: Request) -> Iterator[Objection]:
    plan, linking = request.plan, request.plan.linking
    if linking.tokens and request.schema.identifier is None:
        yield Objection("linking by tokens needs an identifier, and none is declared here")
    if request.schema.identifier is not None and len(plan.tasks) > 1 and not linking.tokens:
        yield Objection("an identifier is declared here, so the plan must check overlaps, and it does not")
    if linking.tokens and len(plan.tasks) > 1 and not linking.key_proofs:
        yield Objection(
            "owners prove to each other that they have the linkage key, and this plan asks for no proof: the "
            "aggregator runs version 0.1"
        )


def shares(request: Request) -> Iterator[Objection]:
    """Object to budgets whose sums would not be exact, before anything is computed with them."""
    own = request.assignment
    named = [("epsilon", request.plan.epsilon, LARGEST_EPSILON)]
    named += [
        (f"epsilon of {attribute.name!r}", attribute.epsilon, LARGEST_EPSILON) for attribute in own.attributes
    ]
    named += [
        (f"epsilon_joint of {attribute.name!r}", attribute.epsilon_joint, LARGEST_JOINT)
        for attribute in own.attributes
        if attribute.epsilon_joint is not None
    ]
    named += [
        (f"rank_loss of {attribute.name!r}", attribute.rank_loss, LARGEST_JOINT)
        for attribute in request.assignment.attributes
        if attribute.rank_loss
    ]
    for attribute in request.assignment.attributes:
        if not is_rank_noise(attribute.rank_noise):
            yield Objection(f"rank_noise of {attribute.name!r} must be a share from 0 to 1")
    for what, value, largest in named:
        if not is_share(value, largest):
            places = f"at most {SHARE_PLACES} decimal places"
            yield Objection(f"{what} must be positive, at most {largest:f}, with {places}")


def composition(request: Request) -> Iterator[Objection]:
    """Object to shares that exceed epsilon: sequential in an owner, parallel in a group."""
    plan, own = request.plan, request.assignment
    if plan.budget_split is not BudgetSplit.OWNER:
        yield from _shares_of_person(plan)
        own_tasks: tuple[Task, ...] = ()
    else:
        own_tasks = own.tasks
    # A model's epsilon is that of whole records, and is charged in full at every owner.
    n_groups = 1 if plan.product.rules.whole_records else plan.n_groups
    for task in own_tasks:
        # Multiply instead of dividing: shares that were rounded down are compared without rounding.
        if _EXACT.multiply(task.epsilon, Decimal(n_groups)) > plan.epsilon:
            where = f" in group {task.group}" if len(own.tasks) > 1 else ""
            yield Objection(
                f"the shares of this owner{where} add up to {task.epsilon}, "
                f"more than epsilon {plan.epsilon} over {n_groups} groups"
            )


def bounds(request: Request) -> Iterator[Objection]:
    """Object to charges, and to numbers a person decides by, that differ from the public formulas."""
    for planned in (
        attribute for attribute in request.assignment.attributes if attribute.mechanism in MECHANISMS
    ):
        fault = fault_of_rank_noise(planned.mechanism, planned.rank_noise)
        if fault:
            yield Objection(f"{fault}, {planned.name!r} has {planned.rank_noise:f}")
        try:
            correct = _correct(request, planned)
        except UsageError as error:
            yield Objection(f"{planned.name!r} cannot be masked as planned: {error.message}")
            continue
        for what, number, said in (
            ("epsilon_joint", correct.epsilon_joint, planned.epsilon_joint),
            ("rank_loss", correct.rank_loss, planned.rank_loss),
            ("expected_error", correct.expected_error, planned.expected_error),
            ("epsilon_spikes", correct.epsilon_spikes, planned.epsilon_spikes),
        ):
            if number != said:
                yield Objection(
                    f"{what} of {planned.name!r} is {_bound_text(number)}, the plan says {_bound_text(said)}"
                )


def _correct(request: Request, planned: PlannedAttribute) -> PlannedAttribute:
    """Return a planned attribute with the numbers that follow from this owner's own declarations."""
    plan, schema = request.plan, request.schema
    # The owner masks with its own order of categories, so that order counts; without it, the plan's is used.
    attribute = schema.by_name.get(planned.name) or plan.attribute(planned.name)
    # Use this owner's own rounded number of records: the plan's could be chosen to state a smaller bound.
    public = PublicNumbers(
        schema.records_rounded, attribute.n_values, planned.epsilon, plan.max_records_per_person
    )
    return planned_attribute(attribute, planned.rules, planned.k, public, planned.rank_noise)


def _shares_of_person(plan: Plan) -> Iterator[Objection]:
    of_person = plan.epsilon_of_person((1,) * plan.n_groups)
    if of_person > plan.epsilon:
        yield Objection(f"the shares of one person add up to {of_person}, more than epsilon {plan.epsilon}")


def _bound_text(bound: Decimal | None) -> str:
    return "not bounded" if bound is None else format(plain(bound), "f")


def whole_records(request: Request) -> Iterator[Objection]:
    """Object to a synthetic release that charges this owner other than ε in full, or cannot be made."""
    plan = request.plan
    if plan.synthesis is None:
        return
    for task in request.assignment.tasks:
        if task.epsilon != plan.epsilon:
            yield Objection(
                f"the plan charges {task.epsilon} for whole records that epsilon {plan.epsilon} protects"
            )
    own, planned = request.schema.names, plan.synthesis.structural_zeros
    # Rules about what stated facts derive count, too: no plan can hold them.
    declared = rules_of(request.schema.structural_zeros, [attribute.name for attribute in plan.released])
    if set(rules_of(planned, own)) != set(declared):
        yield Objection("the plan has other structural zeros than are declared here")
        return
    # It brings numpy, which daemons load for work with data only.
    from common.planning.synthetic import check_synthetic

    try:
        check_synthetic(plan)
    except UsageError as error:
        yield Objection(error.message)


def cluster_sizes(request: Request) -> Iterator[Objection]:
    """Object to a k that the mechanism does not allow."""
    for planned in (
        attribute for attribute in request.assignment.attributes if attribute.mechanism in MECHANISMS
    ):
        fault = fault_of_k(planned.mechanism, planned.k, request.plan.max_records_per_person)
        if fault:
            yield Objection(f"{fault}, {planned.name!r} has {planned.k}")


def records(request: Request) -> Iterator[Objection]:
    """Object to a k above the rounded number of records; the exact number is checked when data are loaded."""
    most = most_records(request.schema.records_rounded)
    for planned in request.assignment.attributes:
        if (planned.k or 1) > most:
            yield Objection(
                f"k = {planned.k or 1} for {planned.name!r}: at least as many records are needed",
                UnusableDataError,
            )


_LONGEST_MOMENT = 40
_LONGEST_NAME = 256


def check_texts(plan: Plan) -> None:
    """Refuse a plan whose texts could imitate other lines of the display for a person, or fill the screen.

    Raises:
        ProtocolError: Naming the kind of the invalid text, without quoting it.
    """
    fault = next(_faults(plan), None)
    if fault is not None:
        raise ProtocolError(fault, "both sides must run compatible versions")


def _faults(plan: Plan) -> Iterator[str]:
    if not is_purpose(plan.purpose):
        yield "the purpose of the plan is not one short line of printable text"
    if len(plan.created) > _LONGEST_MOMENT or not _is_moment(plan.created):
        yield "the time of the plan is not in ISO 8601"
    if not is_version(plan.version):
        yield "the version in the plan is not a version number"
    if not all(map(is_name, plan.owners)):
        yield "the owners of the plan are not all named by ids"
    names = {each.name for each in plan.released}
    names |= {name for task in plan.tasks for name in task.names}
    if not all(len(name) <= _LONGEST_NAME and name.isprintable() for name in names):
        yield "the names of the plan's attributes are not all short lines of printable text"
    if any(map(fault_of_cell, (*names, *(label for each in plan.released for label in each.categories)))):
        yield "a label or name in the plan could steer a terminal or a spreadsheet"


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
