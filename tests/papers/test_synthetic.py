"""Synthetic releases of Adult are as near as they were measured to be, with either accounting."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.papers.synthetic import DELTA, FORMS, READERS, f_measure, measured

pytestmark = pytest.mark.needs("data")
RUNS = 5


@pytest.fixture(scope="module")
def adult():
    """Adult with the class as an attribute."""
    return READERS["adult"](Path(os.environ["TESSERA_DATA"]))


@pytest.fixture(scope="module")
def reached(adult):
    """The F-measure with original records."""
    return np.mean([f_measure(adult, adult.released, seed) for seed in range(RUNS)])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("form", "delta", "most_two_way", "least_f"),
    [
        ("one owner", "0", 0.066, 0.85),
        ("one owner, ε = 4", "0", 0.037, 0.93),
        ("four owners", "0", 0.085, 0.8),
        ("two vertical owners", "0", 0.078, 0.7),
        ("one owner", DELTA, 0.040, 0.94),
        ("one owner, ε = 2", DELTA, 0.030, 0.94),
        ("one owner, ε = 4", DELTA, 0.023, 0.94),
        ("one owner, ε = 8", DELTA, 0.019, 0.94),
        ("four owners", DELTA, 0.043, 0.92),
        ("two vertical owners", DELTA, 0.043, 0.92),
    ],
)
def test_adult(adult, reached, form, delta, most_two_way, least_f):
    """Total variation of pairs of attributes, and F-measure as a share of what original records reach.

    Without δ four owners add a floor to their shares of the noise.
    """
    assert (adult.n_released, len(adult.attributes)) == (29_846, 11)
    found = np.mean([measured(adult, FORMS[form], delta, seed) for seed in range(RUNS)], axis=0)
    assert found[1] <= most_two_way
    assert found[3] >= least_f * reached
