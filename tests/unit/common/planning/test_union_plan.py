"""Plans of releases of everybody whom any owner holds: presence is a value of every attribute."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.errors import UsageError
from common.model.fragment import Addendum, contradictions
from common.model.matches import Match
from common.model.plan import Layout, Plan
from common.model.presence import ABSENT, with_absence
from common.model.products import Product
from common.model.schema import Attribute, AttributeType, IdentifierRules, MatchPass, Schema
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.planning.arguments import ReleaseArguments, parse_arguments
from common.planning.planner import make_plan
from common.planning.synthetic import design_of
from common.words.essentials import essentials
from common.words.guarantee import invariants, promises

SICK = Attribute("sick", AttributeType.BOOLEAN, 0, 1)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 1, categories=("x", "y"))
FLOOR = Attribute("floor", AttributeType.CATEGORY, 0, 1, categories=("low", "high"))
PAY = Attribute("pay", AttributeType.INTEGER, 0, 99)
COST = Attribute("cost", AttributeType.INTEGER, 0, 99, keeps_missing=True)
HELD = {"clinic": (SICK, WARD), "registry": (PAY, COST)}


def united(held=None, records=(30_000, 50_000), following=(), zeros=(), **asked) -> Plan:
    """Return the plan of owners of different attributes and other persons."""
    held = held or HELD
    schemas = {
        owner: Schema(
            attributes, records_rounded=rounded, identifier=IdentifierRules(),
            following=tuple(each for each in following if owner == "clinic"),
            structural_zeros=tuple(each for each in zeros if owner == "registry"),
        )
        for (owner, attributes), rounded in zip(held.items(), records, strict=False)
    }  # fmt: skip
    arguments = ReleaseArguments(
        dataset="patients", layout=Layout.VERTICAL, epsilon=Decimal(1), release="r1",
        groups=tuple((each,) for each in held), product=Product.SYNTHETIC, on_mismatch="union", **asked,
    )  # fmt: skip
    return make_plan(
        arguments, schemas, aggregator="spiffe://t/aggregator/hub", created="2026-01-02T03:04:05+00:00",
        version="1.0",
    )  # fmt: skip


def test_a_plan_has_attributes_as_declared_and_counts_presence():
    """Owners consent to what they declare. Released records say who is where, with a value for absence."""
    plan = united()
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert plan.attributes == (SICK, WARD, PAY, COST)
    assert [each.name for each in plan.released] == [
        "sick", "ward", "pay", "cost", "at_clinic", "at_registry",
    ]  # fmt: skip
    assert plan.counted_attribute("sick").labels == ("false", "true", ABSENT)
    assert plan.counted_attribute("ward").labels == ("x", "y", ABSENT)
    assert plan.counted_attribute("pay").keeps_missing
    assert "union" in plan.features
    design = design_of(plan)
    assert design.n_records == 50_000
    assert design.presence == (4, 5)
    assert design.absent_alone == (0, 1, 2)
    assert len(design.pairs) == 6
    three = united(HELD | {"insurer": (FLOOR,)}, (3000, 3000, 3000))
    assert len(design_of(three).pairs) == 10 + 3
    assert three.counted_pairs[-1] == ("at_registry", "at_insurer")
    assert design_of(united(pairs=(("ward", "pay"),))).pairs == ((1, 2),)


def test_what_follows_is_absent_as_what_determines_it():
    """A derived attribute has a value for absence, which follows from absence."""
    derived = FLOOR.derive_from(WARD, {"x": "low", "y": "high"})
    plan = united(following=(derived,))
    (floor,) = [each for each in plan.released if each.name == "floor"]
    assert floor.derived_units(plan.counted_attribute("ward")) == (0, 1, 2)
    assert floor.labels[2] == ABSENT


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"held": {"clinic": (WARD, replace(WARD, name="w", categories=("x", ABSENT)))} | {"r": (PAY,)}},
            "label",
        ),
        (
            {"zeros": (StructuralZero((ExcludedValues("cost", (("(missing)",) * 2,)),)),)},
            "absent persons have no value",
        ),
        (
            {"held": HELD | {"insurer": (replace(SICK, name="at_clinic"),)}, "records": (9000,) * 3},
            "says whom an owner holds",
        ),
    ],
)
def test_attributes_that_cannot_say_who_is_absent(changes, said):
    """A label that is there already, a rule about missing values, and a name that presence needs."""
    with pytest.raises(UsageError, match=said):
        united(**changes)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"product": "masked"}, "only with --product synthetic"),
        ({"min_common": "3"}, "--min-common goes with"),
        ({"layout": "horizontal", "groups": [["a", "b"]]}, "nothing to be intersected or united with"),
        ({"on_mismatch": "unite"}, "--on-mismatch"),
    ],
)
def test_arguments_that_do_not_go_together(stated, said):
    """Everybody is counted in groups of different attributes, and down to nobody."""
    asked = {
        "release": "r", "dataset": "d", "layout": "vertical", "groups": [["a"], ["b"]], "epsilon": "1",
        "product": "synthetic", "on_mismatch": "union",
    }  # fmt: skip
    with pytest.raises(UsageError, match=said):
        parse_arguments(**asked | stated)


def test_mixed_layouts_and_match_keys_are_refused_by_name():
    """Partners, and the number of persons that keys link, would say who is where without noise."""
    plan = united()
    passes = IdentifierRules(0, passes=(MatchPass("names", ("name:fold",)),))
    from common.planning.synthetic import check_synthetic

    with pytest.raises(UsageError, match="how many persons match keys link"):
        check_synthetic(replace(plan, identifier=passes))
    more = replace(plan.tasks[1], owner="south")
    mixed = replace(plan, layout=Layout.MIXED, tasks=(*plan.tasks, more))
    with pytest.raises(UsageError, match="several owners of the same attributes"):
        check_synthetic(mixed)


def test_an_addendum_says_nothing_exact_about_who_is_where():
    """Every owner counts everybody; matches between owners, or numbers that differ, contradict the plan."""
    plan = united()
    places = {"clinic": "ab" * 32, "registry": "cd" * 32}
    fits = Addendum("r1", plan.digest, "united", {"clinic": 70_000, "registry": 70_000}, selections=places)
    assert list(contradictions(plan, fits)) == []
    match = Match((("clinic",), ("registry",)), 10_000, {"clinic": 20_000, "registry": 40_000})
    for wrong in (
        replace(fits, matches=(match,)),
        replace(fits, records={"clinic": 70_000, "registry": 50_000}),
        replace(fits, selections={}),
        replace(fits, linking="equal"),
        replace(fits, common=10_000),
    ):
        assert list(contradictions(plan, wrong))


def test_the_promise_is_of_values_and_presence():
    """In words: what is covered, who still sees the pattern, and what is published exactly."""
    plan = united()
    said = " ".join((*promises(plan), *essentials(plan)))
    assert "presence included" in said
    assert "for this person the promise is ε 2" in said
    assert "from the aggregator, who has which person" in said
    hidden = " ".join(invariants(plan))
    assert "exact number of persons whom the owners have together" in hidden
    assert "rounded down to its leading digit" in hidden
    assert "The exact number of records" not in hidden


@pytest.mark.parametrize("attribute", [SICK, WARD, PAY, COST, replace(WARD, ordered=True)])
def test_codes_stay_and_absence_is_the_last(attribute):
    """Values keep their codes; a number that keeps missing values has one code for both."""
    counted = with_absence(attribute)
    assert (counted.lower, counted.n_values) == (attribute.lower, attribute.n_values + (attribute != COST))
    assert all(counted.text(u) == attribute.text(u) for u in range(attribute.lower, attribute.upper + 1))
