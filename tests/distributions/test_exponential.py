"""Categories drawn from a taxonomy have the probabilities of the exponential mechanism.

Draws come from fixed seeds, so a test passes always or never. A p-value is called bad below 1e-4; with a
wrong parameter it must fall far below that.
"""

from decimal import Decimal
from fractions import Fraction
from math import exp, log2

import numpy as np
import pytest
from scipy import stats

from common.errors import UnusableDataError
from owner_node.masking.clusters import Setting
from owner_node.masking.exponential import MOST_CATEGORIES, TaxonomyMechanism, distance_table, draw
from owner_node.masking.noise import two_over_e_coin
from owner_node.values.taxonomy import Taxonomy, read_hierarchy, taxonomy_of
from tests.fakes.bits import SeededBits
from tests.oracles import taxonomy as oracle

BAD = 1e-4
HOPELESS = 1e-12
N_CLUSTERS = 40_000

JOBS = read_hierarchy(
    "nurse;care;hospital;*\nmidwife;care;hospital;*\nsurgeon;medicine;hospital;*\ncook;kitchen;*\npilot;*"
)
TREE = taxonomy_of(JOBS, tuple(JOBS))


def distances(tree):
    """The semantic distances in the taxonomy's order, pair by pair, in doubles."""
    paths = [tree.paths[index] for index in tree.order()]
    return np.array([[log2(1 + oracle.difference(one, other)) for other in paths] for one in paths])


def probabilities(cluster, epsilon, g=1):
    """What 002 equation 6 says about a cluster's places in the order."""
    table = distances(TREE)
    marginality = table[cluster].sum(axis=0)
    weights = [exp(-epsilon * each / (2 * g * table.max())) for each in marginality]
    return np.array(weights) / sum(weights)


def p_value(drawn, expected):
    """Chi-square of drawn places against probabilities."""
    return float(stats.chisquare(np.bincount(drawn, minlength=expected.size), expected * drawn.size).pvalue)


def released(cluster, epsilon, g=1, seed=1, copies=N_CLUSTERS):
    """Draw the category of as many clusters with the same content."""
    kinds = distance_table(TREE)[cluster].sum(axis=0)[None, :]
    setting = Setting("job", 5, Decimal(epsilon), max(len(cluster), 2 * g + 1), g, TREE)
    TaxonomyMechanism().check(setting)
    largest = Fraction(int(distance_table(TREE).max()))
    scale = -int(-2 * g * largest / Fraction(setting.epsilon) // 1)
    return draw(kinds, np.zeros(copies, dtype=np.int64), scale, SeededBits(seed))


def test_the_table_is_that_of_all_pairs():
    """The public grid holds the distances of the paper's formula, rounded to 2^-32."""
    assert np.abs(distance_table(TREE) / 2**32 - distances(TREE)).max() <= 2.0**-32


@pytest.mark.parametrize("epsilon", ["0.5", "1", "4", "30"])
@pytest.mark.parametrize("g", [1, 2])
def test_draws_have_the_exact_probabilities(epsilon, g):
    """Few records, so that every category has a chance, and many, so that one is almost certain."""
    for cluster in ([0, 0, 2], [1, 1, 1, 3, 4, 4]):
        drawn = released(cluster, epsilon, g)
        expected = probabilities(cluster, float(epsilon), g)
        if expected.min() * drawn.size > 5:
            assert p_value(drawn, expected) > BAD
        else:
            assert np.bincount(drawn, minlength=5)[expected * drawn.size < 1e-6].sum() == 0


@pytest.mark.parametrize("wrong", [1.1, 0.9, 2, 0.5])
def test_the_chi_square_sees_a_wrong_epsilon(wrong):
    """The test above would fail for an epsilon that is off by ten per cent, or without the 2 of 2Δ."""
    cluster = [1, 1, 1, 3, 4, 4]
    assert p_value(released(cluster, "4", copies=400_000), probabilities(cluster, 4 * wrong)) < HOPELESS


def test_coins_have_probability_two_over_e():
    """The coin that the halved proposals are kept by."""
    true = int(np.count_nonzero(two_over_e_coin(400_000, SeededBits(5))))
    assert stats.binomtest(true, 400_000, 2 / np.e).pvalue > BAD
    assert stats.binomtest(true, 400_000, 0.75).pvalue < HOPELESS


def test_every_cluster_is_drawn_from_its_own_records():
    """Runs of equal clusters, mixed ones and the longer last one: each follows its own probabilities."""
    # Five clusters: two of place 0 alone, a mixed one, one of place 2, and a last one of five.
    column = np.array([0] * 7 + [1] + [2] * 5 + [3, 4, 4, 4])
    setting = Setting("job", 5, Decimal(4), 3, taxonomy=TREE)
    mechanism, bits = TaxonomyMechanism(), SeededBits(8)
    drawn = np.array([mechanism.release(column, setting, bits).values for _ in range(1_500)])
    starts = [0, 3, 6, 9, 12]
    for index, start in enumerate(starts):
        cluster = column[start : start + 3] if start < 12 else column[12:]
        expected = probabilities(cluster.tolist(), 4.0)
        assert p_value(drawn[:, index], expected) > BAD
    assert drawn.shape[1] == len(starts)
    assert stats.chi2_contingency(np.histogram2d(drawn[:, 0], drawn[:, 1], bins=5)[0]).pvalue > BAD


def test_what_cannot_be_drawn_exactly_is_refused():
    """Before anything is spent: too many categories, an epsilon or a k beyond 63-bit integers."""
    many = Taxonomy(tuple(("*", f"c{index}") for index in range(MOST_CATEGORIES + 1)))
    with pytest.raises(UnusableDataError, match="at most 2000 categories"):
        TaxonomyMechanism().check(Setting("job", MOST_CATEGORIES + 1, Decimal(1), 3, taxonomy=many))
    for epsilon, k in (("1e-11", 3), ("1", 2**30)):
        with pytest.raises(UnusableDataError, match="exact draws"):
            TaxonomyMechanism().check(Setting("job", 5, Decimal(epsilon), k, taxonomy=TREE))


def test_a_single_category_is_released_as_it_is():
    """One category has no distances: nothing to choose from."""
    tree = Taxonomy((("*", "only"),))
    list_ = TaxonomyMechanism().release(
        np.zeros(7, np.int64), Setting("job", 1, Decimal(1), 3, taxonomy=tree), SeededBits(1)
    )
    assert list_.values.tolist() == [0, 0]
