"""The report of a release: made of protected data and the manifest alone, inert, bounded, fit to be read."""

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow.parquet as pq
import pytest

from common.log import JsonFormatter
from common.model.schema import Attribute, AttributeType
from common.release import column_summary
from common.release.column_summary import ColumnSummaries
from common.release.evidence import Evidence
from common.release.report import LEFT_OUT, render_report
from common.release.summary import manifest_document
from common.release.values import from_units, to_units
from common.workspace import temporary_workspace
from tests.browser import browser
from tests.fakes.published import make_release
from tests.fakes.releases import ATTRIBUTES, make_plan

HOSTILE = "<script>alert(1)</script>"
FORBIDDEN = ("<script", "<img", "<b>x", ' src="', "url(", "http://", "https://", "@import", "javascript:")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published release of two owners."""
    return make_release(tmp_path_factory.mktemp("made"), n_records=600)


def hostile_release(folder):
    """A release whose every text is markup."""
    attributes = (
        Attribute("<b>x</b>", AttributeType.CATEGORY, 0, 1, categories=("<img src=x>", "&amp;")),
        Attribute('"><svg onload=x', AttributeType.INTEGER, 0, 90),
        ATTRIBUTES[0],
    )
    names = [each.name for each in attributes]
    plan = replace(make_plan([(names, ["a", "b"])], attributes=attributes), purpose=HOSTILE)
    return make_release(folder, plan=plan)


def rendered(made, table):
    """The report of a release, made from its folder alone and a table."""
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    evidence, published = Evidence.from_manifest(manifest), manifest["times"]["published"]
    document = manifest_document(
        evidence, manifest["aggregator"]["certificates"], datetime.fromisoformat(published)
    )
    return render_report(document, evidence, summaries_of(made.plan, table), ["data.parquet", "data.csv"])


def summaries_of(plan, table):
    """The summaries of a released table."""
    with temporary_workspace() as workspace, ColumnSummaries(plan.attributes, workspace) as summaries:
        summaries.add(
            {each.name: to_units(each, table.column(each.name)).to_numpy() for each in plan.attributes}
        )
        return summaries.finish()


def test_nothing_but_the_release_is_needed(made):
    """Who has the folder can make the same bytes again, whatever the order of the records."""
    table = pq.read_table(made.folder / "data.parquet")
    written = (made.folder / "report.html").read_bytes().decode()
    assert rendered(made, table) == written
    shuffled = table.take(np.random.default_rng(3).permutation(table.num_rows))
    assert rendered(made, shuffled) == written


def test_what_readers_need_is_there(made):
    """Promises, limits, owners, parameters, figures, and how to read, cite and verify."""
    text = (made.folder / "report.html").read_bytes().decode()
    for expected in (
        *("individual differential privacy with ε = 0.1", "parallel composition", "What is not hidden"),
        *("no identifier is at two owners", "written differently at two owners counts as two"),
        *("quality of care", "idp-joint", "median", made.plan.digest, "aggregator verify FOLDER --ca"),
        *("How to cite it", "protected release of 600 records", "owner-node verify FOLDER"),
    ):
        assert expected in text
    ages = pq.read_table(made.folder / "data.parquet").column("age").to_numpy()
    assert f'<td class="n">{ages.max()}</td>' in text
    assert text.count('role="img"') == len(made.plan.attributes)


def test_markup_in_any_text_stays_text(tmp_path):
    """Labels, names and purposes are escaped, in drawings too; nothing is loaded and nothing runs."""
    text = (hostile_release(tmp_path).folder / "report.html").read_bytes().decode()
    for forbidden in (*FORBIDDEN, "<svg onload"):
        assert forbidden not in text
    for expected in ("&lt;script&gt;", "&lt;img src=x&gt;", "&amp;amp;", "default-src &#39;none&#39;"):
        assert expected.replace("&#39;", "'") in text
    assert all(link.startswith("#") for link in [each.split('"')[0] for each in text.split(' href="')[1:]])


def test_the_size_does_not_follow_the_records(made):
    """A thousand times the records, all of them different, make the page no larger."""
    table = pq.read_table(made.folder / "data.parquet")
    small = len(rendered(made, table))
    rng = np.random.default_rng(2)
    columns = {"record": np.arange(600_000)}
    for each in made.plan.attributes:
        units = rng.integers(each.lower, each.upper, 600_000, dtype=np.int64, endpoint=True)
        columns[each.name] = from_units(each, units)
    assert len(rendered(made, table.schema.empty_table().from_pydict(columns))) < 1.3 * small


def test_owners_that_do_the_same_share_a_line(tmp_path):
    """Hundreds of owners make no hundreds of lines per attribute; those that differ have their own."""
    owners = [f"o{i:03}" for i in range(60)]
    made = make_release(tmp_path, plan=make_plan([(["age", "ward"], owners)]), n_records=600)
    text = (made.folder / "report.html").read_bytes().decode()
    assert text.count("and 52 others</td>") == 2
    assert text.count('<th scope="row">o059</th>') == 1


def test_a_figure_that_fails_is_left_out(made, monkeypatch, caplog):
    """The attribute says so, all others have their figures, and the log has no value of a record."""

    def failing(attribute, *others):
        if attribute.name == "age":
            raise OverflowError("the value 4711")
        return bins_of(attribute, *others)

    bins_of = column_summary._bins
    monkeypatch.setattr(column_summary, "_bins", failing)
    table = pq.read_table(made.folder / "data.parquet")
    text = rendered(made, table)
    assert text.count(LEFT_OUT) == 1
    assert text.count('role="img"') == len(made.plan.attributes) - 1
    assert text.index('id="a1">age<') < text.index(LEFT_OUT) < text.index('id="a2"')
    (line,) = [json.loads(JsonFormatter().format(each)) for each in caplog.records]
    assert (line["event"], line["attribute"], line["traceback"][-1]) == (
        "figure left out", "age", "OverflowError",
    )  # fmt: skip
    assert "4711" not in json.dumps(line)


def test_rank_noise_has_its_numbers(tmp_path, made):
    """Where ranks are noised, the bound for the table stands beside that for the lists, and nowhere else."""
    plan = make_plan([(["age", "ward"], ["a", "b"])])
    noisy = [
        replace(
            task,
            attributes=tuple(
                replace(each, rank_noise=Decimal("0.05"), rank_loss=Decimal(40)) for each in task.attributes
            ),
        )
        for task in plan.tasks
    ]
    text = (make_release(tmp_path, plan=replace(plan, tasks=tuple(noisy))).folder / "report.html").read_text()
    # Per attribute 0.1 for the list and 2/0.05 for who has what.
    assert '<td class="n">0.05</td><td class="n">40.1</td>' in text
    assert "<dt>ε, table</dt><dd>80.2</dd>" in text
    assert "<code>owner-node explore</code>" in text
    assert "`" not in text
    assert "ε, table" not in (made.folder / "report.html").read_text()


@pytest.mark.needs("chromium")
def test_in_a_browser(tmp_path):
    """It asks for nothing, complains of nothing, runs nothing, and fits wide, narrow, dark and printed."""
    path = hostile_release(tmp_path).folder / "report.html"
    with browser() as program:
        page = program.open(path)
        assert page.evaluate("document.querySelectorAll('script, img, b, [onload]').length") == 0
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.prefer("dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert page.printed().startswith(b"%PDF")
        narrow = program.open(path, width=360)
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 360
        for each in (page, narrow):
            assert each.asked_for == [path.as_uri()]
            assert each.complaints == []


@pytest.mark.needs("chromium")
def test_the_data_come_first_on_a_few_screens(tmp_path):
    """Fourteen attributes take at most six screens; data stand before promises, which are one click away."""
    labels = tuple(f"label {i}" for i in range(30))
    attributes = tuple(
        Attribute(f"number_{i}", AttributeType.NUMBER, 0, 100_000, decimals=2)
        if i % 2
        else Attribute(f"category_{i}", AttributeType.CATEGORY, 0, 29, categories=labels)
        for i in range(14)
    )
    plan = make_plan([([each.name for each in attributes], "abcdefgh")], attributes=attributes)
    path = make_release(tmp_path, plan=plan, n_records=600).folder / "report.html"
    text = path.read_text("utf-8")
    assert "tessera.read_release(" in text
    assert text.index('id="attributes"') < text.index('id="read"') < text.index('id="promised"')
    with browser() as program:
        page = program.open(path, width=1280)
        assert page.evaluate("document.documentElement.scrollHeight / window.innerHeight") <= 6
        hidden = "document.getElementById('promised').querySelector('ul').checkVisibility()"
        assert not page.evaluate(hidden)
        page.do("Emulation.setEmulatedMedia", media="print")
        assert page.evaluate("document.getElementById('promised').offsetHeight") > 200


@pytest.mark.needs("chromium")
def test_without_a_mouse_and_without_eyes(made):
    """The keyboard reaches the content, every table that scrolls and the numbers behind every drawing; a
    screen reader is told the headings, the tables and what the drawings show.
    """
    with browser() as program:
        page = program.open(made.folder / "report.html")
        page.press("Tab", 9)
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.press("Enter", 13)
        assert page.evaluate("location.hash") == "#content"
        n_folds = page.evaluate("document.querySelectorAll('summary').length")
        for i in range(n_folds):
            page.evaluate(f"document.querySelectorAll('summary')[{i}].focus()")
            page.press("Enter", 13)
        assert page.evaluate("document.querySelectorAll('details[open]').length") == n_folds
        met = page.accessible()
    for name in ("What is promised", "What is not hidden", "How to read it", "How to verify it"):
        assert ("heading", name) in met
    for each in made.plan.attributes:
        assert any(
            role == "image" and f"released value of {each.name}" in name.replace("values", "value")
            for role, name in met
        )
        assert ("heading", each.name) in met
    assert sum(role == "table" for role, _ in met) >= 1 + len(made.plan.attributes)
