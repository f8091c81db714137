"""Estimates from a synthetic release: intervals hold the original estimates, or a line says why not."""

from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sksurv.nonparametric import kaplan_meier_estimator

from common.analysis.answers import COLUMNS
from common.analysis.calibration import Targets, calibrated, linear_fit, logistic_fit, resampled
from common.analysis.replicates import analysed
from common.analysis.synthetic import SyntheticEstimates
from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from common.synthesis.records import synthesise
from common.synthesis.schedule import Design
from tests.unit.common.analysis.test_noisy_counts import counted

N, RUNS = 6000, 12
WARDS = ("a", "b", "c")
ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 20, 100),
    Attribute("score", AttributeType.NUMBER, 0, 400, decimals=1),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=WARDS),
    Attribute("months", AttributeType.INTEGER, 0, 119),
    Attribute("ill", AttributeType.BOOLEAN, 0, 1),
    Attribute("born", AttributeType.DATE, 0, 30_000),
    Attribute("weight", AttributeType.INTEGER, 30, 130, keeps_missing=True),
)


def people() -> dict[str, np.ndarray]:
    """Return values in units: a survival time, an event, and what they depend on."""
    draw = np.random.default_rng(8)
    age = np.clip(np.rint(draw.normal(60, 12, N)), 20, 100)
    ward = draw.choice(3, N, p=[0.5, 0.3, 0.2])
    score = np.clip(np.rint(10 * (20 + 0.2 * (age - 60) + 3 * (ward == 1) + draw.normal(0, 4, N))), 0, 400)
    ill = draw.random(N) < 1 / (1 + np.exp(2 - 0.05 * (age - 60) - 0.8 * (ward == 2)))
    weight = np.clip(np.rint(70 + 0.2 * (age - 60) + draw.normal(0, 12, N)), 30, 130)
    weight[draw.random(N) < 0.1] = 131
    months = np.minimum(np.floor(draw.exponential(60 / (1 + ill), N)), 119)
    return {
        name: values.astype(np.int64)
        for name, values in {
            "age": age, "score": score, "ward": ward, "months": months, "ill": ill,
            "born": np.clip(np.rint(12_000 + draw.normal(0, 2000, N)), 0, 30_000), "weight": weight,
        }.items()
    }  # fmt: skip


VALUES = people()
CODES = [VALUES[each.name] - each.lower for each in ATTRIBUTES]


def made(seed: int, epsilon: str = "4") -> SyntheticEstimates:
    """Return estimates of a release of everybody."""
    draw = np.random.default_rng(seed)
    design = Design(ATTRIBUTES, N, Decimal(epsilon), Decimal("0.000001"))
    counts = counted(design, CODES, draw)
    return SyntheticEstimates(counts, synthesise(counts.measured).codes)


@pytest.fixture(scope="module")
def releases() -> list[SyntheticEstimates]:
    """Return some releases of the same persons."""
    return [made(seed) for seed in range(RUNS)]


def design_of(*columns: np.ndarray) -> np.ndarray:
    """Return the columns of a model with an intercept."""
    return np.column_stack([np.ones(N), *columns])


def originals() -> dict[str, tuple]:
    """Return by name: how a release is asked, and the estimates of the original records."""
    age, ill = VALUES["age"].astype(float), VALUES["ill"].astype(float)
    b, c = (VALUES["ward"] == code for code in (1, 2))
    once = np.ones(N)
    by_age = design_of(age, b, c)
    present = VALUES["weight"] <= 130
    times, survival = kaplan_meier_estimator(VALUES["ill"] == 1, VALUES["months"] + 0.5)
    at = (12, 36, 60)
    return {
        "means": (lambda of: of.means(["age", "score"]), [age.mean(), VALUES["score"].mean() / 10]),
        "mean of present values": (lambda of: of.means("weight"), [VALUES["weight"][present].mean()]),
        "shares": (lambda of: of.shares("ward"), np.bincount(VALUES["ward"]) / N),
        "shares of a boolean": (lambda of: of.shares("ill"), [1 - ill.mean(), ill.mean()]),
        "quantiles": (lambda of: of.quantiles("age"), np.quantile(age, [0.25, 0.5, 0.75])),
        "correlations": (
            lambda of: of.correlations(["age", "score"]), [np.corrcoef(age, VALUES["score"])[0, 1]],
        ),
        "linear": (
            lambda of: of.regress("score", ["age", "ward"]),
            linear_fit(by_age, VALUES["score"] / 10, once)[1:],
        ),
        "linear with missing values": (
            lambda of: of.regress("weight", "age"),
            linear_fit(design_of(age), VALUES["weight"].astype(float), present.astype(float))[1:],
        ),
        "logistic": (lambda of: of.logistic("ill", ["age", "ward"]), logistic_fit(by_age, ill, once)[1:]),
        "survival": (
            lambda of: of.survival("months", "ill", at), [survival[times <= each][-1] for each in at],
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", originals())
def test_intervals_hold_the_original_estimates(releases, name):
    """Of 12 releases, most intervals of every kind hold, and all are finite."""
    ask, true = originals()[name]
    held = []
    for each in releases:
        found = ask(each)
        assert found.columns.tolist() == list(COLUMNS)
        assert (found["note"] != "").all() == (name == "mean of present values")
        held.append(((found["low"] <= true) & (true <= found["high"])).tolist())
        assert np.isfinite(found["standard_error"]).all()
    assert np.mean(held) >= 0.8


def test_calibration_takes_the_attenuation_away(releases):
    """Released slopes are too small on average; estimates are nearer to the original one."""
    ask, true = originals()["logistic"]
    tables = [ask(each) for each in releases]
    released, estimates = (
        np.mean([table[column] for table in tables], axis=0)[0] for column in ("released", "estimate")
    )
    assert abs(estimates - true[0]) < abs(released - true[0])


def test_without_noise_calibration_gives_the_moments():
    """Weights give products the wanted means exactly, and draws scatter by the moments' noise."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(2, 4000))
    moved = 0.5 + draw.normal(0, 0.02, (200, 1))
    targets = Targets(np.stack([x * y], axis=1), np.array([0.5]), moved)
    estimate, draws = calibrated(targets, lambda weights: np.array([np.mean(weights * x * y)]))
    assert estimate[0] == pytest.approx(0.5, abs=1e-3)
    assert draws.std() == pytest.approx(0.02, rel=0.2)


def test_a_wider_question_has_a_wider_interval(releases):
    """For whom the records are a sample of, every interval is wider than for the records."""
    of = releases[0]
    for ask in (
        lambda **more: of.means("age", **more),
        lambda **more: of.shares("ward", **more),
        lambda **more: of.quantiles("age", **more),
        lambda **more: of.crosstab("ward", "ill", **more),
        lambda **more: of.correlations(["age", "score"], **more),
        lambda **more: of.regress("score", "age", **more),
        lambda **more: of.logistic("ill", "age", **more),
        lambda **more: of.survival("months", "ill", [24], **more),
    ):
        records, population = ask(), ask(population=True)
        assert (population["standard_error"] > records["standard_error"]).all()
        assert (population["standard_error"] > ask(confidence=0.5)["standard_error"]).all()


def test_dates_are_dates(releases):
    """A mean and a median of dates are dates, beside means of numbers."""
    found = releases[0].means(["age", "born"])
    assert str(found.loc["born", "low"]) < str(found.loc["born", "estimate"]) < "2003"
    assert isinstance(found.loc["age", "estimate"], float)
    assert str(releases[0].quantiles("born", [0.5])["estimate"].iloc[0]).startswith(("2002", "2003"))


def test_one_refusal_concerns_one_line(releases):
    """A category among the means has a line that says why; all others have estimates."""
    found = releases[0].means(["age", "ward"])
    assert found.loc["ward", "note"] == "it is a category: use shares"
    assert found.loc["age", "low"] < found.loc["age", "high"]


def test_what_was_not_counted_is_refused(releases):
    """Hazards, interactions, unknown names and wrong kinds: a reason, and what would do."""
    of = releases[0]
    for reason, ask in {
        "hazard ratios have no true intervals": lambda: of.cox("months", "ill", ["age"]),
        "the interaction": lambda: of.regress("score", ["age", "age:ill"]),
        "no attribute 'income'": lambda: of.means("income"),
        "not the name of an attribute": lambda: of.shares(["ward"]),
        "is a category": lambda: of.regress("ward", "age"),
        "neither boolean nor category": lambda: of.logistic("age", "score"),
        "needs an event": lambda: of.logistic("ward", "age"),
        "other attributes than the response": lambda: of.regress("age", "age"),
        "no survival": lambda: of.survival("weight", "ill"),
        "not between 0 and 1": lambda: of.means("age", confidence=95),
        "is not a category": lambda: of.shares("age"),
        "shares of quantiles": lambda: of.quantiles("age", [0.5, 1.5]),
        "no survival by 'born'": lambda: of.survival("born", "ill"),
        "outside of": lambda: of.survival("months", "ill", [12, 200]),
        "are not numbers": lambda: of.survival("months", "ill", ["2001-01-01"]),
    }.items():
        with pytest.raises(UsageError, match=reason) as caught:
            ask()
        assert caught.value.hint


def test_separation_has_an_open_interval():
    """Where a level has no events the interval is open; the other lines have estimates."""
    draw = np.random.default_rng(2)
    groups = draw.integers(0, 3, 5000)
    events = (draw.random(5000) < np.array([0.0, 0.3, 0.6])[groups]).astype(float)
    design = np.column_stack([np.ones(5000), groups == 1, groups == 2]).astype(float)
    turned = np.column_stack([np.ones(5000), groups == 0, groups == 2]).astype(float)
    assert np.isinf(logistic_fit(design, events, np.ones(5000))[1:]).any()
    slopes = logistic_fit(turned, events, np.ones(5000))[1:]
    assert slopes[0] == -np.inf
    assert slopes[1] == pytest.approx(np.log(0.6 / 0.4) - np.log(0.3 / 0.7), abs=0.2)


def frame(units: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return values in units as a frame."""
    return pd.DataFrame({name: np.asarray(column) for name, column in units.items()})


def slope(table: pd.DataFrame) -> dict[str, float]:
    """Return what an analyst asks of a table."""
    return {"slope": float(np.polyfit(table["age"], table["score"], 1)[0])}


def test_any_analysis_has_an_interval(releases):
    """A function is run on tables made again: it tells its progress, and most intervals hold the original."""
    true, held, steps = slope(frame(VALUES))["slope"], [], list[int]()
    for of in releases[:6]:
        released = frame({name: of._values(name)[0] for name in ("age", "score")})
        tables = map(frame, islice(of.tables(["age", "score"]), 9))
        found = analysed(slope, released, tables, 8, 0.95, lambda done, _total: steps.append(done))
        line = found.loc["slope"]
        held.append(line["low"] < true < line["high"])
    assert sum(held) >= 5
    assert steps == list(range(10)) * 6


def test_tables_made_again_are_different_and_repeat_themselves(releases):
    """Each has all records; the same release gives the same tables, in every program."""
    first, again = (list(islice(releases[0].tables(["age", "score", "ward"]), 3)) for _ in range(2))
    assert {each["age"].size for each in first} == {N}
    assert len({each["score"].tobytes() for each in first}) == 3
    assert all(np.array_equal(a["score"], b["score"]) for a, b in zip(first, again, strict=True))


def test_relations_of_few_records_are_refused():
    """Where an attribute determines another one, noise asks for records that hardly exist."""
    draw = np.random.default_rng(3)
    one = draw.integers(0, 2, 3000).astype(float)
    x = one - one.mean()
    products = np.stack([x, x * x * 1000, np.where(np.arange(3000) < 5, 1.0, 0.0)], axis=1)
    targets = Targets(
        products,
        products.mean(axis=0) + np.array([0, 0, 0.5]),
        products.mean(axis=0) + draw.normal(0, 1e-3, (20, 3)),
    )
    with pytest.raises(UsageError, match="few of the released records") as caught:
        next(resampled(targets))
    assert caught.value.hint


def test_bad_analyses_are_refused():
    """Too few replicates, no numbers by name, other names for another table."""
    table, names = pd.DataFrame({"x": [1.0, 2.0]}), iter("abcdefgh")
    analyses: tuple[tuple[str, Any, int], ...] = (
        ("too few", lambda _: {"a": 1}, 2),
        ("no numbers", lambda _: {}, 5),
        ("not numbers by name", lambda _: None, 5),
        ("not numbers by name", lambda _: {"born": "2001-01-01"}, 5),
        ("other names", lambda _: {next(names): 1}, 5),
    )
    for reason, function, number in analyses:
        with pytest.raises(UsageError, match=reason):
            analysed(function, table, [table] * 6, number, 0.95, lambda *_: None)


def test_numbers_without_a_value_have_a_note():
    """A number that is NaN for some table has an open interval; all others have theirs."""
    table, values = pd.DataFrame({"x": [1.0, 2.0]}), iter([1, 2, 3, np.nan, 5, 6])
    found = analysed(
        lambda _: {"a": next(values), "b": 1}, table, [table] * 5, 4, 0.95, lambda *_: None
    )  # fmt: skip
    a, b = found.to_dict("records")
    assert (a["low"], a["high"]) == (-np.inf, np.inf)
    assert "no finite value" in a["note"]
    assert list(b.values()) == [1, 1, 0, 1, 1, ""]


def test_attributes_that_hardly_differ_are_refused():
    """No interval of width 0 for what noise hides: a constant, all missing, no events, a label of nobody."""
    attributes = (
        *ATTRIBUTES[:2],
        Attribute("group", AttributeType.CATEGORY, 0, 3, categories=(*WARDS, "nobody")),
        Attribute("constant", AttributeType.INTEGER, 0, 9),
        Attribute("missing", AttributeType.INTEGER, 0, 50, keeps_missing=True),
        Attribute("never", AttributeType.BOOLEAN, 0, 1),
    )
    codes = [*CODES[:3], np.full(N, 2), np.full(N, 51), np.zeros(N, dtype=np.int64)]
    counts = counted(Design(attributes, N, Decimal(4), Decimal("0.000001")), codes, np.random.default_rng(1))
    of = SyntheticEstimates(counts, synthesise(counts.measured).codes)
    for name in ("constant", "missing", "never"):
        for response, on in (("score", ["age", name]), (name, "age")):
            with pytest.raises(UsageError, match=f"noise hides how much the values of '{name}'"):
                of.regress(response, on)
    for response, event in (("never", None), ("group", "nobody")):
        with pytest.raises(UsageError, match="noise hides"):
            of.logistic(response, "age", event)
    assert of.regress("score", "group").index.tolist() == [
        "group: b (against a)",
        "group: c, nobody (against a)",
    ]
    assert np.unique(next(of.tables(["age", "score"]))["age"]).size > 30


def test_sampling_of_a_separated_model():
    """For a population a label without events has an open interval, and the others have theirs."""
    attributes = (ATTRIBUTES[0], ATTRIBUTES[2], ATTRIBUTES[4])
    codes = [CODES[0], CODES[2], CODES[4] * (CODES[2] != 2)]
    counts = counted(Design(attributes, N, Decimal(4), Decimal("0.000001")), codes, np.random.default_rng(1))
    of = SyntheticEstimates(counts, [np.asarray(each) for each in codes])
    found = of.logistic("ill", ["age", "ward"], population=True)
    assert np.isinf(found["standard_error"]).tolist() == [False, False, True]
    assert (found["standard_error"] > of.logistic("ill", ["age", "ward"])["standard_error"]).tolist()[:2] == [
        True
    ] * 2


def test_exact_counts_give_the_original_correlation():
    """With all noise off the estimate is the original one, up to what bins hide."""
    design = Design(ATTRIBUTES, N, Decimal(4), Decimal("0.000001"))
    counts = counted(design, CODES)
    of = SyntheticEstimates(counts, synthesise(counts.measured).codes)
    found = of.regress("score", "age").loc["age"]
    true = np.polyfit(VALUES["age"], VALUES["score"] / 10, 1)[0]
    assert found["estimate"] == pytest.approx(true, rel=0.03)
    # How relations go on within bins is not known: a part of what was added is in the standard error.
    correlation = of.correlations(["age", "score"]).iloc[0]
    assert found["standard_error"] / found["estimate"] == pytest.approx(
        1.2 * correlation["standard_error"] / correlation["estimate"], rel=0.4
    )


def test_rare_labels_are_one_level_and_not_the_reference(monkeypatch):
    """Labels with too few records for the noise are combined, and the line names all of them."""
    estimates = made(1)
    deviation = estimates._design.pair_variance**0.5
    # c has some 1,200 records, b 1,800 and a 3,000.
    monkeypatch.setattr("common.analysis.synthetic._FEWEST", 1500 / deviation)
    assert estimates.regress("score", "ward").index.tolist() == ["ward: b, c (against a)"]


def test_a_table_of_two_has_the_same_cells_in_either_order():
    """Labels and bins keep the order in which they were counted, whichever attribute is named first."""
    draw = np.random.default_rng(4)
    labels = ("surgery", "medicine", "icu", "er")
    attributes = (
        Attribute("died", AttributeType.BOOLEAN, 0, 1),
        Attribute("ward", AttributeType.CATEGORY, 0, 3, categories=labels),
        Attribute("days", AttributeType.INTEGER, 0, 119),
    )
    codes = [draw.random(N) < 0.2, draw.choice(4, N, p=[0.5, 0.3, 0.15, 0.05]), draw.integers(0, 120, N)]
    counts = counted(Design(attributes, N, Decimal(4)), [each.astype(np.int64) for each in codes])
    of = SyntheticEstimates(counts, synthesise(counts.measured).codes)
    for first, second in (("ward", "died"), ("days", "died"), ("ward", "days")):
        table, turned = of.crosstab(first, second), of.crosstab(second, first)
        assert abs(table["released"] - table["estimate"]).max() < 0.02
        pd.testing.assert_frame_equal(turned.swaplevel().loc[table.index], table)
    assert of.crosstab("ward", "died").index.unique(0).tolist() == list(labels)


def test_a_level_that_few_records_stand_for_is_refused():
    """Weights that leave one of a hundred records of a level would give an interval without a width."""
    draw = np.random.default_rng(2)
    attributes = (ATTRIBUTES[1], ATTRIBUTES[2])
    for rare in (0, 2):
        ward = np.where(np.arange(N) < 100, rare, draw.choice([each for each in range(3) if each != rare], N))
        released = np.clip(np.rint(draw.normal(150, 40, N)), 0, 400).astype(np.int64)
        released[:100] = np.where(np.arange(100) < 1, 390, 50)
        score = np.where(np.arange(N) < 100, 390, released)
        counts = counted(Design(attributes, N, Decimal(4), Decimal("0.000001")), [score, ward])
        assert SyntheticEstimates(counts, [score, ward]).regress("score", "ward")["standard_error"].all()
        with pytest.raises(UsageError, match="few of the released records") as caught:
            SyntheticEstimates(counts, [released, ward]).regress("score", "ward")
        assert "rare labels" in (caught.value.hint or "")


def test_a_level_of_six_deviations_is_combined():
    """So few records seldom have the values that noisy tables ask for."""
    draw = np.random.default_rng(6)
    design = Design(ATTRIBUTES[1:3], N, Decimal(4), Decimal("0.000001"))
    n_rare = round(6 * design.pair_variance**0.5)
    codes = [CODES[1], np.where(np.arange(N) < n_rare, 2, draw.choice(2, N, p=[0.6, 0.4]))]
    of = SyntheticEstimates(counted(design, codes), codes)
    assert of.regress("score", "ward").index.tolist() == ["ward: b, c (against a)"]
