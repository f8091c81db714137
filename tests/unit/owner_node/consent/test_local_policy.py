"""The policy at the owner's own commands."""

from datetime import date
from decimal import Decimal

import pytest

from common.errors import RefusedError
from owner_node.config import PolicyConfig
from owner_node.consent.policy_rules import Use, check_policy

USES = (Use("age", "idp-joint", 5), Use("ward", "idp-ls", 5, unbounded=True))
TODAY = date(2026, 5, 6)


def judge(policy: PolicyConfig, epsilon: str = "1", charge: str | None = "1.5") -> None:
    """Judge both uses."""
    amount = None if charge is None else Decimal(charge)
    check_policy(policy, USES, epsilon=Decimal(epsilon), charge=amount, today=TODAY)


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (PolicyConfig(max_epsilon_per_release=Decimal("1.4")), "policy.max_epsilon_per_release = 1.4"),
        (PolicyConfig(min_k=6), "policy.min_k = 6, 'age'"),
        (PolicyConfig(mechanisms=("idp-joint",)), "policy.mechanisms does not list 'idp-ls'"),
        (PolicyConfig(attributes=("age",)), "policy.attributes does not list 'ward'"),
        (PolicyConfig(valid_from=date(2026, 5, 7)), "policy.valid_from = 2026-05-07"),
        (PolicyConfig(valid_until=date(2026, 5, 5)), "policy.valid_until = 2026-05-05"),
    ],
)
def test_every_rule_refuses(policy, rule):
    """Each key of the policy that speaks of masking holds without an aggregator, too."""
    with pytest.raises(RefusedError) as caught:
        judge(policy)
    assert rule in caught.value.message
    assert caught.value.details["rules"]


def test_what_speaks_of_releases_does_not_refuse():
    """Layouts, aggregators and purposes are not asked for here, and a limit that is met is met."""
    limit = Decimal("1.5")
    judge(PolicyConfig(max_epsilon_per_release=limit, layouts=(), aggregators=("hub",), purposes=("x",)))


def test_no_bound_is_no_charge():
    """Under joint accounting an attribute without a joint bound is refused by its name."""
    with pytest.raises(RefusedError, match="not bounded: ward"):
        judge(PolicyConfig(), charge=None)


def test_all_rules_are_told():
    """Whoever has to change a policy sees everything that objects at once."""
    with pytest.raises(RefusedError) as caught:
        judge(PolicyConfig(min_k=6, attributes=("x",), valid_until=date(2026, 1, 1)))
    assert len(caught.value.details["rules"]) == 5
