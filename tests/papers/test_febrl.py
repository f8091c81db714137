"""Recall and precision of the suggested match keys, where it is known who is who."""

import pytest

from owner_node.values.match_keys import SUGGESTED
from tests.fakes.misspelt import misspelt, population
from tests.papers.febrl import SETS, Found, febrl4, measured, persons

LEAST_RECALL, LEAST_PRECISION = 0.92, 0.999
N, COMMON = 3_000, 2_000


def check(found: Found) -> None:
    """Assert what the suggested passes promise, and that the estimate holds against the truth."""
    assert found.recall >= LEAST_RECALL
    assert found.precision >= LEAST_PRECISION
    assert float(found.quality.quality_least) <= found.precision <= float(found.quality.quality_most) + 1e-6


def test_misspelt_persons_are_found_again():
    """Two owners with 2,000 common persons of 2,500 each, of whom three in four have one to four mistakes."""
    everybody = population(N, seed=4)
    n_own = (N + COMMON) // 2
    written = everybody[N - n_own :]
    for seed in range(4):
        written = misspelt(written.reset_index(drop=True), seed=10 + seed, share=0.3)
    owners = [persons(everybody[:n_own]), persons(written)]
    found = measured(owners, SUGGESTED)
    check(found)
    exactly = measured(owners, SETS["names and birth, exactly"])
    assert exactly.precision >= LEAST_PRECISION
    assert exactly.recall < 0.6 < found.recall


@pytest.mark.needs("febrl")
def test_febrl4():
    """Ten passes find at least what is published of them, and an id before them nearly everybody."""
    owners = febrl4()
    check(measured(owners, SUGGESTED))
    assert measured(owners, SETS["a national id, then all twelve"]).recall > 0.98
