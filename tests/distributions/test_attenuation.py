"""Corrections of released correlations and slopes, against values that the real masking code masked."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.analysis.attenuation import MaskedValues, MaskingParams
from common.analysis.calibration import linear_fit, logistic_fit
from common.errors import UsageError
from common.model.ranks import joint_ranks
from common.model.schema import Attribute, AttributeType
from tests.fakes.masked_releases import draws, masked, plan_of
from tests.papers.data_sets import wine

N_RECORDS = 6000
PLACES = 2


def number(name: str) -> Attribute:
    """A number from -10 to 10."""
    return Attribute(name, AttributeType.NUMBER, -1000, 1000, decimals=PLACES)


def related(correlation: float, shape) -> dict[str, np.ndarray]:
    """Two related attributes of the form of `shape`, in resolution units."""
    rng = np.random.default_rng(5)
    first = rng.normal(size=N_RECORDS)
    second = correlation * first + (1 - correlation**2) ** 0.5 * rng.normal(size=N_RECORDS)
    return {
        name: np.clip(np.rint(shape(values) * 10**PLACES), -1000, 1000).astype(np.int64)
        for name, values in (("x", first), ("y", second))
    }


def slope(response, regressor) -> float:
    """The least-squares slope."""
    return float(np.cov(response, regressor)[0, 1] / np.var(regressor, ddof=1))


@pytest.mark.parametrize("scale", [0.001, 0.03, 0.4, 3.0])
def test_ranks_keep_their_number(scale):
    """Every record gets one rank and every rank one record; larger noise moves them farther."""
    joint = joint_ranks(200, scale)
    assert np.all(joint > -1e-12)
    assert np.allclose(joint.sum(axis=0), 1, atol=1e-9)
    assert np.allclose(joint.sum(axis=1), 1, atol=1e-9)
    assert np.allclose(joint, joint_ranks(200, scale)[::-1, ::-1])
    assert np.trace(joint) > np.trace(joint_ranks(200, 2 * scale))


@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-quantiles", "dp-quantiles", "dp-hist"])
@pytest.mark.parametrize("rank_noise", ["0", "0.05", "0.3"])
def test_attenuation_is_that_of_masking(mechanism, rank_noise):
    """λ, computed from the released values alone, is the slope of released on original values."""
    columns = related(0.5, lambda values: values)
    plan = plan_of([number("x"), number("y")], N_RECORDS, "40", mechanism=mechanism, rank_noise=[rank_noise])
    (task,) = plan.tasks
    found, measured = [], []
    for seed in range(4):
        released = masked(plan, columns, seed)
        for planned in task.attributes:
            values = MaskedValues(
                plan.attribute(planned.name), [MaskingParams(planned, N_RECORDS, 1)], released[planned.name]
            )
            distortion = values.distortion
            assert distortion.attenuation is not None
            found.append(distortion.attenuation)
            measured.append(slope(released[planned.name], columns[planned.name]))
    assert np.mean(measured) == pytest.approx(np.mean(found), abs=0.02)
    assert bool(np.mean(found) < 0.9) is (rank_noise == "0.3")


@pytest.mark.parametrize(
    ("shape", "owners", "rank_noise"),
    [
        (lambda values: values, "a", "0.1"),
        (lambda values: values, "abc", "0.1"),
        (lambda values: values, "a", "0.3"),
        (lambda values: np.exp(values) / 3, "a", "0.1"),
        (lambda values: np.exp(values) / 3, "abc", "0.1"),
    ],
)
def test_corrected_slopes_hold_the_original(shape, owners, rank_noise):
    """Released slopes are far too small; corrected ones have the original within their intervals."""
    columns = related(0.7, shape)
    plan = plan_of(
        [number("x"), number("y")], N_RECORDS, "4", owners=owners, mechanism="idp-quantiles",
        rank_noise=[rank_noise],
    )  # fmt: skip
    original = slope(columns["y"], columns["x"])
    correlation = np.corrcoef(columns["x"], columns["y"])[0, 1]
    with tempfile.TemporaryDirectory() as directory:
        releases = draws(Path(directory), plan, columns, 8)
    lines = [each.estimates.regress("y", "x").loc["x"] for each in releases]
    assert all(line.released < 0.85 * original for line in lines)
    assert sum(line.low <= original <= line.high for line in lines) >= 7
    assert np.mean(np.array([line["estimate"] for line in lines], float)) == pytest.approx(original, rel=0.15)
    pairs = np.concatenate(
        [
            each.estimates.correlations(["x", "y"]).drop(columns="note").to_numpy(dtype=float)
            for each in releases
        ]
    )
    assert pairs[:, 1].mean() == pytest.approx(correlation, abs=0.08)
    assert ((pairs[:, 3] <= correlation) & (correlation <= pairs[:, 4])).sum() >= 7


def test_few_counted_values_are_corrected_exactly(tmp_path):
    """Half of the hours are 40, and a narrow label lies between wide ones: corrections have no bias."""
    rng = np.random.default_rng(6)
    n_records = 20_000
    hours = np.where(rng.random(n_records) < 0.5, 40, rng.integers(5, 80, n_records))
    group = rng.choice(3, n_records, p=[0.55, 0.05, 0.4])
    columns = {
        "hours": hours,
        "man": (rng.random(n_records) < 0.2 + 0.6 * (hours > 40)).astype(np.int64),
        "group": group,
        "age": np.clip(np.rint(np.array([30, 60, 40])[group] + rng.normal(0, 8, n_records)), 0, 99).astype(
            int
        ),
    }
    plan = plan_of(
        [
            Attribute("hours", AttributeType.INTEGER, 1, 99),
            Attribute("man", AttributeType.BOOLEAN, 0, 1),
            Attribute("group", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
            Attribute("age", AttributeType.INTEGER, 0, 99),
        ],
        n_records, "40", mechanism="dp-hist", rank_noise=["0.1"],
    )  # fmt: skip
    releases = draws(tmp_path, plan, columns, 8)
    slopes = [each.estimates.regress("man", "hours").loc["hours"] for each in releases]
    corrected = np.mean([line["estimate"] for line in slopes])
    assert corrected == pytest.approx(slope(columns["man"], hours), rel=0.04)
    found = pd.concat([each.estimates.regress("age", "group")["estimate"] for each in releases], axis=1).mean(
        axis=1
    )
    ages = [columns["age"][group == each].mean() for each in range(3)]
    assert found["group: b (against a)"] == pytest.approx(ages[1] - ages[0], abs=4)
    assert found["group: c (against a)"] == pytest.approx(ages[2] - ages[0], abs=0.5)


def people(n_records: int) -> dict[str, np.ndarray]:
    """Records whose event depends on a number, a boolean and a category of three labels."""
    rng = np.random.default_rng(8)
    age, man, group = rng.normal(size=n_records), rng.random(n_records) < 0.3, rng.integers(0, 3, n_records)
    odds = 1.2 * age + 1.5 * man + np.array([0.0, 1.5, -1.0])[group] - 1
    event = rng.random(n_records) < 1 / (1 + np.exp(-odds))
    return {
        "age": np.clip(np.rint(age * 100), -1000, 1000).astype(np.int64),
        "man": man.astype(np.int64),
        "group": group,
        "event": event.astype(np.int64),
    }


PEOPLE = (
    number("age"),
    Attribute("man", AttributeType.BOOLEAN, 0, 1),
    Attribute("group", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
    Attribute("event", AttributeType.BOOLEAN, 0, 1),
)


def maximum_likelihood(event, *regressors) -> np.ndarray:
    """The log odds, by Newton's method on the original records."""
    design, at = np.column_stack([np.ones(len(event)), *regressors]), np.zeros(len(regressors) + 1)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-design @ at))
        at += np.linalg.solve((design.T * (chance * (1 - chance))) @ design, design.T @ (event - chance))
    return at[1:]


@pytest.mark.parametrize("rank_noise", ["0.03", "0.1"])
def test_booleans_factors_and_odds_are_corrected(rank_noise):
    """Slopes and log odds with booleans and categories: released ones are far too small, and the intervals of
    the corrected ones hold those of the original records.
    """
    columns = people(N_RECORDS)
    event, man, age = columns["event"], columns["man"], columns["age"] / 100
    b, c = (columns["group"] == code for code in (1, 2))
    design = np.column_stack([np.ones(N_RECORDS), b, c])
    originals = {
        "boolean on boolean": [slope(event, man)],
        "boolean on factor": np.linalg.lstsq(design, event, rcond=None)[0][1:],
        "odds on number": maximum_likelihood(event, age),
        "odds on boolean": maximum_likelihood(event, man),
    }
    plan = plan_of(PEOPLE, N_RECORDS, "4", owners="ab", rank_noise=[rank_noise])
    with tempfile.TemporaryDirectory() as directory:
        releases = draws(Path(directory), plan, columns, 8)
    for name, original in originals.items():
        tables = [
            {
                "boolean on boolean": lambda each: each.estimates.regress("event", "man"),
                "boolean on factor": lambda each: each.estimates.regress("event", "group"),
                "odds on number": lambda each: each.estimates.logistic("event", "age"),
                "odds on boolean": lambda each: each.estimates.logistic("event", "man"),
            }[name](each)
            for each in releases
        ]
        released, found, low, high = (
            np.array([table[column] for table in tables], float)
            for column in ("released", "estimate", "low", "high")
        )
        assert np.abs(released.mean(axis=0)).sum() < 0.93 * np.abs(original).sum(), name
        assert found.mean(axis=0) == pytest.approx(original, rel=0.12), name
        assert ((low <= original) & (original <= high)).mean() >= 0.85, name


def test_regression_of_several_regressors_is_least_squares():
    """Where nothing was weakened, factors and several regressors give the estimates of the originals."""
    columns = people(N_RECORDS)
    plan = plan_of(PEOPLE, N_RECORDS, "4000", mechanism="dp-hist", rank_noise=["0"])
    with tempfile.TemporaryDirectory() as directory:
        (release,) = draws(Path(directory), plan, columns, 1)
    age, b, c = columns["age"] / 100, columns["group"] == 1, columns["group"] == 2
    design = np.column_stack([np.ones(N_RECORDS), age, b, c])
    expected = np.linalg.lstsq(design, columns["event"], rcond=None)[0][1:]
    table = release.estimates.regress("event", ["age", "group"])
    for column in ("released", "estimate"):
        assert table[column].to_numpy() == pytest.approx(expected, rel=0.01)
    odds = release.estimates.logistic("event", ["age", "man", "group"])
    assert odds["released"].to_numpy() == pytest.approx(
        maximum_likelihood(columns["event"], age, columns["man"], b, c), rel=0.01
    )


def held(plan, columns, n_releases, ask, original) -> int:
    """In how many releases the interval of a line holds the original."""
    with tempfile.TemporaryDirectory() as directory:
        lines = [ask(each.estimates) for each in draws(Path(directory), plan, columns, n_releases)]
    return sum(line.low <= original <= line.high for line in lines)


def test_correlations_with_a_shape_that_clusters_hide_hold():
    """Two in five costs are 0, and the next ones far above; those of nearly all that are insured are 616."""
    rng, n_records = np.random.default_rng(4), 20000
    place = rng.random(n_records)
    costs = [0, 0, 393, 576, 609, 616, 616, 666, 696, 753, 795, 829, 829]
    cost = np.interp(place, [0, 0.405, 0.415, 0.455, 0.5, 0.52, 0.63, 0.67, 0.7, 0.79, 0.87, 0.96, 1], costs)
    shares = np.select([place < 0.415, place < 0.5, place < 0.63, place < 0.67], [0.12, 0.7, 1, 0.32])
    cost, insured = np.rint(100 * cost).astype(np.int64), rng.random(n_records) < shares
    columns = {"cost": cost, "insured": insured.astype(np.int64)}
    attributes = [
        Attribute("cost", AttributeType.NUMBER, 0, 90000, decimals=2),
        Attribute("insured", AttributeType.BOOLEAN, 0, 1),
    ]
    plan = plan_of(attributes, n_records, "0.2", owners="abcd", rank_noise=["0.1"])
    found = held(
        plan,
        columns,
        12,
        lambda each: each.correlations(["cost", "insured"]).iloc[0],
        np.corrcoef(cost, insured)[0, 1],
    )
    assert found >= 11


@pytest.mark.parametrize("zeros", [0.3, 0.7])
def test_log_odds_of_a_skewed_count_hold(zeros):
    """Scores of a count with many zeros have much more noise of assignment than its values."""
    rng, n_records = np.random.default_rng(3), 20000
    visits = np.where(rng.random(n_records) < zeros, 0, 1 + rng.negative_binomial(0.9, 0.18, n_records))
    visits = np.minimum(visits, 100)
    event = (rng.random(n_records) < 1 / (1 + np.exp(1 - 0.04 * visits))).astype(np.int64)
    attributes = [
        Attribute("visits", AttributeType.INTEGER, 0, 100),
        Attribute("event", AttributeType.BOOLEAN, 0, 1),
    ]
    plan = plan_of(attributes, n_records, "0.5", rank_noise=["0.1"])
    (original,) = maximum_likelihood(event, visits)
    found = held(
        plan,
        {"visits": visits, "event": event},
        20,
        lambda each: each.logistic("event", "visits").iloc[0],
        original,
    )
    assert found >= 17


def test_log_odds_of_several_numbers_have_no_bias(tmp_path):
    """Weights that strengthen relations keep the variance of a number: with a larger one, odds are too small.

    Without that, a sixth to a third of what masking takes is missing.
    """
    rng, n_records = np.random.default_rng(8), 20_000
    age, hours = rng.normal(60, 12, n_records), rng.normal(40, 10, n_records)
    columns = {
        "age": np.clip(np.rint(age), 20, 100).astype(np.int64),
        "hours": np.clip(np.rint(hours), 1, 80).astype(np.int64),
    }
    odds = 0.12 * (columns["age"] - 70) + 0.05 * (columns["hours"] - 40)
    columns["died"] = (rng.random(n_records) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    attributes = [
        Attribute("age", AttributeType.INTEGER, 20, 100),
        Attribute("hours", AttributeType.INTEGER, 1, 80),
        Attribute("died", AttributeType.BOOLEAN, 0, 1),
    ]
    plan = plan_of(attributes, n_records, "4", rank_noise=["0.1"])
    original = maximum_likelihood(columns["died"], columns["age"], columns["hours"])
    tables = [each.estimates.logistic("died", ["age", "hours"]) for each in draws(tmp_path, plan, columns, 8)]
    taken, missing = (
        original - np.mean([table[column] for table in tables], axis=0) for column in ("released", "estimate")
    )
    assert np.all(np.abs(missing) < 0.12 * taken)


def trial(n_records: int) -> dict[str, np.ndarray]:
    """Age raises the score and the odds of men, and lowers those of women."""
    rng = np.random.default_rng(8)
    age, man = np.clip(np.rint(rng.normal(60, 10, n_records)), 40, 89), rng.integers(0, 2, n_records)
    older = (age - 60) * np.where(man, 1, -1)
    odds = 0.06 * older + 0.5 * man - 0.5
    return {
        "age": age.astype(np.int64),
        "man": man,
        "score": np.clip(np.rint(50 + older + rng.normal(0, 15, n_records)), 0, 100).astype(np.int64),
        "ill": (rng.random(n_records) < 1 / (1 + np.exp(-odds))).astype(np.int64),
    }


TRIAL = (
    Attribute("age", AttributeType.INTEGER, 40, 89),
    Attribute("man", AttributeType.BOOLEAN, 0, 1),
    Attribute("score", AttributeType.INTEGER, 0, 100),
    Attribute("ill", AttributeType.BOOLEAN, 0, 1),
)


def test_interactions_hold(tmp_path):
    """Masking takes most of an interaction, and moments of three attributes give it back without bias."""
    columns = trial(8000)
    age, man = columns["age"].astype(float), columns["man"].astype(float)
    design = np.column_stack([np.ones(8000), age, man, age * man])
    originals = {
        "linear": linear_fit(design, columns["score"].astype(float), np.ones(8000))[1:],
        "logistic": logistic_fit(design, columns["ill"].astype(float), np.ones(8000))[1:],
    }
    plan = plan_of(TRIAL, 8000, "2", rank_noise=["0.1"])
    releases = draws(tmp_path, plan, columns, 10)
    for kind, original in originals.items():
        tables = [
            each.estimates.regress("score", "age*man")
            if kind == "linear"
            else each.estimates.logistic("ill", ["age", "man", "age:man"])
            for each in releases
        ]
        assert tables[0].index.tolist() == ["age", "man", "age × man"]
        held = [(each["low"] <= original) & (original <= each["high"]) for each in tables]
        assert np.mean(held) >= 0.9
        taken, missing = (
            np.mean([original - each[column] for each in tables], axis=0)[2]
            for column in ("released", "estimate")
        )
        assert taken > 0.3 * original[2]
        assert abs(missing) < 0.25 * taken


def test_any_analysis_of_masked_records_has_an_interval(tmp_path):
    """What rank noise does to an analysis is in its interval, not only what the lists do not show."""
    columns = trial(4000)
    man, score = columns["man"], columns["score"]
    original = np.array(
        [np.corrcoef(man, score)[0, 1], score[columns["ill"] == 1].mean(), columns["ill"].mean()]
    )
    plan = plan_of(TRIAL, 4000, "4", rank_noise=["0.1"])

    def analysis(table: pd.DataFrame) -> dict[str, float]:
        return {
            "correlation": table["man"].astype(float).corr(table["score"]),
            "mean of the ill": table["score"][table["ill"]].mean(),
            "share of the ill": table["ill"].mean(),
        }

    held = []
    for each in draws(tmp_path, plan, columns, 16):
        found = each.analyse(analysis, ["man", "score", "ill"])
        held.append((found["low"].to_numpy() <= original) & (original <= found["high"].to_numpy()))
    assert np.mean(held, axis=0).min() >= 0.85


@pytest.mark.parametrize(
    ("empty", "lines"), [((1, 1), "00x"), ((1, 0), "x0x"), ((0, 1), "0xx"), ((0, 0), "xxx")]
)
def test_an_interaction_without_events_is_open(tmp_path, empty, lines):
    """Nobody with two of the labels has the event, and masking gives some to them: nothing bounds odds."""
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(0, 2, 6000) for name in ("one", "other")}
    without = (columns["one"] == empty[0]) & (columns["other"] == empty[1])
    columns["event"] = ((rng.random(6000) < 0.4) & ~without).astype(np.int64)
    attributes = [Attribute(name, AttributeType.BOOLEAN, 0, 1) for name in columns]
    plan = plan_of(attributes, 6000, "4", rank_noise=["0.1"])
    for each in draws(tmp_path, plan, columns, 2):
        found = each.estimates.logistic("event", "one*other")
        assert np.isinf(found["standard_error"]).tolist() == [each == "x" for each in lines]


def test_cells_of_an_interaction_that_few_have_are_refused(tmp_path):
    """Whichever of both labels is coded 1: no woman smokes, or no man does."""
    rng = np.random.default_rng(3)
    man, score = rng.integers(0, 2, 4000), rng.integers(0, 100, 4000)
    attributes = [Attribute(name, AttributeType.BOOLEAN, 0, 1) for name in ("man", "smokes")]
    attributes.append(Attribute("score", AttributeType.INTEGER, 0, 99))
    for who in (0, 1):
        columns = {
            "man": man,
            "smokes": (rng.random(4000) < 0.4) * (man == who).astype(np.int64),
            "score": score,
        }
        plan = plan_of(attributes, 4000, "4", rank_noise=["0.03"])
        (release,) = draws(tmp_path, plan, columns, 1)
        with pytest.raises(UsageError, match="less than 3% of the records have two of their levels"):
            release.estimates.regress("score", "man*smokes")


def test_quantiles_are_values_of_the_domain(tmp_path):
    """So are the ends of their intervals, also at the ends of a domain and for values from clusters."""
    rng = np.random.default_rng(3)
    attributes = [
        Attribute("dose", AttributeType.NUMBER, 0, 100, decimals=1),
        Attribute("income", AttributeType.INTEGER, 0, 9000),
    ]
    columns = {"dose": rng.integers(0, 101, 4000), "income": rng.integers(0, 9001, 4000)}
    (release,) = draws(tmp_path, plan_of(attributes, 4000, "1"), columns, 1)
    for name, decimals, highest in (("dose", 1, 10.0), ("income", 0, 9000.0)):
        found = release.estimates.quantiles(name, [0.2, 0.5, 0.8])[["estimate", "low", "high"]].to_numpy()
        assert np.array_equal(found, np.round(found, decimals))
        assert found.min() >= 0
        assert found.max() <= highest
    found = release.estimates.quantiles("dose", [0.001, 0.999])[["estimate", "low", "high"]].to_numpy()
    assert (found.min(), found.max()) == (0.0, 10.0)


def test_a_domain_of_quadrillions_needs_no_memory(tmp_path):
    """What is computed for every value is computed for counted attributes alone."""
    costs = np.random.default_rng(3).integers(0, 10**14, 2000)
    attributes = [Attribute("cost", AttributeType.INTEGER, 0, 10**14)]
    (release,) = draws(tmp_path, plan_of(attributes, 2000, "4"), {"cost": costs}, 1)
    found = release.estimates.quantiles("cost", 0.5).iloc[0]
    assert found["low"] <= np.median(costs) <= found["high"]


def test_a_number_of_two_values_is_no_indicator(tmp_path):
    """Draws of a number from 1 to 2 are from 1 to 2, not shares."""
    rng = np.random.default_rng(3)
    parts = rng.integers(1, 3, 4000)
    attributes = [
        Attribute("parts", AttributeType.INTEGER, 1, 2),
        Attribute("cost", AttributeType.INTEGER, 0, 99),
    ]
    columns = {"parts": parts, "cost": 20 * parts + rng.integers(0, 30, 4000)}
    (release,) = draws(tmp_path, plan_of(attributes, 4000, "4", rank_noise=["0.03"]), columns, 1)
    found = release.estimates.means("parts").iloc[0]
    assert found["low"] <= parts.mean() <= found["high"]
    found = release.estimates.regress("cost", "parts").iloc[0]
    assert found["low"] <= 20 <= found["high"] < 30


def test_without_rank_noise_nothing_is_corrected():
    """Where records keep their ranks and clusters one value, released slopes are the corrected ones."""
    columns = related(0.7, lambda values: values)
    plan = plan_of([number("x"), number("y")], N_RECORDS, "4", mechanism="idp-joint", rank_noise=["0"])
    with tempfile.TemporaryDirectory() as directory:
        (release,) = draws(Path(directory), plan, columns, 1)
    line = release.estimates.regress("y", "x").loc["x"]
    assert line.estimate == pytest.approx(line.released, rel=0.02)
    assert release.codebook["attenuation"].tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("mechanism", ["dp-ir", "idp-ls", "idp-cbls"])
def test_values_that_do_not_ascend_are_not_corrected(mechanism):
    """Their noise weakens relations as well, by an amount that the released values do not show."""
    columns = related(0.7, lambda values: values)
    plan = plan_of([number("x"), number("y")], N_RECORDS, "4", k="10", mechanism=mechanism, rank_noise=["0"])
    with tempfile.TemporaryDirectory() as directory:
        (release,) = draws(Path(directory), plan, columns, 1)
    assert set(release.codebook["note"]) == {"its noisy values do not ascend with the ranks"}
    with pytest.raises(UsageError, match="do not ascend"):
        release.estimates.regress("y", "x")


@pytest.mark.needs("data")
def test_slopes_of_wine():
    """On Wine Quality the originals lie within their intervals, which few released slopes are near."""
    data = wine(Path(os.environ["TESSERA_DATA"]))
    names = ("residual_sugar", "density", "ph", "alcohol")
    columns = {name: data.columns[name] for name in names}
    attributes = [each for each in data.attributes if each.name in names]
    plan = plan_of(attributes, data.n_records, "2", mechanism="idp-quantiles", rank_noise=["0.1"])
    with tempfile.TemporaryDirectory() as directory:
        releases = draws(Path(directory), plan, columns, 6)
    places = {each.name: each.decimals for each in attributes}
    for response, regressor in (
        ("density", "alcohol"),
        ("density", "residual_sugar"),
        ("alcohol", "density"),
    ):
        original = slope(columns[response], columns[regressor]) * 10.0 ** (
            places[regressor] - places[response]
        )
        lines = [each.estimates.regress(response, regressor).loc[regressor] for each in releases]
        assert all(abs(line.released / original) < 0.9 for line in lines)
        assert sum(line.low <= original <= line.high for line in lines) >= 5
