"""The nearest ascending list, against scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from owner_node.masking.ascending import MOST_ROUNDS, nearest_ascending


@given(st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(1, 10**6)), min_size=1, max_size=60))
def test_it_is_the_isotonic_regression(pairs: list[tuple[int, int]]) -> None:
    """Pooling everywhere at once gives the list that pooling pair by pair gives."""
    sums, weights = np.array(pairs, dtype=np.int64).T
    expected = isotonic_regression(sums / weights, weights=weights).x
    np.testing.assert_allclose(nearest_ascending(sums, weights), expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("length", [2, MOST_ROUNDS // 2, 10 * MOST_ROUNDS])
def test_a_fall_that_pulls_down_one_neighbour_after_the_other_ends(length: int) -> None:
    """However many rounds a list would take, it is made ascending, and right."""
    sums, weights = np.append(np.arange(length), -(length**3)), np.ones(length + 1, dtype=np.int64)
    expected = isotonic_regression(sums.astype(np.float64)).x
    np.testing.assert_allclose(nearest_ascending(sums, weights), expected)


def test_an_ascending_list_stays_as_it_is() -> None:
    """Values that need no pooling come out to the last bit, whatever their weights."""
    sums, weights = np.array([1, 7, 2**53 + 2]), np.array([3, 10, 1])
    assert nearest_ascending(sums, weights).tolist() == (sums / weights).tolist()
