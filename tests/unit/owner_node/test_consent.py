"""Consent: a plan from a stranger, one hostile change at a time, and the rule that refuses it."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import BalanceError, RefusedError, UnusableDataError
from common.plan import BudgetSplit, Layout, Linking, Plan, PlannedAttribute, Task
from common.schema import Attribute, AttributeType, CategoryOrder, IdentifierRules, Schema, TaxonomyMethod
from owner_node.config import DatasetConfig, PolicyConfig
from owner_node.consent import Accept, Refuse, Verdict, judge

_AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
_WARD = Attribute("ward", AttributeType.CATEGORY, 0, 2, 0, "error", ("a", "b", "c"))
_BY_FREQUENCY = replace(_WARD, order=CategoryOrder.FREQUENCY)
_PAY = Attribute("pay", AttributeType.NUMBER, 0, 100_000, 2)
_RULES = IdentifierRules(1, ("trim",))


def _planned(name: str, **changes: Any) -> PlannedAttribute:
    share = Decimal("0.5")
    return replace(PlannedAttribute(name, "idp-joint", share, 10, share, Decimal("0.01")), **changes)


def _task(owner: str, **changes: Any) -> Task:
    return replace(Task(owner, "patients", 0, 7000, (_planned("age"), _planned("ward"))), **changes)


_PLAN = Plan(
    release="r1", aggregator="spiffe://trust/aggregator/hub", created="2026-01-02T03:04:05+00:00",
    version="1",
    purpose="study", layout=Layout.HORIZONTAL, epsilon=Decimal(1),
    budget_split=BudgetSplit.OWNER,
    attributes=(_AGE, _WARD), identifier=_RULES, max_records_per_person=1, linking=Linking(tokens=True),
    tasks=(_task("north"), _task("south")),
)  # fmt: skip
_SCHEMA = Schema((_AGE, _WARD, _PAY), _RULES, 1, 7000)
_DATASET = DatasetConfig(
    name="patients", source=str(Path("/data/patients.csv")), budget="people", total_epsilon=Decimal(3),
    identifier=("id",), normalise=("trim",), attributes=_SCHEMA.attributes,
)  # fmt: skip


def _judge(plan: Plan = _PLAN, **changes: Any) -> Verdict:
    arguments: dict[str, Any] = {
        "owner_id": "north", "aggregator_name": "hub", "trust_domain": "trust", "policy": PolicyConfig(),
        "dataset": _DATASET, "schema": _SCHEMA, "balance": Decimal(3), "today": date(2026, 1, 2),
    }  # fmt: skip
    task = changes.pop("task", plan.task_of("north"))
    return judge(plan, task, **{**arguments, **changes})


def _with_task(**changes: Any) -> Plan:
    """The plan with both tasks changed alike: the owners of a group mask the same attributes."""
    return replace(_PLAN, tasks=tuple(replace(task, **changes) for task in _PLAN.tasks))


def _with_attribute(**changes: Any) -> Plan:
    return _with_task(attributes=(_planned("age", **changes), _planned("ward")))


def _only_rule(verdict: Verdict) -> str:
    assert isinstance(verdict, Refuse)
    assert type(verdict.error) is RefusedError
    assert verdict.all_rules == (verdict.rule,)
    assert verdict.error.code == "refused"
    return verdict.rule


def test_honest_plan_is_accepted() -> None:
    """What a plan without fault costs is its joint bound, from the data set's budget."""
    assert _judge() == Accept(Decimal(1), "people", Decimal(1), Decimal(1), "joint")


def test_honest_plan_read_from_its_bytes_is_accepted() -> None:
    """A plan judged is a plan as it came over the wire."""
    assert isinstance(_judge(Plan.from_bytes(_PLAN.to_bytes())), Accept)


def test_honest_vertical_plan_is_accepted() -> None:
    """In a vertical plan each owner has its group's share of epsilon."""
    share = Decimal("0.5")
    tasks = (
        _task("north", attributes=(_planned("age", epsilon=share, epsilon_joint=share),)),
        _task("south", group=1, attributes=(_planned("ward", epsilon=share, epsilon_joint=share),)),
    )
    plan = replace(_PLAN, layout=Layout.VERTICAL, tasks=tasks)
    assert _judge(plan) == Accept(share, "people", share, share, "joint")


@pytest.mark.parametrize(
    ("aggregator", "arguments"),
    [
        ("spiffe://trust/aggregator/other", {}),
        ("spiffe://elsewhere/aggregator/hub", {}),
        ("spiffe://trust/owner/hub", {}),
        ("hub", {}),
        (_PLAN.aggregator, {"aggregator_name": "other"}),
    ],
)
def test_plan_of_another_aggregator(aggregator: str, arguments: dict[str, str]) -> None:
    """A plan is only taken from the aggregator it names."""
    assert "plan.aggregator must be" in _only_rule(_judge(replace(_PLAN, aggregator=aggregator), **arguments))


def test_task_of_another_owner() -> None:
    """A task of somebody else is not carried out."""
    assert "exactly one task of owner 'north'" in _only_rule(_judge(task=_PLAN.task_of("south")))


def test_second_task_in_another_group() -> None:
    """A plan that gives an owner two tasks would spend the second unseen."""
    share = Decimal("0.25")
    shares = {"epsilon": share, "epsilon_joint": share}
    tasks = (
        _task("north", attributes=(_planned("age", **shares),)),
        _task("north", group=1, attributes=(_planned("ward", **shares),)),
    )
    plan = replace(_PLAN, layout=Layout.MIXED, tasks=tasks)
    assert "exactly one task" in _only_rule(_judge(plan))


def test_other_data_set() -> None:
    """The data set that is judged is the one that the task names."""
    assert "data set 'patients'" in _only_rule(_judge(_with_task(dataset="staff")))


def test_layout_that_is_none() -> None:
    """A grid under the wrong name cannot pass a policy on layouts."""
    assert "a vertical release" in _only_rule(_judge(replace(_PLAN, layout=Layout.VERTICAL)))
    share = Decimal("0.25")
    tasks = (
        _task("north", attributes=(_planned("age", epsilon=share, epsilon_joint=share),)),
        _task("south", group=1, attributes=(_planned("ward", epsilon=share, epsilon_joint=share),)),
    )
    assert "a horizontal release" in _only_rule(_judge(replace(_PLAN, tasks=tasks)))


def test_attribute_outside_the_policy() -> None:
    """An attribute that the policy does not list takes no part."""
    rule = _only_rule(_judge(policy=PolicyConfig(attributes=("ward", "pay"))))
    assert rule == "policy.attributes does not list 'age'"


def test_attribute_outside_the_data_set() -> None:
    """An attribute that the owner never declared is not asked of it."""
    rule = _only_rule(_judge(schema=Schema((_WARD,), _RULES, 1, 7000)))
    assert rule == "dataset.attributes does not declare 'age'"


@pytest.mark.parametrize(
    "changed",
    [
        replace(_AGE, upper=121),
        replace(_AGE, lower=-1),
        replace(_AGE, outside="clamp"),
        replace(_AGE, type=AttributeType.NUMBER),
        replace(_AGE, type=AttributeType.NUMBER, decimals=1),
        replace(_WARD, categories=("a", "b"), upper=1),
        replace(_WARD, categories=("b", "a", "c")),
        replace(_WARD, ordered=True),
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
    attributes = tuple(changed if each.name == changed.name else each for each in _PLAN.attributes)
    rule = _only_rule(_judge(replace(_PLAN, attributes=attributes)))
    assert rule == f"attribute {changed.name!r} is planned with other settings than declared here"


@pytest.mark.parametrize("identifier", [None, IdentifierRules(2, ("trim",)), IdentifierRules(1, ())])
def test_other_identifier_rules(identifier: IdentifierRules | None) -> None:
    """Identifiers are compared as the owner declared, or not at all."""
    assert "identifier rules" in _only_rule(_judge(replace(_PLAN, identifier=identifier)))


def test_unchecked_overlap() -> None:
    """With an identifier declared, a plan cannot leave out the check that nobody is at two owners."""
    rule = _only_rule(_judge(replace(_PLAN, linking=Linking(tokens=False))))
    assert "overlaps must be checked" in rule


def test_tokens_without_identifier() -> None:
    """Without an identifier there is nothing to make tokens of."""
    schema = _schema(identifier=None)
    rule = _only_rule(_judge(replace(_PLAN, identifier=None), schema=schema))
    assert "linking by tokens needs an identifier" in rule


def test_without_identifier_nothing_is_linked() -> None:
    """A horizontal plan without identifiers is fine: disjointness is asserted."""
    plan = replace(_PLAN, identifier=None, linking=Linking(tokens=False))
    assert isinstance(_judge(plan, schema=_schema(identifier=None)), Accept)


def test_a_single_owner_needs_no_tokens() -> None:
    """With one owner nobody can be at two."""
    plan = replace(_PLAN, tasks=(_task("north"),), linking=Linking(tokens=False))
    assert isinstance(_judge(plan), Accept)


def test_exceptions_of_linking() -> None:
    """Overlap and intersection are not allowed by this version's policy."""
    overlap = replace(_PLAN, linking=Linking(tokens=True, max_overlap=2))
    assert _only_rule(_judge(overlap)) == "max_overlap = 1 here, the plan allows 2"
    intersect = replace(_PLAN, linking=Linking(tokens=True, on_mismatch="intersect"))
    assert "on_mismatch" in _only_rule(_judge(intersect))


def _schema(**changes: Any) -> Schema:
    """The owner's schema with other settings."""
    settings = {"attributes": _SCHEMA.attributes, "identifier": _RULES, "max_records_per_person": 1}
    return Schema(**{**settings, "records_rounded": 7000, **changes})


def test_fewer_records_per_person_than_there_are() -> None:
    """A person with more records than the plan protects would be protected less."""
    rule = _only_rule(_judge(schema=_schema(max_records_per_person=2)))
    assert rule == "max_records_per_person = 2 here, the plan protects only 1"
    assert isinstance(_judge(replace(_PLAN, max_records_per_person=2)), Accept)


@pytest.mark.parametrize(
    "share", ["0.1234567890123", "1E-20", "1000001", "0.10000000000000000000000000000000000000000000000001"]
)
def test_shares_that_arithmetic_would_round(share: str) -> None:
    """A share that no sum keeps exact is refused before anything is computed with it."""
    value = Decimal(share)
    verdict = _judge(_with_attribute(epsilon=value, epsilon_joint=value))
    assert isinstance(verdict, Refuse)
    assert verdict.rule.startswith("epsilon of 'age' must be positive, at most 1000000, with at most 12")
    assert all("must be positive" in rule for rule in verdict.all_rules)


def test_release_epsilon_that_arithmetic_would_round() -> None:
    """The release's own epsilon is held to the same bounds."""
    assert "epsilon must be positive" in _only_rule(
        _judge(replace(_PLAN, epsilon=Decimal("1.0000000000001")))
    )


def test_more_than_the_composition_rule_gives() -> None:
    """The shares of an owner cannot add up to more than the release's epsilon, not by 10^-12."""
    share = Decimal("0.500000000001")
    rule = _only_rule(_judge(_with_attribute(epsilon=share, epsilon_joint=share)))
    assert rule == "the shares of this owner add up to 1.000000000001, more than epsilon 1 over 1 groups"


def test_more_than_a_groups_share() -> None:
    """In a vertical plan the limit is epsilon over the number of groups, shares rounded down included."""

    def plan(share: str) -> Plan:
        value = Decimal(share)
        attributes = (_planned("age", epsilon=value, epsilon_joint=value),)
        third = replace(_AGE, name="third")
        tasks = (
            _task("north", attributes=attributes),
            _task("south", group=1, attributes=(_planned("ward"),)),
            _task("east", group=2, attributes=(_planned("third"),)),
        )
        return replace(_PLAN, layout=Layout.VERTICAL, attributes=(_AGE, _WARD, third), tasks=tasks)

    assert isinstance(_judge(plan("0.333333333333")), Accept)
    assert "over 3 groups" in _only_rule(_judge(plan("0.333333333334")))


@pytest.mark.parametrize(
    ("changes", "found", "told"),
    [
        ({"epsilon_joint": Decimal("0.4")}, "0.5", "0.4"),
        ({"epsilon_joint": None}, "0.5", "not bounded"),
        ({"mechanism": "idp-ls"}, "1", "0.5"),
    ],
    ids=["too small", "absent", "another mechanism's"],
)
def test_wrong_joint_bound(changes: dict[str, Any], found: str, told: str) -> None:
    """The joint bound is computed anew, so that no plan can understate what is charged."""
    verdict = _judge(_with_attribute(**changes))
    assert isinstance(verdict, Refuse)
    assert verdict.rule == f"epsilon_joint of 'age' is {found}, the plan says {told}"


def test_joint_bound_of_a_frequency_order() -> None:
    """A frequency order has no joint bound, whatever the plan says about it."""
    plan = replace(_PLAN, attributes=(_AGE, _BY_FREQUENCY))
    schema = _schema(attributes=(_AGE, _BY_FREQUENCY))
    verdict = _judge(plan, schema=schema)
    assert _only_rule(verdict) == "epsilon_joint of 'ward' is not bounded, the plan says 0.5"


def test_drawn_categories_are_the_owners_declaration() -> None:
    """A category that is declared to be drawn is drawn, with the bound of this owner's number of clusters."""
    drawn = replace(_WARD, taxonomy=64 * "0", method=TaxonomyMethod.EXPONENTIAL)
    schema = _schema(attributes=(_AGE, drawn))

    def judged(mechanism: str, bound: str) -> Verdict:
        ward = _planned("ward", mechanism=mechanism, epsilon_joint=Decimal(bound))
        plan = replace(_with_task(attributes=(_planned("age"), ward)), attributes=(_AGE, drawn))
        return _judge(plan, schema=schema, balance=Decimal(1000))

    # 7,999 records at most, 10 in a cluster, 0.5 for each.
    verdict = judged("exponential", "399.5")
    assert isinstance(verdict, Accept)
    assert verdict.charge == Decimal(400)
    assert _only_rule(judged("exponential", "0.5")) == "epsilon_joint of 'ward' is 399.5, the plan says 0.5"
    expected = "method of 'ward' is exponential here, not mechanism idp-joint"
    assert _only_rule(judged("idp-joint", "0.5")) == expected
    ranked = _with_attribute(mechanism="exponential", epsilon_joint=Decimal("399.5"))
    assert _only_rule(_judge(ranked)) == "method of 'age' is rank here, not mechanism exponential"


def test_unbounded_charge_needs_per_centroid_accounting() -> None:
    """What has no joint bound is refused, unless the owner counts as the papers do."""
    unbounded = _with_task(attributes=(_planned("age"), _planned("ward", epsilon_joint=None)))
    plan = replace(unbounded, attributes=(_AGE, _BY_FREQUENCY))
    schema = _schema(attributes=(_AGE, _BY_FREQUENCY))
    rule = _only_rule(_judge(plan, schema=schema))
    assert rule.startswith('policy.accounting = "joint" does not take')
    assert rule.endswith("ward")
    verdict = _judge(plan, schema=schema, policy=PolicyConfig(accounting="per-centroid"))
    assert verdict == Accept(Decimal(1), "people", Decimal(1), None, "per-centroid")


def test_charge_follows_the_accounting() -> None:
    """idp-ls costs twice its epsilon, or once where the owner counts per centroid."""
    changes: dict[str, Any] = {"mechanism": "idp-ls", "epsilon_joint": Decimal(1)}
    plan = _with_task(attributes=(_planned("age", **changes), _planned("ward", **changes)))
    assert _judge(plan) == Accept(Decimal(2), "people", Decimal(1), Decimal(2), "joint")
    per_centroid = _judge(plan, policy=PolicyConfig(accounting="per-centroid"))
    assert per_centroid == Accept(Decimal(1), "people", Decimal(1), Decimal(2), "per-centroid")


def test_epsilon_limit_of_the_policy() -> None:
    """The limit holds for the charge, at the limit included."""
    assert isinstance(_judge(policy=PolicyConfig(max_epsilon_per_release=Decimal(1))), Accept)
    rule = _only_rule(_judge(policy=PolicyConfig(max_epsilon_per_release=Decimal("0.99"))))
    assert rule == "policy.max_epsilon_per_release = 0.99, the release would charge 1"
    changes: dict[str, Any] = {"mechanism": "idp-ls", "epsilon_joint": Decimal(1)}
    plan = _with_task(attributes=(_planned("age", **changes), _planned("ward", **changes)))
    assert "would charge 2" in _only_rule(
        _judge(plan, policy=PolicyConfig(max_epsilon_per_release=Decimal(1)))
    )


def test_k_limit_of_the_policy() -> None:
    """The policy's k holds for every attribute."""
    assert isinstance(_judge(policy=PolicyConfig(min_k=10)), Accept)
    rule = _only_rule(_judge(_with_attribute(k=9), policy=PolicyConfig(min_k=10)))
    assert rule == "policy.min_k = 10, 'age' is planned with k = 9"


def test_smallest_k_of_the_mechanism() -> None:
    """A mechanism's own smallest k holds whatever the policy says, for the plan's records per person."""
    rule = _only_rule(_judge(_with_attribute(k=2), policy=PolicyConfig(min_k=1)))
    assert rule == "idp-joint takes k of at least 3, 'age' has 2"
    plan = replace(_with_attribute(k=4), max_records_per_person=2)
    assert "at least 5" in _only_rule(_judge(plan))


def test_mechanisms_without_clusters_take_no_k() -> None:
    """No policy on k speaks of them, and a plan that gives them one is not what they are."""
    assert isinstance(_judge(_with_attribute(mechanism="dp", k=None), policy=PolicyConfig(min_k=10)), Accept)
    assert _only_rule(_judge(_with_attribute(mechanism="idp"))) == "idp takes no k, 'age' has 10"
    without = _only_rule(_judge(_with_attribute(k=None)))
    assert without == "idp-joint takes k of at least 3, 'age' has None"


def test_joint_bound_of_idp_cbls_is_counted_here() -> None:
    """7,000 records are 7,999 at most and 799 clusters of 10; a plan that counts fewer is refused."""
    cbls = {"mechanism": "idp-cbls", "epsilon_joint": Decimal("399.5")}
    accepted = _judge(_with_attribute(**cbls), balance=Decimal(400))
    assert isinstance(accepted, Accept)
    assert (accepted.charge, accepted.epsilon_joint) == (Decimal(400), Decimal(400))
    rule = _only_rule(_judge(_with_attribute(**(cbls | {"epsilon_joint": Decimal(350)}))))
    assert rule == "epsilon_joint of 'age' is 399.5, the plan says 350"


def test_idp_cbls_counted_as_the_papers_do() -> None:
    """Per centroid the charge is epsilon; the joint bound is kept for the record."""
    policy = PolicyConfig(accounting="per-centroid")
    verdict = _judge(_with_attribute(mechanism="idp-cbls", epsilon_joint=Decimal("399.5")), policy=policy)
    assert verdict == Accept(Decimal(1), "people", Decimal(1), Decimal(400), "per-centroid")


def test_shares_of_one_person_under_other_budget_splits() -> None:
    """By attribute or weights the shares of all groups together are held to epsilon, not to equal parts."""

    def plan(share: str, split: BudgetSplit) -> Plan:
        value = Decimal(share)
        tasks = (
            _task("north", attributes=(_planned("age", epsilon=value, epsilon_joint=value),)),
            _task("south", group=1, attributes=(_planned("ward", epsilon=Decimal("0.25")),)),
        )
        return replace(_PLAN, layout=Layout.VERTICAL, tasks=tasks, budget_split=split)

    for split in (BudgetSplit.ATTRIBUTE, BudgetSplit.WEIGHTS):
        assert isinstance(_judge(plan("0.75", split)), Accept)
        rule = _only_rule(_judge(plan("0.750000000001", split)))
        assert rule == "the shares of one person add up to 1.000000000001, more than epsilon 1"
    assert "over 2 groups" in _only_rule(_judge(plan("0.75", BudgetSplit.OWNER)))


def test_several_records_of_a_person_in_several_groups() -> None:
    """Groups are aligned on persons with one record each, so such a plan cannot hold its promise."""
    tasks = (
        _task("north", attributes=(_planned("age"),)),
        _task("south", group=1, attributes=(_planned("ward"),)),
    )
    plan = replace(_PLAN, layout=Layout.VERTICAL, tasks=tasks, max_records_per_person=2)
    assert "every person has one record" in _only_rule(_judge(plan))


def test_mechanism_outside_the_policy() -> None:
    """A mechanism that the policy does not list is refused once, not once per attribute."""
    rule = _only_rule(_judge(policy=PolicyConfig(mechanisms=("idp-ls",))))
    assert rule == "policy.mechanisms does not list 'idp-joint'"


def test_mechanism_nobody_knows() -> None:
    """A mechanism without a promise is refused, not a fault of the program."""
    verdict = _judge(_with_attribute(mechanism="trust-me"))
    assert _only_rule(verdict) == "policy.mechanisms does not list 'trust-me'"


def test_layout_outside_the_policy() -> None:
    """A layout that the policy does not list is refused."""
    rule = _only_rule(_judge(policy=PolicyConfig(layouts=("vertical",))))
    assert rule == "policy.layouts does not list 'horizontal'"


def test_aggregator_outside_the_policy() -> None:
    """A configured aggregator may still be one that the policy does not work with."""
    assert isinstance(_judge(policy=PolicyConfig(aggregators=("hub",))), Accept)
    rule = _only_rule(_judge(policy=PolicyConfig(aggregators=("other",))))
    assert rule == "policy.aggregators does not list 'hub'"


@pytest.mark.parametrize("purpose", ["Study", "study ", ""])
def test_purpose_outside_the_policy(purpose: str) -> None:
    """A purpose is allowed word for word or not at all."""
    assert isinstance(_judge(policy=PolicyConfig(purposes=("study",))), Accept)
    verdict = _judge(replace(_PLAN, purpose=purpose), policy=PolicyConfig(purposes=("study",)))
    assert _only_rule(verdict).startswith("policy.purposes")


def test_validity_of_the_policy() -> None:
    """A policy holds from its first to its last day, both included."""
    day = date(2026, 1, 2)
    assert isinstance(_judge(policy=PolicyConfig(valid_from=day, valid_until=day)), Accept)
    assert "policy.valid_from" in _only_rule(_judge(policy=PolicyConfig(valid_from=date(2026, 1, 3))))
    assert "policy.valid_until" in _only_rule(_judge(policy=PolicyConfig(valid_until=date(2026, 1, 1))))


def test_balance() -> None:
    """A charge over the balance is told as such, to the aggregator without the balance."""
    assert isinstance(_judge(balance=Decimal(1)), Accept)
    verdict = _judge(balance=Decimal("0.999999999999"))
    assert isinstance(verdict, Refuse)
    assert isinstance(verdict.error, BalanceError)
    assert verdict.error.details == {"budget": "people", "requested": "1", "remaining": "0.999999999999"}
    assert verdict.error.code == "balance"


def test_balance_comes_after_every_other_rule() -> None:
    """A refusal for other reasons never says that the balance is low."""
    verdict = _judge(balance=Decimal(0), policy=PolicyConfig(min_k=11))
    assert isinstance(verdict, Refuse)
    assert verdict.error.code == "refused"
    assert all("policy.min_k" in rule for rule in verdict.all_rules)


@pytest.mark.parametrize(("rounded", "k", "fits"), [(7000, 7999, True), (7000, 8000, False), (0, 3, False)])
def test_k_that_no_data_set_of_this_size_has(rounded: int, k: int, fits: bool) -> None:
    """A k above every number of records that rounds to the stated one is unusable at once."""
    plan = _with_task(attributes=(_planned("age", k=k), _planned("ward", k=k)))
    verdict = _judge(plan, schema=_schema(records_rounded=rounded))
    assert isinstance(verdict, Accept) == fits
    if isinstance(verdict, Refuse):
        assert isinstance(verdict.error, UnusableDataError)
        assert verdict.error.code == "unusable_data"


def test_all_rules_are_told_and_one_decides() -> None:
    """An owner reads every reason at once; a refusal by policy goes before unusable data."""
    policy = PolicyConfig(min_k=9000, layouts=("vertical",), purposes=("other",))
    verdict = _judge(_with_attribute(k=8500), policy=policy)
    assert isinstance(verdict, Refuse)
    assert type(verdict.error) is RefusedError
    beginnings = [rule.split(" ")[0] for rule in verdict.all_rules]
    assert beginnings == ["policy.min_k", "policy.min_k", "policy.layouts", "policy.purposes", "k"]
    assert verdict.error.details["rules"] == list(verdict.all_rules)
    assert verdict.rule == verdict.all_rules[0]
