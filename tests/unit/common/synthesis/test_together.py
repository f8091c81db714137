"""Two attributes that are counted as one: nothing mixes values of the second one, and records have both."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import IntegrityError
from common.model.schema import Attribute, AttributeType
from common.model.together import (
    Joint,
    fault_of_together,
    joint_of,
    joint_ranges,
    modelled,
    modelled_pairs,
    released_units,
    to_codes,
)
from common.release.counts import bin_texts, check_drawn, counts_table, leaf_texts
from common.synthesis.binning import binning_of, separated
from common.synthesis.histogram import GRAIN, first_edges, histogram_of, next_edges, stands_alone
from common.synthesis.records import synthesise
from common.synthesis.schedule import Design
from tests.unit.common.analysis.test_noisy_counts import counted

DAYS = Attribute("days", AttributeType.INTEGER, 0, 1999)
DEAD = Attribute("dead", AttributeType.BOOLEAN, 0, 1)
AGE = Attribute("age", AttributeType.INTEGER, 50, 99)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b|c", "d"))
COST = Attribute("cost", AttributeType.NUMBER, 0, 900, 1, keeps_missing=True, spikes=(0,))
AMOUNT = Attribute("amount", AttributeType.INTEGER, 1, 5000, is_logarithmic=True)
SECONDS = (DEAD, WARD, Attribute("grade", AttributeType.INTEGER, 3, 7))


def joints() -> st.SearchStrategy[Joint]:
    """Return joint attributes of all kinds."""
    firsts = (DAYS, AGE, replace(WARD, name="clinic"), COST, AMOUNT)
    return st.builds(joint_of, st.sampled_from(firsts), st.sampled_from(SECONDS))


@given(joints(), st.integers(0, 2**32))
def test_records_have_both_again(joint, seed):
    """What is counted as one is released as two, every combination its own."""
    codes = np.random.default_rng(seed).integers(0, joint.n_values, 50)
    units = released_units([joint], [codes])
    for part in joint.parts:
        assert ((units[part.name] >= part.lower) & (units[part.name] <= part.highest)).all()
    assert np.array_equal(to_codes([joint], units)[0], codes)


@given(joints(), st.integers(20, 10**6), st.floats(1, 10**5), st.integers(2, 64), st.integers(0, 2**32))
@settings(deadline=None)
def test_no_part_and_no_bin_mixes_values_of_the_second(joint, n_records, variance, most, seed):
    """So a table of bins says how many have each value of it, whatever the noise."""
    draw, size = np.random.default_rng(seed), joint.first.n_values
    edges = first_edges(joint, n_records, variance, 2)
    for _ in range(2):
        noisy = np.rint(draw.normal(n_records / (edges.size - 1), variance**0.5, edges.size - 1))
        histogram = histogram_of(joint, edges, noisy.astype(np.int64), n_records, variance)
        assert int(histogram.counts.sum()) == n_records * GRAIN
        assert ((edges[:-1] // size) == ((edges[1:] - 1) // size)).all()
        assert np.count_nonzero(stands_alone(joint, edges)) >= len(joint.alone)
        parts, sides = separated(histogram, 0, [])
        binning = binning_of(joint, parts, most, variance, sides)
        blocks = np.unique(np.stack([binning.labels, edges[:-1] // size]), axis=1)[0]
        assert np.unique(blocks).size == blocks.size == binning.n_bins
        assert len(bin_texts(joint, binning)) == len(set(bin_texts(joint, binning))) == binning.n_bins
        assert len(set(leaf_texts(joint, edges))) == edges.size - 1
        if joint.is_categorical:
            break
        edges = next_edges(joint, histogram)


def test_rules_hold_in_the_blocks_that_they_are_about():
    """A rule about one of both is about all values of the other; one about both about their combinations."""
    counted_as = modelled((AGE, DAYS, DEAD), [("days", "dead")])
    assert [each.name for each in counted_as] == ["age", "days:dead"]
    assert joint_ranges({"dead": [(1, 1)]}, counted_as) == {1: [(2000, 3999)]}
    both = joint_ranges({"days": [(0, 5)], "age": [(1, 2)]}, counted_as)
    assert both == {0: [(1, 2)], 1: [(0, 5), (2000, 2005)]}
    assert joint_ranges({"days": [(0, 5)], "dead": [(1, 1)]}, counted_as) == {1: [(2000, 2005)]}


def test_named_pairs_are_those_of_the_joint_attribute():
    """A pair with either of both is a pair with both, and is counted once."""
    counted_as = modelled((AGE, DAYS, WARD, DEAD), [("days", "dead")])
    assert modelled_pairs(counted_as, [("age", "days"), ("age", "dead")]) == (("age", "days:dead"),)
    assert len(modelled_pairs(counted_as, [])) == 3


@pytest.mark.parametrize(
    ("together", "said"),
    [
        ([("days", "died")], "not counted cannot be counted together: died; counted are age"),
        ([("days", "dead"), ("age", "dead")], "'dead' can be counted together with one other"),
        ([("days", "dead"), ("dead", "ward")], "'dead' can be counted together with one other"),
        ([("dead", "days")], "'days' has 2,000 values: of two attributes .* at most 16"),
        ([("days", "ward")], "'days' and 'ward' are at different owners"),
        ([("code", "dead")], "'code' and 'dead' have 6,000 combinations of labels, at most 4,096"),
        ([("age", "dead")], "named 'age:dead'"),
        ([("part", "part:b"), ("part:part", "b")], "named 'part:part:b'"),
        ([("alike", "too")], "two combinations of labels of 'alike' and 'too' read alike"),
    ],
)
def test_attributes_that_cannot_be_counted_together(together, said):
    """Each is named with what stands against it."""
    code = Attribute("code", AttributeType.CATEGORY, 0, 2999, categories=tuple(map(str, range(3000))))
    odd = [replace(DEAD, name=name) for name in ("part", "part:b", "part:part", "b")]
    labelled = [
        Attribute(name, AttributeType.CATEGORY, 0, 1, categories=labels)
        for name, labels in (("alike", ("x", "x, y")), ("too", ("z", "y, z")))
    ]
    attributes = (AGE, DAYS, DEAD, WARD, code, replace(AGE, name="age:dead"), *odd, *labelled)
    groups = {each.name: int(each.name == "ward") for each in attributes}
    with pytest.raises(AssertionError, match=said):
        assert not fault_of_together(together, attributes, groups)


def people(n: int) -> dict[str, np.ndarray]:
    """Return values in units of a cohort in which the old die early."""
    draw = np.random.default_rng(3)
    age = draw.integers(50, 100, n)
    dies = 100 + draw.exponential(6000 * np.exp(-0.06 * (age - 75)))
    ends = draw.integers(800, 2000, n)
    days = np.minimum(dies, ends).astype(np.int64)
    return {"age": age, "days": days, "dead": (dies < ends).astype(np.int64), "ward": draw.integers(0, 3, n)}


@pytest.mark.parametrize("epsilon", ["1", "20"])
def test_records_follow_from_the_counts_of_both(epsilon):
    """They are made again from the published table, keep rules, and have as many dead as were counted."""
    n_records, released = 6000, (AGE, DAYS, DEAD, WARD)
    attributes = modelled(released, [("days", "dead")])
    rule = joint_ranges({"dead": [(1, 1)], "days": [(0, 99)]}, attributes)
    design = Design(attributes, n_records, Decimal(epsilon), Decimal("0.000001"), rules=(rule,))
    assert len(design.pairs) == 3
    values = people(n_records)
    counts = counted(design, to_codes(attributes, values), np.random.default_rng(5))
    made = synthesise(counts.measured)
    units = made.units
    assert set(units) == set(values)
    assert not ((units["dead"] == 1) & (units["days"] < 100)).any()
    assert units["dead"].mean() == pytest.approx(values["dead"].mean(), abs=0.03)
    early = [own["dead"][own["age"] > 90].mean() for own in (units, values)]
    assert early[0] == pytest.approx(early[1], abs=0.2)
    table, seed = counts_table(counts.measured), counts.measured.seed.hex()
    check_drawn(design, seed, table, to_codes(attributes, units))
    units["dead"][0] = 1 - units["dead"][0]
    with pytest.raises(IntegrityError, match="days:dead"):
        check_drawn(design, seed, table, to_codes(attributes, units))


def test_a_design_states_as_many_counts_as_are_asked():
    """Blocks cut bins, which the largest answer allows for."""
    attributes = modelled((AGE, COST, WARD), [("cost", "ward")])
    design = Design(attributes, 3000, Decimal(8), Decimal("0.000001"))
    draw = np.random.default_rng(1)
    values = {
        "age": draw.integers(50, 100, 3000), "cost": draw.integers(0, 902, 3000),
        "ward": draw.integers(0, 3, 3000),
    }  # fmt: skip
    measured = counted(design, to_codes(attributes, values), draw).measured
    assert all(
        binning.n_bins <= design.largest_binning(place) for place, binning in enumerate(measured.binnings)
    )
