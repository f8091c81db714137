"""Attributes that follow others: planned, derived in every table, and checked."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from aggregator.release.conflicts import conflicts
from aggregator.release.records import joined_type, to_release
from common.errors import IntegrityError, UsageError
from common.model.compatibility import features_of
from common.model.plan import BudgetSplit, Plan
from common.model.schema import Attribute, AttributeType, Derivation, Schema
from common.planning.planner import make_plan
from common.release.data_files import check_values
from common.words.guarantee import promises
from tests.fakes.protocol_peers import request, schema

MADE = {"aggregator": "spiffe://d/aggregator/a", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
SCHOOL = Attribute("school", AttributeType.CATEGORY, 0, 2, categories=("none", "primary", "(missing)"))
YEARS = Attribute("years", AttributeType.INTEGER, 0, 20, keeps_missing=True)
AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
TABLE = (("none", "0"), ("primary", "6"), ("(missing)", "(missing)"))
FOLLOWING = replace(YEARS, derivation=Derivation("school", TABLE))
OWN = replace(schema(attributes=(SCHOOL, AGE), records=1000), following=(FOLLOWING,))


def planned(own: Schema = OWN, **changes) -> Plan:
    """A plan of one owner."""
    return make_plan(request("a", k=None, epsilon=Decimal(1), **changes), {"a": own}, **MADE)


def test_it_needs_no_epsilon():
    """The others share it; the plan states the table, and needs versions that know it."""
    plan = planned()
    assert [(each.name, each.epsilon) for each in plan.tasks[0].attributes] == [
        ("school", Decimal("0.5")),
        ("age", Decimal("0.5")),
    ]
    assert [each.name for each in plan.columns] == ["school", "years", "age"]
    assert "following" in features_of(plan)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert Schema.from_bytes(OWN.to_bytes()) == OWN
    assert any(each.startswith("years follows school:") for each in promises(plan))
    without = planned(replace(OWN, following=()))
    assert b"following" not in without.to_bytes()
    assert b"following" not in replace(OWN, following=()).to_bytes()


@pytest.mark.parametrize(
    ("named", "columns"), [(("age", "school"), ["age", "school"]), (("years", "school"), ["school", "years"])]
)
def test_it_can_be_left_out_and_comes_after_what_it_follows(named, columns):
    """As `--attributes` says."""
    assert [each.name for each in planned(attributes=named).columns] == columns


def test_it_is_not_released_without_what_it_follows():
    """There would be nothing to derive it from."""
    (conflict,) = conflicts(request("a", attributes=("years",)), {"a": OWN})
    assert (conflict.attribute, conflict.what) == ("years", "it follows school")


def test_owners_declare_the_same_table():
    """Another one is a conflict, and so is none."""
    other = replace(YEARS, derivation=Derivation("school", (("none", "1"), *TABLE[1:])))
    for theirs in ((other,), ()):
        found = conflicts(request("a", "b"), {"a": OWN, "b": replace(OWN, following=theirs)})
        assert [(each.owner, each.attribute) for each in found] == [("b", "years")]
    assert not conflicts(request("a", "b"), {"a": OWN, "b": OWN})


def test_its_name_is_its_own_among_all_groups():
    """Neither an attribute of another group, nor one that follows there, nor the column of owners has it."""
    home = Attribute("home", AttributeType.BOOLEAN, 0, 1)
    theirs = schema(attributes=(home, YEARS), records=1000)
    following = replace(YEARS, derivation=Derivation("home", (("false", "0"), ("true", "6"))))
    for other in (theirs, replace(schema(attributes=(home,), records=1000), following=(following,))):
        asked = request("a", "b", layout="vertical", groups=(("a",), ("b",)))
        found = conflicts(asked, {"a": OWN, "b": other})
        assert [each.attribute for each in found if "of this name, too" in each.what] == ["years"]
    named = replace(FOLLOWING, name="owner")
    with pytest.raises(UsageError, match="'owner' has the name of the column of owners"):
        planned(replace(OWN, following=(named,)), owner_column=True)


def table_of(plan: Plan, schools: list[int]) -> pa.Table:
    """The released table of some joined records."""
    records = np.zeros(len(schools), dtype=joined_type(plan))
    records["school"] = schools
    return pa.concat_tables(to_release(plan, [records], 10**6))


def test_every_record_has_the_value_that_follows():
    """A missing one where the table says so."""
    table = table_of(planned(), [1, 0, 2, 1])
    assert table.column("years").to_pylist() == [6, 0, None, 6]
    assert table.column("school").to_pylist() == ["primary", "none", "(missing)", "primary"]


def test_a_value_that_does_not_follow_is_found():
    """By everyone who verifies the release."""
    plan = planned()
    table = table_of(plan, [1, 0, 2, 1])
    check_values({"data.parquet": table}, plan, 0)
    place = table.schema.get_field_index("years")
    changed = table.set_column(place, table.schema.field(place), pa.chunked_array([[6, 0, None, 0]]))
    with pytest.raises(IntegrityError, match="values of years are not those that follow"):
        check_values({"data.parquet": changed}, plan, 0)


@pytest.mark.parametrize(
    ("following", "fault"),
    [
        (("years", "home", TABLE), "follows 'home', which is not there"),
        (("years", "school", TABLE[:2]), "nothing follows from '(missing)'"),
        (("years", "school", (*TABLE, ("x", "1"))), "other values than 'school' has"),
        (("years", "school", (TABLE[0], *TABLE)), "other values than 'school' has"),
        (("years", "school", (("none", "21"), *TABLE[1:])), "outside the domain"),
        (("age", "school", TABLE), "declared twice"),
    ],
)
def test_a_table_that_is_none_is_refused(following, fault):
    """In a schema and in a plan: both come from others."""
    name, *derivation = following
    following = replace(YEARS, name=name, derivation=Derivation(*derivation))
    with pytest.raises(ValueError, match=fault.replace("(", r"\(").replace(")", r"\)")):
        replace(OWN, following=(following,))
    with pytest.raises(ValueError, match=fault.replace("(", r"\(").replace(")", r"\)")):
        replace(planned(), following=(following,))


def test_weights_are_for_what_is_masked():
    """An attribute that is derived takes no share."""
    weights = (("school", Decimal(1)), ("age", Decimal(3)))
    plan = planned(budget_split=BudgetSplit.WEIGHTS, weights=weights)
    assert [each.epsilon for each in plan.tasks[0].attributes] == [Decimal("0.25"), Decimal("0.75")]
    with pytest.raises(UsageError, match="a weight for years, not released"):
        planned(budget_split=BudgetSplit.WEIGHTS, weights=(*weights, ("years", Decimal(1))))


def test_a_derived_attribute_is_listed_with_the_derived_ones():
    """A peer's schema that lists it with those that are masked or counted is refused, and the other way."""
    document = OWN.to_document()
    (derived,), (school, age) = document["following"], document["attributes"]
    with pytest.raises(ValueError, match="'years' is derived, and listed with those that are not"):
        Schema.from_document(document | {"attributes": [school, age, derived], "following": []})
    with pytest.raises(ValueError, match="'age' follows '', which is not there"):
        Schema.from_document(document | {"attributes": [school], "following": [age]})
