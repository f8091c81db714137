"""What a plan charges: its shares and bounds, computed anew."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from common.model.plan import BudgetSplit, Layout, Plan
from common.model.schema import TaxonomyMethod
from common.model.task import PlannedAttribute, Task
from owner_node.config import PolicyConfig
from owner_node.consent.judge import Accept, Refuse, Verdict
from owner_node.consent.plan_rules import Request, composition
from tests.fakes.consent_plans import (
    AGE,
    BY_FREQUENCY,
    DATASET,
    PLAN,
    SCHEMA,
    WARD,
    judged,
    only_rule,
    planned,
    schema,
    task,
    with_attribute,
    with_task,
)


@pytest.mark.parametrize(
    "share", ["0.1234567890123", "1E-20", "1000001", "0.10000000000000000000000000000000000000000000000001"]
)
def test_shares_that_arithmetic_would_round(share: str) -> None:
    """A share that no sum keeps exact is refused before anything is computed with it."""
    value = Decimal(share)
    verdict = judged(with_attribute(epsilon=value, epsilon_joint=value))
    assert isinstance(verdict, Refuse)
    assert verdict.rule.startswith("epsilon of 'age' must be positive, at most 1000000, with at most 12")
    assert all("must be positive" in rule for rule in verdict.error.details["rules"])


def test_release_epsilon_that_arithmetic_would_round() -> None:
    """The release's own epsilon is held to the same bounds."""
    assert "epsilon must be positive" in only_rule(judged(replace(PLAN, epsilon=Decimal("1.0000000000001"))))


def test_more_than_the_composition_rule_gives() -> None:
    """The shares of an owner cannot add up to more than the release's epsilon, not by 10^-12."""
    share = Decimal("0.500000000001")
    rule = only_rule(judged(with_attribute(epsilon=share, epsilon_joint=share)))
    assert rule == "the shares of this owner add up to 1.000000000001, more than epsilon 1 over 1 groups"


def test_more_than_a_groups_share() -> None:
    """In a vertical plan the limit is epsilon over the number of groups, shares rounded down included."""

    def plan(share: str) -> Plan:
        value = Decimal(share)
        attributes = (planned("age", epsilon=value, epsilon_joint=value),)
        third = replace(AGE, name="third")
        tasks = (
            task("north", attributes=attributes),
            task("south", group=1, attributes=(planned("ward"),)),
            task("east", group=2, attributes=(planned("third"),)),
        )
        return replace(PLAN, layout=Layout.VERTICAL, attributes=(AGE, WARD, third), tasks=tasks)

    assert isinstance(judged(plan("0.333333333333")), Accept)
    assert "over 3 groups" in only_rule(judged(plan("0.333333333334")))


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
    verdict = judged(with_attribute(**changes))
    assert isinstance(verdict, Refuse)
    assert verdict.rule == f"epsilon_joint of 'age' is {found}, the plan says {told}"


def test_another_share_for_the_counts_of_spikes() -> None:
    """It follows from the attribute's share: no plan can take it from the list, or give it to the list."""
    spiked = replace(AGE, spikes=(0,))
    own, plan = schema(attributes=(spiked, WARD)), replace(PLAN, attributes=(spiked, WARD))
    of_age = planned("age", mechanism="dp-quantiles", epsilon_spikes=Decimal("0.05"))

    def with_age(age: PlannedAttribute) -> Plan:
        tasks = [replace(each, attributes=(age, planned("ward"))) for each in plan.tasks]
        return replace(plan, tasks=tuple(tasks))

    assert isinstance(judged(with_age(of_age), schema=own), Accept)
    verdict = judged(with_age(replace(of_age, epsilon_spikes=Decimal("0.4"))), schema=own)
    assert isinstance(verdict, Refuse)
    assert "epsilon_spikes of 'age' is 0.05, the plan says 0.4" in verdict.error.details["rules"]


def test_a_share_of_which_the_counts_of_spikes_get_nothing() -> None:
    """A tenth of it has no digit left: an objection as any other, and no error."""
    spiked = replace(AGE, spikes=(0,))
    own, plan = schema(attributes=(spiked, WARD)), replace(PLAN, attributes=(spiked, WARD))
    of_age = planned("age", mechanism="dp-quantiles", epsilon=Decimal("0.000000000009"))
    tasks = [replace(each, attributes=(of_age, planned("ward"))) for each in plan.tasks]
    verdict = judged(replace(plan, tasks=tuple(tasks)), schema=own)
    assert isinstance(verdict, Refuse)
    assert any(
        rule.startswith("'age' cannot be masked as planned") for rule in verdict.error.details["rules"]
    )


def test_joint_bound_of_a_frequency_order() -> None:
    """A frequency order has no joint bound, whatever the plan says about it."""
    plan = replace(PLAN, attributes=(AGE, BY_FREQUENCY))
    own = schema(attributes=(AGE, BY_FREQUENCY))
    verdict = judged(plan, schema=own)
    assert only_rule(verdict) == "epsilon_joint of 'ward' is not bounded, the plan says 0.5"


def test_drawn_categories_are_the_owners_declaration() -> None:
    """A category that is declared to be drawn is drawn, with the bound of this owner's number of clusters."""
    drawn = replace(WARD, taxonomy=64 * "0", method=TaxonomyMethod.EXPONENTIAL)
    own = schema(attributes=(AGE, drawn))

    def of(mechanism: str, bound: str) -> Verdict:
        ward = planned("ward", mechanism=mechanism, epsilon_joint=Decimal(bound))
        plan = replace(with_task(attributes=(planned("age"), ward)), attributes=(AGE, drawn))
        return judged(plan, schema=own, balance=Decimal(1000))

    # 7,999 records at most, 10 in a cluster, 0.5 for each.
    verdict = of("exponential", "399.5")
    assert isinstance(verdict, Accept)
    assert verdict.charge == Decimal(400)
    assert only_rule(of("exponential", "0.5")) == "epsilon_joint of 'ward' is 399.5, the plan says 0.5"
    expected = "method of 'ward' is exponential here, not mechanism idp-joint"
    assert only_rule(of("idp-joint", "0.5")) == expected
    ranked = with_attribute(mechanism="exponential", epsilon_joint=Decimal("399.5"))
    assert only_rule(judged(ranked)) == "method of 'age' is rank here, not mechanism exponential"


def test_missing_values_are_kept_as_the_owner_declares() -> None:
    """An attribute that keeps them is only counted, and only a plan that says so is accepted."""
    kept = replace(AGE, keeps_missing=True)
    own = schema(attributes=(kept, WARD))
    plan = replace(PLAN, attributes=(kept, WARD))
    assert (
        only_rule(judged(plan, schema=own))
        == "missing of 'age' is \"category\" here, not mechanism idp-joint"
    )
    assert (
        only_rule(judged(PLAN, schema=own))
        == "attribute 'age' is planned with other settings than declared here"
    )
    counted = with_attribute(mechanism="dp-hist", k=None)
    assert isinstance(judged(replace(counted, attributes=(kept, WARD)), schema=own), Accept)


def test_unbounded_charge_needs_per_centroid_accounting() -> None:
    """What has no joint bound is refused, unless the owner counts as the papers do."""
    unbounded = with_task(attributes=(planned("age"), planned("ward", epsilon_joint=None)))
    plan = replace(unbounded, attributes=(AGE, BY_FREQUENCY))
    own = schema(attributes=(AGE, BY_FREQUENCY))
    rule = only_rule(judged(plan, schema=own))
    assert rule.startswith('policy.accounting = "joint" does not take')
    assert rule.endswith("ward")
    verdict = judged(plan, schema=own, policy=PolicyConfig(accounting="per-centroid"))
    assert verdict == Accept(Decimal(1), "people", Decimal(1), None, "per-centroid")


def test_charge_follows_the_accounting() -> None:
    """idp-ls costs twice its epsilon, or once where the owner counts per centroid."""
    changes: dict[str, Any] = {"mechanism": "idp-ls", "epsilon_joint": Decimal(1)}
    plan = with_task(attributes=(planned("age", **changes), planned("ward", **changes)))
    assert judged(plan) == Accept(Decimal(2), "people", Decimal(1), Decimal(2), "joint")
    per_centroid = judged(plan, policy=PolicyConfig(accounting="per-centroid"))
    assert per_centroid == Accept(Decimal(1), "people", Decimal(1), Decimal(2), "per-centroid")


def test_joint_bound_of_idp_cbls_is_counted_here() -> None:
    """7,000 records are 7,999 at most and 799 clusters of 10; a plan that counts fewer is refused."""
    cbls = {"mechanism": "idp-cbls", "epsilon_joint": Decimal("399.5")}
    accepted = judged(with_attribute(**cbls), balance=Decimal(400))
    assert isinstance(accepted, Accept)
    assert (accepted.charge, accepted.epsilon_joint) == (Decimal(400), Decimal(400))
    rule = only_rule(judged(with_attribute(**(cbls | {"epsilon_joint": Decimal(350)}))))
    assert rule == "epsilon_joint of 'age' is 399.5, the plan says 350"


def test_idp_cbls_counted_as_the_papers_do() -> None:
    """Per centroid the charge is epsilon; the joint bound is kept for the record."""
    policy = PolicyConfig(accounting="per-centroid")
    verdict = judged(with_attribute(mechanism="idp-cbls", epsilon_joint=Decimal("399.5")), policy=policy)
    assert verdict == Accept(Decimal(1), "people", Decimal(1), Decimal(400), "per-centroid")


def test_shares_of_one_person_under_other_budget_splits() -> None:
    """By attribute or weights the shares of all groups together are held to epsilon, not to equal parts."""

    def plan(share: str, split: BudgetSplit) -> Plan:
        value = Decimal(share)
        tasks = (
            task("north", attributes=(planned("age", epsilon=value, epsilon_joint=value),)),
            task("south", group=1, attributes=(planned("ward", epsilon=Decimal("0.25")),)),
        )
        return replace(PLAN, layout=Layout.VERTICAL, tasks=tasks, budget_split=split)

    for split in (BudgetSplit.ATTRIBUTE, BudgetSplit.WEIGHTS):
        assert isinstance(judged(plan("0.75", split)), Accept)
        rule = only_rule(judged(plan("0.750000000001", split)))
        assert rule == "the shares of one person add up to 1.000000000001, more than epsilon 1"
    assert "over 2 groups" in only_rule(judged(plan("0.75", BudgetSplit.OWNER)))


class Counted(tuple[Task, ...]):  # noqa: SLOT001 - a tuple takes no slots of its own
    """Tasks that know how often somebody went through them."""

    n_passes = 0

    def __iter__(self) -> Iterator[Task]:
        self.n_passes += 1
        return super().__iter__()


def test_shares_of_one_person_in_very_many_groups() -> None:
    """An owner goes through the tasks of a plan equally often however many groups it has."""

    def passes(n_groups: int) -> int:
        names = [f"x{number}" for number in range(n_groups)]
        tasks = Counted(
            task("north" if not group else f"o{group}", group=group, attributes=(planned(name),))
            for group, name in enumerate(names)
        )
        plan = replace(
            PLAN, layout=Layout.VERTICAL, attributes=tuple(replace(AGE, name=name) for name in names),
            tasks=tasks, budget_split=BudgetSplit.ATTRIBUTE, epsilon=Decimal(n_groups),
        )  # fmt: skip
        request = Request(
            plan=plan, assignment=plan.assignment_of("north"), owner_id="north", aggregator_name="hub",
            trust_domain="trust", policy=PolicyConfig(), dataset=DATASET, schema=SCHEMA,
            balance=Decimal(3), today=date(2026, 1, 2),
        )  # fmt: skip
        tasks.n_passes = 0
        assert not list(composition(request))
        return tasks.n_passes

    assert passes(2) == passes(40)


def test_an_expected_error_that_is_not_the_formulas() -> None:
    """A person decides by the plan's figures, so a smaller error than the public formula's is refused."""
    for stated in ("0.01", "1"):
        rule = only_rule(judged(with_attribute(expected_error=Decimal(stated))))
        assert rule == f"expected_error of 'age' is 0.960002, the plan says {stated}"
    assert isinstance(judged(with_attribute(expected_error=Decimal("0.960002"))), Accept)
