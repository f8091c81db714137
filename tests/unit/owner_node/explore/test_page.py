"""The page of an exploration: all numbers of the document are there, nothing runs, no browser complains."""

import re
from dataclasses import replace
from html import unescape

import pytest

from common.words.charts import Plot
from owner_node.explore.page import MOST_LABELS, before_and_after, measures, render_page
from owner_node.explore.results import (
    NOTHING,
    RECOMMENDED,
    AttributeResult,
    CellResult,
    ClassResult,
    Recommendation,
    Results,
    ShownCell,
)
from owner_node.risk.risks import Risk
from owner_node.risk.utility import Estimate
from tests.browser import browser

HOSTILE = '<img src=x onerror="alert(1)">'
MECHANISMS, EPSILONS, KS = ("idp-joint", "dp-ir"), ("0.1", "1"), ("5", "auto")
ATTRIBUTES = (("age", "integer", 120), (HOSTILE, "category", 30))


def about(value):
    """An estimate around a number."""
    return Estimate(value, value * 0.9, value * 1.1)


def cell(mechanism, epsilon, k, value):
    """A setting with mean SSE `value`; risk falls as it rises."""
    rate = 1 / (1 + 100 * value)
    return CellResult(
        mechanism,
        epsilon,
        k,
        "0" if mechanism == "dp-ir" else "0.03",
        epsilon,
        mean_sse=about(value),
        mean_sse_without_noise=value / 2,
        divergence=about(value / 3),
        pmse_ratio=None,
        f_measure=(ClassResult("yes & no", about(0.61), 0.75),),
        attributes=tuple(AttributeResult(name, mechanism, 5, "0.05", 0.4, 0.23) for name, _, _ in ATTRIBUTES),
        risks=(
            Risk("linkage", about(rate), 0.001, 500, "everybody is found", knows="age"),
            Risk("inference", about(0.3), 0.29, 500, "everybody's is known", about(0.31), "age"),
        ),
    )


def explored(recommended=1):
    """The results of an exploration."""
    values = iter((0.5, 0.2, 0.004, 0.0031, 7.0, 3.0, 0.6, 0.25))
    cells = [cell(m, e, k, next(values)) for m in MECHANISMS for k in KS for e in EPSILONS]
    cells.append(CellResult("dp", "1", None, "0", "1", problem=f"{HOSTILE} is too wide"))
    shown = ShownCell(
        3,
        (
            {
                "name": "age",
                "bins": [str(i) for i in range(40)],
                "original": list(range(40)),
                "masked": [7] * 40,
            },
            {
                "name": HOSTILE,
                "bins": [f"{HOSTILE}{i}" for i in range(30)],
                "original": [1] * 30,
                "masked": [2] * 30,
            },
        ),
    )
    known = {
        "dataset": "cohort",
        "created": "2026-03-01T12:00:00+00:00",
        "version": "0.1.0",
        "records": 4567,
        "control_records": 100,
        "attributes": [{"name": name, "type": kind, "values": n} for name, kind, n in ATTRIBUTES],
        "mechanisms": MECHANISMS,
        "epsilons": EPSILONS,
        "ks": KS,
        "rank_noises": ["0", "0.03"],
        "own_rank_noises": {HOSTILE: "0.2"},
        "repetitions": 3,
        "deep_repetitions": 2,
        "known": ["age"],
        "intruders": ["age"],
        "class": "income",
        "mean_sse_of_means": 0.5,
    }
    verdict = NOTHING if recommended is None else RECOMMENDED
    advice = Recommendation(verdict, recommended, ("Because <b>it</b> is so.", "And so."))
    return Results(known, cells, shown, advice)


def rows_of(html, caption):
    """The cells of a heat map, as text, line by line."""
    found = re.search(rf"<caption>{re.escape(caption)}</caption>(.*?)</table>", html, re.DOTALL)
    assert found is not None
    table = found[1]
    lines = re.findall(r"<tr>(.*?)</tr>", table.split("<tbody>")[1], re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]*>", "", each)) for each in re.findall(r"<t[dh].*?</t[dh]>", line, re.DOTALL)]
        for line in lines
    ]


def test_heat_maps_hold_every_setting():
    """Each mechanism has ε down and k across; what is worth less than means is marked, the advice starred."""
    html = render_page(explored())
    assert rows_of(html, "idp-joint with rank noise 0.03") == [
        ["0.1", "0.5 ×", "0.004"],
        ["1", "0.2 ★", "0.0031"],
    ]
    assert rows_of(html, "dp-ir with rank noise 0") == [["0.1", "7 ×", "0.6 ×"], ["1", "3 ×", "0.25"]]
    assert rows_of(html, "dp") == [["1", "–"]]


def test_what_errors_are_compared_with():
    """Beside the mean SSE is that of the means, and of plain individual ranking for every k."""
    html = unescape(render_page(explored()))
    assert "0.5 is that of a table with every value replaced by its attribute's mean" in html
    assert "(plain individual ranking) have 0.1 to 3.5 with k = 5, 0.00155 to 0.3 with k = auto." in html
    assert f"Rank noise of its own, the same in every setting: {HOSTILE} 0.2." in html


def test_redder_is_worse_on_one_scale():
    """Colours of mean SSE follow its size over all mechanisms, from cream to red."""
    first = measures(explored())[0]
    cells = [c for heat_map in first.maps for _, line in heat_map.rows for c in line if c.colour]
    by_value = sorted(cells, key=lambda c: float(c.text))
    greens = [int(c.colour.split(",")[1]) for c in by_value]
    assert greens == sorted(greens, reverse=True)
    assert greens[0] - greens[-1] > 100


def test_measures_that_nobody_asked_for_are_left_out():
    """There is a map for what was measured and for every attack, and none for the rest."""
    titles = [each.title for each in measures(explored())]
    assert titles == [
        "Mean SSE", "Jensen–Shannon divergence", "Re-identified: age known",
        "Risk: value guessed from a person's other values",
    ]  # fmt: skip


def test_risk_is_what_the_release_adds():
    """An attack counts by how much it is right above guessing and above people who are not in the release."""
    assert Risk("x", about(0.5), 0.1, 9, "", about(0.2)).excess == pytest.approx(0.3)
    assert Risk("x", about(0.5), 0.3, 9, "").excess == pytest.approx(0.2)
    assert Risk("x", about(0.1), 0.3, 9, "").excess == 0
    bare = CellResult("idp-joint", "1", "5", "0", "1")
    interval, linked = Risk("interval", about(0.9), 0, 9, ""), Risk("linkage", about(0.9), 0.5, 9, "")
    assert bare.excess(["linkage"]) is None
    assert replace(bare, risks=(interval,)).excess(["linkage"]) is None
    assert replace(bare, risks=(interval, linked)).excess(["linkage", "x"]) == pytest.approx(0.4)


def test_maps_of_risks_show_what_the_terminal_shows():
    """A cell is what the attack adds, in per cent, of the attribute where it adds most, not its bare rate."""
    results = explored()
    known = Risk("inference", about(0.9), 0.89, 500, "everybody's is known", about(0.89), "income")
    results.cells[0] = replace(results.cells[0], risks=(*results.cells[0].risks, known))
    linked, inferred = measures(results)[-2:]
    assert linked.title == "Re-identified: age known"
    assert inferred.maps[0].rows[0][1][0].text == "1 %"
    assert linked.maps[0].rows[0][1][0].text == "1.96 %"
    assert linked.maps[0].rows[0][1][1].text == "71.4 %"
    assert "less what is right without" in inferred.meaning
    assert "of the attribute where" in inferred.meaning


def test_before_and_after_lose_nobody_unsaid():
    """Many categories are drawn by size, and the page says how many are not; the numbers have all."""
    bins = [f"c{i:02}" for i in range(30)]
    found = before_and_after(
        {"name": "x", "bins": bins, "original": list(range(30)), "masked": [0] * 30}, "category"
    )
    assert not found.upright
    assert isinstance(found.chart, tuple)
    assert [label for label, _ in found.chart] == bins[-MOST_LABELS:]
    assert found.chart[-1] == (bins[-1], ((1.0, "29 before"), (0.0, "0 after")))
    assert (found.left_out, len(found.numbers)) == (10, 30)
    many = before_and_after({"name": "x", "bins": bins, "original": [1] * 30, "masked": [2] * 30}, "integer")
    assert many.upright
    assert isinstance(many.chart, Plot)
    assert len(many.chart.marks) == 60
    assert many.chart.marks[0].text == "c00: 1 before"


def test_nothing_worth_releasing_is_said():
    """The page has no star then and says so where the advice is."""
    html = render_page(explored(None))
    assert "No setting here is worth releasing." in html
    assert 'aria-label="recommended"' not in html
    assert "most protective" in html
    assert "most protective" not in render_page(explored())


def test_a_small_exploration_has_a_page():
    """Without attacks, models and a chosen setting there is a page all the same."""
    results = explored(None)
    cells = [replace(each, risks=(), f_measure=None, attributes=()) for each in results.cells]
    html = render_page(replace(results, about={**results.about, "class": None, "known": []}, cells=cells))
    assert "Utility against risk" not in html
    assert rows_of(html, "dp-ir with rank noise 0")[0] == ["0.1", "7 ×", "0.6 ×"]


@pytest.mark.needs("chromium")
def test_in_a_browser(tmp_path):
    """It is inert, asks for nothing, fits narrow screens, prints, and unfolds by keyboard."""
    path = tmp_path / "explored.html"
    path.write_text(render_page(explored()), encoding="utf-8")
    assert "<img" not in path.read_text()
    with browser() as program:
        page, narrow = program.open(path), program.open(path, width=360)
        for each in (page, narrow):
            assert each.asked_for == [path.as_uri()]
            assert each.complaints == []
            assert each.evaluate("document.querySelectorAll('script, img, [onerror]').length") == 0
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 360
        page.press("Tab", 9)
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.evaluate("document.querySelector('summary').focus()")
        page.press("Enter", 13)
        assert page.evaluate("document.querySelector('details').open")
        assert page.printed().startswith(b"%PDF")
        met = page.accessible()
    assert ("heading", "Recommendation") in met
    assert any(role == "image" and name.startswith("Risk against mean SSE") for role, name in met)
    assert sum(role == "table" for role, _ in met) >= 12
