"""What a recovery makes of releases that spent a part of what they had reserved: three entries, not two."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.model.plan import Linking, Plan
from owner_node.ledger.entry import Part
from owner_node.release.recovery import Recalled, Recovery, Shown, assess
from owner_node.state.chain import Head
from tests.fakes.offering import Offering

BUDGETS = {"cohort": "cohort"}


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner whose ledger is empty, as after the loss of owner.db."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


@pytest.fixture
def plan(offering: Offering) -> Plan:
    """A plan of two owners, which may hold the same persons."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    return replace(plan, linking=Linking(tokens=True, max_overlap=2))


def shown(plan: Plan, **changes: Any) -> Recalled:
    """Return a release as an aggregator shows it: sealed, and signed by this owner."""
    return replace(Recalled("hub", plan, True, True, True, False), **changes)


def of_five(release: Recalled) -> Recovery:
    """Return what is made of five lost entries, with nothing left in the ledger."""
    newest = Head(5, "a" * 64)
    return assess((), (), [Shown("hub", newest, True, (), (release,))], "a", BUDGETS)


@pytest.mark.parametrize(
    ("changes", "surely", "at_most", "at_most_unshared"),
    [
        ({}, 2, 3, 2),
        ({"sealed": False, "settled": True}, 2, 3, 2),
        ({"sealed": False}, 1, 3, 2),
        ({"sealed": False, "masking_asked": False}, 1, 2, 2),
        ({"sealed": False, "masking_asked": False, "settled": True}, 2, 2, 2),
        ({"proved": False}, 0, 0, 0),
    ],
)
def test_a_third_entry_is_possible_where_persons_may_be_shared(
    plan: Plan, changes: dict[str, Any], surely: int, at_most: int, at_most_unshared: int
) -> None:
    """It is no sign of another charge then, and not taken for sure either."""
    unshared = replace(plan, linking=Linking(tokens=True))
    for linked, most in ((plan, at_most), (unshared, at_most_unshared)):
        found = of_five(shown(linked, **changes))
        assert (found.unexplained, found.possible) == (5 - surely, most - surely)


def test_what_a_real_ledger_wrote(offering: Offering, plan: Plan) -> None:
    """Lost as it was, nothing is left that must be another charge; still there, it explains nothing else."""
    ledger = offering.records.ledger
    with offering.records.db.transaction() as tx:
        ledger.reserve(
            tx, budget="cohort", total_epsilon=Decimal(3), charge=Decimal(2), aggregator="hub",
            release="r1", plan_digest=plan.digest, epsilon=Decimal(2), epsilon_joint=Decimal(2),
        )  # fmt: skip
        ledger.spend(tx, "hub", "r1", plan.digest, part=Part(Decimal(1), Decimal(1), None))
    lines = ledger.lines()
    before = [each for each in lines if each.release != "r1"]
    assert [each.kind for each in lines[len(before) :]] == ["reserve", "return", "spend"]

    places = tuple(Head(each.sequence, each.hash) for each in lines)
    hub = Shown("hub", places[-1], True, places, (shown(plan),))
    found = assess(before, (), [hub], "a", BUDGETS)
    assert (found.missing, found.unexplained, found.possible) == (3, 1, 1)

    later = replace(hub, newest=Head(len(lines) + 2, "a" * 64))
    found = assess(lines, (), [later], "a", BUDGETS)
    assert (found.missing, found.unexplained, found.possible) == (2, 2, 0)


def test_no_more_is_possible_than_is_missing(plan: Plan) -> None:
    """One lost entry is explained by the reservation alone: nothing is unexplained, and nothing possible."""
    hub = Shown("hub", Head(1, "a" * 64), True, (), (shown(plan),))
    found = assess((), (), [hub], "a", BUDGETS)
    assert (found.missing, found.unexplained, found.possible) == (1, 0, 0)
