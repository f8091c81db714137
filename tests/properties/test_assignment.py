"""Who gets which entry of a list: every order of records with its exact probability."""

from decimal import Decimal
from itertools import pairwise, permutations, product
from math import exp, prod

import numpy as np
from scipy import stats

from owner_node.masking.rank_noise import with_rank_noise
from tests.fakes.bits import SeededBits

BAD = 1e-4
HOPELESS = 1e-12


def order_probabilities(scale: int) -> dict[tuple[int, ...], float]:
    """The exact probability of every order of three records at positions 0, 1 and 2 before the noise."""
    reach = range(-10 * scale, 10 * scale + 1)
    weight = {z: exp(-abs(z) / scale) for z in reach}
    total, found = sum(weight.values()) ** 3, dict.fromkeys(permutations(range(3)), 0.0)
    for noise in product(reach, repeat=3):
        noisy = [place + z for place, z in enumerate(noise)]
        orders = [order for order in found if all(noisy[a] <= noisy[b] for a, b in pairwise(order))]
        for order in orders:
            found[order] += prod(weight[z] for z in noise) / total / len(orders)
    return found


def test_orders_have_the_probabilities_of_sorted_noisy_positions():
    """Records 0, 1, 2 in this order, t = 1: every order as often as it should be; t = 2 is seen."""
    bits, times = SeededBits(21), 6000
    exact, wider = (order_probabilities(scale) for scale in (1, 2))
    counts = dict.fromkeys(exact, 0)
    for _ in range(times):
        counts[tuple(with_rank_noise(np.arange(3), Decimal("0.1"), bits).tolist())] += 1
    found = list(counts.values())
    assert stats.chisquare(found, [times * exact[each] for each in counts]).pvalue > BAD
    assert stats.chisquare(found, [times * wider[each] for each in counts]).pvalue < HOPELESS
