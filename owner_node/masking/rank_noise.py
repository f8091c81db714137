"""Rank noise: who gets which entry of the list of released values, protected by noise on the ranks.

The list of released values is protected by its mechanism; this protects the other product of masking, the
assignment of records to the list (MECHANISMS §8). The record at position p of the original order gets the
noisy position s = p + Z, Z exact discrete Laplace of scale t = max(1, ceil(w n)), and the records are put
into the order of s.

Proof of the bound. Let u be the tie-breakers that make the original order, drawn without regard to the data,
and fixed. If one record's values change and it moves by d positions, the d records between move by one each:
the vector of positions changes by 2d in all, and that of s by a factor of at most exp(2d/t) in probability,
whatever s is. The new order is a function of s and of fresh randomness. At worst d = n - 1, and 2(n - 1)/t
is below 2/w. For g records of one person it is g times as much, one record after the other. List and
assignment are drawn independently, so the bounds of both add up to one for the whole table.

Equal values keep no order of their own: ties are broken by random numbers, in both sorts; where those are
equal, too, by record position, which has no regard to the data either.

References:
    Dwork, McSherry, Nissim, Smith 2006, "Calibrating noise to sensitivity in private data analysis",
    Proposition 1 (noise on a vector of bounded L1-sensitivity); the use on positions is ours.
"""

from decimal import ROUND_CEILING, Decimal

import numpy as np

from owner_node.masking.arrays import Int64Array, PositionArray, TieArray
from owner_node.masking.bits import BitSource
from owner_node.masking.noise import shared_laplace
from owner_node.masking.ranking import rank

DRAWS_PER_BLOCK = 2**18
"""Draws that are made at a time: drawing needs several times the memory of what is drawn."""


def noise_scale(rank_noise: Decimal, n_records: int) -> int:
    """Return t = max(1, ceil(w n)), the scale of the noise on positions.

    Args:
        rank_noise: w, above 0.
        n_records: n.
    """
    return max(1, int((rank_noise * n_records).to_integral_value(ROUND_CEILING)))


def tie_breakers(n_records: int, bits: BitSource) -> TieArray:
    """Draw tie-breakers of equal values, `(n_records,)`: many records can have the same."""
    return bits.words(-(-n_records // 4)).view(np.uint16)[:n_records]


def _fresh_tie_breakers(n_records: int, bits: BitSource) -> TieArray:
    """Draw tie-breakers of equal noisy positions, `(n_records,)`: few records have the same."""
    return bits.words(-(-n_records // 8)).view(np.uint8)[:n_records]


def noisy_positions(order: PositionArray, scale: int, bits: BitSource) -> Int64Array:
    """Draw s, the noisy position of every record.

    Args:
        order: The original order, `(n_records,)`: the record at position p is `order[p]`.
        scale: t.
        bits: Source of random bits.

    Returns:
        s, `(n_records,)`, by record.
    """
    positions = np.empty(order.size, dtype=np.int64)
    for first in range(0, order.size, DRAWS_PER_BLOCK):
        records = order[first : first + DRAWS_PER_BLOCK]
        noise = shared_laplace(records.size, scale, bits)
        # Sums of more than 2^62 in size would leave room for no position; such noise changes no order.
        np.clip(noise, -(2**61), 2**61, out=noise)
        noise += np.arange(first, first + records.size)
        positions[records] = noise
    return positions


def with_rank_noise(order: PositionArray, rank_noise: Decimal, bits: BitSource) -> PositionArray:
    """Put records into the order of their noisy positions.

    Args:
        order: The original order, `(n_records,)`, ties broken at random.
        rank_noise: w; 0 leaves the order as it is.
        bits: Source of random bits.

    Returns:
        The order of the assignment, `(n_records,)`: the record at rank q of the list is `order[q]`.
    """
    if not rank_noise:
        return order
    positions = noisy_positions(order, noise_scale(rank_noise, order.size), bits)
    return rank(positions, ties=_fresh_tie_breakers(order.size, bits)).order
