"""Masking compared with plain Python, and its promise checked on every change of one record."""

from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from owner_node.masking import mechanisms as calibration
from owner_node.masking.clusters import Setting, multiply_up
from owner_node.masking.order import rank
from owner_node.masking.tasks import AttributeTask, frequency_order
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute, statistics_of
from tests.oracles import masking as oracle

INT64 = st.integers(-(2**61), 2**61)
TIED = st.lists(st.integers(0, 6), min_size=1, max_size=80)


@st.composite
def columns(draw, largest=40):
    """Values, g and a k that fits both."""
    g = draw(st.integers(1, 3))
    k = draw(st.integers(2 * g + 1, 2 * g + 6))
    values = draw(st.lists(st.integers(0, largest), min_size=k, max_size=60))
    return values, k, g


@given(st.one_of(TIED, st.lists(INT64, min_size=1, max_size=80)), st.integers(10, 63))
def test_ranking_is_the_stable_order(values, key_bits):
    """Any values, ties included, with keys of any width: value first, then record position."""
    ranking = rank(np.array(values, dtype=np.int64), key_bits)
    assert ranking.order.tolist() == oracle.stable_order(values)
    assert ranking.values.tolist() == sorted(values)


@given(columns())
def test_cluster_statistics_are_the_plain_ones(column):
    """Sums, trimmed sums, rises, falls and Λ for any g and h, the last cluster's remainder included."""
    values, k, g = column
    cut = oracle.clusters(values, k)
    for h in range(g, (k - 1) // 2 + 1):
        found = statistics_of(values, k, h, g)
        assert found.trimmed_sums(0).tolist() == [sum(c) for c in cut]
        assert found.trimmed_sums(h).tolist() == [oracle.trimmed_sum(c, h) for c in cut]
        assert found.rises(h, g).tolist() == [oracle.rise(c, g, h) for c in cut]
        assert found.falls(h, g).tolist() == [oracle.fall(c, g, h) for c in cut]
        assert calibration.joint_sensitivity(found, h, g) == oracle.joint_sensitivity(values, k, g, h)


@given(columns(), st.sampled_from(["idp-ls", "idp-joint"]), st.integers(0, 2**32))
def test_masked_values_keep_the_shape_of_the_data(column, mechanism, seed):
    """Within the domain, equal within a cluster, one per record, for any data and any noise."""
    values, k, g = column
    attribute = Attribute("age", AttributeType.INTEGER, 0, 40)
    task = AttributeTask(attribute, Decimal("0.5"), k, mechanism, g)
    masked = mask_attribute(np.array(values), task, SeededBits(seed)).by_record().tolist()
    assert all(0 <= value <= 40 for value in masked)
    assert len(masked) == len(values)
    by_cluster = zip(oracle.cluster_of_record(values, k), masked, strict=True)
    assert len(set(by_cluster)) == len(values) // k


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_frequency_order_is_by_count_then_declared_order(values):
    """The order the papers define, and a map that loses nothing."""
    order = frequency_order(np.array(values), 6)
    assert order.category_at.tolist() == sorted(range(6), key=lambda index: (-values.count(index), index))
    assert order.place_of[order.category_at].tolist() == list(range(6))


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=10),
    st.fractions(min_value=Fraction(1, 10**9), max_value=Fraction(2**22), max_denominator=10**15),
)
def test_scales_are_exact_products_rounded_up(values, factor):
    """Rounding up by long division gives what unbounded integers give."""
    factor = max(factor, Fraction(1, 10**9))
    expected = [-(-value * factor.numerator // factor.denominator) for value in values]
    assert multiply_up(np.array(values), factor).tolist() == expected


def neighbours(values, domain, n_changed=1):
    """Every table that differs in the values of at most `n_changed` records."""
    for places in combinations(range(len(values)), n_changed):
        for replaced in product(domain, repeat=n_changed):
            changed = list(values)
            for place, value in zip(places, replaced, strict=True):
                changed[place] = value
            yield changed


def loss(values, changed, k, scales, total):
    """The exact privacy loss of the whole list of noisy sums, under the scales of the actual data."""
    before, after = oracle.clusters(values, k), oracle.clusters(changed, k)
    moves = (abs(total(b) - total(a)) for b, a in zip(before, after, strict=True))
    return sum((Fraction(move, int(t)) for move, t in zip(moves, scales, strict=True)), Fraction(0))


@settings(max_examples=60)
@given(st.lists(st.integers(2, 7), min_size=6, max_size=11))
def test_idp_joint_keeps_the_loss_of_the_whole_list_within_epsilon_and_reaches_it(values):
    """All changes of one record over the domain: never above the calibrated bound, and at it for some change.

    The domain extends past the data on both sides, so that a value can be removed at one end of the order and
    added beyond the other, the change that moves every cluster.
    """
    k, epsilon = 3, Fraction(1, 2)
    setting = Setting("age", 10, Decimal("0.5"), k)
    found = statistics_of(values, k, 1)
    scales = calibration.joint_scales(found, setting, 1, 0)
    worst = max(
        loss(values, changed, k, scales, oracle.trimmed_sum) for changed in neighbours(values, range(10))
    )
    assert worst <= epsilon
    rises = sum(Fraction(int(e), int(t)) for e, t in zip(found.rises(1, 1), scales, strict=True))
    falls = sum(Fraction(int(e), int(t)) for e, t in zip(found.falls(1, 1), scales, strict=True))
    assert worst == max(rises, falls)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=5, max_size=6), st.booleans())
def test_idp_joint_keeps_the_loss_for_two_records_per_person(values, doubled):
    """All changes of two records: calibrated to g, never by dividing epsilon."""
    values = values + values[:5] if doubled else values
    setting = Setting("age", 6, Decimal(1), 5, 2)
    scales = calibration.joint_scales(statistics_of(values, 5, 2, 2), setting, 2, 4)

    def total(cluster):
        return oracle.trimmed_sum(cluster, 2) << 4

    changes = neighbours(values, range(6), 2)
    assert max(loss(values, changed, 5, scales, total) for changed in changes) <= 1


@settings(max_examples=40)
@given(st.lists(st.integers(0, 8), min_size=6, max_size=12))
def test_idp_ls_is_the_largest_move_of_a_sum_given_its_records(values):
    """Proposition 8, per centroid: over all changes within a cluster the formula is reached, never passed."""
    stated = statistics_of(values, 3).reaches(9).tolist()
    for cluster, expected in zip(oracle.clusters(values, 3), stated, strict=True):
        assert max(abs(sum(changed) - sum(cluster)) for changed in neighbours(cluster, range(9))) == expected


@pytest.mark.parametrize("n_records", [6, 7, 9, 11])
def test_a_scale_of_half_the_size_breaks_the_bound(n_records):
    """The brute-force check sees a calibration that is wrong by a factor of two."""
    values = np.random.default_rng(n_records).integers(2, 8, n_records).tolist()
    setting = Setting("age", 10, Decimal("0.5"), 3)
    scales = calibration.joint_scales(statistics_of(values, 3, 1), setting, 1, 10) // 2
    changes = neighbours(values, range(10))
    assert (
        max(loss(values, changed, 3, scales, lambda c: oracle.trimmed_sum(c) << 10) for changed in changes)
        > 0.5
    )
