"""Post-processing: rounding, clamping and ascending order, from public numbers only."""

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from owner_node.masking.lists import ascending_centroids, round_centroids, round_to_domain
from owner_node.masking.tasks import frequency_order


def test_rounding_is_to_the_nearest_unit_and_clamps_to_the_domain():
    """Integers stay integers, nothing leaves the domain, halves go up."""
    noisy = np.array([-100, 9, 10, 11, 29, 30, 31, 10**6])
    assert round_centroids(noisy, np.full(8, 20), 50).tolist() == [0, 0, 1, 1, 1, 2, 2, 49]


LARGEST = 2**63 - 1


@given(st.lists(st.integers(-LARGEST, LARGEST), min_size=1, max_size=20), st.integers(0, 40))
@example([LARGEST, -LARGEST, 0, -1, 1], 0)
@example([LARGEST, -LARGEST, 2**19 - 1, 2**19, 3 * 2**19], 20)
def test_records_by_themselves_are_rounded_like_all_others(noisy, places):
    """Divisors that are all one power of two are shifted by, and give what a division gives."""
    found = round_centroids(np.array(noisy), np.full(len(noisy), 1 << places), LARGEST)
    exact = [floor(Fraction(each, 1 << places) + Fraction(1, 2)) for each in noisy]
    assert found.tolist() == [min(max(each, 0), LARGEST - 1) for each in exact]


def test_integer_rounding_is_exact_beyond_the_precision_of_doubles():
    """A wide domain's centroids keep their last digit without the noise of floating point."""
    value = 2**55 + 1
    assert round_centroids(np.array([value * 3]), np.array([3]), 2**56).tolist() == [value]


def test_monotone_centroids_are_the_nearest_ascending_list():
    """Two neighbours in the wrong order become their mean, weighted by cluster size."""
    sizes = np.array([10, 10, 30])
    noisy = np.array([10, 40, 20]) * sizes
    assert round_to_domain(ascending_centroids(noisy, sizes), 100).tolist() == [10, 25, 25]


def test_several_lists_ascend_each_by_itself():
    """Nothing is pooled across the end of a list; sums that are cut at 63 bits do not wrap around."""
    sizes = np.array([1, 1, 2])
    noisy = np.array([[9, 1, 12], [0, 8, -4], [2**63 - 1, 2**63 - 1, -(2**62)]])
    found = ascending_centroids(noisy, np.broadcast_to(sizes, noisy.shape))
    assert found.tolist()[:2] == [[5, 5, 6], [0, 4 / 3, 4 / 3]]
    np.testing.assert_allclose(found[2], np.full(3, 3 * 2.0**60))
    assert found.tolist() == [ascending_centroids(each, sizes).tolist() for each in noisy]


def test_monotone_centroids_stay_within_a_domain_wider_than_doubles():
    """The domain's end is not a double here; its rounded-up neighbour must not be released."""
    n_values = 2**60 - 1
    sizes = np.array([1, 1])
    noisy = np.array([-5, 2**62])
    assert round_to_domain(ascending_centroids(noisy, sizes), n_values).tolist() == [0, n_values - 1]


def test_frequency_order_puts_the_most_frequent_first():
    """Ties go by declared order, categories that do not occur last; the inverse undoes the map."""
    indices = np.array([3, 1, 1, 3, 2, 3, 5, 5])
    order = frequency_order(indices, 6)
    assert order.category_at.tolist() == [3, 1, 5, 2, 0, 4]
    assert order.category_at[order.place_of].tolist() == list(range(6))
