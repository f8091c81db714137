"""Records of noisy counts: values, relations, rules; the same bytes everywhere."""

from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from common.synthesis.binning import Binning
from common.synthesis.histogram import GRAIN, Histogram
from common.synthesis.keystream import Keystream
from common.synthesis.records import SyntheticRelease, synthesise
from common.synthesis.sample import MOST_RECORDS, draw_values, start_bins
from common.synthesis.schedule import METHOD, Design, n_numbers, run_rounds
from owner_node.synthesis.counts import exact_answer
from tests.fakes.bits import SeededBits
from tests.fakes.synthetic_owners import synthetic_release


def binning(edges, counts, labels) -> Binning:
    """Return bins of parts with these counts of records."""
    known = np.array(counts, dtype=np.float64)
    histogram = Histogram(np.array(edges), np.array(counts) * GRAIN, known, np.ones(known.size))
    return Binning(histogram, np.array(labels), max(labels) + 1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any), st.integers(0, 200))
def test_bins_and_values_get_their_share(counts, n_records):
    """Of n records a bin of share p gets floor(n p) or ceil(n p), and so does a part within a bin."""
    size = len(counts)
    own = binning(range(size + 1), counts, range(size))
    bins = start_bins(own, n_records, Keystream(b"seed"))
    together = binning(range(size + 1), counts, [0] * size)
    values = draw_values(together, np.zeros(n_records, dtype=np.int64), Keystream(b"seed"))
    for drawn in (bins, values):
        expected = np.array(counts) * n_records / sum(counts)
        assert drawn.size == n_records
        assert np.all(np.abs(np.bincount(drawn, minlength=size) - expected) < 1)


def test_shares_are_right_in_the_mean():
    """Over many seeds every record is as likely to get a bin, or a value within it, as the shares say."""
    own, together = (binning(range(4), [1, 2, 4], labels) for labels in ([0, 1, 2], [0, 0, 0]))
    streams = [Keystream(seed.to_bytes(4)) for seed in range(4000)]
    zeros = np.zeros(3, dtype=np.int64)
    for drawn in (
        np.array([start_bins(own, 3, stream) for stream in streams]),
        np.array([draw_values(together, zeros, stream) for stream in streams]),
    ):
        shares = np.apply_along_axis(np.bincount, 0, drawn, minlength=3) / len(streams)
        assert np.allclose(shares.T, np.array([1, 2, 4]) / 7, atol=0.03)


def test_the_most_records_of_the_widest_domain():
    """Products stay below 2^63."""
    wide = binning([0, 2**61, 2**62], [0, 0], [0, 0])
    values = draw_values(wide, np.zeros(MOST_RECORDS, dtype=np.int64), Keystream(b""))
    assert np.bincount(values >> 61).tolist() == [MOST_RECORDS // 2] * 2
    counts = binning([0, 1, 2], [MOST_RECORDS // 2] * 2, [0, 1])
    assert np.bincount(start_bins(counts, MOST_RECORDS, Keystream(b""))).tolist() == [MOST_RECORDS // 2] * 2


def test_values_lie_in_their_bins():
    """By the counts of the parts; a bin without counts is filled evenly; within a part all values occur."""
    bins = binning([0, 10, 11, 40, 60, 100], [30, 10, 0, 0, 5], [0, 0, 1, 1, 2])
    records = np.repeat([0, 1, 2], [400, 980, 300])
    values = draw_values(bins, records, Keystream(b"seed"))
    assert np.array_equal(bins.bins(values), records)
    assert np.count_nonzero(values == 10) == 100
    assert np.count_nonzero((values >= 11) & (values < 40)) == pytest.approx(980 * 29 / 49, abs=1)
    assert np.unique(values[records == 2]).size == 40


def number(name: str, upper: int, **known) -> Attribute:
    """A number from 0 on."""
    return Attribute(name, AttributeType.INTEGER, 0, upper, **known)


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


def without_noise(design: Design, columns: list[np.ndarray]) -> SyntheticRelease:
    """Make a release of exact sums, as if their noise happened to be 0."""
    return synthesise(run_rounds(design, lambda asked: exact_answer(asked, columns)))


def check_domains(attributes: Sequence[Attribute], made: SyntheticRelease, n_records: int) -> None:
    """Check that there are so many records, of values of the domains."""
    for each, codes in zip(attributes, made.codes, strict=True):
        assert codes.size == n_records
        assert 0 <= codes.min() <= codes.max() < each.n_values


def test_the_same_bytes_everywhere():
    """Records are a function of design and sums. If this digest changes, `METHOD` has to change with it."""
    income = number("income", 10**6, spikes=(0,), keeps_missing=True, is_logarithmic=True)
    attributes = (*ATTRIBUTES[:2], income, ATTRIBUTES[3])
    design = Design(attributes, 3_000, Decimal(8), Decimal("0.001"), rules=RULES)
    made = without_noise(design, records(3_000, 1))
    digest = sha256(b"".join(each.astype("<i8").tobytes() for each in made.codes)).hexdigest()
    assert (METHOD, digest) == (3, "d2d39cc2fa47ee3342cba3370109105cea16accca078c99fb3c463702d8884f5")


def breaks(rule, codes) -> np.ndarray:
    """Return which records break a rule."""
    return np.all(
        [
            np.any([(codes[i] >= first) & (codes[i] <= last) for first, last in ranges], axis=0)
            for i, ranges in rule.items()
        ],
        axis=0,
    )


@pytest.mark.parametrize("delta", ["0", "0.00001"])
@pytest.mark.parametrize(("n_records", "owners"), [(20_000, 1), (20_000, 3), (300, 1)])
def test_structural_zeros_hold_in_every_record(delta, n_records, owners):
    """Also where a rule ends within a part of a wide domain, or excludes some of the rare categories."""
    parts = [records(n_records // owners, seed) for seed in range(owners)]
    sources = [SeededBits(seed) for seed in range(owners)]
    made = synthetic_release(ATTRIBUTES, parts, "1", delta, sources, RULES)
    assert not any(breaks(rule, made.codes).any() for rule in RULES)
    check_domains(ATTRIBUTES, made, n_records // owners * owners)


@pytest.mark.parametrize("uppers", [(100,), (0, 100), (2**40,), (0,)])
@pytest.mark.parametrize("n_records", [1, 5000])
def test_small_and_odd_tables(uppers, n_records):
    """One attribute, an attribute of one value, a domain of 2^40, one record."""
    attributes = [number(f"up to {upper}", upper) for upper in uppers]
    draw = np.random.default_rng(1)
    columns = [draw.integers(0, each.n_values, n_records) for each in attributes]
    check_domains(attributes, synthetic_release(attributes, [columns], "1", "0", [SeededBits(1)]), n_records)


def variation(one, other, sizes) -> float:
    """Return the total variation of two tables of a pair."""
    tables = [np.bincount(a * sizes[1] + b, minlength=sizes[0] * sizes[1]) for a, b in (one, other)]
    return float(np.abs(tables[0] - tables[1]).sum() / 2 / one[0].size)


@pytest.mark.parametrize("delta", ["0", "0.00001"])
def test_every_epsilon_brings_records_nearer(delta):
    """Related attributes stay related, however loud the noise; with more ε they are nearer."""
    draw, sizes = np.random.default_rng(2), (10, 10, 5)
    one = draw.integers(0, 10, 5_000)
    other = np.where(draw.random(5_000) < 0.7, one, draw.integers(0, 10, 5_000))
    columns = [one, other, one // 2]
    attributes = tuple(number(f"x{size}", size - 1) for size in sizes)
    made = [
        without_noise(Design(attributes, 5_000, Decimal(epsilon), Decimal(delta)), columns).codes
        for epsilon in ("0.3", "1", "10")
    ]
    apart = [variation((one, other), codes[:2], sizes) for codes in ((one, draw.permutation(other)), *made)]
    assert apart == sorted(apart, reverse=True)
    assert apart[1] < 0.5 * apart[0]
    assert apart[-1] < 0.02
    # The third attribute follows from the first.
    assert np.mean(made[-1][2] == made[-1][0] // 2) > 0.95


def test_spikes_and_missing_values_keep_their_relations():
    """Another attribute decides them, as it does in the records."""
    draw = np.random.default_rng(4)
    ill, income = draw.integers(0, 2, 5_000), draw.integers(1, 10**5, 5_000)
    income[ill == 1] = np.where(draw.random(np.count_nonzero(ill)) < 0.5, 0, 10**5 + 1)
    attributes = (ATTRIBUTES[3], number("income", 10**5, spikes=(0,), keeps_missing=True))
    made = synthetic_release(attributes, [[ill, income]], "2", "0.00001", [SeededBits(3)])
    for special in (0, 10**5 + 1):
        assert np.mean(made.codes[1] == special) == pytest.approx(np.mean(income == special), abs=0.01)
        assert made.codes[0][made.codes[1] == special].mean() > 0.95


@pytest.mark.parametrize("spread", [10**3, 2**38])
def test_sums_that_no_owners_sent_still_make_records(spread):
    """Extreme sums, forged or of loud noise, lead to values of the domain."""
    design, draw = Design(ATTRIBUTES, 300, Decimal(1)), np.random.default_rng(5)
    forged = run_rounds(design, lambda asked: draw.integers(-spread, spread + 1, n_numbers(asked)))
    check_domains(ATTRIBUTES, synthesise(forged), 300)
