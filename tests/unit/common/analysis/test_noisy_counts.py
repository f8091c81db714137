"""Estimates from noisy counts: intervals that hold what they say, from the counts alone."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from common.analysis.noisy_counts import (
    NoisyCounts,
    derived_parts,
    estimated_parts,
    part_middles,
    ungrouped,
)
from common.errors import UsageError
from common.model.schema import Attribute, AttributeType, Derivation
from common.synthesis.accounting import Kind, Noise
from common.synthesis.schedule import Design, Round, run_rounds
from owner_node.synthesis.counts import exact_answer

CONFIDENCE = 0.9
RUNS = 25
WIDE_RUNS = 16
ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 10, 109),
    Attribute("income", AttributeType.NUMBER, -5_000, 95_000, decimals=2),
    Attribute("ill", AttributeType.BOOLEAN, 0, 1),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
    Attribute("weight", AttributeType.INTEGER, 0, 100, keeps_missing=True),
)


def records(n_records: int) -> list[np.ndarray]:
    """Return codes of records with relations between all attributes but the ward."""
    draw = np.random.default_rng(5)
    z = draw.multivariate_normal(np.zeros(4), [[1, 0.7, 0.3, 0.4], [0.7, 1, 0.2, 0.1], [0.3, 0.2, 1, 0],
                                               [0.4, 0.1, 0, 1]], n_records)  # fmt: skip
    weight = np.clip(np.rint(60 + 12 * z[:, 3]), 0, 100).astype(np.int64)
    weight[draw.random(n_records) < 0.2] = 101
    return [
        np.clip(np.rint(45 + 15 * z[:, 0]), 0, 99).astype(np.int64),
        np.clip(np.rint(40_000 + 12_000 * z[:, 1]), 0, 100_000).astype(np.int64),
        (z[:, 2] > 0.8).astype(np.int64),
        draw.integers(0, 3, n_records),
        weight,
    ]


COLUMNS = records(20_000)
DESIGN = Design(ATTRIBUTES, 20_000, Decimal(1))


def noise(asked: Noise, n_numbers: int, draw: np.random.Generator) -> np.ndarray:
    """Draw noise by numpy; the exact sampler is tested where it is."""
    if asked.kind is Kind.GAUSSIAN:
        return np.rint(draw.normal(0, asked.size**0.5, n_numbers)).astype(np.int64)
    p = 1 - np.exp(-1 / asked.size)
    return draw.geometric(p, n_numbers) - draw.geometric(p, n_numbers)


def counted(
    design: Design,
    columns: Sequence[np.ndarray],
    draw: np.random.Generator | None = None,
    following: Sequence[Attribute] = (),
) -> NoisyCounts:
    """Return the noisy counts of records; exact ones without a source of noise."""

    def answer(asked: Round) -> np.ndarray:
        exact = exact_answer(asked, columns)
        if draw is None:
            return exact
        return exact + np.concatenate([noise(each.noise, each.n_numbers, draw) for each in asked])

    return NoisyCounts(run_rounds(design, answer), following)


def holds(lines: pd.DataFrame, true: np.ndarray) -> np.ndarray:
    """Return which intervals hold the true values."""
    return ((lines["low"] <= true) & (true <= lines["high"])).to_numpy()


@pytest.fixture(scope="module", params=["0", "0.000001"])
def coverage(request):
    """How often intervals hold what the original records have, by statistic."""
    columns, design = COLUMNS, replace(DESIGN, delta=Decimal(request.param))
    exact = counted(design, columns)
    weight = columns[4][columns[4] <= 100]
    means = np.array([columns[0].mean() + 10, columns[1].mean() / 100 - 50, columns[2].mean(), weight.mean()])
    draw, held = np.random.default_rng(2), defaultdict(list)
    for _ in range(RUNS):
        counts = counted(design, columns, draw)
        found = counts.means(confidence=CONFIDENCE)
        for name, each in zip(found.index, holds(found, means), strict=True):
            held[f"mean of {name}"].append(each)
        for name in ("age", "ward"):
            true = exact.table(name)["count"]
            held[name] += holds(counts.table(name, confidence=CONFIDENCE), true.to_numpy()).tolist()
            shares = counts.proportions(name, confidence=CONFIDENCE)
            held[f"shares of {name}"] += holds(shares, true.to_numpy() / 20_000).tolist()
        place = dict(zip((each.name for each in ATTRIBUTES), columns, strict=True))
        related = counts.correlations(confidence=CONFIDENCE)
        originals = [np.corrcoef(place[one], place[other])[0, 1] for one, other in related.index]
        held["correlations"] += holds(related, np.array(originals)).tolist()
    return held


def test_intervals_hold_at_least_what_they_say(coverage):
    """Nine of ten intervals hold the original value: of counts, proportions, means and correlations."""
    assert set(coverage) == {
        "age", "ward", "shares of age", "shares of ward", "correlations",
        *(f"mean of {each}" for each in ("age", "income", "ill", "weight")),
    }  # fmt: skip
    for name, each in coverage.items():
        assert len(each) >= RUNS
        # Three standard deviations of the share of that many intervals.
        assert np.mean(each) > CONFIDENCE - 3 * (0.1 * CONFIDENCE / RUNS) ** 0.5, name


def test_intervals_are_not_much_wider_than_needed(coverage):
    """An interval that always holds says nothing."""
    assert 0.85 < np.mean(coverage["age"]) < 0.95
    assert 0.85 < np.mean(coverage["shares of age"]) < 0.95


@pytest.mark.parametrize(("upper", "heavy"), [(120, False), (60_000, False), (60_000, True)])
def test_means_of_wide_domains_hold_without_the_noise_of_empty_counts(upper, heavy):
    """Most of the domain is empty, and noise of its counts would be most of a linear estimate."""
    draw, n_records = np.random.default_rng(8), 5_000
    values = draw.pareto(2.2, n_records) if heavy else draw.gamma(1.2, 1.0, n_records)
    stay = np.minimum(np.rint(values * upper / 40), upper).astype(np.int64)
    attributes = (
        Attribute("stay", AttributeType.INTEGER, 0, upper),
        *(Attribute(f"other {each}", AttributeType.BOOLEAN, 0, 1) for each in range(3)),
    )
    columns = [stay, *(draw.integers(0, 2, n_records) for _ in attributes[1:])]
    design, held, narrower = Design(attributes, n_records, Decimal("0.5"), Decimal("0.000001")), [], []
    for _ in range(WIDE_RUNS):
        counts = counted(design, columns, draw)
        line = counts.means("stay").loc["stay"]
        assert 0 <= line["low"] <= line["mean"] <= line["high"] <= upper
        held.append(line["low"] <= stay.mean() <= line["high"])
        parts = estimated_parts(counts.levels[0], n_records)
        linear = parts.variance((parts.first + parts.last) / 2 - line["mean"]) ** 0.5 / n_records
        narrower.append(2 * 1.96 * linear / (line["high"] - line["low"]))
    assert np.mean(held) > 0.95 - 3 * (0.05 * 0.95 / WIDE_RUNS) ** 0.5
    assert np.median(narrower) > 2


def test_exact_counts_give_exact_estimates():
    """Without noise counts, means and tables are those of the records."""
    columns, exact = COLUMNS, counted(DESIGN, COLUMNS)
    assert np.allclose(exact.table("ward")["count"], np.bincount(columns[3]))
    # Ages that few have could be noise.
    assert exact.means(["age"]).loc["age", "mean"] == pytest.approx(columns[0].mean() + 10, abs=0.02)
    weight = columns[4][columns[4] < 101].mean()
    assert exact.means("weight").loc["weight", "mean"] == pytest.approx(weight, abs=0.05)
    line = exact.means("income").loc["income"]
    assert line["low"] <= columns[1].mean() / 100 - 50 <= line["high"]
    assert exact.table("weight").loc["(missing)", "count"] == pytest.approx((columns[4] == 101).sum())
    pair = next(each for each in exact.pairs if "age" in each and "income" in each)
    both = exact.table(*pair)
    assert both["count"].sum() == pytest.approx(20_000)
    turned = exact.table(pair[1], pair[0])
    assert turned.index.names == [pair[1], pair[0]]
    assert turned["count"].sum() == pytest.approx(20_000)
    first = both.index[0]
    assert turned.loc[tuple(reversed(first)), "count"] == both.loc[first, "count"]
    found = exact.correlations(["age", "income"]).iloc[0]
    assert found["correlation"] == pytest.approx(np.corrcoef(columns[0], columns[1])[0, 1], abs=0.02)
    assert abs(found["grouped"]) < abs(found["correlation"])


@pytest.mark.parametrize("lower", [0, 20])
def test_parts_of_a_logarithmic_scale_have_a_geometric_middle(lower):
    """The mean of skewed values is nearer, and its interval holds it; zeros are exact."""
    draw, n_records = np.random.default_rng(6), 20_000
    codes = np.minimum(np.rint(draw.lognormal(np.log(2_000), 1, n_records)), 999_999).astype(np.int64)
    codes[: n_records // 10] = 0
    linear = Attribute("crp", AttributeType.NUMBER, lower, lower + 10**6, decimals=1)
    # So little ε that there is one level, and parts stay wide.
    design = Design((replace(linear, is_logarithmic=True),), n_records, Decimal("0.02"))
    counts = counted(design, [codes])
    line, true = counts.means("crp").loc["crp"], (codes.mean() + lower) / 10
    assert line["low"] < true < line["high"]
    assert line["mean"] == pytest.approx(true, rel=0.1)
    edges = np.array([0, 1, 100, 10_000])
    codes_of = edges[:-1], edges[1:] - 1
    assert part_middles(linear, *codes_of).tolist() == [0, 50, 5049.5]
    logarithmic = part_middles(replace(linear, is_logarithmic=True), *codes_of)
    ends = [(lower, lower), (lower + 1, lower + 99), (lower + 100, lower + 9_999)]
    assert np.allclose(logarithmic + lower, [(first * last) ** 0.5 for first, last in ends])


LEVEL = Attribute("level", AttributeType.INTEGER, 0, 10**9, keeps_missing=True)
FLOOR = Attribute("floor", AttributeType.CATEGORY, 0, 2, categories=("low", "high", "roof"))
AGED = Attribute("aged", AttributeType.BOOLEAN, 0, 1)
FOLLOWING = (
    replace(LEVEL, derivation=Derivation("ward", (("a", "500"), ("b", "(missing)"), ("c", "500")))),
    replace(FLOOR, derivation=Derivation("ward", (("a", "high"), ("b", "low"), ("c", "high")))),
    replace(
        AGED,
        derivation=Derivation("age", tuple((str(age), str(age >= 65).lower()) for age in range(10, 110))),
    ),
)


NAMES = [each.name for each in ATTRIBUTES] + [each.name for each in FOLLOWING]


@pytest.fixture(scope="module")
def every_count():
    """Noisy counts with what follows them."""
    return counted(DESIGN, COLUMNS, np.random.default_rng(3), FOLLOWING)


def test_what_follows_has_the_counts_of_what_it_follows():
    """Summed by the public table, with the noise of the sum; values that nothing leads to are not listed."""
    columns, exact = COLUMNS, counted(DESIGN, COLUMNS, None, FOLLOWING)
    noisy = counted(DESIGN, COLUMNS, np.random.default_rng(4), FOLLOWING)
    wards, ages = np.bincount(columns[3]), noisy.table("age")
    assert exact.table("floor")["count"].to_dict() == pytest.approx(
        {"low": wards[1], "high": wards[0] + wards[2]}
    )
    assert exact.table("level")["count"].to_dict() == pytest.approx(
        {"500": wards[0] + wards[2], "(missing)": wards[1]}
    )
    assert exact.means("level").loc["level", "mean"] == pytest.approx(500)
    aged = noisy.proportions("aged").loc["true"]
    assert aged["proportion"] == pytest.approx(ages["count"].iloc[55:].sum() / 20_000)
    # Two categories of three that sum to n: the noise of the sum is that of the third.
    of_floor, of_ward = noisy.table("floor")["standard_error"], noisy.table("ward")["standard_error"]
    assert of_floor["high"] == pytest.approx(of_ward["b"])
    mean = noisy.means("aged").loc["aged"]
    assert mean["mean"] == pytest.approx(aged["proportion"])
    assert mean["standard_error"] == pytest.approx(aged["standard_error"])
    assert abs(mean["mean"] - (columns[0] >= 55).mean()) < 4 * mean["standard_error"]


def test_what_follows_by_parts_of_several_values_is_refused():
    """Unless all values of a part lead to the same one."""
    wide = Attribute("day", AttributeType.INTEGER, 0, 4)
    odd = AGED.derive_from(wide, {str(day): str(day % 2 == 1).lower() for day in range(5)})
    edges, table = np.array([0, 1, 2, 4, 5]), np.array([1, 2, 3, 4])
    parts = estimated_parts([(edges, table, 2.0)], 10)
    with pytest.raises(UsageError, match="'aged' follows 'day', which was counted in wider parts"):
        derived_parts(odd, wide, parts)
    late = AGED.derive_from(wide, {str(day): str(day > 1).lower() for day in range(5)})
    assert derived_parts(late, wide, parts).counts.tolist() == pytest.approx([3, 7])


def test_levels_of_counts_are_combined():
    """The best linear unbiased estimate: of two levels with equal noise it is known."""
    edges = np.array([0, 1, 2, 3, 4])
    fine, coarse = np.array([5, 1, 2, 8]), np.array([10, 10])
    parts = estimated_parts([(edges[::2], coarse, 2.0), (edges, fine, 2.0)], 16)
    # Each half: its own count and the sum of its quarters; weights of the variances 2 and 4. Then the whole.
    halves = np.array([(10 * 2 + 6) / 3, (10 * 2 + 10) / 3])
    halves += (16 - halves.sum()) / 2
    quarters = fine + np.repeat((halves - [6, 10]) / 2, 2)
    assert np.allclose(parts.counts, quarters)
    assert parts.counts.sum() == pytest.approx(16)
    assert parts.variance(np.ones(4)) == pytest.approx(0, abs=1e-9)
    alone = estimated_parts([(edges, fine, 2.0)], 16)
    assert parts.variance(np.array([1.0, 1, 0, 0])) < alone.variance(np.array([1.0, 1, 0, 0]))


@pytest.mark.parametrize("kept", [1.0, 0.9, 0.5])
@pytest.mark.parametrize("true", [-0.95, -0.3, 0.0, 0.2, 0.8])
def test_grouping_is_undone(kept, true):
    """The equation is solved, with its slope."""
    cubic = kept**0.5 - kept
    found, slope = ungrouped(kept * true + cubic * true**3, kept)
    assert found == pytest.approx(true, abs=1e-12)
    assert slope == pytest.approx(kept + 3 * cubic * true**2)


@pytest.mark.parametrize(
    ("call", "words", "hint"),
    [
        (lambda it: it.table("roof"), "no attribute 'roof'", f"attributes: {', '.join(NAMES)}"),
        (lambda it: it.means("ward"), "'ward' is a category", None),
        (lambda it: it.means("floor"), "'floor' is a category", None),
        (lambda it: it.correlations(["age", "weight"]), "missing values", None),
        (lambda it: it.correlations("age"), "no pair of these attributes was counted", None),
        (lambda it: it.table("age", "age"), "was not counted", None),
        (lambda it: it.table("age", confidence=1), "is not between 0 and 1", None),
        (lambda it: it.table("age", "floor"), "'floor' follows 'ward', and was not", "ask for 'ward'"),
        (lambda it: it.correlations(["aged", "income"]), "'aged' follows 'age', and was", "ask for 'age'"),
    ],
)
def test_what_has_no_estimate_is_refused(every_count, call, words, hint):
    """In words: names, categories, pairs that were not counted, confidence, what follows others."""
    with pytest.raises(UsageError, match=words) as refused:
        call(every_count)
    assert hint in (None, refused.value.hint)


def test_counts_are_shown_as_a_frame(every_count):
    """With both kinds of tables, and the number of records."""
    assert every_count.frame["kind"].unique().tolist() == ["one-way", "two-way"]
    assert "noisy counts of 20,000 records" in repr(every_count)
