"""A plan read from bytes: its enumerations are enumerations, and malformed documents are refused."""

import json
from typing import Any

import pytest

from common.model.plan import BudgetSplit, Layout, Plan
from tests.fakes.releases import make_plan

PLAN = make_plan([(["age"], ["a", "b"])])


def changed(path: tuple[str | int, ...], value: Any) -> bytes:
    """Return the plan's bytes with one entry set."""
    document = json.loads(PLAN.to_bytes())
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def test_choices_are_read_as_such() -> None:
    """Rules about layouts and splits compare members by identity."""
    found = Plan.from_bytes(PLAN.to_bytes())
    assert found.layout is Layout.HORIZONTAL
    assert found.budget_split is BudgetSplit.OWNER


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("layout",), "diagonal"),
        (("layout",), ""),
        (("budget_split",), "x"),
        (("tasks", 0, "attributes", 0, "rank_loss"), "5"),
        (("tasks", 0, "attributes", 0, "rank_loss"), None),
        (("identifier", "normalise"), [""]),
        (("identifier", "also"), [["trim", ""]]),
    ],
)
def test_malformed(path: tuple[str | int, ...], value: Any) -> None:
    """What no plan can say is refused before any rule is asked."""
    with pytest.raises(ValueError, match="Plan"):
        Plan.from_bytes(changed(path, value))
