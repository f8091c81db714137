"""Trimmed sums and their sensitivities, on examples worked by hand."""

from fractions import Fraction

import numpy as np
import pytest

from owner_node.masking.clusters import fall, plain_sums, reach, rise, trimmed_sums


@pytest.mark.parametrize(
    ("cluster", "total", "up", "down", "centroid_sensitivity"),
    [
        ([3, 3, 3, 4, 5, 6, 6], 30, 3, 4, Fraction(4, 7)),
        ([1, 2, 4, 8, 16], 24, 24, 12, Fraction(24, 5)),
    ],
)
def test_worked_examples(cluster, total, up, down, centroid_sensitivity):
    """The worked examples of MECHANISMS §2."""
    rows = np.array([cluster])
    assert trimmed_sums(rows).tolist() == [total]
    assert rise(rows).tolist() == [up]
    assert fall(rows).tolist() == [down]
    assert Fraction(max(up, down), len(cluster)) == centroid_sensitivity


def test_smallest_clusters_for_several_records_per_person():
    """With q = 2g + 1 the trimmed sum is q times the median, the case where the general sum is empty."""
    rows = np.array([[1, 2, 10, 20, 40]])
    assert trimmed_sums(rows, 2).tolist() == [50]
    assert rise(rows, 2).tolist() == [5 * 40 - 50]
    assert fall(rows, 2).tolist() == [50 - 5 * 1]


def test_plain_sums_and_reach_are_per_cluster():
    """Proposition 8 looks at the farther end of the domain from each cluster."""
    rows = np.array([[0, 1, 2], [7, 8, 9]])
    assert plain_sums(rows).tolist() == [3, 24]
    assert reach(rows, 11).tolist() == [10, 9]
