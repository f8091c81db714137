"""Trimmed sums and their sensitivities, on examples worked by hand."""

from fractions import Fraction

import pytest

from tests.fakes.records import statistics_of


@pytest.mark.parametrize(
    ("cluster", "total", "up", "down", "centroid_sensitivity"),
    [
        ([3, 3, 3, 4, 5, 6, 6], 30, 3, 4, Fraction(4, 7)),
        ([1, 2, 4, 8, 16], 24, 24, 12, Fraction(24, 5)),
    ],
)
def test_worked_examples(cluster, total, up, down, centroid_sensitivity):
    """Worked examples: trimmed sums and their sensitivities are those computed by hand."""
    found = statistics_of(cluster, len(cluster), 1)
    assert found.trimmed_sums(1).tolist() == [total]
    assert found.rises(1, 1).tolist() == [up]
    assert found.falls(1, 1).tolist() == [down]
    assert Fraction(max(up, down), len(cluster)) == centroid_sensitivity


def test_smallest_clusters_for_several_records_per_person():
    """With q = 2g + 1 the trimmed sum is q times the median, the case where the general sum is empty."""
    found = statistics_of([1, 2, 10, 20, 40], 5, 2, 2)
    assert found.trimmed_sums(2).tolist() == [50]
    assert found.rises(2, 2).tolist() == [5 * 40 - 50]
    assert found.falls(2, 2).tolist() == [50 - 5 * 1]


def test_plain_sums_and_reach_are_per_cluster():
    """Proposition 8 looks at the farther end of the domain from each cluster."""
    found = statistics_of([0, 1, 2, 7, 8, 9], 3)
    assert found.trimmed_sums(0).tolist() == [3, 24]
    assert found.reaches(11).tolist() == [10, 9]
