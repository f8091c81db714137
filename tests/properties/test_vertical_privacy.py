"""Privacy of tables across owners by brute force: what each party sees, of all tables of a few persons.

Two owners hold one attribute each. A person's record is replaced. A party sees a transcript: one-way counts,
the coarse table, the table, with the noise that it cannot take away. The loss of a transcript is the sum over
its numbers, by exact probabilities. How ciphertexts hide all else is shown exhaustively in the tests of the
cryptosystem and of the packing.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import product

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import TABLE, Noise
from common.synthesis.course import Design
from common.synthesis.rounds import attribute_weights
from owner_node.synthesis.counts import one_way_counts, pair_counts

YES_OR_NO = Attribute("x", AttributeType.BOOLEAN, 0, 1)
N_PERSONS = 3
DESIGN = Design((YES_OR_NO, YES_OR_NO), N_PERSONS, Decimal(1), homes=(0, 1))
VIEWERS = ("holder", "adder", "aggregator", "aggregator and holder", "aggregator and adder")
Rows = tuple[int, ...]
Noises = Callable[[str, Noise], list[Noise]]


def removed(viewer: str) -> set[int]:
    """Whose noise a viewer knows."""
    return {number for number, name in enumerate(("holder", "adder")) if name in viewer}


def both(viewer: str, noise: Noise) -> list[Noise]:
    """The noise that is left of a table across owners: that of those who do not look."""
    return [noise] * (2 - len(removed(viewer)))


def loss(moved: int, noises: list[Noise]) -> float:
    """The largest privacy loss of a number with some noise, over all values that are not very unlikely."""
    if not moved:
        return 0.0
    if not noises:
        return float("inf")
    reach = 40 * noises[0].size
    summed = np.ones(1)
    for noise in noises:
        weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / noise.size)
        summed = np.convolve(summed, weights / weights.sum())
    middle = summed.size // 2
    near = np.log(summed[middle - reach // 4 : middle + reach // 4 + moved])
    return float(np.abs(near[moved:] - near[:-moved]).max())


def neighbours(viewer: str) -> Iterator[tuple[Rows, Rows, Rows, Rows]]:
    """Yield both owners' attribute, and the same after a person was replaced.

    An owner that looks knows its own attribute; the replaced person's differs at the other one alone.
    """
    known = removed(viewer)
    for one, other in product(product((0, 1), repeat=N_PERSONS), repeat=2):
        for person, new in product(range(N_PERSONS), product((0, 1), repeat=2)):
            changed = [list(one), list(other)]
            for owner in {0, 1} - known:
                changed[owner][person] = new[owner]
            yield one, other, tuple(changed[0]), tuple(changed[1])


def largest_loss(viewer: str, left: Noises = both) -> float:
    """Return the largest loss of what a party sees.

    Args:
        viewer: Who looks.
        left: The noise on tables that is left.
    """
    budgets = DESIGN.budgets[0].divide(attribute_weights(DESIGN.attributes))
    ones = [budget.noise(TABLE, 1) for budget in budgets]
    coarse = DESIGN.choice_noise((0, 1))
    table = DESIGN.budgets[2].noise(TABLE, 1)
    cached: dict[tuple[int, int], float] = {}

    def cost(before: np.ndarray, after: np.ndarray, noises: list[Noise]) -> float:
        found = 0.0
        for moved in np.abs(before - after).tolist():
            key = (moved, noises[0].size if noises else 0)
            if key not in cached:
                cached[key] = loss(moved, noises)
            found += cached[key]
        return found

    edges, worst = np.array([0, 1, 2]), 0.0
    for a, b, a_after, b_after in neighbours(viewer):
        before, after = ([np.array(each) for each in rows] for rows in ((a, b), (a_after, b_after)))
        spent = 0.0
        for owner in range(2):
            # An owner's one-way counts have its own noise alone, and it knows its own attribute.
            if owner not in removed(viewer):
                one, other = (one_way_counts(each[owner], edges) for each in (before, after))
                spent += cost(one, other, [ones[owner]])
        # Two values are two bins, and two merged ones.
        one, other = (pair_counts(each[0], each[1], (2, 2)) for each in (before, after))
        spent += sum(cost(one, other, left(viewer, noise)) for noise in (coarse, table))
        worst = max(worst, spent)
    return worst


@pytest.mark.parametrize("viewer", VIEWERS)
def test_nobody_sees_more_than_epsilon(viewer):
    """Whoever looks, and whoever looks together with the aggregator; some meet nearly the whole ε."""
    found = largest_loss(viewer)
    assert found <= 1 + 1e-9
    if removed(viewer):
        # The replaced person has one attribute that is not known.
        assert found > 0.6


@pytest.mark.parametrize("viewer", VIEWERS[:2])
def test_half_of_the_noise_would_be_seen(viewer):
    """A wrong scale at one owner, and an owner that adds none."""

    def half(viewer: str, noise: Noise) -> list[Noise]:
        return [Noise(noise.kind, noise.size // 2) for noise in both(viewer, noise)]

    assert largest_loss(viewer, half) > 1.1
    assert largest_loss(viewer, lambda *_: []) == float("inf")


def test_shares_of_the_noise_would_not_do():
    """With half of the variance from each, the other one would take half of the noise away."""

    def halved(viewer: str, noise: Noise) -> list[Noise]:
        return [Noise(noise.kind, round(noise.size / 2**0.5)) for noise in both(viewer, noise)]

    assert largest_loss("holder", halved) > 1
