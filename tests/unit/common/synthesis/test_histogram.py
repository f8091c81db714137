"""One-way counts: partitions of domains, and what noisy counts of them become."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.counts import nearest_counts
from common.model.schema import Attribute, AttributeType
from common.synthesis.histogram import (
    GRAIN,
    attribute_weights,
    denoised,
    divided_histogram,
    first_edges,
    halved,
    histogram_of,
    n_levels,
    next_edges,
    stands_alone,
)
from owner_node.synthesis.counts import one_way_counts

LABELS = tuple(f"label {i}" for i in range(300))
JOB = Attribute("job", AttributeType.CATEGORY, 0, 299, categories=LABELS)


def number(n_values: int, lower: int = 5, **known) -> Attribute:
    """An attribute of so many values that are not missing."""
    return Attribute("x", AttributeType.INTEGER, lower, lower + n_values - 1, **known)


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


def test_weights_of_attributes():
    """The square root of the number of values, up to 128."""
    assert [round(float(each), 3) for each in attribute_weights([number(9), JOB])] == [3, 11.314]
    assert attribute_weights([number(4)]) == [Decimal(2)]


@pytest.mark.parametrize("n_values", [200, 5000, 2**40])
def test_divided_parts_keep_their_sums(n_values):
    """Heavy parts are divided, others stay; the parts of one sum to it; exact counts are restored."""
    draw = np.random.default_rng(1)
    codes = np.minimum((draw.exponential(size=30_000) * n_values / 50).astype(np.int64), n_values - 1)
    attribute = number(n_values)
    edges = first_edges(attribute, 30_000, 1, 3)
    found = histogram_of(attribute, edges, one_way_counts(codes, edges), 30_000, 1e-9)
    for _ in range(2):
        before, edges = found, next_edges(attribute, found)
        divided = np.diff(np.searchsorted(edges, before.edges)) > 1
        assert np.array_equal(divided, (before.noisy > 0) & (np.diff(before.edges) > 1))
        found = divided_histogram(before, edges, one_way_counts(codes, edges), 1e-9)
        within = np.searchsorted(edges, before.edges)
        sums = [int(found.counts[start:end].sum()) for start, end in pairwise(within)]
        assert sums == before.counts.tolist()
    assert np.array_equal(found.counts, GRAIN * one_way_counts(codes, edges))


@given(
    st.lists(st.integers(-1000, 3000), min_size=16, max_size=16),
    st.integers(1, 5000),
    st.floats(1, 1e6),
    st.lists(st.integers(-1000, 3000), min_size=400, max_size=400),
)
def test_totals_are_kept_exactly(noisy, n_records, variance, finer):
    """Whatever the noisy counts: none is negative, and all sum to the records, in grains, at each level."""
    attribute = number(10_000, spikes=(7, 500), keeps_missing=True)
    edges = first_edges(attribute, n_records, variance, 2)
    found = histogram_of(attribute, edges, np.resize(noisy, edges.size - 1), n_records, variance)
    edges = next_edges(attribute, found)
    after = divided_histogram(found, edges, np.resize(finer, edges.size - 1), variance)
    for each in (found, after):
        assert each.counts.min() >= 0
        assert each.counts.sum() == n_records * GRAIN
    assert np.all(np.diff(edges) > 0)


@pytest.mark.parametrize("n_values", [20, 300, 2**30])
@pytest.mark.parametrize("noise", [0, 40])
def test_spikes_and_missing_values_keep_their_share(n_values, noise):
    """They have parts of their own, whatever the domain, and are smoothed with no other value."""
    attribute = number(n_values, lower=0, spikes=(0, n_values // 3), keeps_missing=True)
    draw = np.random.default_rng(1)
    kinds, codes = draw.random(5000), draw.integers(0, n_values, 5000)
    for least, code in ((0.8, 0), (0.6, n_values // 3), (0.4, n_values)):
        codes[(kinds >= least) & (kinds < least + 0.2)] = code
    edges = first_edges(attribute, 5000, noise**2 + 1, 1)
    alone = stands_alone(attribute, edges)
    assert edges[:-1][alone].tolist() == [0, n_values // 3, n_values]
    exact = one_way_counts(codes, edges)
    noisy = exact + np.rint(draw.normal(0, noise, exact.size)).astype(np.int64)
    found = histogram_of(attribute, edges, noisy, 5000, noise**2 + 1e-9)
    # A projection of few values moves all of them by the same.
    assert found.counts[alone] / GRAIN == pytest.approx(exact[alone], abs=3 * noise + 1)
    # However loud the noise, which takes everything out of neighbours.
    rare = np.where(alone, 10, 0)
    assert np.array_equal(histogram_of(attribute, edges, rare, 30, 1e6).counts, rare * GRAIN)


@pytest.mark.parametrize(
    ("lower", "n_values"), [(0, 129), (0, 2**40), (1, 130), (1, 2**40), (1000, 300), (10**9, 200), (0, 2**60)]
)
def test_logarithmic_scale(lower, n_values):
    """Edges ascend, 0 has a part of its own, and parts have equal ratios, at every level."""
    attribute = number(n_values, lower, is_logarithmic=True)
    first = first_edges(attribute, 10_000, 1, 2)
    found = histogram_of(attribute, first, np.full(first.size - 1, 500), 10_000, 1)
    finer = next_edges(attribute, found)
    finer = finer[finer >= first[-2]]
    for edges in (first, finer):
        assert np.all(np.diff(edges) > 0)
        values = (edges + lower)[int(edges[0] + lower == 0) :].astype(np.float64)
        even = values[0] * (values[-1] / values[0]) ** (np.arange(17) / 16)
        assert values == pytest.approx(np.unique(np.rint(even)), rel=1e-9)
        assert values[0] == 1 or lower + edges[0] > 0
    assert (first[0], first[-1]) == (0, n_values)


def test_a_domain_far_too_wide_costs_little():
    """Where one part of 128 has all records, noise of the others does not add up to many records."""
    attribute, draw = number(128 * 1000, lower=0), np.random.default_rng(2)
    places, edges = np.arange(128), np.arange(129) * 1000

    def spread(counts: np.ndarray) -> float:
        return float(np.sqrt(np.average((places - 20.0) ** 2, weights=np.maximum(counts, 0))))

    noises = [np.rint(draw.normal(0, 20, 128)).astype(np.int64) for _ in range(40)]
    noisy = [2000 * (places == 20) + noise for noise in noises]
    after = [spread(histogram_of(attribute, edges, each, 2000, 400).counts) for each in noisy]
    before = [spread(nearest_counts(each.astype(np.float64), 2000)) for each in noisy]
    assert np.median(after) < 2
    assert np.mean(after) < 6 < np.median(before)


def test_halves():
    """Without noise counts are as they were; a half within the noise is emptied, unless records are few."""
    counts = np.array([0.0, 30, 7, 0, 0, 63, 1])
    assert halved(counts, 0, 101, 101).tolist() == counts.tolist()
    assert halved(np.array([100.0, 4.0]), 100, 104, 104).tolist() == [104, 0]
    assert halved(np.array([100.0, 40.0]), 100, 140, 140).tolist() == [100, 40]
    # Of two records noise alone would decide.
    assert halved(np.array([1.5, 0.5]), 100, 2, 2).tolist() == [1.5, 0.5]


def test_denoising():
    """Steps and spikes stay, and noise around them becomes less."""
    draw = np.random.default_rng(3)
    exact = np.concatenate([np.full(40, 300.0), np.full(33, 50.0)])
    exact[20] = 2000
    noisy = exact + draw.normal(0, 30, 73)
    assert np.square(denoised(noisy, 900) - exact).sum() < 0.5 * np.square(noisy - exact).sum()
    assert np.allclose(denoised(noisy, 0), noisy)
