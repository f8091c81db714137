"""Records of a model: every cell has as many as it says, to whole numbers; the same bytes everywhere."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from common.synthesis.model import Measurement, fit
from common.synthesis.rounds import GRAIN, Coding, Leaves, impossible_cells
from common.synthesis.sample import (
    MOST_RECORDS,
    WEIGHT_BITS,
    Keystream,
    draw_cells,
    draw_records,
    draw_values,
)
from tests.fakes.bits import SeededBits
from tests.fakes.synthetic_owners import synthetic_release


def coding(edges, counts, labels) -> Coding:
    """Return bins of leaves with these counts of records."""
    known = np.array(counts, dtype=np.float64)
    leaves = Leaves(np.array(edges), np.array(counts) * GRAIN, known, np.ones(known.size))
    return Coding(leaves, np.array(labels), max(labels) + 1)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=3).filter(
        lambda rows: all(map(any, rows))
    ),
    st.lists(st.integers(0, 2), max_size=200),
    st.integers(0, 99),
)
def test_cells_get_their_share(weights, groups, seed):
    """Of m records of a group a cell of share p gets floor(m p) or ceil(m p); all are given out."""
    group = np.array([each % len(weights) for each in groups], dtype=np.int64)
    cells = draw_cells(np.array(weights), group, Keystream(bytes([seed])))
    for i, row in enumerate(weights):
        counts = np.bincount(cells[group == i], minlength=4)
        expected = np.array(row) * counts.sum() / sum(row)
        assert counts.sum() == np.count_nonzero(group == i)
        assert np.all(np.abs(counts - expected) < 1)


def test_shares_are_right_in_the_mean():
    """Over many seeds every record of a group is as likely to be in a cell as its share says."""
    weights, group = np.array([[1, 2, 4], [5, 1, 1]]), np.array([0, 0, 0, 1, 1])
    drawn = np.array([draw_cells(weights, group, Keystream(seed.to_bytes(4))) for seed in range(6000)])
    for record, row in enumerate(weights[group]):
        shares = np.bincount(drawn[:, record], minlength=3) / len(drawn)
        assert np.allclose(shares, row / row.sum(), atol=0.025)


def test_the_most_records_of_the_largest_weights():
    """Products stay below 2^63."""
    weights = np.array([[2 ** (WEIGHT_BITS - 1), 2 ** (WEIGHT_BITS - 1)]])
    cells = draw_cells(weights, np.zeros(MOST_RECORDS, dtype=np.int64), Keystream(b""))
    assert np.bincount(cells).tolist() == [MOST_RECORDS // 2] * 2


def test_values_lie_in_their_bins():
    """By the counts of the leaves; a bin without counts is filled evenly; within a leaf all values occur."""
    bins = coding([0, 10, 11, 40, 60, 100], [30, 10, 0, 0, 5], [0, 0, 1, 1, 2])
    records = np.repeat([0, 1, 2], [400, 980, 300])
    values = draw_values(bins, records, Keystream(b"seed"))
    assert np.array_equal(bins.bins(values), records)
    assert np.count_nonzero(values == 10) == 100
    assert np.count_nonzero((values >= 11) & (values < 40)) == pytest.approx(980 * 29 / 49, abs=1)
    assert np.unique(values[records == 2]).size == 40


def test_wide_domains():
    """2^40 values."""
    values = draw_values(coding([0, 2**40], [7], [0]), np.zeros(1000, dtype=np.int64), Keystream(b""))
    assert values.min() >= 0
    assert 2**39 < values.max() < 2**40


def test_the_same_bytes_everywhere():
    """Records are a function of model and seed: these are some, which no version of a library may change."""
    sizes = (2, 3)
    counts = np.array([50.0, 20, 10, 3, 7, 10])
    model = fit(sizes, [Measurement((0, 1), counts, np.ones(6))], 100)
    codings = [coding([0, 1, 2], [80, 20], [0, 1]), coding([0, 10, 20, 50], [53, 27, 20], [0, 1, 2])]
    codes = draw_records(model, codings, 1000, Keystream(b"seed"))
    again = draw_records(model, codings, 1000, Keystream(b"seed"))
    other = draw_records(model, codings, 1000, Keystream(b"other"))
    assert all(map(np.array_equal, codes, again))
    assert not all(map(np.array_equal, codes, other))
    table = np.bincount(codes[0] * 3 + codings[1].bins(codes[1]))
    assert np.allclose(table, 10 * counts, atol=3)
    digest = sha256(b"".join(each.astype("<i8").tobytes() for each in codes)).hexdigest()
    assert digest == "f403d33eb1470a08c7808cc0a16194a4a5f3ba79e27076b56a5932055f852d6f"


def number(name: str, upper: int) -> Attribute:
    """A number from 0 on."""
    return Attribute(name, AttributeType.INTEGER, 0, upper)


LABELS = tuple("abcdefghijklmnopqrstuvwxyz")
ATTRIBUTES = (
    number("age", 100),
    Attribute("job", AttributeType.CATEGORY, 0, 25, categories=LABELS),
    number("income", 10**6),
    Attribute("ill", AttributeType.BOOLEAN, 0, 1),
)
RULES = (
    {0: [(0, 17)], 1: [(3, 5), (20, 20)]},
    {0: [(0, 15)], 2: [(1, 10**6)]},
    {2: [(123_457, 10**6)], 3: [(1, 1)]},
)


def records(n_records: int, seed: int) -> list[np.ndarray]:
    """Return records that no rule excludes."""
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 101, n_records)
    job = np.minimum(draw.geometric(0.2, n_records) - 1, 25)
    income = np.minimum(np.exp(draw.normal(10, 1, n_records)), 10**6).astype(np.int64)
    ill = draw.integers(0, 2, n_records)
    job[(age <= 17) & np.isin(job, [3, 4, 5, 20])] = 0
    income[age <= 15] = 0
    ill[income >= 123_457] = 0
    return [each.astype(np.int64) for each in (age, job, income, ill)]


@pytest.mark.parametrize("delta", ["0", "0.00001"])
@pytest.mark.parametrize(("n_records", "owners"), [(20_000, 1), (20_000, 3), (300, 1)])
def test_structural_zeros_hold_in_every_record(delta, n_records, owners):
    """Also where a rule ends within a part of a wide domain, or excludes some of the rare categories."""
    parts = [records(n_records // owners, seed) for seed in range(owners)]
    sources = [SeededBits(seed) for seed in range(owners)]
    made = synthetic_release(ATTRIBUTES, parts, "1", delta, sources, RULES)
    assert all(each.size == n_records // owners * owners for each in made.codes)
    for rule in RULES:
        excluded = np.ones(made.codes[0].size, dtype=np.bool_)
        for attribute, ranges in rule.items():
            codes = made.codes[attribute]
            excluded &= np.any([(codes >= first) & (codes <= last) for first, last in ranges], axis=0)
        assert not excluded.any()
    zeros = impossible_cells(made.measured.codings, RULES)
    assert all(zero.cells.any() and not zero.cells.all() for zero in zeros)
    for each, codes in zip(ATTRIBUTES, made.codes, strict=True):
        assert codes.min() >= 0
        assert codes.max() < each.n_values


@pytest.mark.parametrize(
    "attributes",
    [
        (number("age", 100),),
        (number("constant", 0), number("age", 100)),
        (number("wide", 2**40),),
        (number("constant", 0),),
    ],
    ids=lambda each: "-".join(one.name for one in each),
)
@pytest.mark.parametrize("n_records", [1, 5000])
def test_small_and_odd_tables(attributes, n_records):
    """One attribute, an attribute of one value, a domain of 2^40, one record."""
    draw = np.random.default_rng(1)
    columns = [draw.integers(0, each.n_values, n_records) for each in attributes]
    made = synthetic_release(attributes, [columns], "1", "0", [SeededBits(1)])
    assert all(each.size == n_records for each in made.codes)
    assert all(
        codes.min() >= 0 and codes.max() < each.n_values
        for codes, each in zip(made.codes, attributes, strict=True)
    )


def test_relations_are_kept():
    """With much ε the relation of two attributes is nearly that of the records."""
    draw = np.random.default_rng(2)
    one = draw.integers(0, 10, 20_000)
    other = np.where(draw.random(20_000) < 0.7, one, draw.integers(0, 10, 20_000))
    made = synthetic_release(
        (number("one", 9), number("other", 9)), [[one, other]], "50", "0", [SeededBits(3)]
    )
    before, after = (np.bincount(10 * a + b, minlength=100) for a, b in ((one, other), made.codes))
    assert np.abs(before - after).sum() / 40_000 < 0.01
