"""Privacy of tables across owners by brute force: what each party sees, of all tables of a few persons.

Two owners hold one attribute each. A person's record is replaced. A party sees a transcript: one-way counts
and the table, with the noise that it cannot take away. The loss of a transcript is the sum over its numbers,
by exact probabilities. How ciphertexts hide all else is shown exhaustively in the tests of the cryptosystem
and of the packing.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, reduce
from itertools import product

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import Noise
from common.synthesis.schedule import Design, one_way_noises
from owner_node.synthesis.counts import one_way_counts, pair_counts

YES_OR_NO = Attribute("x", AttributeType.BOOLEAN, 0, 1)
N_PERSONS = 3
DESIGN = Design((YES_OR_NO, YES_OR_NO), N_PERSONS, Decimal("0.2"), owner_groups=(0, 1))
VIEWERS = ("holder", "adder", "aggregator", "aggregator and holder", "aggregator and adder")
Rows = tuple[int, ...]
Noises = tuple[Noise, ...]


def removed(viewer: str) -> set[int]:
    """Return whose noise a viewer knows."""
    return {number for number, name in enumerate(("holder", "adder")) if name in viewer}


@cache
def loss(moved: int, noises: Noises) -> float:
    """Return the largest privacy loss of a number with some noise, over all likely values."""
    if not moved or not noises:
        return float("inf") if moved else 0.0
    reach = 40 * noises[0].size
    weights = [np.exp(-np.abs(np.arange(-reach, reach + 1)) / noise.size) for noise in noises]
    summed = reduce(np.convolve, [each / each.sum() for each in weights])
    middle = summed.size // 2
    near = np.log(summed[middle - reach // 4 : middle + reach // 4 + moved])
    return float(np.abs(near[moved:] - near[:-moved]).max())


def neighbours(viewer: str) -> Iterator[tuple[Rows, Rows, Rows, Rows]]:
    """Yield both owners' attribute, and the same after a person was replaced.

    An owner that looks knows its own attribute; the replaced person's differs at the other one alone.
    """
    for one, other in product(product((0, 1), repeat=N_PERSONS), repeat=2):
        for person, new in product(range(N_PERSONS), product((0, 1), repeat=2)):
            changed = [list(one), list(other)]
            for owner in {0, 1} - removed(viewer):
                changed[owner][person] = new[owner]
            yield one, other, tuple(changed[0]), tuple(changed[1])


def largest_loss(viewer: str, left: Callable[[Noise], Noises] = lambda noise: (noise,)) -> float:
    """Return the largest loss of what a party sees, as a multiple of ε.

    Args:
        viewer: Who looks.
        left: What each owner that does not look adds to a table, of the planned noise.
    """
    ones, others = one_way_noises(DESIGN), {0, 1} - removed(viewer)
    on_table = left(DESIGN.table_noise((0, 1))) * len(others)

    def cost(before: np.ndarray, after: np.ndarray, noises: Noises) -> float:
        return sum(loss(moved, noises) for moved in np.abs(before - after).tolist())

    edges, worst = np.array([0, 1, 2]), 0.0
    for a, b, a_after, b_after in neighbours(viewer):
        before, after = ([np.array(each) for each in rows] for rows in ((a, b), (a_after, b_after)))
        # Two values are two bins: fewer would say less.
        one, other = (pair_counts(each[0], each[1], (2, 2)) for each in (before, after))
        spent = cost(one, other, on_table)
        for owner in others:
            # Its one-way counts have its own noise alone.
            one, other = (one_way_counts(each[owner], edges) for each in (before, after))
            spent += cost(one, other, (ones[owner],))
        worst = max(worst, spent)
    return worst / float(DESIGN.epsilon)


@pytest.mark.parametrize("viewer", VIEWERS)
def test_nobody_sees_more_than_epsilon(viewer):
    """Whoever looks, and whoever looks together with the aggregator; some meet nearly the whole ε."""
    # Of an owner that looks, the one-way counts say nothing that it does not know.
    least = 0.75 if removed(viewer) else 0.5
    assert least < largest_loss(viewer) <= 1 + 1e-9


@pytest.mark.parametrize("viewer", VIEWERS[:2])
def test_half_of_the_noise_would_be_seen(viewer):
    """A wrong scale at one owner, and an owner that adds none."""
    assert largest_loss(viewer, lambda noise: (Noise(noise.kind, noise.size // 2),)) > 1.1
    assert largest_loss(viewer, lambda _: ()) == float("inf")


def test_shares_of_the_noise_would_not_do():
    """With half of the variance from each, the other one would take half of the noise away."""
    assert largest_loss("holder", lambda noise: (Noise(noise.kind, round(noise.size / 2**0.5)),)) > 1
