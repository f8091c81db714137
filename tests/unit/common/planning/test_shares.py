"""Budget splits: every attribute's share, and weights that do not fit."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UsageError
from common.model.plan import BudgetSplit
from common.planning.attributes import shares

GROUPS = [["x"], ["y", "z"]]
ATTRIBUTE = BudgetSplit.ATTRIBUTE
ONE = Decimal(1)


def weighted(groups, epsilon=ONE, **weights: str):
    """The shares of a split by weights."""
    given = {name: Decimal(weight) for name, weight in weights.items()}
    return shares(epsilon, groups, BudgetSplit.WEIGHTS, given)


def test_by_owner_by_attribute_and_by_weights():
    """The three splits of one release of two groups."""
    quarter, third = Decimal("0.25"), Decimal("0.333333333333")
    assert shares(ONE, GROUPS) == {"x": Decimal("0.5"), "y": quarter, "z": quarter}
    assert shares(ONE, GROUPS, ATTRIBUTE) == dict.fromkeys("xyz", third)
    assert weighted(GROUPS, x="2", y="0.5", z="1.5") == {
        "x": Decimal("0.5"), "y": Decimal("0.125"), "z": Decimal("0.375"),
    }  # fmt: skip


@given(
    st.decimals("0.001", "100", places=3),
    st.lists(st.decimals("0.01", "99", places=2), min_size=1, max_size=8),
)
def test_shares_by_weight_never_exceed_the_whole(epsilon, weights):
    """Rounded down, each by less than a unit of the twelfth place."""
    names = [f"a{place}" for place in range(len(weights))]
    found = weighted([names], epsilon, **dict(zip(names, map(str, weights), strict=True)))
    missing = Fraction(epsilon) - sum(map(Fraction, found.values()))
    assert 0 <= missing < Fraction(len(names), 10**12)


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"x": "1", "y": "1"}, "no weight for z"),
        ({"x": "1", "y": "1", "z": "1", "q": "2"}, "a weight for q, not released"),
        ({"x": "1", "q": "2"}, "no weight for y, z; a weight for q, not released"),
    ],
)
def test_weights_that_do_not_fit(weights, told):
    """Every released attribute has one weight and nothing else does: no typing error moves a budget."""
    with pytest.raises(UsageError) as caught:
        weighted(GROUPS, **weights)
    assert told in caught.value.message
    assert caught.value.hint


def test_a_weight_too_small_for_its_epsilon():
    """A share that would vanish is an error, not a share of nothing."""
    with pytest.raises(UsageError):
        weighted(GROUPS, Decimal("0.000001"), x="1000000", y="0.001", z="1")
