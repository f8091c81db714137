"""The papers' data sets as they state them: numbers of records, domains, classes."""

import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from common.model.schema import TaxonomyMethod
from owner_node.risk.measures import relative_error
from tests.papers import data_sets
from tests.papers.in_process import Setting
from tests.papers.relative import ALL, OURS
from tests.papers.relative_adult import NAMES, masked, ready

pytestmark = pytest.mark.needs("data")


@pytest.fixture
def data():
    """The folder of the published files."""
    return Path(os.environ["TESSERA_DATA"])


def within(one):
    """Whether every value lies in its declared domain."""
    return all(
        a.lower <= int(one.columns[a.name].min()) and int(one.columns[a.name].max()) <= a.upper
        for a in one.attributes
    )


def test_fragmented_data(data):
    """Adult: 45,222 complete records, ten attributes. Wine: 6,497, eleven, domains of twice the maximum."""
    adult, wine = data_sets.adult(data, "frequency"), data_sets.wine(data)
    assert (adult.n_records, len(adult.attributes), wine.n_records, len(wine.attributes)) == (
        45_222,
        10,
        6_497,
        11,
    )
    assert within(adult)
    assert within(wine)
    assert [a.by_frequency for a in adult.attributes].count(True) == 8
    for attribute in wine.attributes:
        assert attribute.upper == pytest.approx(2 * int(wine.columns[attribute.name].max()), rel=1e-6)


@pytest.mark.parametrize("alpha", ["1.5", "3"])
def test_unbounded_attributes(data, alpha):
    """Census has 1,080 records, white wine 4,898, with domains of α times the maximum; 3.6 times as many
    wines are not excellent as are.
    """
    census, wine = data_sets.census(data, alpha), data_sets.white_wine(data, alpha)
    assert (census.n_records, len(census.attributes), wine.n_records) == (1_080, 9, 4_898)
    assert len(data_sets.census(data, alpha, ALL).attributes) == 13
    for one in (census, wine):
        assert within(one)
        for attribute in one.attributes:
            largest = int(one.columns[attribute.name].max())
            assert 0 <= attribute.upper - float(alpha) * largest < 1
    assert wine.above is not None
    assert np.count_nonzero(wine.above == 0) / np.count_nonzero(wine.above) == pytest.approx(3.6, abs=0.05)


def test_ways_of_masking_adult_are_compared_alike(data):
    """Whether categories are drawn or masked in the order of their taxonomy, the same error is the same
    number; and without much noise the latter leaves them nearly as they are.
    """
    drawn, in_order = (ready(data, each) for each in (TaxonomyMethod.EXPONENTIAL, TaxonomyMethod.RANK))
    random = np.random.default_rng(1)
    columns = masked(in_order, Setting(OURS, Decimal(10_000), 3), random)
    for name, one, other, column in zip(NAMES, drawn, in_order, columns, strict=True):
        original = one.own.original
        assert np.array_equal(original, other.own.original)
        mixed = random.permutation(original)
        error = relative_error(one.own.scale, original, mixed)
        assert error == pytest.approx(relative_error(other.own.scale, original, mixed))
        assert relative_error(other.own.scale, original, column) < 0.02 * error, name
