"""Plans of releases with events of persons: what they state, and which cannot be made."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.errors import UsageError
from common.model.events import number_attribute, slots_of
from common.model.plan import Layout, Plan
from common.model.schema import Attribute, AttributeType, IdentifierRules, Schema
from common.planning.arguments import ReleaseArguments
from common.planning.synthetic import design_of
from common.synthesis.counters import counter_width, width_of
from common.words.essentials import essentials
from common.words.guarantee import promises
from tests.unit.common.planning.test_synthetic_plan import in_groups, made, planned

AGE = Attribute("age", AttributeType.INTEGER, 0, 99)
SEX = Attribute("sex", AttributeType.BOOLEAN, 0, 1)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("A", "B", "C"))
EVENTS = (number_attribute("events", 4), *slots_of(WARD, 1, 4))
NAMES = tuple(each.name for each in EVENTS)


def described(*attributes: Attribute) -> Schema:
    """An owner's schema of persons."""
    return Schema(attributes, identifier=IdentifierRules(), records_rounded=100_000)


def test_a_plan_states_two_tables():
    """Everybody reads that persons have at most four events each, and the few pairs that are counted."""
    plan = planned(described=described(AGE, SEX, *EVENTS), epsilon="2", delta="0.0000001")
    assert plan.events is not None
    assert [each.name for each in plan.released] == ["age", "sex", "events"]
    assert [each.name for each in plan.events.columns] == ["ward"]
    assert "events" in plan.features
    assert Plan.from_bytes(plan.to_bytes()) == plan
    design = design_of(plan)
    assert len(plan.counted_pairs) == len(design.pairs) == 3 + 3 + 3
    for said in (promises(plan), essentials(plan)):
        assert any("Records are persons, with at most 4 events each (ward)" in text for text in said)
    assert any(
        "the tables of 9 pairs: attributes of persons, these with" in text for text in essentials(plan)
    )


def test_a_plan_says_which_numbers_events_can_lack():
    """A number that is optional in slots is one that can be missing in the released events."""
    doses = slots_of(replace(AGE, name="dose", keeps_missing=True), 1, 4)
    plan = planned(described=described(AGE, *EVENTS, *doses))
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert plan.events is not None
    assert [(each.name, each.keeps_missing) for each in plan.events.columns] == [
        ("ward", False),
        ("dose", True),
    ]


def test_pairs_can_be_named():
    """The operator can have other tables of events counted."""
    plan = planned(described=described(AGE, *EVENTS), pairs=(("ward_1", "ward_4"), ("age", "ward_4")))
    assert plan.counted_pairs == (("age", "ward_4"), ("ward_1", "ward_4"))
    assert len(design_of(plan).pairs) == 2


def test_without_slots_the_number_of_events_is_an_attribute_like_others():
    """Persons alone can be released with their number of events."""
    plan = planned(described=described(AGE, *EVENTS), attributes=("age", "events"))
    assert plan.events is None
    assert plan.counted_pairs == (("age", "events"),)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"attributes": ("age", *NAMES[1:])}, "one attribute with their number"),
        ({"attributes": ("age", *NAMES[:-1])}, "all of ward_1 to ward_4"),
        ({"attributes": ("age", "events", *NAMES[2:])}, "all of ward_1 to ward_4"),
        ({"attributes": ("age", "events", "dose_2", "dose_3", "dose_4")}, "first event has a value"),
        ({"attributes": ("age", *NAMES, "dose_2", "dose_3", "dose_4")}, "lack dose_1"),
    ],
)
def test_parts_of_a_table_of_events_are_refused(asked, said):
    """A release has all slots of a column, or none."""
    with pytest.raises(UsageError, match=said):
        planned(described=described(AGE, *EVENTS, *slots_of(replace(AGE, name="dose"), 1, 4)), **asked)


def test_counters_across_owners_have_room_for_the_noisiest_table():
    """Tables of events have more noise than those of persons, and share a layout of counters with them."""
    schemas = {"north": described(AGE), "south": described(SEX, *EVENTS)}
    design = design_of(in_groups(Layout.VERTICAL, schemas, (("north",), ("south",)), epsilon="0.5"))
    across = [pair for pair in design.pairs if design.is_across(pair)]
    assert len({design.table_noise(pair) for pair in across}) > 1
    assert width_of(design) == max(counter_width(design.n_records, design.table_noise(p)) for p in across)


def test_masked_releases_have_no_events():
    """Masking cannot keep what slots mean, and says so by name."""
    arguments = ReleaseArguments(
        dataset="patients", layout=Layout.HORIZONTAL, epsilon=Decimal(1), groups=(("north",),), release="r1"
    )
    schemas = {"north": described(AGE, *EVENTS)}
    with pytest.raises(UsageError, match=r"the events of persons \(ward_1 and others\) are for synthetic"):
        made(arguments, schemas)
    assert made(replace(arguments, attributes=("age", "events")), schemas).attributes == (AGE, EVENTS[0])


@pytest.mark.parametrize(
    ("other", "asked", "said"),
    [
        ((SEX,), {}, ""),
        ((SEX,), {"on_mismatch": "union"}, "do not go with a release of everybody"),
        ((SEX, number_attribute("stays", 2), *slots_of(replace(WARD, name="unit"), 1, 2)), {},
         "several groups of owners have events"),
    ],
)  # fmt: skip
def test_one_owner_of_different_attributes_has_the_events(other, asked, said):
    """Across owners the events are at one group, and presence as a value does not go with them."""
    schemas = {"north": described(AGE, *EVENTS), "south": described(*other)}
    groups = (("north",), ("south",))
    if said:
        with pytest.raises(UsageError, match=said):
            in_groups(Layout.VERTICAL, schemas, groups, **asked)
        return
    plan = in_groups(Layout.VERTICAL, schemas, groups, **asked)
    assert ("ward_1", "sex") in plan.counted_pairs
    assert ("ward_2", "sex") not in plan.counted_pairs


def test_too_many_slots_are_refused():
    """Slots have a limit of their own."""
    columns = [replace(WARD, name=name) for name in "abcd"]
    slots = [slot for column in columns for slot in slots_of(column, 1, 20)]
    with pytest.raises(UsageError, match="80 slots"):
        planned(described=described(number_attribute("events", 20), *slots))
