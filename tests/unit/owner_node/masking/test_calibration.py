"""Scales are integers, rounded up, and as small as the bound allows; the grid is public."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from common.errors import UnusableDataError, UsageError
from common.model.largest import joint_scale_bound, local_scale_bound
from owner_node.masking import mechanisms as calibration
from owner_node.masking.clusters import Setting, fraction_bits, multiply_up
from tests.fakes.records import statistics_of


def setting(n_values=1001, epsilon="1", k=5, g=1):
    """A setting with the parts that a test is about."""
    return Setting("age", n_values, Decimal(epsilon), k, g)


@pytest.mark.parametrize("epsilon", ["1", "0.333333333333", "0.07", "12.5"])
@pytest.mark.parametrize("n_records", [5, 9, 50, 103])
def test_joint_scales_hold_the_bound_and_no_smaller_ones_would(epsilon, n_records):
    """The losses of all rises add up to ε at most, and those of all falls; not with one unit less in each."""
    chosen = setting(epsilon=epsilon)
    values = np.sort(np.random.default_rng(n_records).integers(0, 1001, n_records))
    found = statistics_of(values, 5, 1)
    scales = calibration.joint_scales(found, chosen, 1, 8)
    losses = [
        [
            sum(Fraction(int(e) << 8, int(t) - less) for e, t in zip(moves, scales, strict=True))
            for moves in (found.rises(1, 1), found.falls(1, 1))
        ]
        for less in (0, 1)
    ]
    assert max(losses[0]) <= chosen.exact_epsilon < max(losses[1])


def test_no_variation_leaves_a_floor_of_one_unit_in_one_cluster():
    """An attribute without variation does not leave exactly."""
    scales = calibration.joint_scales(statistics_of([7] * 13, 5, 1), setting(epsilon="0.5"), 1, 3)
    # b = (1/5) / 0.5 units, on a grid of 1/8 unit, times 5 and 8 records.
    assert scales.tolist() == [16, 26]


def test_local_scales_are_the_farther_end_over_epsilon():
    """Proposition 8 on sums, with g records per person sharing epsilon."""
    found = statistics_of([0, 1, 2, 3, 4, 900, 901, 902, 903, 904], 5)
    scales = calibration.local_scales(found, setting(epsilon="0.3"), 0, 4)
    assert scales.tolist() == [-(-16 * 1000 * 10 // 3), -(-16 * 904 * 10 // 3)]
    shared = calibration.local_scales(found, setting(epsilon="0.3", g=2), 0, 4)
    assert shared.tolist() == [-(-2 * 16 * 1000 * 10 // 3), -(-2 * 16 * 904 * 10 // 3)]


def test_a_domain_of_one_value_still_has_a_positive_scale():
    """A scale is a positive integer even where nothing can move."""
    assert calibration.local_scales(statistics_of([0] * 5, 5), setting(1), 0, 0).tolist() == [1]


def test_the_bounds_hold_for_extreme_data():
    """The grid rests on public bounds of the scales: data at the ends of the domain must stay below them."""
    ends = np.repeat(np.array([0, 1000]), [10, 13])
    for g in (1, 2):
        chosen = setting(epsilon="0.01", g=g)
        for n_records in (5, 9, 23):
            found = statistics_of(ends[-n_records:], 5, g, g)
            joint = calibration.joint_scales(found, chosen, g, 6)
            assert joint.max() <= joint_scale_bound(chosen, g) << 6
            local = calibration.local_scales(found, chosen, 0, 6)
            assert local.max() <= local_scale_bound(chosen, 0) << 6


def test_fraction_bits_are_the_largest_that_fit():
    """2^f (2kV + 64 t) fits into 63 bits, and the next finer grid would not."""
    chosen = setting(n_values=2**35, k=50)
    largest_scale = 2**38
    bits = fraction_bits(chosen, largest_scale)
    widest = 2 * 50 * 2**35 + 64 * largest_scale
    assert 0 < bits < 20
    assert widest << bits < 2**63 <= widest << (bits + 1)
    assert fraction_bits(setting(), 1000) == 20


def test_a_domain_too_wide_is_refused_with_the_reason():
    """Sums that could pass 63 bits are an error before anything is drawn."""
    with pytest.raises(UnusableDataError, match="63 bits") as caught:
        fraction_bits(setting(n_values=2**60), 1)
    assert "fewer decimals" in caught.value.hint


@pytest.mark.parametrize(
    "factor",
    [Fraction(1), Fraction(3, 7), Fraction(2**20 * 10**12, 333333333333), Fraction(10**18, 10**6 + 1)],
)
def test_multiplying_by_a_fraction_is_exact_and_rounds_up(factor):
    """Scales are never smaller than the exact ones, and at most one unit larger."""
    largest = min(2**53, int((2**63 - 1) / factor))
    values = np.unique(np.concatenate([np.arange(10), np.linspace(0, largest, 50).astype(np.int64)]))
    expected = [-(-(int(value) * factor.numerator) // factor.denominator) for value in values]
    assert multiply_up(values, factor).tolist() == expected


def test_nothing_times_a_factor_wider_than_an_integer_is_nothing():
    """A domain of one value, ten records per person: the factor does not fit, and the scales are floors."""
    factor = Fraction(10 * 2**20 * 10**12, 333333333333)
    assert factor.numerator >= 2**63
    assert multiply_up(np.zeros(3, dtype=np.int64), factor).tolist() == [0, 0, 0]
    chosen = setting(1, epsilon="0.333333333333", g=10)
    assert calibration.local_scales(statistics_of([0] * 5, 5), chosen, 0, 20).tolist() == [1]


def test_an_epsilon_of_too_many_digits_is_refused():
    """Exactness has a limit that is said, not passed; the largest epsilon with 12 places is within it."""
    with pytest.raises(UsageError, match="too many digits"):
        setting(epsilon="1234567.123456789012345")
    assert setting(epsilon="999999.999999999999").exact_epsilon > 999_999
