"""The plan of a release that nobody has asked for, so that an owner can see what its policy would say."""

from dataclasses import dataclass
from decimal import Decimal

from common.attribute_plan import plan_attribute
from common.cluster_size import check_k, smallest_accepted_k
from common.errors import UsageError
from common.plan import BudgetSplit, Layout, Linking, Plan
from common.privacy import DEFAULT_MECHANISM
from common.schema import Attribute, AttributeType, Schema
from common.shares import shares
from common.task import PlannedAttribute, Task

RELEASE = "hypothetical"


@dataclass(frozen=True, slots=True)
class Question:
    """What such a release would be asked for with."""

    epsilon: Decimal
    """Of the whole release."""
    layout: Layout
    """Its layout."""
    groups: tuple[tuple[str, ...], ...]
    """Owner ids by group; this owner is in one of them."""
    aggregator: str
    """Name of the aggregator that would ask."""
    mechanism: str = DEFAULT_MECHANISM
    """Mechanism id."""
    k: int | None = None
    """Minimum cluster size; None to have it chosen."""
    purpose: str = ""
    """What the release would be for."""
    attributes: tuple[str, ...] = ()
    """This owner's attributes in it; empty for all that may take part."""


def hypothetical_plan(
    question: Question, schema: Schema, *, owner: str, dataset: str, trust_domain: str, version: str
) -> Plan:
    """Plan what an aggregator would plan, as far as this owner's part of it goes.

    Other groups of attributes, which this owner knows nothing of, are stood in for by one attribute each; the
    share of this owner does not depend on them.

    Args:
        question: What is asked for.
        schema: This owner's schema of the data set.
        owner: Its id.
        dataset: Name of the data set.
        trust_domain: Trust domain of both sides.
        version: Version of the software.

    Raises:
        UsageError: If the question does not fit together.
    """
    own = next(index for index, owners in enumerate(question.groups) if owner in owners)
    chosen = _chosen(question, schema)
    groups = [
        chosen if index == own else (_stand_in(owners),) for index, owners in enumerate(question.groups)
    ]
    if len(groups) > 1 and schema.identifier is None:
        raise UsageError(
            f"data set {dataset!r} has no identifier, which several groups of attributes are aligned on",
            "declare one, or ask about --layout horizontal",
        )
    check_k(question.mechanism, question.k, schema.max_records_per_person)
    epsilons = shares(question.epsilon, [[each.name for each in group] for group in groups])
    planned = [
        tuple(_planned(question, schema, each, epsilons[each.name]) for each in group) for group in groups
    ]
    return Plan(
        release=RELEASE,
        aggregator=f"spiffe://{trust_domain}/aggregator/{question.aggregator}",
        created="",
        version=version,
        purpose=question.purpose,
        layout=question.layout,
        epsilon=question.epsilon,
        budget_split=BudgetSplit.OWNER,
        attributes=tuple(each for group in groups for each in group),
        identifier=schema.identifier,
        max_records_per_person=schema.max_records_per_person,
        linking=Linking(tokens=schema.identifier is not None),
        tasks=tuple(
            Task(each, dataset, index, schema.records_rounded, planned[index])
            for index, owners in enumerate(question.groups)
            for each in owners
        ),
    )


def _chosen(question: Question, schema: Schema) -> tuple[Attribute, ...]:
    """Return the attributes in question; one that may not take part is planned, for the policy to refuse."""
    if not question.attributes:
        return schema.attributes
    unknown = [name for name in question.attributes if name not in schema.by_name]
    if unknown:
        raise UsageError(
            f"attributes that do not take part here: {', '.join(unknown)}",
            f"known are {', '.join(schema.by_name)}; policy.attributes limits which may take part",
            {"unknown": unknown},
        )
    return tuple(schema.by_name[name] for name in question.attributes)


def _stand_in(owners: tuple[str, ...]) -> Attribute:
    return Attribute(f"(attributes of {', '.join(owners)})", AttributeType.INTEGER, 0, 1)


def _planned(question: Question, schema: Schema, attribute: Attribute, epsilon: Decimal) -> PlannedAttribute:
    return plan_attribute(
        attribute,
        mechanism=question.mechanism,
        epsilon=epsilon,
        k=question.k,
        records_rounded=schema.records_rounded,
        g=schema.max_records_per_person,
        least_k=smallest_accepted_k([schema]),
    )
