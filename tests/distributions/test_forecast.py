"""The forecast of a fragment is what masking it comes to on average.

Draws come from fixed seeds, so a test passes always or never. A forecast is called wrong when it is more than
four standard errors away from what many maskings came to; a forecast for another epsilon must be.
"""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from common.errors import UnusableDataError
from common.model.schema import Attribute, AttributeType, CategoryOrder, TaxonomyMethod
from owner_node.masking.arrays import SystemBits
from owner_node.masking.exponential import GRID_BITS, distance_table
from owner_node.masking.forecast import Draws, expect, forecast
from owner_node.masking.tasks import AttributeTask, check_table, frequency_order, mechanism_of
from owner_node.values.taxonomy import read_hierarchy, taxonomy_of
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute

N_RECORDS = 203
N_MASKINGS = 125
"""Enough for a forecast of 1.4 times the epsilon to be six standard errors or more away."""
FAR = 4.0
MECHANISMS = {
    "dp": None,
    "idp": None,
    "dp-ir": 7,
    "idp-ls": 7,
    "idp-cbls": 5,
    "idp-joint": 7,
    "dp-hist": None,
}
JOBS = read_hierarchy(
    "nurse;care;hospital;*\nmidwife;care;hospital;*\nsurgeon;medicine;hospital;*\ncook;kitchen;*\npilot;*"
)
TREE = taxonomy_of(JOBS, tuple(JOBS))
BY_TAXONOMY = Attribute(
    "job", AttributeType.CATEGORY, 0, 4, categories=tuple(JOBS), taxonomy=TREE.digest,
    method=TaxonomyMethod.EXPONENTIAL,
)  # fmt: skip


def column(name, n_records=N_RECORDS):
    """Skewed values of few, even values of many, and almost constant ones."""
    rng = np.random.default_rng(sum(map(ord, name)))
    kinds = {
        "skewed": np.minimum(rng.geometric(0.2, n_records), 20),
        "wide": rng.integers(0, 101, n_records),
        "few": rng.integers(0, 3, n_records) * (rng.random(n_records) < 0.5),
    }
    return kinds[name].astype(np.int64)


def tasks_of(mechanism, epsilon, k=None, rank_noise="0"):
    """One attribute of every kind, lower ends other than zero included."""
    k = MECHANISMS[mechanism] if k is None else k
    uppers = {"skewed": 20, "wide": 100, "few": 2}
    attributes = [
        Attribute(name, AttributeType.INTEGER, -3 if name == "wide" else 0, upper)
        for name, upper in uppers.items()
    ]
    noise = Decimal(rank_noise)
    return [AttributeTask(each, Decimal(epsilon), k, mechanism, rank_noise=noise) for each in attributes]


def masked_many_times(columns, tasks):
    """Squared error and unchanged share per attribute, and share of unchanged records, of many maskings."""
    bits = SeededBits(7)
    errors, shares, records = [], [], []
    for _ in range(N_MASKINGS):
        same = {}
        squares = []
        for task in tasks:
            original = columns[task.attribute.name]
            masked = mask_attribute(original, task, bits).by_record()
            squares.append(float(np.square((masked - original).astype(float)).sum()))
            same[task.attribute.name] = masked == original
        errors.append(squares)
        shares.append([each.mean() for each in same.values()])
        records.append(np.logical_and.reduce(list(same.values())).mean())
    return np.array(errors), np.array(shares), np.array(records)


def error_of(foreseen):
    """The only attribute's expected error."""
    return float(foreseen.attributes[0].error)


def distance(expected, found, uncertain=0.0):
    """How many standard errors a forecast is away from the mean of what was found."""
    error = np.hypot(found.std(ddof=1) / len(found) ** 0.5, uncertain)
    return abs(float(expected) - found.mean()) / max(error, 1e-12)


def check_forecast(columns, tasks, wrong_tasks, n_forecasts=16):
    """Error, unchanged values and unchanged records agree with many maskings; others are found out."""
    errors, shares, records = masked_many_times(columns, tasks)
    several = [forecast(columns, tasks, SeededBits(seed)) for seed in range(n_forecasts)]
    wrong = forecast(columns, wrong_tasks, SeededBits(1))
    deviation = max(float(each.deviation) for each in several) * len(tasks) / n_forecasts**0.5
    away = []
    for index, other in enumerate(wrong.attributes):
        error, unchanged = (
            np.mean([float(getattr(each.attributes[index], what)) for each in several])
            for what in ("error", "unchanged")
        )
        spread = columns[other.name].var() * N_RECORDS
        # A drawn forecast has an error of its own, about that of as many maskings as it took draws: 16.
        own = errors[:, index].std() / spread / (16 * n_forecasts) ** 0.5 if deviation else 0.0
        assert distance(error, errors[:, index] / spread, own) < FAR
        assert distance(unchanged, shares[:, index], deviation) < FAR
        away.append(distance(other.error, errors[:, index] / spread, own))
    whole = np.mean([float(each.unchanged_records) for each in several])
    assert distance(whole, records, deviation) < FAR
    assert max(away) > FAR


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("epsilon", ["0.3", "3"])
def test_forecast_agrees_with_many_maskings(mechanism, epsilon):
    """Every mechanism, small noise and large; the forecast for 1.4 times the epsilon is found out."""
    columns = {name: column(name) for name in ("skewed", "wide", "few")}
    more = str(Decimal(epsilon) * Decimal("1.4"))
    check_forecast(columns, tasks_of(mechanism, epsilon), tasks_of(mechanism, more))


@pytest.mark.parametrize("mechanism", ["idp-ls", "idp-joint", "dp-hist"])
@pytest.mark.parametrize("rank_noise", ["0.01", "0.2"])
def test_forecast_has_the_rank_noise(mechanism, rank_noise):
    """Records at other places change less or more than the list says; twice the rank noise is found out: it
    is eleven standard errors away, so half of the forecasts are enough.
    """
    columns = {name: column(name) for name in ("skewed", "wide", "few")}
    more = tasks_of(mechanism, "3", rank_noise=str(2 * Decimal(rank_noise)))
    check_forecast(columns, tasks_of(mechanism, "3", rank_noise=rank_noise), more, n_forecasts=8)


def test_forecast_of_categories_by_frequency():
    """Differences count in the order that masking uses: here the frequency order of the data."""
    attribute = Attribute(
        "town", AttributeType.CATEGORY, 0, 7, categories=tuple("abcdefgh"), order=CategoryOrder.FREQUENCY
    )
    values = 7 - np.minimum(column("skewed"), 7)
    task = AttributeTask(attribute, Decimal(1), 7, "idp-ls")
    places = frequency_order(values, 8).place_of
    bits, found = SeededBits(2), []
    for _ in range(N_MASKINGS):
        masked = mask_attribute(values, task, bits).by_record()
        found.append(float(np.square((places[masked] - places[values]).astype(float)).sum()))
    expected = error_of(forecast({"town": values}, [task], SeededBits(3)))
    assert distance(expected * places[values].var() * N_RECORDS, np.array(found)) < FAR


@pytest.mark.parametrize("epsilon", ["0.5", "4"])
def test_forecast_of_categories_drawn_from_a_taxonomy(epsilon):
    """The exact probabilities give the squared semantic distances and unchanged shares that draws come to."""
    values = np.random.default_rng(3).integers(0, 5, 61)
    task = AttributeTask(BY_TAXONOMY, Decimal(epsilon), 4, "exponential", taxonomy=TREE)
    order = TREE.order()
    squared = np.empty((5, 5))
    squared[np.ix_(order, order)] = np.square(distance_table(TREE) / 2.0**GRID_BITS)
    bits, errors, shares = SeededBits(4), [], []
    for _ in range(N_MASKINGS):
        masked = mask_attribute(values, task, bits).by_record()
        errors.append(squared[values, masked].sum())
        shares.append((values == masked).mean())
    best = min(squared[values, each].sum() for each in range(5))
    foreseen = forecast({"job": values}, [task], SeededBits(5))
    assert distance(error_of(foreseen) * best, np.array(errors)) < FAR
    assert distance(foreseen.unchanged_values, np.array(shares)) < FAR
    other = replace(task, epsilon=task.epsilon * 2)
    wrong = error_of(forecast({"job": values}, [other], SeededBits(5)))
    assert distance(wrong * best, np.array(errors)) > FAR


def test_shares_without_noise_are_exact():
    """Clusters of one value get no noise from idp-cbls, and their values leave as they are."""
    values = np.array([5] * 12 + [7, 8, 9, 30])
    task = AttributeTask(Attribute("age", AttributeType.INTEGER, 0, 100), Decimal(1), 4, "idp-cbls")
    foreseen = forecast({"age": values}, [task])
    assert foreseen.zero_noise == Decimal("0.75")
    assert foreseen.unchanged_values <= 1
    assert foreseen.unchanged_values >= Decimal("0.75")


def test_an_attribute_without_variation():
    """It has no mean to be compared with, and counts nothing in the mean SSE."""
    values = {"same": np.full(50, 3), "other": np.arange(50)}
    attributes = [Attribute(name, AttributeType.INTEGER, 0, 60) for name in values]
    tasks = [AttributeTask(each, Decimal(1), 5, "idp-joint") for each in attributes]
    foreseen = forecast(values, tasks)
    same, other = foreseen.attributes
    assert same.error is None
    assert other.error is not None
    assert float(foreseen.mean_sse) == pytest.approx(float(other.error) * 49 / 50 / 4, rel=1e-4)


@pytest.mark.parametrize("n_records", [5, 9, 20_000])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_blocks_change_nothing(mechanism, n_records, monkeypatch):
    """However many records are looked at together, and whatever the last cluster's size."""
    monkeypatch.setattr("owner_node.masking.mechanisms.RECORDS_PER_BLOCK", 1000)
    columns = {name: column(name, n_records) for name in ("skewed", "wide")}
    tasks = tasks_of(mechanism, "1", 5 if MECHANISMS[mechanism] else None)[:2]
    in_blocks = forecast(columns, tasks, SeededBits(1))
    monkeypatch.undo()
    assert forecast(columns, tasks, SeededBits(1)) == in_blocks


def test_probabilities_are_by_rank_of_each_record():
    """Whole records count by their own values: two columns in opposite order are not as two in the same."""
    values = np.repeat(np.array([0, 0, 0, 50]), 25)
    spread = values + np.tile(np.arange(25), 4) * (values > 0)
    tasks = [
        AttributeTask(Attribute(name, AttributeType.INTEGER, 0, 100), Decimal(20), 5, "idp-cbls")
        for name in ("one", "two")
    ]
    alike = forecast({"one": spread, "two": spread}, tasks, SeededBits(1))
    opposite = forecast({"one": spread, "two": spread[::-1].copy()}, tasks, SeededBits(1))
    assert alike.unchanged_values == opposite.unchanged_values
    assert alike.unchanged_records > opposite.unchanged_records + Decimal("0.1")


def test_more_draws_are_surer():
    """The standard error of drawn shares falls with the number of draws, and is no smaller than it looks."""
    values, task = np.sort(column("few")), tasks_of("idp-joint", "0.5")[2]
    chosen = mechanism_of(task)
    few, many = (expect(chosen, values, task.setting, SystemBits(), Draws(pairs)) for pairs in (8, 128))
    assert many.deviation < few.deviation
    means = [
        expect(chosen, values, task.setting, SeededBits(s), Draws(8)).unchanged.mean() for s in range(40)
    ]
    assert np.std(means) < few.deviation * 2


@given(
    mechanism=st.sampled_from(sorted(MECHANISMS)),
    n_values=st.sampled_from([1, 2, 3, 1000, 10**9, 10**15]),
    n_records=st.sampled_from([5, 7, 30, 300]),
    epsilon=st.sampled_from(["0.000001", "0.001", "1", "1000000"]),
    k=st.integers(5, 300),
    g=st.integers(1, 2),
    seed=st.integers(0, 5),
)
def test_extremes_give_shares_and_no_warning(mechanism, n_values, n_records, epsilon, k, g, seed):
    """Noise far wider or far narrower than the domain, one value, one cluster: always shares, never a number
    that is none, and nothing that numpy warns of.
    """
    values = np.random.default_rng(seed).integers(0, n_values, n_records)
    k = min(k, n_records) if MECHANISMS[mechanism] else None
    attribute = Attribute("x", AttributeType.INTEGER, 0, n_values - 1)
    task = AttributeTask(attribute, Decimal(epsilon), k, mechanism, g)
    try:
        check_table({"x": values}, [task])
    except UnusableDataError:
        assume(False)
    foreseen = forecast({"x": values}, [task], SeededBits(seed))
    (one,) = foreseen.attributes
    assert 0 <= foreseen.unchanged_records <= 1
    assert 0 <= one.unchanged <= 1
    assert 0 <= one.zero_noise <= 1
    assert (one.error is None) == (np.ptp(values) == 0)
    assert one.error is None or one.error >= 0
