"""Measures of utility against hand-computed examples and naive definitions."""

from decimal import Decimal
from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking.tasks import frequency_order
from owner_node.risk.measures import (
    OTHERS,
    attribute_sse,
    correlation_error,
    correlations,
    distribution,
    divergence,
    histogram,
    mean_sse,
    mean_sse_of_means,
    relative_error,
    scale_of,
    variance_change,
)
from owner_node.risk.utility import Estimate, estimate, share
from tests.oracles import explore as oracle

AGE = Attribute("age", AttributeType.INTEGER, 0, 100)
LABELS = tuple("abcd")
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 3, categories=LABELS)
GRADE = Attribute("grade", AttributeType.CATEGORY, 0, 3, categories=LABELS, ordered=True)
TOWN = Attribute("town", AttributeType.CATEGORY, 0, 3, categories=LABELS, order=CategoryOrder.FREQUENCY)
SMALL = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=20)


def units(*values):
    """Values as the program holds them."""
    return np.array(values, dtype=np.int64)


def test_error_by_hand():
    """Of two attributes one is changed by 1 and 3 with sample variance 2: (1 + 9)/(2·2)/2² = 5/8."""
    original = units(10, 12)
    scale = scale_of(AGE, original)
    assert scale.spread == 2
    error = attribute_sse(scale, original, units(11, 15))
    assert error == pytest.approx(2.5)
    assert mean_sse([error, 0.0]) == pytest.approx(0.625)


def test_means_are_one_over_the_number_of_attributes():
    """Every value replaced by its mean has mean SSE 1/l, but for the sample variance's (n-1)/n."""
    original = units(*range(101))
    error = attribute_sse(scale_of(AGE, original), original, np.full(101, 50))
    assert mean_sse([error] * 4) == pytest.approx(100 / 101 / 4)


def test_attribute_without_variation():
    """It counts 0 if it is unchanged, and is reported instead of counted otherwise."""
    same = units(5, 5, 5)
    scale = scale_of(AGE, same)
    assert attribute_sse(scale, same, same) == 0
    assert attribute_sse(scale, same, units(5, 5, 6)) is None
    assert mean_sse([None, 1.0]) == 0.25
    assert mean_sse_of_means([scale, scale_of(AGE, units(5, 6))]) == 0.25
    assert variance_change(scale, same, units(5, 5, 6)) is None
    assert variance_change(scale, same, same) == 0


def test_categories_by_frequency():
    """Their difference is that of places by frequency in the original data: d, b, a, c here."""
    original = units(3, 3, 3, 1, 1, 0)
    scale = scale_of(TOWN, original, frequency_order(original, 4))
    assert scale.places(units(3, 1, 0, 2)).tolist() == [0, 1, 2, 3]
    assert scale.squared_differences(units(3, 3), units(1, 2)).tolist() == [1, 9]


def test_relative_errors_by_hand():
    """Numbers by their size, not below 1 % of the domain; categories by 0 and 1, or by their order."""
    original = units(50, 0)
    assert relative_error(scale_of(AGE, original), original, units(60, 1)) == pytest.approx((0.2 + 1) / 2)
    changed = units(1, 0, 3)
    assert relative_error(scale_of(WARD, units(1, 2, 3)), units(1, 2, 3), changed) == pytest.approx(1 / 3)
    assert relative_error(scale_of(GRADE, units(1, 2, 3)), units(1, 2, 3), changed) == pytest.approx(2 / 9)


def test_variance_by_hand():
    """From variance 2 to variance 8 is a change by 3 times."""
    assert variance_change(scale_of(AGE, units(10, 12)), units(10, 12), units(8, 12)) == pytest.approx(3)


def test_wide_domains_have_a_hundred_bins():
    """A hundredth of the domain each; a domain of few values has one bin per value."""
    income = Attribute("income", AttributeType.NUMBER, -500, 499_499, decimals=2)
    counts = histogram(income, units(-500, 4499, 4500, 499_499))
    assert (counts.size, counts[0], counts[1], counts[99]) == (100, 2, 1, 1)
    assert histogram(GRADE, units(0, 3, 3)).tolist() == [1, 0, 0, 2]


@given(SMALL)
def test_divergence_as_defined(pairs):
    """The divergence of histograms is the difference of entropies; 0 for equal ones, 1 for disjoint ones."""
    first, second = ([pair[side] % 7 for pair in pairs] for side in (0, 1))
    counts = [np.bincount(values, minlength=7) for values in (first, second)]
    assert divergence(*counts) == pytest.approx(oracle.divergence(first, second), abs=1e-12)
    assert divergence(counts[0], counts[0]) == 0
    assert divergence(units(3, 0), units(0, 9)) == pytest.approx(1)


@given(SMALL)
def test_correlations_as_defined(pairs):
    """All pairs of attributes, in order; 0 with an attribute that does not vary."""
    columns = [[float(pair[0]) for pair in pairs], [float(pair[1]) for pair in pairs], [1.0] * len(pairs)]
    found = correlations(np.column_stack(columns))
    assert found == pytest.approx([oracle.correlation(columns[0], columns[1]), 0, 0], abs=1e-9)
    assert correlation_error(found, found) == 0
    assert correlation_error(units(), units()) is None


def test_intervals_of_estimates():
    """Student's for repetitions (1, 2, 3: 2 ± 4.303/√3), none for a single one; Wilson's for shares."""
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None
    assert isclose(found.high, 2 + 4.302653 / 3**0.5, rel_tol=1e-6)
    assert estimate([2.0]) == Estimate(2, 2, 2)
    assert estimate([float("inf")]) is None
    half = share([0.5], 100)
    assert (half.low, half.high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert share([0.0], 100).high == pytest.approx(0.0370, abs=1e-4)
    assert share([0.0, 1.0], 100).low == 0


def test_bars_hold_every_record():
    """Distributions before and after have the same bars, and every record is in one, the rarest together."""
    many = Attribute("code", AttributeType.CATEGORY, 0, 59, categories=tuple(f"c{n}" for n in range(60)))
    original = np.repeat(np.arange(60), np.arange(60, 0, -1))
    found = distribution(many, original, original[::-1])
    assert (len(found["bins"]), found["bins"][0], found["bins"][-1]) == (40, "c0", OTHERS)
    assert sum(found["original"]) == sum(found["masked"]) == original.size
    price = Attribute("price", AttributeType.NUMBER, 0, 10_000, decimals=2)
    found = distribution(price, units(100, 250), units(101, 251))
    assert sum(found["original"]) == 2
    assert found["bins"][0] == f"{Decimal('1.00')} … {Decimal('1.03')}"
