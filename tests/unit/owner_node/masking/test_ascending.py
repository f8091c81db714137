"""The nearest ascending list, against scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from owner_node.masking.lists import MOST_ROUNDS, nearest_ascending


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


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=40), min_size=1, max_size=6))
def test_lists_one_after_the_other_are_what_each_is_alone(lists: list[list[int]]) -> None:
    """To the last bit: nothing is pooled across the end of a list."""
    weights = [np.arange(1, len(each) + 1) for each in lists]
    begins = np.concatenate([np.arange(len(each)) == 0 for each in lists])
    found = nearest_ascending(np.concatenate(lists), np.concatenate(weights), begins)
    alone = [nearest_ascending(np.array(each), own) for each, own in zip(lists, weights, strict=True)]
    assert found.tolist() == np.concatenate(alone).tolist()


def test_lists_that_take_many_rounds_end_each_by_itself() -> None:
    """What is left to scipy is left to it list by list, beside lists that are done."""
    falling = np.append(np.arange(10 * MOST_ROUNDS), -(MOST_ROUNDS**4))
    sums, weights = (
        np.concatenate([[1, 2, 3], falling, falling]),
        np.ones(3 + 2 * falling.size, dtype=np.int64),
    )
    begins = np.isin(np.arange(sums.size), [0, 3, 3 + falling.size])
    expected = isotonic_regression(falling.astype(np.float64)).x
    found = nearest_ascending(sums, weights, begins)
    np.testing.assert_allclose(found, np.concatenate([[1, 2, 3], expected, expected]))


@given(st.lists(st.integers(-(2**62), 2**63 - 1), min_size=1, max_size=40))
def test_pools_whose_sum_passes_63_bits_do_not_wrap_around(numbers: list[int]) -> None:
    """Of sums that are cut at 2^63 - 1 two are more than an integer holds; their mean is still right."""
    sums, weights = np.array(numbers, dtype=np.int64), np.full(len(numbers), 3)
    expected = isotonic_regression(sums / weights).x
    np.testing.assert_allclose(nearest_ascending(sums, weights), expected, rtol=1e-9, atol=2.0**10)


def test_pools_of_large_sums_are_right_to_the_last_bit() -> None:
    """What two large sums leave of each other is not lost; sums below 0 pass 63 bits as well."""
    one = np.ones(4, dtype=np.int64)
    left = nearest_ascending(np.array([2**62 + 2**31 + 5, -(2**62) - 3, 2**62, 2**62 + 2**61]), one)
    assert left.tolist() == [2**30 + 1, 2**30 + 1, 2**62, 2**62 + 2**61]
    below = nearest_ascending(np.array([-1, -(2**62), -(2**62), -(2**62)]), one)
    assert below.tolist() == [-3 * 2.0**60] * 4
