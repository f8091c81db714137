"""The order of records and the clusters they fall into."""

import numpy as np
import pytest

from owner_node.masking.clusters import Clusters
from owner_node.masking.order import rank
from tests.oracles import masking as oracle

GENERATOR = np.random.default_rng(20260101)
SHAPES = {
    "tied": GENERATOR.integers(0, 7, 5000),
    "one digit": GENERATOR.integers(-8000, 8000, 5000),
    "two digits": GENERATOR.integers(-(10**8), 10**8, 5000),
    "four digits": GENERATOR.integers(0, 2**50, 5000),
    "tied far apart": GENERATOR.choice(np.array([-(2**61), 0, 5, 2**61]), 5000),
    "wider than a key": GENERATOR.integers(-(2**61), 2**61, 5000),
    "all equal": np.full(5000, 42),
    "one record": np.array([-7]),
    "two records": np.array([3, 3]),
    "descending": np.arange(5000)[::-1] * 1000,
}


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES.keys())
def test_order_is_that_of_a_stable_sort(values):
    """Ties go by record position: the agreed assignment of records to clusters."""
    ranking = rank(values)
    expected = np.argsort(values, kind="stable")
    assert np.array_equal(ranking.order, expected)
    assert np.array_equal(ranking.values, values[expected])


@pytest.mark.parametrize("key_bits", [14, 15, 17, 20])
@pytest.mark.parametrize("n_values", [2**17, 2**25])
def test_values_and_positions_that_do_not_fit_one_key(key_bits, n_values):
    """Piecewise sorting gives the same order, ties included, however narrow the key is."""
    values = GENERATOR.integers(0, n_values, 4000) // 500 * 500
    values[0] = n_values
    ranking = rank(values, key_bits)
    expected = np.argsort(values, kind="stable")
    assert np.array_equal(ranking.order, expected)
    assert np.array_equal(ranking.values, values[expected])


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES.keys())
def test_tie_breakers_decide_before_the_record(values):
    """Among equal values the random number, then the record, at every width of values."""
    ties = GENERATOR.integers(0, 256, values.size).astype(np.uint8)
    ranking = rank(values, ties=ties)
    expected = np.lexsort((np.arange(values.size), ties, values))
    assert np.array_equal(ranking.order, expected)
    assert np.array_equal(ranking.values, values[expected])


@pytest.mark.parametrize("power", [1, 3])
def test_a_large_table(power):
    """The sizes that real tables reach, ties included, of many values and of few."""
    values = GENERATOR.integers(0, 1000, 400_000) ** power
    ranking = rank(values)
    expected = np.argsort(values, kind="stable")
    assert np.array_equal(ranking.order, expected)
    assert np.array_equal(ranking.values, values[expected])


def test_clusters_of_tied_records_match_the_stable_sort():
    """Masked values cannot show a wrong tie order; cluster ids can."""
    values = GENERATOR.integers(0, 4, 103)
    clusters = Clusters(values.size, 10)
    ids = np.empty(values.size, dtype=np.int64)
    ids[rank(values).order] = np.repeat(np.arange(clusters.n_clusters), clusters.sizes)
    assert ids.tolist() == oracle.cluster_of_record(values.tolist(), 10)


def test_last_cluster_takes_the_remainder():
    """Algorithm 1: p = floor(n/k) clusters, the last of k to 2k - 1 records."""
    assert Clusters(29, 10).sizes.tolist() == [10, 19]
    assert Clusters(30, 10).sizes.tolist() == [10, 10, 10]
    assert Clusters(10, 10).sizes.tolist() == [10]
    with pytest.raises(ValueError, match="9 records make no cluster of 10"):
        Clusters(9, 10)
