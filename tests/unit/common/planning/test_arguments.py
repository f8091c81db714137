"""Options that name owners and attributes, as both command lines read them."""

import pytest

from common.errors import UsageError
from common.model.plan import BudgetSplit, Layout
from common.planning.arguments import parse_own_arguments, split_groups, split_names


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
