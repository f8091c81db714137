"""What rounds ask for: partitions, bins, expected tables, scores and the choice of pairs."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from common.synthesis.rounds import (
    GRAIN,
    MOST_BINS,
    UNIT,
    Coding,
    Leaves,
    all_pairs,
    attribute_weights,
    choose_pairs,
    coarse,
    coarse_score,
    coding_of,
    denoised,
    divided_leaves,
    expected_table,
    first_edges,
    leaves_of,
    most_bins,
    most_pairs,
    n_levels,
    next_edges,
    separated,
)
from owner_node.synthesis.counts import one_way_counts, pair_counts, pair_score

LABELS = tuple(f"label {i}" for i in range(300))
JOB = Attribute("job", AttributeType.CATEGORY, 0, 299, categories=LABELS)


def number(n_values: int) -> Attribute:
    """An attribute of so many values."""
    return Attribute("x", AttributeType.INTEGER, 5, n_values + 4)


def leaves(counts, variance: float = 4) -> Leaves:
    """Return leaves of one code each with these counts of records."""
    known = np.array(counts, dtype=np.float64)
    return Leaves(
        np.arange(known.size + 1), np.array(counts) * GRAIN, known, np.full(known.size, float(variance))
    )


def coding(*counts: int) -> Coding:
    """Return bins of one code each."""
    return Coding(leaves(counts), np.arange(len(counts)), len(counts))


@pytest.mark.parametrize(
    ("attribute", "n_records", "variance", "levels", "parts"),
    [
        (number(128), 100, 1e6, 1, 128),
        (JOB, 100, 1e6, 1, 300),
        (number(129), 10_000, 100, 2, 16),
        (number(4095), 10_000, 100, 2, 16),
        (number(4096), 10_000, 100, 3, 16),
        (number(2**40), 10_000, 100, 3, 16),
        (number(2**40), 10_000, 1e4, 1, 128),
        (number(2**40), 1000, 1e4, 1, 16),
        (number(2**40), 2000, 1e4, 1, 32),
        (number(2**40), 1, 1e8, 1, 16),
        (number(1), 10, 1, 1, 1),
    ],
)
def test_levels(attribute, n_records, variance, levels, parts):
    """Few values are counted one by one; wide domains in levels, or at once where there are few records."""
    assert n_levels(attribute, n_records, variance) == levels
    edges = first_edges(attribute, n_records, variance, levels)
    assert edges.size == parts + 1
    assert (edges[0], edges[-1]) == (0, attribute.n_values)


@pytest.mark.parametrize("n_values", [200, 5000, 2**40])
def test_divided_leaves_keep_their_sums(n_values):
    """Heavy leaves are divided, others stay; the parts of a leaf sum to it; exact counts come back."""
    draw = np.random.default_rng(1)
    codes = np.minimum((draw.exponential(size=30_000) * n_values / 50).astype(np.int64), n_values - 1)
    attribute = number(n_values)
    edges = first_edges(attribute, 30_000, 1, 3)
    found = leaves_of(attribute, edges, one_way_counts(codes, edges), 30_000, 1)
    for _ in range(2):
        before, edges = found, next_edges(found)
        heavy = before.noisy > 4
        wide = np.diff(before.edges) > 1
        assert edges.size > before.edges.size or not (heavy & wide).any()
        found = divided_leaves(before, edges, one_way_counts(codes, edges), 1)
        within = np.searchsorted(edges, before.edges)
        sums = [int(found.counts[start:end].sum()) for start, end in pairwise(within)]
        assert sums == before.counts.tolist()
    assert np.array_equal(found.counts, GRAIN * one_way_counts(codes, edges))


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=60).filter(any),
    st.integers(3, 16),
    st.lists(st.integers(0, 2), min_size=60, max_size=60),
)
def test_bins_of_numbers(counts, most, sides):
    """Bins are consecutive, at most as many as asked for, none but the first of a side much too heavy."""
    found = coding_of(number(len(counts)), leaves(counts, 1e-9), most, 1)
    assert np.all(np.diff(found.labels) >= 0)
    assert np.unique(found.labels).tolist() == list(range(found.n_bins))
    assert found.n_bins <= max(most, 2)
    assert found.counts.sum() == sum(counts) * GRAIN
    apart = np.array(sides[: len(counts)])
    divided = coding_of(number(len(counts)), leaves(counts, 1e-9), most, 1, apart)
    assert all(np.unique(apart[divided.labels == each]).size == 1 for each in range(divided.n_bins))


def test_a_heavy_value_is_a_bin():
    """Others share what is left evenly."""
    counts = [10] * 20 + [1000] + [10] * 20
    found = coding_of(number(41), leaves(counts), 6, 1)
    assert np.count_nonzero(found.labels == found.labels[20]) == 1
    assert found.n_bins == 6


@pytest.mark.parametrize("n_values", [20, 300, 2**30])
def test_missing_values_are_a_bin(n_values):
    """They are counted by themselves, whatever the domain, and not smoothed with the largest values."""
    attribute = Attribute("x", AttributeType.INTEGER, 0, n_values - 1, keeps_missing=True)
    draw = np.random.default_rng(1)
    codes = np.where(draw.random(5000) < 0.3, n_values, draw.integers(0, n_values, 5000))
    edges = first_edges(attribute, 5000, 4, 1)
    assert edges[-2:].tolist() == [n_values, n_values + 1]
    found = leaves_of(attribute, edges, one_way_counts(codes, edges), 5000, 4)
    assert found.counts[-1] == pytest.approx(GRAIN * np.count_nonzero(codes == n_values), rel=0.01)
    coding = coding_of(attribute, found, 6, 4)
    assert np.array_equal(coding.bins(codes) == coding.n_bins - 1, codes == n_values)


def test_bins_of_categories():
    """The heaviest have bins of their own, and the rest share one; nothing changes where all are heavy."""
    counts = [500, 3, 400, 0, 7, 100] + [50] * 20
    found = coding_of(JOB, leaves(counts, 4), 10, 25)
    assert found.n_bins == MOST_BINS
    assert {found.labels[i] for i in (1, 3, 4)} == {found.labels[1]}
    assert found.labels[0] != found.labels[2] != found.labels[5]
    assert coding_of(JOB, leaves([20, 30, 16], 4), 10, 25).n_bins == 3
    assert coding_of(JOB, leaves([20, 30, 14], 4), 10, 25).labels.tolist() == [0, 1, 2]
    assert coding_of(JOB, leaves([20, 12, 14], 4), 10, 25).labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("n_records", "variance", "most"), [(30_000, 32_768, 10), (30_000, 2600, 16), (500, 1e6, 3)]
)
def test_most_bins(n_records, variance, most):
    """sqrt(n/(1.6 sd)), from 3 to 16."""
    assert most_bins(n_records, variance) == most


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    st.integers(0, 2**21),
)
def test_expected_tables_are_rounded_products(one, other, n_records):
    """Against exact fractions, to the nearest whole unit, halves up."""
    found = expected_table(coding(*one), coding(*other), n_records)
    for value, (a, b) in zip(found.tolist(), ((a, b) for a in one for b in other), strict=True):
        exact = Fraction(UNIT * n_records * a * b, sum(one) * sum(other))
        assert -Fraction(1, 2) <= exact - value < Fraction(1, 2)


def test_scores():
    """Of independent attributes it is near 0, of equal ones large; halves of the records add up."""
    draw = np.random.default_rng(1)
    one, other = draw.integers(0, 4, 8000), draw.integers(0, 4, 8000)
    even = coding(2000, 2000, 2000, 2000)
    expected = expected_table(even, even, 8000)
    assert pair_score(pair_counts(one, other, (4, 4)), expected) < UNIT * 600
    assert pair_score(pair_counts(one, one, (4, 4)), expected) == pytest.approx(UNIT * 12_000, rel=0.02)


def test_coarse_tables():
    """Bins are merged in order; the score is about that of the whole table, and noise alone scores little."""
    fine = coding(*([100] * 12), 1200, *([100] * 12))
    merged = coarse(fine, 4)
    assert 3 <= merged.n_bins <= 4
    assert np.all(np.diff(merged.labels) >= 0)
    draw = np.random.default_rng(2)
    expected = np.full(16, UNIT * 500)
    noisy = 500 + np.rint(draw.normal(0, 40, 16)).astype(np.int64)
    assert coarse_score(noisy, expected, 1600) < UNIT * 16 * 40
    apart = np.where(np.arange(16) % 5 == 0, 1250, 250)
    assert coarse_score(apart, expected, 1) == pytest.approx(
        0.8 * UNIT * 4 * np.sqrt(((apart - 500) ** 2).sum()), rel=1e-3
    )


def test_denoising():
    """Steps and spikes stay, and noise around them becomes less."""
    draw = np.random.default_rng(3)
    exact = np.concatenate([np.full(40, 300.0), np.full(33, 50.0)])
    exact[20] = 2000
    noisy = exact + draw.normal(0, 30, 73)
    assert np.square(denoised(noisy, 900) - exact).sum() < 0.5 * np.square(noisy - exact).sum()
    assert np.allclose(denoised(noisy, 0), noisy)


def test_leaves_end_where_ranges_of_rules_do():
    """Counts are divided by width, and still sum to the same."""
    whole = Leaves(np.array([0, 10, 20]), np.array([100, 60]) * GRAIN, np.array([100.0, 60]), np.ones(2))
    rules = ({0: [(3, 12)], 1: [(0, 0)]}, {0: [(0, 4)], 2: [(0, 0)]})
    found, sides = separated(whole, 0, rules)
    assert found.edges.tolist() == [0, 3, 5, 10, 13, 20]
    assert (found.counts // GRAIN).tolist() == [30, 20, 50, 18, 42]
    assert np.allclose(found.noisy, [30, 20, 50, 18, 42])
    assert len(set(sides.tolist())) == 4
    assert sides[2] == sides[3]
    same, alike = separated(whole, 7, rules)
    assert np.array_equal(same.counts, whole.counts)
    assert not alike.any()


@pytest.mark.parametrize("seed", range(5))
def test_choice_of_pairs(seed):
    """A spanning tree of the largest worth, found by trying all; then the best others that are worth it."""
    draw = np.random.default_rng(seed)
    pairs = all_pairs(5)
    scores = {pair: int(draw.integers(-500, 1000)) for pair in pairs}
    sizes = [2] * 5
    chosen = choose_pairs(scores, dict.fromkeys(pairs, 100.0), sizes, 6)
    worth = {pair: score - 2 * UNIT * 4 * 10 // 5 for pair, score in scores.items()}

    def connected(tree) -> bool:
        reached = {0}
        for _ in range(5):
            reached |= {each for pair in tree if reached & set(pair) for each in pair}
        return len(reached) == 5

    best = max(sum(worth[pair] for pair in tree) for tree in combinations(pairs, 4) if connected(tree))
    trees = [
        tree
        for tree in combinations(pairs, 4)
        if connected(tree) and sum(worth[pair] for pair in tree) == best
    ]
    tree = next(tree for tree in trees if set(tree) <= set(chosen))
    others = sorted((pair for pair in pairs if pair not in tree), key=lambda pair: -worth[pair])
    assert set(chosen) - set(tree) == {pair for pair in others[:2] if worth[pair] > 0}


def test_models_stay_small():
    """Pairs that would make the cliques too large are left out, whatever their score."""
    pairs = all_pairs(6)
    chosen = choose_pairs(dict.fromkeys(pairs, 10**9), dict.fromkeys(pairs, 1.0), [16] * 6, 15)
    assert 5 < len(chosen) < 15
    assert choose_pairs(dict.fromkeys(pairs, 10**9), dict.fromkeys(pairs, 1.0), [2] * 6, 15) == pairs


def test_how_many_pairs():
    """A tree, and more where there are many records."""
    assert [most_pairs(11, 30_000), most_pairs(13, 700), most_pairs(1, 700)] == [32, 18, 0]
    assert [round(float(each), 3) for each in attribute_weights([number(9), JOB])] == [3, 11.314]
