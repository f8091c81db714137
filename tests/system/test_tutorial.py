"""The tutorial and the notebooks that go on from it, with real daemons and a person in the browser."""

import os
import re
from pathlib import Path

import pytest

from tests import notebooks
from tests.screenshots import of_tutorial
from tests.system.pasted import short_folder
from tests.tutorial import walk_through

SECONDS = 900
"""A loaded machine is not a failure; on an idle one the tutorial takes a minute."""
_PAIR = re.compile(r"^.*[a-z]((?: +-?[0-9]\.[0-9]{3}){6})$", re.MULTILINE)
"""Correlation of a pair: original, released, corrected, standard error, and the ends of its interval."""


@pytest.fixture(scope="module")
def folder():
    """The folder that the tutorial leaves, with two releases."""
    with short_folder("tutorial-") as made:
        yield made


@pytest.fixture(scope="module")
def printed(folder, tmp_path_factory):
    """What the blocks of the page printed, in their order."""
    return of_tutorial(folder, Path(os.environ["TESSERA_DATA"]), tmp_path_factory.mktemp("pictures"))


@pytest.mark.needs("data")
@pytest.mark.timeout(SECONDS)
def test_at_a_terminal():
    """Without a browser, and with Enter at whatever is asked: the recommended release is published."""
    with short_folder("tutorial-") as folder:
        printed = []
        walk = walk_through(folder, Path(os.environ["TESSERA_DATA"]))
        for block, out in walk:
            printed.append(out)
            if "aggregator verify central/releases/adult-1" in block:
                break
        walk.close()
    out = "".join(printed)
    assert "approved release adult-1 of central" in out
    assert out.count("release adult-1: signatures, consents, digests and numbers hold") == 3


@pytest.mark.needs("data", "chromium")
@pytest.mark.timeout(SECONDS)
def test_tutorial(printed):
    """Every block works in its order, a person approves on the page, and the page says what is printed."""
    out = "\n".join(printed)
    assert "is planned; no owner was asked and nothing is charged" in out
    assert not re.search(r"(state |│ )ended", out), "a plan that was made did not fail"
    assert out.count("release adult-1: signatures, consents, digests and numbers hold") == 3
    assert "all 18,000 masked records of north are in the release" in out
    assert "release wine-1: signatures, consents, digests and numbers hold" in out
    rows = [[float(each) for each in row.split()] for row in _PAIR.findall(out)]
    strong = [row for row in rows if row[0] > 0.2]
    assert len(strong) == 5
    assert all(released < original for original, released, *_ in strong), "rank noise weakens relations"
    errors = [(abs(row[1] - row[0]), abs(row[2] - row[0])) for row in strong]
    assert sum(after for _, after in errors) < sum(before for before, _ in errors), "corrections come closer"


@pytest.mark.needs("data", "chromium")
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", notebooks.NAMES)
def test_notebook(name, printed, folder):
    """Every cell runs, and what the text claims about its figures (the assertions of the cells) holds."""
    page, _ = notebooks.run(name, folder)
    assert page.count("```python") > 4
