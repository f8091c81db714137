"""Options that name owners and attributes, as both command lines read them."""

import pytest

from common.errors import UsageError
from common.model.plan import BudgetSplit, Layout
from common.planning.arguments import parse_own_arguments, parse_weights, split_groups
from common.planning.names import split_names


@pytest.mark.parametrize(
    ("layout", "owners", "groups", "expected"),
    [
        ("horizontal", "a, b,c", "", [["a", "b", "c"]]),
        ("vertical", "a,b", "", [["a"], ["b"]]),
        ("vertical", "", "a;b", [["a"], ["b"]]),
        ("mixed", "", "a,b;c", [["a", "b"], ["c"]]),
    ],
)
def test_owners_by_group(layout, owners, groups, expected):
    """In a vertical layout every owner is a group; otherwise groups are as they are written."""
    assert split_groups(layout, owners, groups) == expected


@pytest.mark.parametrize(("owners", "groups"), [("", ""), ("a", "b;c"), (",", "")])
def test_owners_that_are_not_named_once(owners, groups):
    """Neither option, both of them, or one that names nothing is refused with the way to write it."""
    with pytest.raises(UsageError) as caught:
        split_groups("horizontal", owners, groups)
    assert caught.value.hint


def test_an_option_that_is_not_given_names_nothing():
    """An absent option is no mistake; one of commas alone is."""
    assert split_names(None) == split_names("") == []
    with pytest.raises(UsageError, match="names nothing"):
        split_names(" , ")


def test_an_owners_own_arguments():
    """What an owner makes for itself is a horizontal release of it alone, by weight if there are weights."""
    own = parse_own_arguments("north", "m1", "patients", epsilon="1")
    assert (own.layout, own.groups, own.budget_split) == (Layout.HORIZONTAL, (("north",),), BudgetSplit.OWNER)
    weighted = parse_own_arguments("north", "m1", "patients", epsilon="1", weights=["age=2"])
    assert weighted.budget_split is BudgetSplit.WEIGHTS


@pytest.mark.parametrize("text", ["age", "age=", "=2", "age=0", "age=-1", "age=x", "", " = "])
def test_a_weight_that_is_none_is_named_as_it_was_written(text):
    """The error shows what the operator wrote, whichever part of it is missing."""
    with pytest.raises(UsageError) as caught:
        parse_weights([text])
    assert caught.value.message == f"{text!r} is no weight of an attribute"


def test_an_attribute_has_one_weight():
    """Spaces beside a name make no other attribute."""
    with pytest.raises(UsageError, match="weight of attribute age is named twice"):
        parse_weights(["age=2", " age =1"])
