"""What the experiments compare with: smooth sensitivity, insensitive clusters; and what they write."""

import re
from decimal import Decimal
from itertools import combinations_with_replacement
from math import exp
from pathlib import Path

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from owner_node.risk.utility import Estimate
from tests.papers.__main__ import main
from tests.papers.in_process import Setting
from tests.papers.interactive import half_width, mean_size, smooth_maximum, smooth_median
from tests.papers.multivariate import Column, insensitive_clusters, masked
from tests.papers.prepare import declare_adult
from tests.papers.tables import line, markdown, put
from tests.papers.taxonomies import COUNTRIES, OCCUPATIONS, taxonomy

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
A = Attribute("a", AttributeType.INTEGER, 0, 100)
B = Attribute("b", AttributeType.INTEGER, -50, 50)
C = Attribute("c", AttributeType.CATEGORY, 0, 4, categories=tuple("vwxyz"))


def test_table_one_of_the_paper():
    """95 % of the noise lies within the paper's bounds, and with γ = 3 its mean size is 12/ε."""
    assert half_width(2) == pytest.approx(101.7, abs=0.06)
    assert half_width(3) == pytest.approx(34.2, abs=0.05)
    assert mean_size(3, 0.5) == pytest.approx(24, rel=1e-6)


@pytest.mark.parametrize("beta", [0.1, 0.5, 2])
def test_smooth_sensitivity_against_all_data_sets(beta):
    """It is the largest local sensitivity of any data set, discounted by how many values differ."""
    values, lowest, highest = np.array([1.0, 2.0, 2.0, 5.0, 6.0]), 0.0, 7.0
    expected = 0.0
    for other in combinations_with_replacement(range(8), 5):
        x = np.sort(np.array(other, dtype=float))
        low = np.concatenate([[lowest], x, [highest]])
        local = max(low[4] - low[3], low[3] - low[2])
        shared = sum(min((values == v).sum(), (x == v).sum()) for v in set(other))
        expected = max(expected, exp(-beta * (5 - shared)) * local)
    assert smooth_median(values, lowest, highest, beta) == pytest.approx(expected)


@pytest.mark.parametrize("beta", [0.1, 0.5, 2])
def test_smooth_sensitivity_of_the_maximum_against_all_data_sets(beta):
    """The same for the maximum, whose local sensitivity reaches to the domain's end or the next value."""
    values, lowest, highest = np.array([1.0, 2.0, 2.0, 5.0]), 0.0, 7.0
    expected = 0.0
    for other in combinations_with_replacement(range(8), 4):
        x = np.sort(np.array(other, dtype=float))
        local = max(highest - x[-1], x[-1] - x[-2])
        shared = sum(min((values == v).sum(), (x == v).sum()) for v in set(other))
        expected = max(expected, exp(-beta * (4 - shared)) * local)
    assert smooth_maximum(values, lowest, highest, beta) == pytest.approx(expected)


def test_one_record_changes_each_cluster_by_one():
    """Whatever record is changed, every insensitive cluster has k records and loses one of them at most."""
    draw, k = np.random.default_rng(3), 4
    apart = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) / 4
    for _ in range(60):
        values = [draw.integers(0, 101, 22), draw.integers(-50, 51, 22), draw.integers(0, 5, 22)]
        changed, record = [each.copy() for each in values], draw.integers(22)
        for each, high in zip(changed, (101, 51, 5), strict=True):
            each[record] = draw.integers(0, high)
        before, after = (
            insensitive_clusters([Column(A, a), Column(B, b), Column(C, c, apart)], k)
            for a, b, c in (values, changed)
        )
        assert np.bincount(before).tolist() == np.bincount(after).tolist() == [4, 4, 4, 4, 6]
        for cluster in range(5):
            kept = (before == cluster) & (after != cluster)
            kept[record] = False
            assert kept.sum() <= 1


def test_noise_of_multivariate_centroids():
    """Without noise they are means; with it the scale is (number of clusters)·Δ/(kε) for every attribute."""
    wide = Column(Attribute("a", AttributeType.INTEGER, 0, 10**9), np.full(10_000, 5 * 10**8))
    assert set(masked([wide], 100, None, np.random.default_rng(1))[0]) == {5 * 10**8}
    noisy = masked([wide], 100, 1e4, np.random.default_rng(1))[0]
    sizes = np.abs(np.unique(noisy) - 5 * 10**8)
    assert sizes.mean() == pytest.approx(100 * 10**9 / (100 * 1e4), rel=0.4)


def test_drawn_categories_of_multivariate_clusters():
    """Without noise a cluster gets the category of least marginality; with it the exponential mechanism's."""
    apart = np.array(
        [[0, 0.5, 1, 1, 1], [0.5, 0, 1, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 0]]
    )
    column = Column(C, np.array([2, 0, 1, 1] * 3), apart)
    (plain,) = masked([column], 12, None, np.random.default_rng(1))
    assert set(plain) == {1}
    draw, found = np.random.default_rng(2), np.zeros(5)
    for _ in range(4000):
        found[masked([column], 12, 0.5, draw)[0][0]] += 1 / 4000
    weights = np.exp(-0.5 / 2 * (np.bincount(column.values, minlength=5) @ apart))
    assert found == pytest.approx(weights / weights.sum(), abs=0.04)


def test_a_page_gets_its_tables(tmp_path):
    """Rows are settings, columns ks; what was between the marks is replaced; an unknown place is an error."""
    lines = [
        line("F", "d", "central", Setting("dp-ir", epsilon, k), "m", 3, Estimate(mean, 0, 1))
        for epsilon, k, mean in ((Decimal(1), 5, 0.12345), (Decimal(1), 10, 2000.4), (Decimal(2), 10, 3.0))
    ]
    table = markdown(lines, "k", ["mechanism", "epsilon"])
    assert table.splitlines()[0] == "| mechanism | ε | k = 5 | k = 10 |"
    assert table.splitlines()[2:] == ["| dp-ir | 1 | 0.123 | 2000 |", "| dp-ir | 2 |  | 3 |"]
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- end x -->\nafter\n")
    put([page], {"x": table})
    assert page.read_text() == f"before\n<!-- x -->\n\n{table}\n\n<!-- end x -->\nafter\n"
    with pytest.raises(ValueError, match="no place for y"):
        put([page], {"y": table})


def test_the_command_makes_figures_and_numbers(tmp_path):
    """An experiment that needs no data runs from the command line into the folder that it is given, and the
    page has a place for each of its tables.
    """
    page = tmp_path / "papers.md"
    page.write_text(PAGE.read_text())
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path), "--page", str(page), "--runs", "2"]
    assert main([*arguments, "--only", "interactive"]) == 0
    assert page.read_text() != PAGE.read_text()
    made = {path.name for path in (tmp_path / "interactive").iterdir()}
    numbers = {"median.csv", "maxima.csv", "maxima_errors.csv", "median_gammas.csv"}
    assert made == {"median.png", "noise.png"} | numbers
    heads, first, *_ = (tmp_path / "interactive" / "maxima.csv").read_text().splitlines()
    assert heads == 'domain,"global, maximum","local, maximum","local, second maximum"'
    assert first.startswith('"[0, 10]",10,')
    assert (tmp_path / "interactive" / "noise.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), "--only", "nothing"])


def test_tables_of_the_pages_begin_and_end():
    """Every mark of a table has its end, after it, and no two tables have one name."""
    for page in (PAGE, PAGE.with_name("risk.md"), PAGE.with_name("comparison.md")):
        marks = re.findall(r"^<!-- (.+) -->$", page.read_text(), re.MULTILINE)
        assert marks
        assert len(set(marks)) == len(marks)
        assert marks[1::2] == [f"end {name}" for name in marks[::2]]


def test_taxonomies_have_a_place_for_every_category():
    """Every documented occupation and country is in its tree, once, and nothing else is."""
    declared = declare_adult("declared")
    for name, tree in (("occupation", OCCUPATIONS), ("native_country", COUNTRIES)):
        listed = declared[name]["categories"]
        assert isinstance(listed, list)
        leaves = [label for groups in tree.values() for labels in groups.values() for label in labels.split()]
        assert sorted(leaves) == sorted(listed)
        assert taxonomy(tree, tuple(listed)).n_categories == len(listed)
