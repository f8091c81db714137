"""The experiments on risk and carriers: their measures, their tables, and what they show of little data."""

import csv
import os
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType, Schema
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.masking.arrays import SystemBits
from owner_node.risk.total_variation import MOST_VALUES, QUANTILES, Distributions
from owner_node.risk.trials import Randomness
from tests.papers import carriers, linking, risk, risk_data, scales, target
from tests.papers.data_sets import DataSet
from tests.papers.experiments import EXPERIMENTS, named

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
    monkeypatch.setattr(risk, "RANK_NOISES", (Decimal(0), Decimal("0.3")))
    lines = risk.measured(people(), (200, 100), 2, np.random.default_rng(3))
    settings = {(each.mechanism, each.rank_noise) for each in lines}
    assert len(settings) == 5
    # Of three attributes nobody knows any five, or any three that are not all.
    assert len(lines) == 5 * (len(risk.WORTH) + len(risk.ATTACKED) - 2)
    assert all(each.low <= each.mean <= each.high and each.runs == 2 for each in lines)
    by_key = {(each.mechanism, each.rank_noise, each.measure): each for each in lines}
    assert by_key["original", "", risk.MEAN_SSE].mean == 0 == by_key["original", "", risk.TWO_WAY].mean
    linked = by_key["idp-joint", "0", "all"]
    assert linked.mean > by_key["idp-joint", "0.3", "all"].mean
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


def test_experiments_have_names():
    """One by its name, several by the word that their names begin with, none by a part of a word."""
    assert named("risk_wine") == ["risk_wine"]
    assert named("risk") == [each for each in EXPERIMENTS if each.startswith("risk_")]
    assert named("ris") == []


def test_every_table_of_the_page_names_its_command():
    """Experiment, data and draws stand above each of them."""
    page = (Path(__file__).parents[2] / "docs" / "risk.md").read_text(encoding="utf-8")
    tables = re.findall(r"<!-- (?!end)(.+?) -->\n\n(.+?)\n\n(.+?)\n\n\|", page)
    assert len(tables) == page.count("<!-- end ")
    for name, command, about in tables:
        found = re.fullmatch(r"`python -m tests\.papers --only (\w+) --runs \d+ --data DIR`", command)
        assert found, name
        assert found[1] in EXPERIMENTS, name
        assert re.search(r"\d (draws?|runs?|lists)\b", about), name


@pytest.mark.needs("data")
def test_scales_of_census():
    """Trimming hides who is extreme, and noise of a public size says no more than ε allows."""
    census, random = risk_data.census(Path(os.environ["TESSERA_DATA"])), np.random.default_rng(1)
    joint, individual, proper = (
        np.mean(scales.told(census, each, 0, random, 200)) for each in scales.MECHANISMS
    )
    assert joint > 0.65
    assert individual <= 0.58
    # Of nine attributes, 400 lists each: the standard error is a hundredth.
    assert proper <= scales.allowed(census) + 0.03


@pytest.mark.needs("data")
def test_attacks_on_census():
    """Who knows how entries are handed out finds more; who takes values for ranks finds no more than two in
    five; a matching of all persons finds most.
    """
    census, random = risk_data.census(Path(os.environ["TESSERA_DATA"])), np.random.default_rng(1)
    setting = GridSetting("auto", Decimal(1), None, Decimal("0.03"))
    draws = [linking.linked(census, setting, random) for _ in range(8)]
    found = {name: np.mean([each[name] for each in draws]) for name in linking.ATTACKS}
    # One draw finds 0.364 with a standard deviation of 0.035, eight draws a third of that.
    assert found[linking.RANKS] <= 0.43
    assert found[linking.RANKS] < found[linking.ALONE] < found[linking.EVERYBODY]
    assert found[linking.PROPAGATION] > found[linking.EVERYBODY]
    assert found[linking.PROPAGATION] > found[linking.ASSIGNMENT] - 0.03
    assert max(found, key=found.__getitem__) in {linking.ASSIGNMENT, linking.PROPAGATION}


def test_equal_persons_are_assigned_by_lot():
    """Of forty persons with the same values about one gets its own record."""
    random = np.random.default_rng(2)
    assert np.mean([linking.assigned(np.ones((40, 40)), random) for _ in range(20)]) < 0.1
    assert linking.assigned(np.eye(40) + 0.01, random) == 1


def test_rank_noise_that_is_found_holds():
    """Fresh draws re-identify about what was accepted, and much less than by default; or it is said that no
    rank noise is enough.
    """
    draw = np.random.default_rng(5)
    attributes = tuple(Attribute(name, AttributeType.INTEGER, 0, 99_999) for name in "abcde")
    data = DataSet("people", attributes, {each.name: draw.permutation(400) * 200 for each in attributes})
    searches = [target.search(data, Decimal("0.2"), Randomness(SystemBits(), draw)) for _ in range(3)]
    found = [each for each in searches if each is not None and each.default > each.searched]
    assert len(found) == 3
    assert np.mean([each.afresh for each in found]) <= 0.26
    assert np.mean([each.default for each in found]) > 0.3
    assert target.search(data, Decimal("0.0001"), Randomness(SystemBits(), draw)) is None


def test_demo_is_loaded_as_declared(tmp_path):
    """The patients of the largest hospital, dates and booleans among them."""
    demo = risk_data.demo(tmp_path)
    assert demo.n_records == 4_200
    assert {str(each.type) for each in demo.attributes} >= {"date", "boolean", "category", "number"}
    assert all(demo.columns[each.name].max() <= each.upper for each in demo.attributes)


def test_where_carriers_are_nearer():
    """Counts where values are few, in an almost empty domain too; global sensitivity costs much only
    where most of a large domain is empty.
    """
    draw = np.random.default_rng(6)

    def ratio(shape, sizes, *mechanisms):
        first, second = carriers.distances(shape, sizes, mechanisms, 3, draw)
        return first / second

    few = (800, 70)
    assert (ratio("normal", few, carriers.COUNTS, carriers.LOCAL) < 0.6).all()
    assert ratio("narrow", few, carriers.COUNTS, carriers.LOCAL)[1] < 0.6
    many = (10_000, carriers.MANY_VALUES)
    assert ratio("normal", many, carriers.GLOBAL, carriers.LOCAL)[0] < 1.2
    assert ratio("narrow", many, carriers.GLOBAL, carriers.LOCAL)[0] > 5


def test_twenty_top_codes_cost_little_noise():
    """Few records at one far value are left out, and so are the steps of the smooth bound down from it."""
    random = np.random.default_rng(1)
    for n_records, epsilon in scales.CODED_SETTINGS[:2]:
        schema = Schema((scales.INCOMES,), records_rounded=n_records)
        (task,) = plan_cell(GridSetting("idp-quantiles", Decimal(epsilon), None), schema, {}).tasks
        columns = [scales.top_coded(n_records, ties, random) for ties in scales.TIES]
        assert np.mean([scales.widened(each, task) for each in columns]) <= 1.3
