"""The worked example of docs/analysis.md, on a release of really masked wines."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.masked_releases import plan_of, publish_masked
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
