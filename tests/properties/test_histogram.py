"""`dp-hist`: what it promises by brute force, its steps against a solver, its noise against its scale."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from common.errors import UnusableDataError
from common.model.counts import nearest_counts, whole_counts
from common.model.empty_regions import without_stray_counts
from common.model.mechanisms import MOST_HISTOGRAM_VALUES
from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking.clusters import Setting
from owner_node.masking.histogram import HistogramMechanism, grid_bits
from owner_node.masking.tasks import AttributeTask
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute, mask_table
from tests.papers.carriers import without_stray

BAD = 1e-4
HOPELESS = 1e-12
MECHANISM = HistogramMechanism()


def setting_of(n_values: int, epsilon: str = "1", g: int = 1) -> Setting:
    """A setting without k."""
    return Setting("age", n_values, Decimal(epsilon), 1, g)


def stated_scale(setting: Setting) -> int:
    """Scale of the noise of counts in steps of 2^-f, rounded up."""
    return -(
        -(2 * setting.g << grid_bits(setting))
        * setting.exact_epsilon.denominator
        // setting.exact_epsilon.numerator
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=6),
    st.sampled_from([1, 2]),
    st.sampled_from(["0.3", "7"]),
)
def test_all_changes_of_a_person_stay_within_epsilon_and_reach_it(values, g, epsilon):
    """Global sensitivity: the exact summed loss of all counts, on the scale that is used."""
    setting = setting_of(4, epsilon, g)
    scale, worst = stated_scale(setting), Fraction(0)
    before = np.bincount(values, minlength=setting.n_values)
    for places in combinations(range(len(values)), g):
        for replaced in product(range(4), repeat=g):
            changed = np.array(values)
            changed[list(places)] = replaced
            moved = int(np.abs(np.bincount(changed, minlength=setting.n_values) - before).sum())
            worst = max(worst, Fraction(moved << grid_bits(setting), scale))
    assert worst <= setting.exact_epsilon
    assert worst > setting.exact_epsilon * (1 - Fraction(1, 10**5))


@pytest.mark.parametrize("epsilon", ["0.01", "1", "5"])
def test_counts_carry_the_noise_that_is_stated(epsilon):
    """Scale 2g/ε on every count; with g = 2 or a fifth more epsilon it is another, and seen."""
    setting = setting_of(100_000, epsilon)
    unit = 2**20 * 2 / float(epsilon)
    noise = MECHANISM.noise(setting, SeededBits(1))
    assert stats.kstest(noise / unit, stats.laplace.cdf).pvalue > BAD
    for wrong in (
        setting_of(100_000, epsilon, 2),
        setting_of(100_000, str(Decimal(epsilon) * Decimal("1.2"))),
    ):
        assert stats.kstest(MECHANISM.noise(wrong, SeededBits(1)) / unit, stats.laplace.cdf).pvalue < HOPELESS


def test_released_counts_are_the_exact_counts_and_that_noise():
    """From records to the list: far from 0, a count's error is its noise less the mean of all."""
    setting = setting_of(50, "0.1")
    counts, noise = np.full(50, 10_000), MECHANISM.noise(setting, SeededBits(2))
    released = MECHANISM.list_of(counts, noise, setting)
    expected = 10_000 + noise / 2**20 - (noise / 2**20).mean()
    assert np.abs(released.sizes - expected).max() <= 1
    assert released.values.tolist() == list(range(50))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-60, 60), min_size=1, max_size=8), st.integers(1, 100))
def test_the_projection_is_the_nearest_to_the_noisy_counts(noisy, n_records):
    """A general solver finds none that is nearer."""
    noisy = np.array(noisy)
    found = nearest_counts(noisy, n_records)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(n_records)
    solved = minimize(  # type: ignore[call-overload]
        lambda x: ((x - noisy) ** 2).sum(),
        np.full(noisy.size, n_records / noisy.size),
        jac=lambda x: 2 * (x - noisy),
        bounds=[(0, None)] * noisy.size,
        constraints={"type": "eq", "fun": lambda x: x.sum() - n_records, "jac": np.ones_like},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert ((found - noisy) ** 2).sum() <= solved.fun + 1e-6 * (1 + solved.fun)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-100, 300), min_size=64, max_size=99), st.integers(1, 1000), st.sampled_from([1, 20])
)
def test_counts_without_stray_ones_are_counts_of_all_records(noisy, n_records, scale):
    """Not negative and of the same sum, whatever stands out, is emptied or left."""
    found = without_stray_counts(np.array(noisy), n_records, scale)
    assert found.size == len(noisy)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(n_records)


def test_what_stands_out_is_left_as_it_is():
    """Counts far above the noise are the nearest ones; a zero keeps its spike in an empty domain."""
    large = np.tile([500.0, 480, 510, 505], 16)
    assert np.array_equal(without_stray_counts(large, 32_000, 4), nearest_counts(large, 32_000))
    spike = np.zeros(1000)
    spike[0] = 900
    noisy = spike + np.random.default_rng(4).laplace(0, 8, 1000)
    assert without_stray_counts(noisy, 900, 8)[0] > 890


def test_what_an_emptied_domain_has_beside_the_data_or_in_one_place_stays():
    """A tail that ends where a half begins, and a few records together, far from all others."""
    counts = np.zeros(1024)
    counts[:256], counts[256:260], counts[900:904] = 60, 40, 60
    noise, n_records = np.random.default_rng(6), counts.sum()
    noisy = [counts + noise.laplace(0, 8, 1024) for _ in range(20)]
    found = [without_stray_counts(each, n_records, 8) for each in noisy]
    # The projection takes as much from every count, whatever is emptied.
    assert np.mean([each[256:260].sum() for each in found]) > 160 - 40
    assert np.mean([each[900:904].sum() for each in found]) > 240 - 40
    projected = np.mean([nearest_counts(each, n_records)[400:900].sum() for each in noisy])
    assert np.mean([each[400:900].sum() for each in found]) < 0.1 * projected


def test_values_that_fill_few_of_a_hundred_have_no_stray_counts_beside_them():
    """Two dozen values that are left of a domain are emptied further, if few of them have counts then."""
    counts = np.zeros(100)
    counts[48:53] = 25, 50, 50, 50, 25
    noise = np.random.default_rng(8)
    found = [without_stray_counts(counts + noise.laplace(0, 2, 100), 200, 2) for _ in range(50)]
    assert sum(each[48:53].sum() > 195 for each in found) > 32


@pytest.mark.parametrize("shape", ["normal", "90 % zeros", "round numbers", "two values"])
def test_stray_counts_are_looked_for_without_much_harm(shape):
    """Shapes, numbers of records and widths of docs/decisions.md, with fewer draws."""
    ratios = np.array([without_stray(shape, width, 6, np.random.default_rng(7)) for width in (1, 4, 10)])
    squares, one_way = np.moveaxis(ratios, 2, 0)
    assert squares.max() < 1.6
    assert one_way.max() < 1.15
    assert np.exp(np.log(squares).mean()) < 0.5


def test_missing_values_are_no_neighbours():
    """Their count stays beside an empty end of the domain, and does not hide that it is empty."""
    counts = np.zeros(1000, dtype=np.int64)
    counts[:40], counts[-1] = 50, 300
    setting = replace(setting_of(1000), keeps_missing=True)
    for seed in range(20):
        drawn = MECHANISM.list_of(counts, MECHANISM.noise(setting, SeededBits(seed)), setting)
        found = np.zeros(1000, dtype=np.int64)
        found[drawn.values] = drawn.sizes
        assert found.sum() == counts.sum()
        assert abs(found[-1] - 300) < 40
        assert found[100:-1].sum() < 40


@pytest.mark.parametrize("n_records", [1, 5, 3000])
def test_all_values_can_be_missing(n_records):
    """The noise may leave no present value, or some; the counts are of all records either way."""
    setting = replace(setting_of(30, "50"), keeps_missing=True)
    counts = np.append(np.zeros(29, dtype=np.int64), n_records)
    for seed in range(20):
        drawn = MECHANISM.list_of(counts, MECHANISM.noise(setting, SeededBits(seed)), setting)
        assert drawn.sizes.sum() == n_records
        assert drawn.sizes[drawn.values == 29] == n_records


def test_stray_counts_are_those_of_values_with_an_order():
    """Ages in a domain that is too wide: an order brings them together; labels have none, and stay."""
    ages = np.bincount(np.random.default_rng(5).binomial(90, 0.4, 2000), minlength=400)
    values, errors, one_way = np.repeat(np.arange(400), ages), np.zeros((20, 2)), np.zeros((20, 2))
    for seed in range(20):
        for number, ordered in enumerate((True, False)):
            setting = Setting("age", 400, Decimal("0.5"), 1, ordered=ordered)
            noise = MECHANISM.noise(setting, SeededBits(seed))
            released = MECHANISM.list_of(ages, noise, setting)
            whole = np.bincount(released.values, released.sizes, minlength=400)
            errors[seed, number] = np.square(np.repeat(released.values, released.sizes) - values).mean()
            one_way[seed, number] = np.abs(whole - ages).sum()
            if not ordered:
                alone = whole_counts(nearest_counts(ages + noise / 2 ** grid_bits(setting), 2000), 2000)
                assert np.array_equal(whole, alone)
    assert errors[:, 0].mean() < 0.1 * errors[:, 1].mean()
    assert one_way[:, 0].mean() < 0.7 * one_way[:, 1].mean()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(1, 10**6))
def test_whole_counts_are_the_nearest_whole_numbers_of_that_sum(noisy, n_records):
    """Rounded by less than one each, to exactly the number of records, none below 0."""
    near = nearest_counts(np.array(noisy), n_records)
    whole = whole_counts(near, n_records)
    assert whole.sum() == n_records
    assert whole.min() >= 0
    assert np.abs(whole - near).max() < 1 + 1e-6


def test_largest_remainders_are_rounded_up():
    """2.6 + 1.5 + 0.9 are five records: 3, 1 and 1."""
    assert whole_counts(np.array([2.6, 1.5, 0.9]), 5).tolist() == [3, 1, 1]


ATTRIBUTES = [
    Attribute("n", AttributeType.NUMBER, -150, 350, 2),
    Attribute("i", AttributeType.INTEGER, -7, 12),
    Attribute("d", AttributeType.DATE, 19_000, 19_060),
    Attribute("b", AttributeType.BOOLEAN, 0, 1),
    Attribute("c", AttributeType.CATEGORY, 0, 2, categories=("x", "y", "z")),
    Attribute("f", AttributeType.CATEGORY, 0, 2, categories=("x", "y", "z"), order=CategoryOrder.FREQUENCY),
    Attribute("one", AttributeType.INTEGER, 5, 5),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda each: each.name)
@pytest.mark.parametrize("epsilon", ["0.001", "1", "1000000"])
def test_the_list_has_one_entry_per_record_within_the_domain(attribute, epsilon):
    """Every type, with much noise and next to none: n entries, in order, in the domain."""
    values = np.random.default_rng(1).integers(attribute.lower, attribute.upper + 1, 200)
    task = AttributeTask(attribute, Decimal(epsilon), None, "dp-hist")
    masked = mask_attribute(values, task, SeededBits(1))
    released = masked.released
    assert released.sizes.sum() == 200
    assert released.sizes.min() > 0
    assert (np.diff(released.values) > 0).all()
    assert released.values[0] >= attribute.lower
    assert released.values[-1] <= attribute.upper
    if epsilon == "1000000":
        assert masked.by_record().tolist() == values.tolist()


def test_a_single_record():
    """The smallest table there is."""
    task = AttributeTask(ATTRIBUTES[3], Decimal(1), None, "dp-hist")
    assert mask_table({"b": np.array([1])}, [task])["b"].size == 1


def test_domains_of_too_many_values_are_refused():
    """Before anything is spent, and with what to do."""
    attribute = Attribute("pay", AttributeType.INTEGER, 0, MOST_HISTOGRAM_VALUES)
    task = AttributeTask(attribute, Decimal(1), None, "dp-hist")
    with pytest.raises(UnusableDataError, match="too many for dp-hist"):
        mask_table({"pay": np.arange(10)}, [task])


def test_noise_of_counts_that_63_bits_cannot_hold_is_refused():
    """An epsilon next to nothing."""
    task = AttributeTask(ATTRIBUTES[1], Decimal("1e-12"), None, "dp-hist", 10**8)
    with pytest.raises(UnusableDataError, match="does not fit into 63 bits"):
        mask_table({"i": np.arange(10)}, [task])
