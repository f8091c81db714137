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
    assert "state planned" in out
    assert "state ended" not in out, "a plan that was made did not fail"
    assert out.count("release adult-1: signatures, consents, digests and numbers hold") == 3
    assert "all 18,000 masked records of north are in the release" in out
    assert "release wine-1: signatures, consents, digests and numbers hold" in out
    found = re.findall(r"^  (original|released|corrected) +(-?[0-9.]+)$", out, re.MULTILINE)
    original, released, corrected = (float(value) for _, value in found)
    assert released < original, "rank noise weakens relations, as the page says"
    assert abs(corrected - original) < 0.03, "and the correction comes close"


@pytest.mark.needs("data", "chromium")
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", notebooks.NAMES)
def test_notebook(name, printed, folder):
    """Every cell runs, and what the text claims about its figures (the assertions of the cells) holds."""
    page, _ = notebooks.run(name, folder)
    assert page.count("```python") > 4
