"""The worked example of docs/analysis.md, on a release of really masked wines."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.analysis.reading import read_release
from common.model.schema import Attribute, AttributeType
from tests.fakes.masked_releases import plan_of, publish_masked
from tests.fakes.published import make_release
from tests.fakes.releases import make_plan
from tests.papers.data_sets import wine

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"
NAMES = ("residual_sugar", "density", "ph", "alcohol")


@pytest.mark.needs("data")
def test_the_page_is_true(tmp_path, monkeypatch):
    """The code works as it is written; the released slope is too small, and the corrected interval holds the
    original.
    """
    data = wine(Path(os.environ["TESSERA_DATA"]))
    shuffled = np.random.default_rng(4).permutation(data.n_records)
    columns = {name: data.columns[name][shuffled] for name in NAMES}
    attributes = [each for each in data.attributes if each.name in NAMES]
    plan = plan_of(
        attributes, data.n_records, "2", owners="abc", mechanism="idp-quantiles", rank_noise=["0.1"]
    )  # fmt: skip
    made = publish_masked(tmp_path, plan, columns)
    made.ca_file(tmp_path)
    made.folder.rename(made.folder.with_name("wine"))
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(block, names)
    places = {each.name: each.decimals for each in attributes}
    density, alcohol = (columns[name] / 10.0 ** places[name] for name in ("density", "alcohol"))
    original = np.cov(density, alcohol)[0, 1] / alcohol.var()
    line = names["slopes"].loc["alcohol"]
    assert abs(line["released"] / original) < 0.9
    assert line["low"] <= original <= line["high"]
    described = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(described)) == names["book"].columns.tolist()


STAGE = Attribute(
    "stage", AttributeType.CATEGORY, 0, 2, categories=('low "1"', "mid, 2", "hoch ä\\3"), ordered=True
)
SEEN = Attribute("first seen", AttributeType.DATE, 0, 20_000, keeps_missing=True)
OTHERS = (
    Attribute("age", AttributeType.INTEGER, 0, 120),
    Attribute("weight", AttributeType.NUMBER, 0, 2000, decimals=1),
    Attribute("smoker", AttributeType.BOOLEAN, 0, 1),
)


@pytest.mark.needs("r")
def test_r_reads_a_release(tmp_path):
    """The script of the page gives base R the values, types, labels and descriptions of a release."""
    attributes = (STAGE, SEEN, *OTHERS)
    names = tuple(each.name for each in attributes)
    plan = replace(make_plan(((names, ("a", "b")),), attributes=attributes), described=True)
    made = make_release(tmp_path, ((names, ("a", "b")),), plan=plan)
    (script,) = re.findall(r"```r\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    program = tmp_path / "read.R"
    program.write_text(
        f"""{script}
        data <- read_release({str(made.folder)!r})
        cat(sapply(data, function(each) class(each)[1]), sep = "|", fill = 1000)
        cat(levels(data$stage), sep = "|", fill = 1000)
        cat(attr(data$age, "label"), fill = 1000)
        cat(sum(data$age), sum(data$weight), sum(data$smoker), sum(as.integer(data$stage)), fill = 1000)
        cat(sum(as.integer(data[["first seen"]]), na.rm = TRUE), sum(is.na(data)), fill = 1000)
        """,
        encoding="utf-8",
    )
    ran = subprocess.run(
        ["Rscript", "--vanilla", str(program)],
        env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    classes, levels, label, sums, dated = ran.stdout.splitlines()
    table = read_release(made.folder).table
    frame = table.to_pandas()
    assert classes.split("|") == ["numeric", "ordered", "Date", "numeric", "numeric", "logical"]
    assert levels.split("|") == list(STAGE.categories)
    assert label == table.schema.field("age").metadata[b"description"].decode()
    ranks = sum(STAGE.categories.index(each) + 1 for each in frame["stage"])
    expected = [frame["age"].sum(), frame["weight"].sum(), frame["smoker"].sum(), ranks]
    assert [float(each) for each in sums.split()] == pytest.approx(expected, abs=0.01)
    days = [each.toordinal() - 719_163 for each in frame["first seen"] if each is not None]
    assert [int(each) for each in dated.split()] == [sum(days), len(frame) - len(days)]
