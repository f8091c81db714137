"""What an owner's plan rules, policy and ledger have against rank noise that is little, wrong or too much."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import RefusedError
from common.model.plan import Plan
from common.model.privacy import rank_loss
from owner_node.config import PolicyConfig
from owner_node.consent.judge import Accept
from owner_node.ledger.ledger import Ledger
from owner_node.ledger.losses import LostCharge
from owner_node.state.database import OwnerDatabase
from tests.fakes.consent_plans import (
    AGE,
    BY_FREQUENCY,
    DATASET,
    PAY,
    PLAN,
    SCHEMA,
    judged,
    only_rule,
    planned,
    with_task,
)
from tests.fakes.ledgers import clock, give_back, reserve, spend

NOISE = Decimal("0.04")
LOSS = Decimal(50)


def noisy(name: str = "age", **changes: Any) -> Any:
    """An attribute with rank noise."""
    return planned(name, **{"rank_noise": NOISE, "rank_loss": LOSS, **changes})


def plan_of(*attributes: Any) -> Plan:
    """The plan with these attributes at both owners."""
    return with_task(attributes=attributes)


HONEST = plan_of(noisy(), noisy("ward"))


def test_rank_noise_is_accepted_and_its_loss_noted() -> None:
    """An honest plan; without rank noise there is no bound to note."""
    verdict = judged(HONEST)
    assert isinstance(verdict, Accept)
    assert verdict.rank_loss == 2 * LOSS
    without = judged(PLAN)
    assert isinstance(without, Accept)
    assert without.rank_loss is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank_loss": Decimal(49)}, "rank_loss of 'age' is 50, the plan says 49"),
        ({"rank_loss": Decimal(0)}, "rank_loss of 'age' is 50, the plan says 0"),
        ({"rank_noise": Decimal("1.5")}, "rank_noise of 'age' must be a share"),
        (
            {"mechanism": "dp", "k": None, "expected_error": Decimal(0)},
            "dp releases no list in rank order and takes no rank noise, 'age' has 0.04",
        ),
    ],
)
def test_what_makes_a_plan_wrong(changes: dict[str, Any], words: str) -> None:
    """A bound that is not the formula's, noise that is none, and noise of what has no ranks."""
    assert words in only_rule(judged(plan_of(noisy(**changes), noisy("ward"))))


def test_the_loss_is_that_of_all_records_of_a_person() -> None:
    """With g records per person it is g times as much; a plan that states less is wrong."""
    several = replace(HONEST, max_records_per_person=2)
    assert "rank_loss of 'age' is 100, the plan says 50" in " ".join(judged(several).error.details["rules"])  # type: ignore[union-attr]
    assert rank_loss(NOISE, 2) == 100


def test_an_expected_error_without_the_rank_noise_is_found() -> None:
    """A person decides by it."""
    wrong = plan_of(noisy(expected_error=Decimal("0.96")), noisy("ward"))
    assert "expected_error of 'age'" in only_rule(judged(wrong))


def test_min_rank_noise() -> None:
    """Less is refused for every list, and nothing is asked of what has none."""
    policy = PolicyConfig(min_rank_noise=Decimal("0.05"))
    lists = plan_of(noisy(), planned("ward", mechanism="dp", k=None))
    assert only_rule(judged(lists, policy=policy)) == (
        "policy.min_rank_noise = 0.05, 'age' is planned with rank noise 0.04"
    )
    assert isinstance(judged(HONEST, policy=PolicyConfig(min_rank_noise=NOISE)), Accept)


def test_rank_noise_of_the_data_set() -> None:
    """What the data set declares is insisted on, whatever plan an aggregator makes."""
    needs = replace(DATASET, rank_noise=Decimal("0.05"))
    lists = plan_of(noisy(), planned("ward", mechanism="dp", k=None))
    assert only_rule(judged(lists, dataset=needs)) == (
        "rank_noise of data set 'patients' = 0.05, 'age' is planned with rank noise 0.04"
    )
    assert isinstance(judged(HONEST, dataset=replace(DATASET, rank_noise=NOISE)), Accept)


def test_total_rank_loss() -> None:
    """What was told before counts; without rank noise there is no bound that could be within."""
    policy = PolicyConfig(total_rank_loss=Decimal(150))
    assert isinstance(judged(HONEST, policy=policy, rank_lost=Decimal(50)), Accept)
    assert only_rule(judged(HONEST, policy=policy, rank_lost=Decimal(51))) == (
        "policy.total_rank_loss = 150: budget 'people' has lost 51, this would be 100 more"
    )
    assert only_rule(judged(PLAN, policy=policy)) == (
        "policy.total_rank_loss = 150 takes no lists without rank noise, and none of categories in an order "
        "that depends on the data"
    )


def test_no_bound_may_be_stated_where_the_order_depends_on_the_data() -> None:
    """The formula's proof takes a public order; without one the plan must say so, and no limit can hold."""
    schema, policy = (
        replace(SCHEMA, attributes=(AGE, BY_FREQUENCY, PAY)),
        PolicyConfig(accounting="per-centroid"),
    )

    def by_frequency(**changes: Any) -> Plan:
        plan = plan_of(noisy(), noisy("ward", epsilon_joint=None, **changes))
        return replace(plan, attributes=(AGE, BY_FREQUENCY))

    stated, honest = by_frequency(), by_frequency(rank_loss=None)
    assert only_rule(judged(stated, schema=schema, policy=policy)) == (
        "rank_loss of 'ward' is not bounded, the plan says 50"
    )
    verdict = judged(honest, schema=schema, policy=policy)
    assert isinstance(verdict, Accept)
    assert verdict.rank_loss is None
    limited = replace(policy, total_rank_loss=Decimal(1000))
    assert "none of categories in an order that depends on the data" in only_rule(
        judged(honest, schema=schema, policy=limited)
    )
    assert only_rule(judged(plan_of(noisy(), noisy("ward", rank_loss=None)))) == (
        "rank_loss of 'ward' is 50, the plan says not bounded"
    )


# --- the ledger -----------------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Any:
    """An owner's database."""
    with OwnerDatabase(tmp_path / "state") as opened:
        yield opened


def told(ledger: Ledger) -> tuple[Decimal, int]:
    """Rank losses of the budget."""
    found = ledger.rank_losses("patients")
    return found.bounded, found.unbounded


def test_rank_losses_add_up_over_releases(db: OwnerDatabase) -> None:
    """Reserved and spent count once each, what was returned does not, and charges without one are counted."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.1", rank_loss=LOSS)
    reserve(db, ledger, "r2", "0.1", rank_loss=Decimal("66.666666666667"))
    reserve(db, ledger, "r3", "0.1", rank_loss=LOSS)
    reserve(db, ledger, "r4", "0.1")
    spend(db, ledger, "r1")
    give_back(db, ledger, "r3")
    assert told(ledger) == (Decimal("116.666666666667"), 1)
    assert [entry.rank_loss for entry in ledger.entries("patients")][-2:] == [LOSS, LOSS]
    ledger.verify()


def test_the_limit_holds_in_the_transaction_of_the_charge(db: OwnerDatabase) -> None:
    """Two releases that were judged at the same time do not both pass it."""
    ledger, limit = Ledger(db, clock), {"rank_loss": LOSS, "total_rank_loss": Decimal(60)}
    reserve(db, ledger, "r1", "0.1", **limit)
    with pytest.raises(RefusedError, match="has lost 50, this would be 50 more"):
        reserve(db, ledger, "r2", "0.1", **limit)
    reserve(db, ledger, "r1", "0.1", **limit)
    assert told(ledger) == (LOSS, 0)
    assert give_back(db, ledger, "r1")
    reserve(db, ledger, "r2", "0.1", **limit)
    # A limit that was lowered since is no reason against what tells nothing about ranks.
    lowered = {"total_rank_loss": Decimal(20)}
    with pytest.raises(RefusedError, match="has lost 50, this would be 1 more"):
        reserve(db, ledger, "r3", "0.1", rank_loss=Decimal(1), **lowered)
    reserve(db, ledger, "r3", "0.1", rank_loss=Decimal(0), **lowered)


def test_what_was_lost_is_told_again_by_a_recovery(db: OwnerDatabase) -> None:
    """A recovered charge has the rank loss of its plan."""
    ledger = Ledger(db, clock)
    with db.transaction() as tx:
        ledger.losses.charge(
            tx, LostCharge("patients", Decimal("0.1"), "hub", "r1", "d" * 64, rank_loss=LOSS)
        )
    assert told(ledger) == (LOSS, 0)
    ledger.verify()
