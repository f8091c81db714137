"""Which group an attribute belongs to, and what is said where declarations do not fit the groups."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.release.conflicts import conflicts
from common.errors import UsageError
from common.model.plan import Layout, Plan
from common.model.schema import Schema
from common.planning.arguments import ReleaseArguments, parse_arguments
from common.planning.planner import groups_of_attributes, make_plan
from tests.fakes.protocol_peers import request, schema

MADE = {"aggregator": "spiffe://d/aggregator/a", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
OVERLAPPING = (("a", "b"), ("a", "c"))


def mixed(*groups: tuple[str, ...], **changes: Any) -> Any:
    """Return a mixed request."""
    return request(layout=Layout.MIXED, groups=groups, **changes)


def told(groups: tuple[tuple[str, ...], ...], schemas: dict[str, Schema], **changes: Any) -> set[Any]:
    """Return owner, attribute and what is said of every conflict."""
    found = conflicts(mixed(*groups, **changes), schemas)
    return {(each.owner, each.attribute, each.what) for each in found}


@given(st.data())
def test_attributes_find_their_group(data):
    """Whatever the grid, what a group's owners and nobody else hold belongs to that group."""
    owner_sets = st.sets(st.sampled_from("abcdef"), min_size=1).map(lambda each: tuple(sorted(each)))
    groups = data.draw(st.lists(owner_sets, min_size=1, max_size=5, unique=True))
    holders = {f"x{index}": data.draw(st.permutations(owners)) for index, owners in enumerate(groups)}
    assert groups_of_attributes(groups, holders) == {f"x{index}": (index,) for index in range(len(groups))}


def test_owner_in_two_groups():
    """It has a task in each, with the attributes that it shares with that group, and ε/G for each."""
    schemas = {"a": schema("x", "y", "z"), "b": schema("y", "x"), "c": schema("z")}
    plan = make_plan(mixed(*OVERLAPPING), schemas, **MADE)
    assert conflicts(mixed(*OVERLAPPING), schemas) == ()
    names = [(task.owner, task.group, [each.name for each in task.attributes]) for task in plan.tasks]
    assert names == [("a", 0, ["x", "y"]), ("b", 0, ["x", "y"]), ("a", 1, ["z"]), ("c", 1, ["z"])]
    assert plan.owners == ("a", "b", "c")
    own = plan.assignment_of("a")
    assert own.groups == (0, 1)
    assert [each.name for each in own.attributes] == ["x", "y", "z"]
    assert own.epsilon == own.epsilon_joint == plan.epsilon == plan.epsilon_joint
    assert plan.assignment_of("c").epsilon == plan.epsilon / 2
    with pytest.raises(KeyError):
        plan.assignment_of("d")


def test_attribute_missing_in_a_group():
    """What only some owners of a group declare is told with who lacks it, also at an owner of two groups."""
    schemas = {"a": schema("x", "z"), "b": schema("x", "y"), "c": schema("z", "w")}
    assert told(OVERLAPPING, schemas) == {
        ("a", "y", "is not there, but at b"),
        ("a", "w", "is not there, but at c"),
    }
    assert told(OVERLAPPING, schemas, attributes=("x", "z")) == set()
    schemas["a"] = schema("x", "y", "z", "w", "v")
    assert told(OVERLAPPING, schemas) == {("b", "v", "is not there, but at a")}


def test_attribute_in_two_groups():
    """What owners of different groups declare is told at the second; leaving it out settles it."""
    schemas = {"a": schema("x"), "b": schema("x", "y"), "c": schema("y"), "d": schema("y")}
    groups = (("a", "b"), ("c", "d"))
    found = told(groups, schemas)
    assert ("c", "y", "is also held by b, another group") in found
    schemas = {"a": schema("x", "y", "z"), "b": schema("x", "y"), "c": schema("z", "x")}
    assert ("c", "x", "is also held by b, another group") in told(OVERLAPPING, schemas)
    # Held by all three, it is of neither group.
    assert told(OVERLAPPING, schemas, attributes=("y", "z")) == set()


def test_a_group_without_attributes():
    """A group that nothing is left of is told for each of its owners."""
    schemas = {"a": schema("x"), "b": schema("x"), "c": schema("z")}
    found = told(OVERLAPPING, schemas, attributes=("x",))
    assert {owner for owner, _, what in found if "none of its attributes" in what} == {"a", "c"}


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([("a", "b")], "several groups"),
        ([("a", "b"), ("b", "a")], "same owners"),
        ([("a", "a"), ("b",)], "twice"),
        ([("a",), ()], "no owners"),
    ],
)
def test_grids_that_are_none(groups, said):
    """A mixed release has several groups of different owners, none of them empty."""
    with pytest.raises(UsageError, match=said):
        parse_arguments(release="r", dataset="d", layout="mixed", groups=groups, epsilon="1")


def test_an_owner_twice_goes_with_the_mixed_layout_alone():
    """In the other layouts an owner has one place."""
    with pytest.raises(UsageError):
        parse_arguments(release="r", dataset="d", layout="vertical", groups=[("a",), ("a",)], epsilon="1")
    made = parse_arguments(release="r", dataset="d", layout="mixed", groups=OVERLAPPING, epsilon="1")
    assert made.owners == ("a", "b", "c")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_overlap": "3"}, "more than the owners of any group"),
        ({"max_overlap": "0"}, "no count"),
        ({"max_overlap": "two"}, "no count"),
        ({"max_overlap": "9" * 5000}, "no count"),
        ({"max_overlap": "0" * 18 + "1" * 5000}, "no count"),
        ({"on_mismatch": "ignore"}, "--on-mismatch"),
        ({"on_mismatch": "intersect", "min_common": "0"}, "no count"),
        ({"on_mismatch": "intersect", "min_common": "-1"}, "no count"),
        ({"min_common": "5"}, "goes with groups that are intersected"),
        ({"layout": "horizontal", "groups": [("a", "b")], "on_mismatch": "intersect"}, "nothing to be"),
        ({"layout": "vertical", "groups": [("a",), ("b",)], "owner_column": True}, "would add nothing"),
    ],
)
def test_bounds_for_linking_that_mean_nothing(changed, said):
    """What linking may find is judged before any owner is asked."""
    good = {"release": "r", "dataset": "d", "layout": "mixed", "groups": OVERLAPPING, "epsilon": "1"}
    with pytest.raises(UsageError, match=said):
        parse_arguments(**{**good, **changed})


def test_bounds_for_linking_come_into_the_plan():
    """Fewer common persons than the largest k never do, unless the operator names another number."""
    schemas = {"a": schema("x", "z"), "b": schema("x"), "c": schema("z")}
    bounds = {"on_mismatch": "intersect", "max_overlap": 2}
    linking = make_plan(mixed(*OVERLAPPING, **bounds), schemas, **MADE).linking
    assert (linking.max_overlap, linking.intersects, linking.min_common) == (2, True, 5)
    named = make_plan(mixed(*OVERLAPPING, **bounds, min_common=12), schemas, **MADE)
    assert named.linking.min_common == 12
    assert not named.owner_column
    columns = make_plan(mixed(*OVERLAPPING, owner_column=True), schemas, **MADE)
    assert [each.name for each in columns.owner_columns.values()] == ["owner_1", "owner_2"]
    assert Plan.from_bytes(columns.to_bytes()) == columns
    taken = {owner: schema("owner_1", *each.names) for owner, each in schemas.items()}
    with pytest.raises(UsageError, match="'owner_1' has the name of the column"):
        make_plan(mixed(*OVERLAPPING, owner_column=True), taken, **MADE)
    assert Plan.from_bytes(named.to_bytes()) == named
    asked = mixed(*OVERLAPPING, **bounds)
    assert ReleaseArguments.from_document(asked.to_document()) == asked


def test_shared_persons_need_an_identifier():
    """Without one nobody can know how many owners hold a person."""
    schemas = {owner: schema("x", identifier=False) for owner in "ab"}
    found = conflicts(request("a", "b", max_overlap=2), schemas)
    assert [each.what for each in found] == [
        "no identifier is declared, and persons at several owners are found by it"
    ]
    assert conflicts(request("a", "b"), schemas) == ()


def test_vertical_data_in_the_horizontal_layout():
    """Owners that share no attribute meant the other layout; a misspelt attribute is named with its like."""
    schemas = {"a": schema("age", "weight"), "b": schema("ward"), "c": schema("income")}
    (found,) = conflicts(request("a", "b", "c"), schemas)
    assert found.what == "every owner holds other attributes, and in the horizontal layout all hold the same"
    assert found.fix == "ask for --layout vertical, or correct --dataset"
    (found,) = conflicts(request("a", "b", "c", attributes=("wieght",)), schemas)
    assert (found.attribute, found.what, found.fix) == ("wieght", "no owner has it", "did you mean 'weight'?")
