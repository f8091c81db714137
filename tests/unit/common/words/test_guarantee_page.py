"""The page for data protection officers: its example is computed, not claimed."""

import doctest
from pathlib import Path

from common.model.mechanisms import MECHANISMS

PAGE = Path(__file__).parents[4] / "docs" / "guarantee.md"


def test_figures_hold():
    """Every figure of the worked example comes out of the project's own code."""
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0


def test_every_mechanism_is_explained():
    """The table of bounds names every mechanism that a release can have."""
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in MECHANISMS if f"`{name}`" not in text] == []
