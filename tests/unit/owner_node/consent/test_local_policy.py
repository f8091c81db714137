"""The policy at the owner's own commands."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from common.errors import RefusedError
from common.model.task import PlannedAttribute
from owner_node.config import PolicyConfig
from owner_node.consent.judge import check_local
from tests.fakes.consent_plans import local_work, planned

TODAY = date(2026, 5, 6)
AGE = planned("age", k=5, rank_noise=Decimal("0.04"), rank_loss=Decimal(50))
WARD = planned("ward", mechanism="idp-ls", k=5, epsilon_joint=Decimal(1))


def judge(policy: PolicyConfig, *attributes: PlannedAttribute, rank_lost: Decimal = Decimal(0)) -> None:
    """Judge a mask of these attributes, or of both: epsilon 1, charge 1.5."""
    check_local(local_work(*(attributes or (AGE, WARD)), policy=policy, today=TODAY, rank_lost=rank_lost))


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
    judge(
        PolicyConfig(max_epsilon_per_release=limit, layouts=("mixed",), aggregators=("hub",), purposes=("x",))
    )


def test_no_bound_is_no_charge():
    """Under joint accounting an attribute without a joint bound is refused by its name."""
    with pytest.raises(RefusedError, match="not bounded: ward"):
        judge(PolicyConfig(), AGE, replace(WARD, epsilon_joint=None))
    judge(PolicyConfig(accounting="per-centroid"), AGE, replace(WARD, epsilon_joint=None))


def test_all_rules_are_told():
    """Whoever has to change a policy sees everything that objects at once."""
    with pytest.raises(RefusedError) as caught:
        judge(PolicyConfig(min_k=6, attributes=("x",), valid_until=date(2026, 1, 1)))
    assert len(caught.value.details["rules"]) == 5


def test_rank_noise_and_what_was_lost_before():
    """`mask` is no way around `min_rank_noise` or `total_rank_loss`; a query has no list."""
    little = PolicyConfig(min_rank_noise=Decimal("0.05"))
    with pytest.raises(RefusedError, match=r"min_rank_noise = 0\.05, 'age' is planned with rank noise 0\.04"):
        judge(little, AGE)
    limited = PolicyConfig(total_rank_loss=Decimal(60))
    judge(limited, AGE, rank_lost=Decimal(10))
    with pytest.raises(RefusedError, match="has lost 11, this would be 50 more"):
        judge(limited, AGE, rank_lost=Decimal(11))
    with pytest.raises(RefusedError, match="takes no lists without rank noise"):
        judge(limited, WARD)
    query = planned("age", mechanism="idp", k=None)
    for policy in (little, limited):
        judge(policy, query, rank_lost=Decimal(60))
