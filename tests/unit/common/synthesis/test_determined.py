"""Attributes that noisy tables show to determine a category, against a search cell by cell."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from common.synthesis.binning import Binning
from common.synthesis.determined import with_determined
from common.synthesis.histogram import GRAIN, Histogram
from common.synthesis.schedule import Design
from common.synthesis.swaps import NoisyTable
from owner_node.synthesis.own_table import synthesise_together
from tests.fakes.bits import SeededBits

CAUSE = Attribute("cause", AttributeType.CATEGORY, 0, 3, categories=("none", "heart", "lung", "other"))
DEAD = Attribute("dead", AttributeType.BOOLEAN, 0, 1)


def binning(counts) -> Binning:
    """Bins of one value each."""
    size = len(counts)
    parts = Histogram(
        np.arange(size + 1), np.array(counts, dtype=np.int64) * GRAIN, np.zeros(size), np.ones(size)
    )
    return Binning(parts, np.arange(size), size)


def determines(table, first, second, variance: int) -> bool:
    """Add up cell by cell what the module's text compares."""
    cells = [
        (count, Fraction(of_first * of_second, sum(first)))
        for row, of_first in zip(table, first, strict=True)
        for place, (count, of_second) in enumerate(zip(row, second, strict=True))
        if place != row.index(max(row))
    ]
    squared = len(cells) * variance
    return (
        sum(expected for _, expected in cells) ** 2 >= 100 * squared
        and max(sum(count for count, _ in cells), 0) ** 2 <= 4 * squared
        and max(*(count for count, _ in cells), 0) ** 2 <= 16 * variance
    )


@given(
    st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 900)), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.integers(1, 20),
)
def test_determined_categories_against_a_search(noise, rows, categories, variance):
    """A record breaks a found rule exactly if its cell is not the largest of a bin that determines it."""
    table = [list(each) for each in noise]
    for row, (place, count) in zip(table, rows, strict=True):
        row[place] += count
    first = [count + 1 for _, count in rows]
    second = [1 + sum(count for place, count in rows if place == bin_) for bin_ in (0, 1)]
    second[0] += 1
    found = with_determined(
        [], [binning(first), binning(second)], categories, [NoisyTable((0, 1), np.array(table), variance)]
    )
    turned = [list(column) for column in zip(*table, strict=True)]
    excluded = np.zeros((3, 2), dtype=bool)
    if categories[1] and determines(table, first, second, variance):
        excluded = np.array([[place != row.index(max(row)) for place in (0, 1)] for row in table])
    elif categories[0] and determines(turned, second, first, variance):
        excluded = np.array([[place != row.index(max(row)) for place in (0, 1, 2)] for row in turned]).T
    breaking = [[any(rule[0][a] and rule[1][b] for rule in found) for b in (0, 1)] for a in (0, 1, 2)]
    assert np.array_equal(breaking, excluded)


def deaths(share: float) -> list[np.ndarray]:
    """Return causes, and deaths that contradict them in a share of the records."""
    draw = np.random.default_rng(1)
    cause = draw.choice(4, 6_000, p=[0.7, 0.15, 0.1, 0.05])
    return [cause, (cause > 0) ^ (draw.random(6_000) < share)]


@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_no_record_contradicts_what_no_original_does(delta):
    """Without a declared rule death and its cause agree; where a tenth disagrees, some records do."""
    found = []
    for share in (0, 0.1):
        columns = [each.astype(np.int64) for each in deaths(share)]
        design = Design((CAUSE, DEAD), 6_000, Decimal(1), Decimal(delta))
        cause, dead = synthesise_together(design, [columns], [SeededBits(1)]).codes
        found.append(np.mean((cause > 0) != dead))
    assert found[0] == 0
    assert found[1] == pytest.approx(0.1, abs=0.03)


def test_declared_rules_take_precedence():
    """What a table shows is ignored if no record could keep it and the declared rules."""
    declared = [{0: np.array([True, False]), 1: np.array([True, False])},
                {0: np.array([False, True]), 1: np.array([False, True])}]  # fmt: skip
    table = NoisyTable((0, 1), np.array([[500, 0], [0, 500]]), 1)
    both = [binning([500, 500])] * 2
    assert len(with_determined([], both, [True, True], [table])) == 2
    assert with_determined(declared, both, [True, True], [table]) == declared
