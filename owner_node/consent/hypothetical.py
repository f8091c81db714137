"""The plan of a release that nobody has asked for, so that an owner can see what its policy would say."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from common.errors import UsageError
from common.model.plan import BudgetSplit, Layout, Linking, Plan
from common.model.privacy import DEFAULT_MECHANISM
from common.model.schema import Attribute, AttributeType, Schema
from common.model.task import PlannedAttribute, Task
from common.planning.arguments import RankNoise
from common.planning.attributes import plan_attribute
from common.planning.cluster_size import check_k, smallest_accepted_k
from common.planning.shares import shares

RELEASE = "hypothetical"


@dataclass(frozen=True, slots=True)
class Question:
    """What such a release would be asked for with."""

    epsilon: Decimal
    """Of the whole release."""
    layout: Layout
    """Its layout."""
    groups: tuple[tuple[str, ...], ...]
    """Owner ids by group; this owner is in one of them, or several."""
    aggregator: str
    """Name of the aggregator that would ask."""
    mechanism: str = DEFAULT_MECHANISM
    """Mechanism id."""
    k: int | None = None
    """Minimum cluster size; None to have it chosen."""
    rank_noise: RankNoise = RankNoise()  # noqa: RUF009 - frozen
    """Rank noise."""
    purpose: str = ""
    """What the release would be for."""
    attributes: tuple[tuple[str, ...], ...] = ()
    """This owner's attributes in each of its groups; empty for all that may take part, in its only one."""
    max_overlap: int = 1
    """Most owners of a group that may hold the same person."""
    intersects: bool = False
    """Whether common persons alone would be masked where groups differ."""


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
    own = [index for index, owners in enumerate(question.groups) if owner in owners]
    chosen = dict(zip(own, _chosen(question, schema, len(own)), strict=True))
    question.rank_noise.check_names(each.name for group in chosen.values() for each in group)
    groups = [chosen.get(index) or (_stand_in(owners),) for index, owners in enumerate(question.groups)]
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
        linking=_linking(question, planned, tokens=schema.identifier is not None),
        tasks=tuple(
            Task(each, dataset, index, schema.records_rounded, planned[index])
            for index, owners in enumerate(question.groups)
            for each in owners
        ),
    )


def _linking(question: Question, planned: Sequence[Sequence[PlannedAttribute]], *, tokens: bool) -> Linking:
    if question.max_overlap > 1 and not tokens:
        raise UsageError(
            "persons at several owners are found by an identifier, and none is declared",
            "declare one, or leave --max-overlap out",
        )
    if not question.intersects:
        return Linking(tokens, question.max_overlap)
    return Linking(
        tokens, question.max_overlap, "intersect", max(each.k or 1 for group in planned for each in group)
    )


def _chosen(question: Question, schema: Schema, n_groups: int) -> tuple[tuple[Attribute, ...], ...]:
    """Return the attributes in question; one that may not take part is planned, for the policy to refuse."""
    if not question.attributes and n_groups == 1:
        return (schema.attributes,)
    if len(question.attributes) != n_groups or not all(question.attributes):
        raise UsageError(
            f"this owner is in {n_groups} groups, and attributes are named for {len(question.attributes)}",
            "name those of each of its groups, in their order: --attributes 'a,b;c'",
        )
    named = [name for group in question.attributes for name in group]
    unknown = [name for name in named if name not in schema.by_name]
    if unknown:
        raise UsageError(
            f"attributes that do not take part here: {', '.join(unknown)}",
            f"known are {', '.join(schema.by_name)}; policy.attributes limits which may take part",
            {"unknown": unknown},
        )
    if len(set(named)) != len(named):
        raise UsageError("an attribute is named for two groups", "it belongs to one: name it once")
    return tuple(tuple(schema.by_name[name] for name in group) for group in question.attributes)


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
        rank_noise=question.rank_noise,
    )
