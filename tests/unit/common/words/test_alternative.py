"""Plans of masked releases say when a synthetic table would fit: by the rule of synthetic plans."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.model.plan import Layout, Plan
from common.model.products import Product
from common.model.schema import Attribute, AttributeType, Schema
from common.planning.arguments import ReleaseArguments
from common.planning.planner import make_plan
from common.planning.synthetic import MOST_ATTRIBUTES, design_of
from common.planning.synthetic_noise import alternative_design, expected_errors, has_enough_records
from common.words.essentials import essentials

ADVICE = "A synthetic table would fit, where policies allow it"


def planned(
    product=Product.MASKED, *, n_attributes=4, n_values=50, records=30_000, epsilon="1", owners=3, g=1
):
    """Return the plan of owners with equal schemas."""
    names = tuple(f"owner{number}" for number in range(owners))
    attributes = tuple(
        Attribute(f"a{number}", AttributeType.INTEGER, 0, 49) for number in range(n_attributes)
    )
    arguments = ReleaseArguments(
        dataset="patients", layout=Layout.HORIZONTAL, epsilon=Decimal(1), groups=(names,), release="r1",
        product=product,
    )  # fmt: skip
    schema = Schema(attributes, max_records_per_person=g, records_rounded=records)
    return make_plan(
        arguments, dict.fromkeys(names, schema), aggregator="spiffe://t/aggregator/hub",
        created="2026-01-02T03:04:05+00:00", version="1.0",
    )  # fmt: skip


def advice(plan: Plan) -> list[str]:
    """Return the lines that say that a synthetic table would fit."""
    return [line for line in essentials(plan) if line.startswith(ADVICE)]


def test_the_errors_are_those_of_the_synthetic_plan():
    """What a masked plan says of a synthetic table is what the plan of that table would say."""
    design = design_of(planned(Product.SYNTHETIC))
    assert alternative_design(planned()) == design
    errors = expected_errors(design)
    (line,) = advice(planned())
    assert essentials(planned())[-1] == line
    assert "ε = 1 for the whole record" in line
    assert f"{errors.one_way:.2g} of one attribute, {errors.two_way:.2g} of two." in line
    assert not advice(planned(Product.SYNTHETIC))


@pytest.mark.parametrize("records", [300, 1000, 3000, 10_000, 100_000])
def test_it_fits_where_the_synthetic_plan_has_enough_records(records):
    """A masked plan advises a synthetic table where the plan of that does not call records too few."""
    other = planned(Product.SYNTHETIC, records=records)
    too_few = any("too few records" in line for line in essentials(other))
    assert bool(advice(planned(records=records))) is has_enough_records(design_of(other)) is not too_few
    assert too_few is (records < 3000)


@pytest.mark.parametrize(
    "changes", [{"n_attributes": 1}, {"n_attributes": MOST_ATTRIBUTES + 1}, {"g": 2}, {"owners": 41}]
)
def test_what_no_synthetic_release_takes_is_not_advised(changes):
    """One attribute has no relations; too many of them, owners, or records of a person are refused."""
    assert advice(planned())
    assert not advice(planned(**changes))


def test_a_domain_that_no_model_counts_has_no_advice():
    """Whatever another owner's attribute is: a plan that cannot be read would hide all others from people."""
    plan = planned()
    wide = Attribute("a1", AttributeType.INTEGER, -(2**62), 2**62)
    attributes = tuple(wide if each.name == wide.name else each for each in plan.attributes)
    assert not advice(replace(plan, attributes=attributes))
