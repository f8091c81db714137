"""Summaries of released columns against counting record by record."""

from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType, to_units
from common.release.column_summary import MOST_BINS, MOST_LABELS, ColumnSummaries
from common.workspace import Workspace
from tests.fakes.releases import ATTRIBUTES, random_columns

NUMERIC = [
    *(each for each in ATTRIBUTES if not each.is_categorical),
    Attribute("quarters", AttributeType.NUMBER, -4000, 40_000, 2, step=25),
]
LABELLED = Attribute("town", AttributeType.CATEGORY, 0, 99, categories=tuple(f"t{i}" for i in range(100)))


def summary_of(attribute, units, pieces=3, memory=1 << 30, scratch=Path("unused")):
    """Summarise units that come in several pieces."""
    with ColumnSummaries((attribute,), Workspace(memory, scratch)) as summaries:
        for part in np.array_split(np.asarray(units, dtype=np.int64), pieces):
            summaries.add({attribute.name: part})
        return summaries.finish()[attribute.name]


@pytest.mark.parametrize("attribute", NUMERIC, ids=lambda each: each.name)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 400), spread=st.floats(1e-9, 1))
def test_numbers_are_counted_as_one_by_one(attribute, seed, size, spread):
    """Quartiles, ends and bins are those that counting one record after the other gives."""
    rng = np.random.default_rng(seed)
    units = random_columns(rng, (attribute,), size)[attribute.name]
    units = attribute.lower + ((units - attribute.lower) * spread).astype(np.int64)
    found, ordered = summary_of(attribute, units), sorted(map(int, units))
    facts = dict(found.facts)
    assert facts["lowest"] == attribute.text(ordered[0])
    assert facts["highest"] == attribute.text(ordered[-1])
    for name, share in (("25 % up to", 0.25), ("median", 0.5), ("75 % up to", 0.75)):
        smallest = next(v for v in ordered if bisect_right(ordered, v) >= share * size)
        assert facts[name] == attribute.text(smallest)
    assert found.different == len(set(ordered))
    assert len(found.bins) <= MOST_BINS
    assert sum(records for _, records in found.bins) == size
    written = [each.replace(",", "") for each in found.edges]
    edges = [to_units(attribute.type, each, attribute.decimals, attribute.step) for each in written]
    assert edges == sorted(set(edges))
    inside = [sum(low <= v < high for v in ordered) for low, high in pairwise(edges)]
    outside = size - sum(inside)
    assert found.outside == outside <= size // 100 + 1
    assert [records for _, records in found.bins][1:-1] == inside[1:-1]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 3000),
    different=st.sampled_from([1, 7, 500, 10**9]),
    pieces=st.integers(1, 40),
)
def test_memory_and_pieces_do_not_show(tmp_path_factory, seed, size, different, pieces):
    """With memory for a few values the others go to the scratch folder, and the summary stays the same."""
    attribute = Attribute("x", AttributeType.NUMBER, -(10**9), 10**9, decimals=2)
    units = np.random.default_rng(seed).integers(-different, different, size)
    scratch = tmp_path_factory.getbasetemp() / "scratch"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("common.release.column_summary._FEWEST_VALUES", 40)
        patch.setattr("common.runs._FEWEST_RECORDS", 8)
        found = summary_of(attribute, units, pieces, memory=0, scratch=scratch)
    assert found == summary_of(attribute, units, 1)
    assert list(scratch.glob("*")) == []


def test_far_values_do_not_flatten_the_picture():
    """One value a million times larger leaves the bins where the records are, and is said to be outside."""
    attribute = Attribute("x", AttributeType.NUMBER, 0, 10**9, decimals=1)
    found = summary_of(attribute, [*range(500), 10**9])
    assert found.outside == 1
    assert sum(records > 0 for _, records in found.bins) > 20
    assert dict(found.facts)["highest"] == "100000000.0"


def test_means_are_means():
    """The mean of numbers has one decimal place more than they, that of dates is a date."""
    money = Attribute("x", AttributeType.NUMBER, 0, 1000, decimals=1)
    assert dict(summary_of(money, [1, 2, 2]).facts)["mean"] == "0.17"
    day = Attribute("d", AttributeType.DATE, 0, 1000)
    assert dict(summary_of(day, [0, 1, 5]).facts)["mean"] == "1970-01-03"


def test_dates_up_to_the_last_there_is():
    """9999-12-31 stands for "never" in many data sets: bins that end after it have edges, too."""
    first, last = (to_units(AttributeType.DATE, day) for day in ("1900-01-01", "9999-12-31"))
    attribute = Attribute("d", AttributeType.DATE, first, last)
    found = summary_of(attribute, [*range(first, first + 70), *[last] * 30])
    assert dict(found.facts)["highest"] == "9999-12-31"
    assert found.edges[0] == "1900-01-01"
    year, month, day = map(int, found.edges[-1].split("-"))
    # The calendar of 400 years earlier is the same.
    counted = to_units(AttributeType.DATE, f"{year - 400}-{month:02}-{day:02}") + 146_097
    assert (year > 9999, (counted - first) % (len(found.bins))) == (True, 0)
    assert (found.bins[0][1], found.bins[-1][1], found.outside) == (70, 30, 0)
    assert found.bins[-1][0].endswith("to 9999-12-31")


def test_all_64_bit_integers():
    """The ends of 64-bit integers are counted where they are, and their mean lies between them."""
    lowest, highest = -(2**63), 2**63 - 1
    attribute = Attribute("x", AttributeType.INTEGER, lowest, highest)
    found = summary_of(attribute, [*[lowest] * 5, *[0] * 3, *[highest] * 7])
    counted = [records for _, records in found.bins]
    assert (counted[0], counted[-1], sum(counted), found.outside) == (5, 7, 15, 0)
    assert dict(found.facts)["mean"] == "1229782938247303440.6"
    assert dict(summary_of(attribute, [highest] * 9).facts)["mean"] == f"{highest}.0"


def test_few_whole_numbers_are_shown_one_by_one():
    """An attribute of few values has a bar for each."""
    found = summary_of(Attribute("n", AttributeType.INTEGER, 0, 50), [3, 3, 4, 6])
    assert list(found.bins) == [("3", 2), ("4", 1), ("5", 0), ("6", 1)]


def test_labels_by_frequency_with_the_rest_counted():
    """The most frequent categories are shown, ties as declared; nothing that is left out is lost."""
    units = np.repeat(np.arange(100), np.r_[np.full(10, 3), np.full(90, 2)])
    found = summary_of(LABELLED, np.random.default_rng(1).permutation(units))
    assert [label for label, _ in found.bins] == [f"t{i}" for i in range(MOST_LABELS)]
    assert (found.different, found.other_labels, found.other_records) == (100, 80, 160)
    assert sum(records for _, records in found.bins) + found.other_records == units.size
    assert (found.facts, found.edges) == ((), ())


def test_ordered_labels_keep_their_order():
    """Where the declared order means something, and for booleans, the bars are in it."""
    ordered = Attribute("s", AttributeType.CATEGORY, 0, 2, categories=("low", "mid", "high"), ordered=True)
    assert [label for label, _ in summary_of(ordered, [2, 2, 0, 1, 2]).bins] == ["low", "mid", "high"]
    boolean = Attribute("b", AttributeType.BOOLEAN, 0, 1)
    assert [label for label, _ in summary_of(boolean, [1, 1, 0]).bins] == ["false", "true"]


@pytest.mark.parametrize("attribute", [each for each in NUMERIC if each.name != "dose"], ids=lambda e: e.name)
def test_missing_values_are_counted_apart(attribute):
    """All other figures are those of the present values; where there are none, the missing ones are all."""
    kept = replace(attribute, keeps_missing=True)
    units = random_columns(np.random.default_rng(1), (attribute,), 500)[attribute.name]
    present, found = summary_of(attribute, units), summary_of(kept, np.append(units, [kept.highest] * 70))
    assert found.facts == (*present.facts, ("missing", "70"))
    assert replace(found, facts=present.facts, different=present.different) == present
    assert summary_of(kept, [kept.highest] * 9).bins == (("(missing)", 9),)
