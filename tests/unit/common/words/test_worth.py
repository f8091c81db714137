"""Whether a result is worth its charge: the same rule for a plan and for an owner's forecast."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.model.schema import Attribute, AttributeType
from common.words.guarantee import worth_of
from common.words.worth import Worth
from owner_node.masking.foreseen import AttributeForecast, Forecast
from tests.fakes.releases import make_plan

NONE = Decimal(0)


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        (("0.9", "0.2"), ""),
        (("1", "0.2"), "for 1 of 2 attributes the mean would do as well (a0)"),
        (("0.2", "0.2", "3"), ""),
        (("7", "1", "0.1"), "for 2 of 3 attributes the mean would do as well (a0, a1)"),
        (("1.5",), "for 1 of 1 attribute the mean would do as well (a0)"),
    ],
)
def test_one_rule_for_plans_and_forecasts(errors: tuple[str, ...], says: str) -> None:
    """From 1 on an error is that of the mean; half of the attributes or more make a result worthless."""
    numbers = list(map(Decimal, errors))
    names = [f"a{position}" for position in range(len(numbers))]
    declared = [Attribute(name, AttributeType.INTEGER, 0, 9) for name in names]
    plan = make_plan([(names, ["north", "south"])], attributes=declared)
    by_name = dict(zip(names, numbers, strict=True))
    tasks = [
        replace(
            task,
            attributes=tuple(replace(each, expected_error=by_name[each.name]) for each in task.attributes),
        )
        for task in plan.tasks
    ]
    of_plan = worth_of(replace(plan, tasks=tuple(tasks)))
    attributes = tuple(AttributeForecast(name, by_name[name], NONE, NONE) for name in names)
    forecast = Forecast(attributes, NONE, NONE, NONE, NONE, NONE)
    assert forecast.worth == of_plan
    assert (of_plan.worthless, forecast.worthless) == (bool(says), bool(says))
    if says:
        assert of_plan.text == forecast.loss == f"the result is expected to be worthless: {says}"


def test_the_owner_with_the_largest_error_counts() -> None:
    """An attribute that is lost at one owner is lost in the release."""
    plan = make_plan([(["age"], ["north", "south"])])
    first = replace(
        plan.tasks[0],
        attributes=tuple(replace(each, expected_error=Decimal(2)) for each in plan.tasks[0].attributes),
    )
    assert worth_of(replace(plan, tasks=(first, *plan.tasks[1:]))).worthless


def test_attributes_without_variation_do_not_count() -> None:
    """Of equal values the mean is exact: they are neither lost nor kept."""
    assert not Worth.of_errors({"a": None}).worthless
    assert Worth.of_errors({"a": None, "b": Decimal(1)}).worthless
