"""The page for statisticians: its example is computed, not claimed."""

import doctest
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from common.model.mechanisms import MECHANISMS
from owner_node.masking.clusters import Setting
from owner_node.masking.mechanisms import MECHANISMS as OWN
from owner_node.masking.mechanisms import SumMechanism

PAGE = Path(__file__).parents[4] / "docs" / "guarantee.md"


def test_figures_hold():
    """Every figure of the worked example comes out of the project's own code."""
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0


def test_both_computations_of_the_example_follow_from_the_mechanism():
    """The factors 1.36 and 394 come out of the scales that `idp-joint` has on the two data sets."""
    setting = Setting("stay", epsilon=Decimal(1), k=5, n_values=61)
    mechanism = OWN["idp-joint"]
    assert isinstance(mechanism, SumMechanism)
    probabilities, sums = [], []
    for extreme in (30, 1):
        stays = np.sort(np.array([7, 1, extreme, 2, 4, 1, 12, 2, 5, 3], dtype=np.int64))
        exact = mechanism.exact_sums(stays, setting)
        (scale,) = set(exact.scales.tolist())
        sums.append(exact.sums.tolist())
        beyond = 30 * int(exact.divisors[1]) - sums[-1][1]
        probabilities.append((math.exp(-beyond / scale) / 2, scale))
    (as_they_are, scale), (as_others, other_scale) = probabilities
    moved = sum(abs(one - other) for one, other in zip(*sums, strict=True))
    assert round(math.exp(moved / scale), 2) == 1.36
    assert scale / other_scale == pytest.approx(9.8 / 3)
    assert round(as_they_are / as_others) == 394
    text = PAGE.read_text(encoding="utf-8")
    assert "1.36 times" in text
    assert "394 times" in text


def test_every_mechanism_is_explained():
    """The table of bounds names every mechanism that a release can have."""
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in MECHANISMS if f"`{name}`" not in text] == []
