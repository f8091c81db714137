"""The experiment on risk: its measure of distributions, and its tables."""

import csv
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from tests.papers import risk
from tests.papers.data_sets import DataSet
from tests.papers.risk_measures import MOST_VALUES, QUANTILES, Distributions

INCOME = Attribute("income", AttributeType.INTEGER, 0, 9_999)
AGE = Attribute("age", AttributeType.INTEGER, 0, 99)
TOWN = Attribute("town", AttributeType.CATEGORY, 0, 3, categories=tuple("abcd"))


def people(n_records=300):
    """Records of three attributes that have to do with each other, and a class."""
    draw = np.random.default_rng(8)
    age = draw.integers(18, 90, n_records)
    income = np.minimum(age * 60 + draw.geometric(1 / 500, n_records), INCOME.upper)
    town = (age // 25).clip(0, 3)
    above = (income > np.median(income)).astype(np.int64)
    return DataSet("people", (INCOME, AGE, TOWN), {"income": income, "age": age, "town": town}, above)


def test_total_variation_by_its_definition():
    """Half of all differences of frequencies: by value for few values, by quantile for many; and pairs'."""
    data, draw = people(), np.random.default_rng(4)
    masked = [np.where(draw.random(300) < 0.3, column.max(), column) for column in data.columns.values()]
    one, two = Distributions.of(data.attributes, data.columns).total_variation(masked)
    assert INCOME.n_values > MOST_VALUES
    income = np.sort(data.columns["income"])
    starts = sorted({0, *(int(income[i * 300 // QUANTILES]) for i in range(1, QUANTILES))})
    before = [np.digitize(data.columns["income"], starts), data.columns["age"], data.columns["town"]]
    after = [np.digitize(masked[0], starts), masked[1], masked[2]]

    def distance(chosen):
        counts = [Counter(zip(*(side[i] for i in chosen), strict=True)) for side in (before, after)]
        return sum(abs(counts[0][key] - counts[1][key]) for key in counts[0] | counts[1]) / 600

    assert one == pytest.approx(np.mean([distance([i]) for i in range(3)]))
    assert two == pytest.approx(np.mean([distance(pair) for pair in ((0, 1), (0, 2), (1, 2))]))


def test_every_setting_is_measured_and_attacked(tmp_path, monkeypatch):
    """Two owners' records through the whole experiment: every cell has its numbers, in file and tables."""
    monkeypatch.setattr(risk, "RANK_NOISES", (Decimal(0), Decimal("0.1")))
    lines = risk.measured(people(), (200, 100), 2, np.random.default_rng(3))
    settings = {(each.mechanism, each.rank_noise) for each in lines}
    assert len(settings) == 5
    # Of three attributes nobody knows any five, or any three that are not all.
    assert len(lines) == 5 * (len(risk.WORTH) + len(risk.ATTACKED) - 2)
    assert all(each.low <= each.mean <= each.high and each.runs == 2 for each in lines)
    by_key = {(each.mechanism, each.rank_noise, each.measure): each for each in lines}
    assert by_key["original", "", risk.MEAN_SSE].mean == 0 == by_key["original", "", risk.TWO_WAY].mean
    linked = by_key["idp-joint", "0", "all"]
    assert linked.mean > by_key["idp-joint", "0.1", "all"].mean
    # One person in ten of each owner was left out; the intruder knows the owner.
    assert linked.baseline == pytest.approx(2 / 270, rel=0.02)
    risk.write_lines(tmp_path / "people.csv", lines)
    with (tmp_path / "people.csv").open(encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream))
    assert [float(each["mean"]) for each in written] == pytest.approx([each.mean for each in lines], rel=1e-5)
    tables = risk.page_tables("people", lines)
    assert list(tables) == ["people worth", "people persons"]
    assert tables["people persons"].splitlines()[4].startswith("| *no release* |  | – | – | 0.007")
    assert tables["people worth"].count("\n| ") == 6
