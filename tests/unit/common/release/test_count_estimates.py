"""Estimates from noisy counts: intervals that hold what they say, from the counts alone."""

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from common.release.count_estimates import NoisyCounts, estimated_parts, ungrouped
from common.synthesis.accounting import Kind, Noise
from common.synthesis.course import Design, Measured, next_round
from owner_node.synthesis.counts import exact_answer

CONFIDENCE = 0.9
RUNS = 25
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


def noise(asked: Noise, n_numbers: int, draw: np.random.Generator) -> np.ndarray:
    """Draw noise by numpy; the exact sampler is tested where it is."""
    if asked.kind is Kind.GAUSSIAN:
        return np.rint(draw.normal(0, asked.size**0.5, n_numbers)).astype(np.int64)
    p = 1 - np.exp(-1 / asked.size)
    return draw.geometric(p, n_numbers) - draw.geometric(p, n_numbers)


def counted(design: Design, columns: Sequence[np.ndarray], draw: np.random.Generator | None) -> NoisyCounts:
    """Return the noisy counts of records; exact ones without a source of noise."""
    sums: list[np.ndarray] = []
    while not isinstance(asked := next_round(design, sums), Measured):
        answer = exact_answer(asked, columns)
        if draw is not None:
            answer = answer + np.concatenate([noise(each.noise, each.n_numbers, draw) for each in asked])
        sums.append(answer)
    return NoisyCounts(design, asked)


def holds(lines: pd.DataFrame, true: np.ndarray) -> np.ndarray:
    """Return which intervals hold the true values."""
    return ((lines["low"] <= true) & (true <= lines["high"])).to_numpy()


@pytest.fixture(scope="module", params=["0", "0.000001"])
def coverage(request):
    """How often intervals hold what the original records have, by statistic."""
    columns = records(20_000)
    design = Design(ATTRIBUTES, 20_000, Decimal(1), Decimal(request.param))
    exact = counted(design, columns, None)
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


def test_exact_counts_give_exact_estimates():
    """Without noise counts, means and tables are those of the records."""
    columns = records(20_000)
    design = Design(ATTRIBUTES, 20_000, Decimal(1))
    exact = counted(design, columns, None)
    assert np.allclose(exact.table("ward")["count"], np.bincount(columns[3]))
    assert exact.means(["age"]).loc["age", "mean"] == pytest.approx(columns[0].mean() + 10)
    assert exact.means("weight").loc["weight", "mean"] == pytest.approx(columns[4][columns[4] < 101].mean())
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


def test_what_has_no_estimate_is_refused():
    """In words: names, categories, pairs that were not counted, confidence."""
    design = Design(ATTRIBUTES, 20_000, Decimal(1))
    counts = counted(design, records(20_000), np.random.default_rng(3))
    for call, words in (
        (lambda: counts.table("height"), "no attribute 'height'"),
        (lambda: counts.means("ward"), "'ward' is a category"),
        (lambda: counts.correlations(["age", "weight"]), "missing values"),
        (lambda: counts.correlations("age"), "no pair of these attributes was counted"),
        (lambda: counts.table("age", "age"), "was not counted"),
        (lambda: counts.table("age", confidence=1), "is not between 0 and 1"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
    assert counts.frame["kind"].unique().tolist() == ["one-way", "score", "two-way"]
    assert "noisy counts of 20,000 records" in repr(counts)
