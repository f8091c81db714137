"""Bins of attributes, and what rules exclude of them."""

from itertools import product
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from common.synthesis.binning import (
    FEW_VALUES,
    FEWEST_LABELS,
    MOST_CELLS,
    Binning,
    binning_of,
    check_rules,
    excluded_bins,
    most_bins,
    possible_record,
    separated,
)
from common.synthesis.histogram import GRAIN, Histogram, first_edges

JOB = Attribute("job", AttributeType.CATEGORY, 0, 25, categories=tuple("abcdefghijklmnopqrstuvwxyz"))


def number(n_values: int, **known) -> Attribute:
    """An attribute of so many values that are not missing."""
    return Attribute("x", AttributeType.INTEGER, 0, n_values - 1, **known)


def histogram(counts, edges=None, variance: float = 4) -> Histogram:
    """Return parts, of one code each or of these edges, with these counts of records."""
    known = np.array(counts, dtype=np.float64)
    edges = np.arange(known.size + 1) if edges is None else np.array(edges)
    return Histogram(edges, np.array(counts) * GRAIN, known, np.full(known.size, float(variance)))


def binned(attribute, counts, most: int, variance: float = 1, sides=None, own_variance=1e-9) -> Binning:
    """Return bins of parts of one code each."""
    sides = np.zeros(len(counts), dtype=np.int64) if sides is None else sides
    return binning_of(attribute, histogram(counts, variance=own_variance), most, variance, sides)


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=60).filter(any),
    st.integers(3, 16),
    st.lists(st.integers(0, 2), min_size=60, max_size=60),
)
def test_bins_of_numbers(counts, most, sides):
    """Bins are consecutive, at most as many as are asked for, and never of two sides."""
    found = binned(number(len(counts)), counts, most)
    assert np.all(np.diff(found.labels) >= 0)
    assert np.unique(found.labels).tolist() == list(range(found.n_bins))
    assert found.n_bins <= max(most, FEW_VALUES if len(counts) <= FEW_VALUES else 2)
    assert found.counts.sum() == sum(counts) * GRAIN
    of_side = np.array(sides[: len(counts)])
    divided = binned(number(len(counts)), counts, most, sides=of_side)
    assert all(np.unique(of_side[divided.labels == each]).size == 1 for each in range(divided.n_bins))


@given(st.lists(st.integers(20, 40), min_size=50, max_size=200), st.integers(3, 16))
def test_bins_of_numbers_have_about_equal_counts(counts, most):
    """None is further from an even share than a value or two."""
    found = binned(number(len(counts)), counts, most)
    assert found.n_bins == most
    assert found.counts / GRAIN == pytest.approx(np.full(most, sum(counts) / most), abs=80)


def test_a_heavy_value_is_a_bin():
    """Others share what is left evenly."""
    found = binned(number(41), [10] * 20 + [1000] + [10] * 20, 6)
    assert np.count_nonzero(found.labels == found.labels[20]) == 1
    assert found.n_bins == 6


def test_few_values_keep_their_bins():
    """Up to ten, however few the bins; an eleventh puts values together, and so does noise."""
    assert binned(number(10), [5] * 10, 3).n_bins == 10
    assert binned(number(11), [5] * 11, 3).n_bins == 3
    assert binned(number(11), [5] * 11, 11, own_variance=100).n_bins == 2


@pytest.mark.parametrize("most", [3, 8, 16])
def test_spikes_and_missing_values_are_bins(most):
    """Each has a bin that no other value shares, however rare it is."""
    attribute = number(40, spikes=(0, 7, 20), keeps_missing=True)
    found = binned(attribute, [3, *[30] * 6, 1, *[30] * 32, 2], most)
    for code in (0, 7, 20, 40):
        assert np.count_nonzero(found.labels == found.labels[code]) == 1


def test_bins_of_categories():
    """Heavy labels have bins of their own; the light ones of each side share one."""
    counts = [500, 3, 400, 0, 7, 100] + [50] * 20
    found = binned(JOB, counts, 10, 25)
    assert found.n_bins == FEWEST_LABELS
    assert {found.labels[i] for i in (1, 3, 4)} == {found.labels[1]}
    assert len({int(found.labels[i]) for i in (0, 1, 2, 5)}) == 4
    divided = binned(JOB, counts, 10, 25, np.arange(26) == 3).labels
    assert np.count_nonzero(divided == divided[3]) == 1
    assert binned(JOB, [20, 30, 14], 10, 4).labels.tolist() == [0, 1, 2]
    assert binned(JOB, [20, 12, 14], 10, 25).labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("n_records", "variance", "n_pairs", "most"),
    [(30_000, 32_768, 1, 6), (30_000, 2600, 1, 12), (500, 1e6, 1, 3), (10**6, 1, 1, 64), (10**6, 1, 435, 24)],
)
def test_most_bins(n_records, variance, n_pairs, most):
    """sqrt(n/(4 sd)), from 3 to 64, fewer where many tables would have too many cells for an answer."""
    assert most_bins(n_records, variance, n_pairs) == most
    assert n_pairs * most**2 <= MOST_CELLS


def test_codes_have_the_bins_of_their_parts():
    """Also where bins of a category are not next to each other."""
    found = Binning(histogram([1, 2, 3], [0, 10, 11, 40]), np.array([0, 1, 0]), 2)
    assert found.bins(np.array([0, 9, 10, 11, 39])).tolist() == [0, 0, 1, 0, 0]
    assert found.counts.tolist() == [4 * GRAIN, 2 * GRAIN]


def test_parts_end_where_ranges_of_rules_do():
    """Counts are divided by width, and still sum to the same."""
    whole = Histogram(np.array([0, 10, 20]), np.array([100, 60]) * GRAIN, np.array([100.0, 60]), np.ones(2))
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


SIZES = (3, 2, 4)


@st.composite
def rules(draw) -> dict[int, list[tuple[int, int]]]:
    """Draw a rule about two or three attributes of `SIZES` values."""
    about = draw(st.sets(st.sampled_from(range(3)), min_size=2))
    spans = {i: st.tuples(*[st.integers(0, SIZES[i] - 1)] * 2).map(sorted).map(tuple) for i in about}
    return {i: draw(st.lists(spans[i], min_size=1, max_size=2)) for i in sorted(about)}


@given(st.lists(rules(), max_size=12))
def test_rules_against_all_records(drawn):
    """A record is possible exactly if one of all records breaks no rule; bins say which records break one."""
    attributes = [number(size) for size in SIZES]
    binnings = []
    for place, attribute in enumerate(attributes):
        parts, sides = separated(histogram([9], [0, attribute.n_values]), place, drawn)
        binnings.append(binning_of(attribute, parts, 3, 1, sides))
    excluded, possible = excluded_bins(binnings, drawn), False
    for record in product(*map(range, SIZES)):
        breaks = [
            all(any(first <= record[i] <= last for first, last in spans) for i, spans in rule.items())
            for rule in drawn
        ]
        bins = [int(each.bins(np.array([code]))[0]) for each, code in zip(binnings, record, strict=True)]
        assert breaks == [all(inside[bins[i]] for i, inside in rule.items()) for rule in excluded]
        possible |= not any(breaks)
    made = possible_record([each.n_bins for each in binnings], excluded)
    assert (made is not None) is possible
    assert made is None or not any(all(rule[i][made[i]] for i in rule) for rule in excluded)
    if possible:
        check_rules(attributes, drawn)
    else:
        with pytest.raises(UsageError, match="no possible record"):
            check_rules(attributes, drawn)


def test_what_most_rules_are_about_is_decided_first():
    """Twenty slots that stand before the number that fills them are no search of all their combinations."""
    attributes = [number(2)] * 21
    for filled in (0, 1):
        rules = [{0: [(0, 1)], 20: [(1 - filled, 1 - filled)]}]
        rules += [{20: [(bit, bit)], slot: [(bit, bit)]} for slot in range(20) for bit in (0, 1)]
        check_rules(attributes, rules)


def test_rules_that_are_hard_to_satisfy_end(monkeypatch):
    """After so many beginnings no record is taken for possible: the check takes no exponential time."""
    attributes, rule = [number(2)] * 3, [{0: [(0, 0)], 1: [(1, 1)], 2: [(1, 1)]}]
    check_rules(attributes, rule)
    monkeypatch.setattr("common.synthesis.binning._MOST_TRIED", 1)
    with pytest.raises(UsageError):
        check_rules(attributes, rule)


def test_a_spike_at_the_end_is_not_among_missing_values():
    """A top code is the neighbour of the missing value, and neither is like the other."""
    attribute = number(1_000, spikes=(999,), keeps_missing=True)
    edges = first_edges(attribute, 5_000, 100.0, 1)
    parts = histogram([20] * (edges.size - 1), edges, 1)
    made = binning_of(attribute, parts, 4, 1.0, np.zeros(edges.size - 1, dtype=np.int64))
    last, missing = made.bins(np.array([999, 1_000])).tolist()
    assert last != missing
    assert np.count_nonzero(made.labels == last) == np.count_nonzero(made.labels == missing) == 1


def test_many_ranges_take_no_long_time():
    """A schema of a stranger has at most 100 rules of 100 ranges for an attribute: seconds, not minutes."""
    spans = [[(20 * i + n % 20, 20 * i + n % 20) for i in range(100)] for n in range(100)]
    rules = [dict.fromkeys(range(4), own) for own in spans]
    began = process_time()
    check_rules([number(2_000)] * 4, rules)
    assert process_time() - began < 30
