"""An owner judges the plan of a synthetic release by its own arithmetic."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from common.errors import BalanceError
from common.model.plan import Layout, Plan, Synthesis
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.model.task import Modelled
from owner_node.config import PolicyConfig
from owner_node.consent.judge import Accept, Refuse
from tests.fakes.consent_plans import PLAN, SCHEMA, judged, only_rule, task

SPLIT = (Decimal("0.4"), Decimal("0.6"))
MODELLED = Modelled(("age", "ward"), Decimal(1))


def synthetic(modelled: Modelled = MODELLED, colluding: int = 1, **changes: Any) -> Plan:
    """Return the plan of a synthetic release of two owners."""
    tasks = tuple(task(owner, attributes=(), modelled=modelled) for owner in ("north", "south"))
    return replace(PLAN, tasks=tasks, synthesis=Synthesis(colluding, SPLIT), **changes)


def test_an_honest_plan_costs_the_whole_epsilon() -> None:
    """The record of a person is protected as a whole, at the one owner that has it."""
    plan = Plan.from_bytes(synthetic().to_bytes())
    assert judged(plan) == Accept(Decimal(1), "people", Decimal(1), Decimal(1), "joint", rank_loss=Decimal(0))


def test_a_delta_is_charged_beside_epsilon_up_to_its_total() -> None:
    """δ has a limit of its own, over all releases of the budget, and none without a word of the policy."""
    small = Decimal("0.000001")
    plan = replace(synthetic(), synthesis=Synthesis(1, SPLIT, small))
    verdict = judged(plan, policy=PolicyConfig(total_delta=2 * small), delta_spent=small)
    assert isinstance(verdict, Accept)
    assert (verdict.charge, verdict.delta) == (Decimal(1), small)
    for policy, spent in ((PolicyConfig(), Decimal(0)), (PolicyConfig(total_delta=2 * small), 2 * small)):
        assert "policy.total_delta" in only_rule(judged(plan, policy=policy, delta_spent=spent))


def test_a_person_may_have_to_agree() -> None:
    """A policy asks a person as it does for masked records."""
    verdict = judged(synthetic(), policy=PolicyConfig(approval="manual"))
    assert isinstance(verdict, Accept)
    assert verdict.asks == 'policy.approval = "manual"'


def test_the_product_has_to_be_allowed() -> None:
    """A policy that lists masked records alone refuses others, and the other way round."""
    assert "policy.products" in only_rule(judged(synthetic(), policy=PolicyConfig(products=("masked",))))
    assert "policy.products" in only_rule(judged(PLAN, policy=PolicyConfig(products=("synthetic",))))
    assert isinstance(judged(synthetic(), policy=PolicyConfig(products=("synthetic",))), Accept)


def test_the_mechanisms_of_a_policy_say_nothing_about_counts() -> None:
    """They are about masked attributes."""
    policy = PolicyConfig(mechanisms=("idp-joint",), min_k=50, min_rank_noise=Decimal("0.1"))
    assert isinstance(judged(synthetic(), policy=policy), Accept)


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (synthetic(replace(MODELLED, epsilon=Decimal("0.5"))), "the plan charges 0.5 for whole records"),
        (synthetic(colluding=2), "2 of 2 owners cannot collude"),
        (synthetic(Modelled(("age",), Decimal(1)), attributes=PLAN.attributes[:1]), ""),
        (synthetic(max_records_per_person=2), "a person has one record"),
        (synthetic(epsilon=Decimal("0.000001")), "the plan charges 1 for whole records"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(plan: Plan, rule: str) -> None:
    """Whatever an aggregator writes, the noise follows from ε, and ε is what is charged."""
    verdict = judged(plan)
    if not rule:
        assert isinstance(verdict, Accept)
        return
    assert isinstance(verdict, Refuse)
    assert any(rule in each for each in verdict.error.details["rules"])


def test_owners_of_different_attributes_are_charged_epsilon_in_full() -> None:
    """It is that of whole records. All hold the same persons, by one identifier."""
    tasks = (
        task("north", attributes=(), modelled=Modelled(("age",), Decimal(1))),
        task("south", group=1, attributes=(), modelled=Modelled(("ward",), Decimal(1))),
    )
    plan = replace(PLAN, layout=Layout.VERTICAL, tasks=tasks, synthesis=Synthesis(0, SPLIT))
    verdict = judged(plan)
    assert isinstance(verdict, Accept)
    assert verdict.charge == plan.epsilon == 1
    refused = judged(
        replace(plan, linking=replace(plan.linking, on_mismatch="intersect", min_common=1)),
        policy=PolicyConfig(),
    )
    assert isinstance(refused, Refuse)
    assert any("policy.allow_intersect" in each for each in refused.error.details["rules"])


def test_attributes_and_balance_are_checked_as_for_masked_records() -> None:
    """Counts of attributes that the policy or the data set does not have is refused."""
    assert "policy.attributes does not list 'ward'" in only_rule(
        judged(synthetic(), policy=PolicyConfig(attributes=("age",)))
    )
    verdict = judged(synthetic(), balance=Decimal("0.9"))
    assert isinstance(verdict, Refuse)
    assert isinstance(verdict.error, BalanceError)


def test_the_rules_of_the_plan_are_those_of_the_owner() -> None:
    """An aggregator can neither add a structural zero nor leave one out."""
    zero = StructuralZero((ExcludedValues("age", (("0", "15"),)),))
    without, ruled = synthetic(), synthetic()
    ruled = replace(ruled, synthesis=Synthesis(1, SPLIT, structural_zeros=(zero,)))
    declares = replace(SCHEMA, structural_zeros=(zero,))
    assert isinstance(judged(ruled, schema=declares), Accept)
    for plan, schema in ((ruled, SCHEMA), (without, declares)):
        assert "structural zeros" in only_rule(judged(plan, schema=schema))
