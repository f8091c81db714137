"""A plan that is not what it says, one hostile change at a time, and the rule that refuses it."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.model.plan import Layout, Linking, Plan
from common.model.schema import Attribute, AttributeType, IdentifierRules, Schema
from common.model.task import Assignment
from owner_node.config import PolicyConfig
from owner_node.consent.judge import Accept
from tests.fakes.consent_plans import (
    AGE,
    PLAN,
    RULES,
    WARD,
    judged,
    only_rule,
    planned,
    schema,
    task,
    with_task,
)


def test_honest_plan_is_accepted() -> None:
    """What a plan without fault costs is its joint bound, from the data set's budget."""
    assert judged() == Accept(Decimal(1), "people", Decimal(1), Decimal(1), "joint")


def test_honest_plan_read_from_its_bytes_is_accepted() -> None:
    """A plan judged is a plan as it came over the wire."""
    assert isinstance(judged(Plan.from_bytes(PLAN.to_bytes())), Accept)


def test_honest_vertical_plan_is_accepted() -> None:
    """In a vertical plan each owner has its group's share of epsilon."""
    share = Decimal("0.5")
    tasks = (
        task("north", attributes=(planned("age", epsilon=share, epsilon_joint=share),)),
        task("south", group=1, attributes=(planned("ward", epsilon=share, epsilon_joint=share),)),
    )
    plan = replace(PLAN, layout=Layout.VERTICAL, tasks=tasks)
    assert judged(plan) == Accept(share, "people", share, share, "joint")


@pytest.mark.parametrize(
    ("aggregator", "arguments"),
    [
        ("spiffe://trust/aggregator/other", {}),
        ("spiffe://elsewhere/aggregator/hub", {}),
        ("spiffe://trust/owner/hub", {}),
        ("hub", {}),
        (PLAN.aggregator, {"aggregator_name": "other"}),
    ],
)
def test_plan_of_another_aggregator(aggregator: str, arguments: dict[str, str]) -> None:
    """A plan is only taken from the aggregator it names."""
    assert "plan.aggregator must be" in only_rule(judged(replace(PLAN, aggregator=aggregator), **arguments))


def test_task_of_another_owner() -> None:
    """A task of somebody else is not carried out."""
    assert "the tasks of owner 'north'" in only_rule(judged(assignment=PLAN.assignment_of("south")))


def test_tasks_in_two_groups() -> None:
    """An owner in two groups is charged for all its tasks; some of them would be spent unseen."""
    share = Decimal("0.25")
    shares = {"epsilon": share, "epsilon_joint": share}
    tasks = (
        task("north", attributes=(planned("age", **shares),)),
        task("south", attributes=(planned("age", **shares),)),
        task("north", group=1, attributes=(planned("ward", **shares),)),
    )
    plan = replace(PLAN, layout=Layout.MIXED, tasks=tasks)
    verdict = judged(plan)
    assert isinstance(verdict, Accept)
    assert (verdict.epsilon, verdict.charge) == (Decimal("0.5"), Decimal("0.5"))
    assert "the tasks of owner 'north'" in only_rule(judged(plan, assignment=Assignment(tasks[:1])))
    whole = {"epsilon": Decimal("0.51"), "epsilon_joint": Decimal("0.51")}
    more = (*tasks[:2], replace(tasks[2], attributes=(planned("ward", **whole),)))
    rule = only_rule(judged(replace(plan, tasks=more)))
    assert rule == "the shares of this owner in group 1 add up to 0.51, more than epsilon 1 over 2 groups"


def test_grids_that_are_not_the_named_layout() -> None:
    """A vertical release has an owner once, a mixed one several groups: else shares are not what they say."""
    share = {"epsilon": Decimal("0.5"), "epsilon_joint": Decimal("0.5")}
    twice = (
        task("north", attributes=(planned("age", **share),)),
        task("north", group=1, attributes=(planned("ward", **share),)),
    )
    vertical = replace(PLAN, layout=Layout.VERTICAL, tasks=twice)
    assert "one owner in every group" in only_rule(judged(vertical))
    mixed = replace(PLAN, layout=Layout.MIXED)
    assert "several groups" in only_rule(judged(mixed))
    for plan in (vertical, mixed):
        assert only_rule(judged(Plan.from_bytes(plan.to_bytes()))) == only_rule(judged(plan))


def test_other_data_set() -> None:
    """The data set that is judged is the one that the task names."""
    assert "data set 'patients'" in only_rule(judged(with_task(dataset="staff")))


def test_layout_that_is_none() -> None:
    """A grid under the wrong name cannot pass a policy on layouts."""
    assert "a vertical release" in only_rule(judged(replace(PLAN, layout=Layout.VERTICAL)))
    share = Decimal("0.25")
    tasks = (
        task("north", attributes=(planned("age", epsilon=share, epsilon_joint=share),)),
        task("south", group=1, attributes=(planned("ward", epsilon=share, epsilon_joint=share),)),
    )
    assert "a horizontal release" in only_rule(judged(replace(PLAN, tasks=tasks)))


def test_attribute_outside_the_policy() -> None:
    """An attribute that the policy does not list takes no part."""
    rule = only_rule(judged(policy=PolicyConfig(attributes=("ward", "pay"))))
    assert rule == "policy.attributes does not list 'age'"


def test_attribute_outside_the_data_set() -> None:
    """An attribute that the owner never declared is not asked of it."""
    rule = only_rule(judged(schema=Schema((WARD,), RULES, 1, 7000)))
    assert rule == "dataset.attributes does not declare 'age'"


@pytest.mark.parametrize(
    "changed",
    [
        replace(AGE, upper=121),
        replace(AGE, lower=-1),
        replace(AGE, outside="clamp"),
        replace(AGE, type=AttributeType.NUMBER),
        replace(AGE, type=AttributeType.NUMBER, decimals=1),
        replace(WARD, categories=("a", "b"), upper=1),
        replace(WARD, categories=("b", "a", "c")),
        replace(WARD, ordered=True),
    ],
    ids=[
        "upper",
        "lower",
        "outside",
        "type",
        "decimals",
        "fewer categories",
        "order of categories",
        "ordered",
    ],
)
def test_changed_settings(changed: Attribute) -> None:
    """No setting of an attribute can be changed in the plan, a wider or narrower domain included."""
    attributes = tuple(changed if each.name == changed.name else each for each in PLAN.attributes)
    rule = only_rule(judged(replace(PLAN, attributes=attributes)))
    assert rule == f"attribute {changed.name!r} is planned with other settings than declared here"


@pytest.mark.parametrize("identifier", [None, IdentifierRules(2, ("trim",)), IdentifierRules(1, ())])
def test_other_identifier_rules(identifier: IdentifierRules | None) -> None:
    """Identifiers are compared as the owner declared, or not at all."""
    assert "identifier rules" in only_rule(judged(replace(PLAN, identifier=identifier)))


def test_texts_of_an_unknown_version() -> None:
    """A plan follows an older version of the texts of identifiers, and none that is not known here."""
    newer = IdentifierRules(1, ("trim",), texts=3)
    assert "not known here" in only_rule(judged(replace(PLAN, identifier=newer)))
    assert judged(PLAN, schema=schema(identifier=newer)) == judged(PLAN)


def test_unchecked_overlap() -> None:
    """With an identifier declared, a plan cannot leave out the check that nobody is at two owners."""
    rule = only_rule(judged(replace(PLAN, linking=Linking(tokens=False))))
    assert "must check overlaps" in rule


def test_tokens_without_identifier() -> None:
    """Without an identifier there is nothing to make tokens of."""
    own = schema(identifier=None)
    rule = only_rule(judged(replace(PLAN, identifier=None), schema=own))
    assert "linking by tokens needs an identifier" in rule


def test_without_identifier_nothing_is_linked() -> None:
    """A horizontal plan without identifiers is fine: disjointness is asserted."""
    plan = replace(PLAN, identifier=None, linking=Linking(tokens=False))
    assert isinstance(judged(plan, schema=schema(identifier=None)), Accept)


def test_a_single_owner_needs_no_tokens() -> None:
    """With one owner nobody can be at two."""
    plan = replace(PLAN, tasks=(task("north"),), linking=Linking(tokens=False))
    assert isinstance(judged(plan), Accept)


def test_exceptions_of_linking() -> None:
    """Persons at several owners, and common persons alone, are for the policy to allow."""
    overlap = replace(PLAN, linking=Linking(tokens=True, key_proofs=True, max_overlap=2))
    assert only_rule(judged(overlap)) == "policy.max_overlap = 1, the plan allows 2"
    allowed = judged(overlap, policy=PolicyConfig(max_overlap=3))
    assert isinstance(allowed, Accept)
    assert allowed.charge == allowed.epsilon == allowed.epsilon_joint == 2
    limited = PolicyConfig(max_overlap=2, max_epsilon_per_release=Decimal("1.9"))
    assert "would charge 2" in only_rule(judged(overlap, policy=limited))
    share = {"epsilon": Decimal("0.5"), "epsilon_joint": Decimal("0.5")}
    tasks = (
        task("north", attributes=(planned("age", **share),)),
        task("south", group=1, attributes=(planned("ward", **share),)),
    )
    linking = Linking(tokens=True, key_proofs=True, on_mismatch="intersect", min_common=10)
    intersect = replace(PLAN, layout=Layout.VERTICAL, tasks=tasks, linking=linking)
    assert "policy.allow_intersect = false" in only_rule(judged(intersect))
    assert isinstance(judged(intersect, policy=PolicyConfig(allow_intersect=True)), Accept)


def test_a_column_of_owners_needs_the_policy() -> None:
    """A release that states the owner of every record is accepted unless the policy forbids it."""
    stated = replace(PLAN, owner_column=True)
    assert isinstance(judged(stated), Accept)
    rule = only_rule(judged(stated, policy=PolicyConfig(allow_owner_column=False)))
    assert rule.startswith("policy.allow_owner_column = false")


@pytest.mark.parametrize(
    "linking",
    [
        Linking(tokens=True, key_proofs=True, max_overlap=3),
        Linking(tokens=True, key_proofs=True, max_overlap=0),
        Linking(tokens=False, max_overlap=2),
        Linking(tokens=True, key_proofs=True, on_mismatch="intersect", min_common=5),
        Linking(tokens=True, key_proofs=True, on_mismatch="ignore"),
        Linking(tokens=True, key_proofs=True, min_common=5),
    ],
)
def test_bounds_that_no_release_can_have(linking: Linking) -> None:
    """A plan whose bounds for linking mean nothing, or cannot be checked, is none."""
    with pytest.raises(ValueError, match=r"person|groups"):
        replace(PLAN, linking=linking)


@pytest.mark.parametrize("stated", [0, 1, 237, 6000, 6999, 7001, 7999, 8000])
def test_another_number_of_records(stated: int) -> None:
    """Whatever number a plan states besides the one that was sent is refused as such: it tests no other."""
    rule = only_rule(judged(with_task(records_rounded=stated)))
    assert rule == f"records_rounded of this owner is 7000, the plan says {stated}"


def test_fewer_records_per_person_than_there_are() -> None:
    """A person with more records than the plan protects would be protected less."""
    rule = only_rule(judged(schema=schema(max_records_per_person=2)))
    assert rule == "max_records_per_person = 2 here, the plan protects only 1"
    assert isinstance(judged(replace(PLAN, max_records_per_person=2)), Accept)


def test_several_records_of_a_person_in_several_groups() -> None:
    """Groups are aligned on persons with one record each, so such a plan cannot hold its promise."""
    tasks = (
        task("north", attributes=(planned("age"),)),
        task("south", group=1, attributes=(planned("ward"),)),
    )
    plan = replace(PLAN, layout=Layout.VERTICAL, tasks=tasks, max_records_per_person=2)
    assert "every person has one record" in only_rule(judged(plan))
