"""What the owner's policy and budget say about a plan that is what it says."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from common.errors import BalanceError, RefusedError, UnusableDataError
from owner_node.config import PolicyConfig
from owner_node.consent.judge import Accept, Refuse
from tests.fakes.consent_plans import (
    PLAN,
    judged,
    only_rule,
    planned,
    schema,
    with_attribute,
    with_task,
)


def test_epsilon_limit_of_the_policy() -> None:
    """The limit holds for the charge, at the limit included."""
    assert isinstance(judged(policy=PolicyConfig(max_epsilon_per_release=Decimal(1))), Accept)
    rule = only_rule(judged(policy=PolicyConfig(max_epsilon_per_release=Decimal("0.99"))))
    assert rule == "policy.max_epsilon_per_release = 0.99, the release would charge 1"
    changes: dict[str, Any] = {"mechanism": "idp-ls", "epsilon_joint": Decimal(1)}
    plan = with_task(attributes=(planned("age", **changes), planned("ward", **changes)))
    assert "would charge 2" in only_rule(
        judged(plan, policy=PolicyConfig(max_epsilon_per_release=Decimal(1)))
    )


def test_k_limit_of_the_policy() -> None:
    """The policy's k holds for every attribute."""
    assert isinstance(judged(policy=PolicyConfig(min_k=10)), Accept)
    rule = only_rule(judged(with_attribute(k=9), policy=PolicyConfig(min_k=10)))
    assert rule == "policy.min_k = 10, 'age' is planned with k = 9"


def test_smallest_k_of_the_mechanism() -> None:
    """A mechanism's own smallest k holds whatever the policy says, for the plan's records per person."""
    rule = only_rule(judged(with_attribute(k=2), policy=PolicyConfig(min_k=1)))
    assert rule == "idp-joint takes k of at least 3, 'age' has 2"
    plan = replace(with_attribute(k=4), max_records_per_person=2)
    assert "at least 5" in only_rule(judged(plan))


def test_mechanisms_without_clusters_take_no_k() -> None:
    """No policy on k speaks of them, and a plan that gives them one is not what they are."""
    assert isinstance(judged(with_attribute(mechanism="dp", k=None), policy=PolicyConfig(min_k=10)), Accept)
    assert (
        only_rule(judged(with_attribute(mechanism="idp")))
        == "idp makes no clusters and takes no k, 'age' has 10"
    )
    without = only_rule(judged(with_attribute(k=None)))
    assert without == "idp-joint takes k of at least 3, 'age' has None"


def test_mechanism_outside_the_policy() -> None:
    """A mechanism that the policy does not list is refused once, not once per attribute."""
    rule = only_rule(judged(policy=PolicyConfig(mechanisms=("idp-ls",))))
    assert rule == "policy.mechanisms does not list 'idp-joint'"


def test_mechanism_nobody_knows() -> None:
    """A mechanism without a promise is refused, not a fault of the program."""
    verdict = judged(with_attribute(mechanism="trust-me"))
    assert only_rule(verdict) == "policy.mechanisms does not list 'trust-me'"


def test_layout_outside_the_policy() -> None:
    """A layout that the policy does not list is refused."""
    rule = only_rule(judged(policy=PolicyConfig(layouts=("vertical",))))
    assert rule == "policy.layouts does not list 'horizontal'"


def test_aggregator_outside_the_policy() -> None:
    """A configured aggregator may still be one that the policy does not work with."""
    assert isinstance(judged(policy=PolicyConfig(aggregators=("hub",))), Accept)
    rule = only_rule(judged(policy=PolicyConfig(aggregators=("other",))))
    assert rule == "policy.aggregators does not list 'hub'"


def test_co_owner_outside_the_policy() -> None:
    """Every other owner of a plan has to be listed, pinned or not; without a list the plan may name any."""
    pinned = PolicyConfig(co_owners=(f"south={'0a' * 32}", "east"))
    assert isinstance(judged(policy=pinned), Accept)
    assert only_rule(judged(policy=PolicyConfig(co_owners=("east", "north")))) == (
        "policy.co_owners does not list 'south'"
    )


def test_a_person_is_asked_about_every_plan() -> None:
    """Manual approval leaves the decision to a person, and only about what the policy does not refuse."""
    verdict = judged(policy=PolicyConfig(approval="manual"))
    assert isinstance(verdict, Accept)
    assert verdict.asks == 'policy.approval = "manual"'
    assert isinstance(judged(policy=PolicyConfig(approval="manual", min_k=11)), Refuse)
    assert isinstance(judged(policy=PolicyConfig(approval="manual"), balance=Decimal(0)), Refuse)


def test_a_person_is_asked_above_a_charge() -> None:
    """What counts is the charge, and the limit itself is not above it."""
    at, below = (
        PolicyConfig(manual_above_epsilon=Decimal(1)),
        PolicyConfig(manual_above_epsilon=Decimal("0.9")),
    )
    assert judged(policy=at) == judged()
    verdict = judged(policy=below)
    assert isinstance(verdict, Accept)
    assert verdict.asks == "policy.manual_above_epsilon = 0.9, the release would charge 1"


@pytest.mark.parametrize("purpose", ["Study", "study ", ""])
def test_purpose_outside_the_policy(purpose: str) -> None:
    """A purpose is allowed word for word or not at all."""
    assert isinstance(judged(policy=PolicyConfig(purposes=("study",))), Accept)
    verdict = judged(replace(PLAN, purpose=purpose), policy=PolicyConfig(purposes=("study",)))
    assert only_rule(verdict).startswith("policy.purposes")


def test_validity_of_the_policy() -> None:
    """A policy holds from its first to its last day, both included."""
    day = date(2026, 1, 2)
    assert isinstance(judged(policy=PolicyConfig(valid_from=day, valid_until=day)), Accept)
    assert "policy.valid_from" in only_rule(judged(policy=PolicyConfig(valid_from=date(2026, 1, 3))))
    assert "policy.valid_until" in only_rule(judged(policy=PolicyConfig(valid_until=date(2026, 1, 1))))


def test_balance() -> None:
    """A charge over the balance is told as such, to the aggregator without the balance."""
    assert isinstance(judged(balance=Decimal(1)), Accept)
    verdict = judged(balance=Decimal("0.999999999999"))
    assert isinstance(verdict, Refuse)
    assert isinstance(verdict.error, BalanceError)
    assert verdict.error.details == {"budget": "people", "requested": "1", "remaining": "0.999999999999"}
    assert verdict.error.code == "balance"


def test_balance_comes_after_every_other_rule() -> None:
    """A refusal for other reasons never says that the balance is low."""
    verdict = judged(balance=Decimal(0), policy=PolicyConfig(min_k=11))
    assert isinstance(verdict, Refuse)
    assert verdict.error.code == "refused"
    assert all("policy.min_k" in rule for rule in verdict.error.details["rules"])


@pytest.mark.parametrize(("rounded", "k", "fits"), [(7000, 7999, True), (7000, 8000, False), (0, 3, False)])
def test_k_that_no_data_set_of_this_size_has(rounded: int, k: int, fits: bool) -> None:
    """A k above every number of records that rounds to the stated one is unusable at once."""
    plan = with_task(attributes=(planned("age", k=k), planned("ward", k=k)), records_rounded=rounded)
    verdict = judged(plan, schema=schema(records_rounded=rounded))
    assert isinstance(verdict, Accept) == fits
    if isinstance(verdict, Refuse):
        assert isinstance(verdict.error, UnusableDataError)
        assert verdict.error.code == "unusable_data"


def test_all_rules_are_told_and_one_decides() -> None:
    """An owner reads every reason at once; a refusal by policy goes before unusable data."""
    policy = PolicyConfig(min_k=9000, layouts=("vertical",), purposes=("other",))
    verdict = judged(with_attribute(k=8500), policy=policy)
    assert isinstance(verdict, Refuse)
    assert type(verdict.error) is RefusedError
    beginnings = [rule.split(" ")[0] for rule in verdict.error.details["rules"]]
    assert beginnings == ["policy.min_k", "policy.min_k", "policy.layouts", "policy.purposes", "k"]
    assert verdict.rule == verdict.error.details["rules"][0]
