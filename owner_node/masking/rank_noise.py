"""The assignment of records to the places of the released list, with rank noise.

Masking has two products: the list of released values, which its mechanism protects, and the assignment of
records to the places of the list. Rank noise protects the assignment (docs/guarantee.md, "Who has which
value: rank noise"). Without it the record at rank q gets the entry at place q.

With it the record at position p of the original order gets the noisy position s = p + Z. Z is exact discrete
Laplace noise of scale t = max(1, ceil(w n)), on the integers. The records are sorted by s, ties by fresh
random numbers, then by record number; the record at rank q of this new order gets the entry at place q.

Proof of the bound on the privacy loss of the assignment:

1. The original order sorts records by value; then by a secret random number, which is drawn independently of
   the data and fixed here; then by record number.
2. Let one record's value change, so that its position changes by d. The d records that it passes move by
   one position each, all others stay. So the vector of positions changes by 2d in L1-distance, and the
   probability of s by a factor of at most exp(2d/t), whatever s is. The new order is a function of s, of
   fresh randomness and of record numbers.
3. d is at most n - 1, and 2(n - 1)/t is below 2/w. For g records of one person the bound is g times as large:
   change one record after the other.
4. List and assignment are drawn independently, so the bounds of both add up to one for the whole table.

The proof requires an order of the values that does not depend on the data. If categories are masked in the
order of their frequency, one record can make two of them swap places, which moves every record that has
either: no bound is stated there (`common.model.mechanisms.Mechanism.rank_loss`).

Ties of noisy positions must never be broken by the original positions: the new order would be a function of
more than s.

References:
    Dwork, McSherry, Nissim, Smith 2006, "Calibrating noise to sensitivity in private data analysis",
    Proposition 1 (noise on a vector of bounded L1-sensitivity); the use on positions is ours.
"""

from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np

from owner_node.masking.arrays import BitSource, NoisyPositionArray, PositionArray, TieArray
from owner_node.masking.noise import SharedScale
from owner_node.masking.order import KEY_BITS, TIE_BITS, tie_breakers

MOST_NARROW = 2**27
"""Largest number of records whose noise is drawn in 32 bits."""
POSITIONS_PER_BLOCK = 2**15
"""Positions processed at a time: intermediate results stay in the processor's caches."""
LARGEST_NARROW = 2**23
"""Largest scale of noise for 32 bits: at the last position, one draw in 2e^32 is cut."""


def noise_scale(rank_noise: Decimal, n_records: int) -> int:
    """Return t = max(1, ceil(w n)), the scale of the noise on positions.

    Args:
        rank_noise: w, above 0.
        n_records: n.
    """
    return max(1, int((rank_noise * n_records).to_integral_value(ROUND_CEILING)))


def position_noise(
    rank_noise: Decimal, n_records: int, bits: BitSource, some: int | None = None
) -> NoisyPositionArray:
    """Draw the noise Z on the positions of records.

    Args:
        rank_noise: w, above 0.
        n_records: n.
        bits: Source of random bits; its next elements are the records.
        some: How many records to draw for; None for all.

    Returns:
        Z, by record number; of 32 bits where that is enough for all records.
    """
    n_drawn, scale = n_records if some is None else some, noise_scale(rank_noise, n_records)
    return SharedScale(n_records, scale, noise_type(rank_noise, n_records)).draw(bits.take(n_drawn))


def noise_type(rank_noise: Decimal, n_records: int) -> Any:
    """Return the NumPy type of the noise on positions; arguments as in `position_noise`."""
    narrow = n_records <= MOST_NARROW and noise_scale(rank_noise, n_records) <= LARGEST_NARROW
    return np.int32 if narrow else np.int64


def noisy_positions(noise: NoisyPositionArray, first: int) -> PositionArray:
    """Return the noisy positions s of records at consecutive positions.

    Positions are clipped far from all others. That depends on the noisy position alone, also where the noise
    was cut: the order stays a function of s.

    Args:
        noise: Z of these records, in the original order.
        first: Position of the first of them.
    """
    farthest = farthest_position(noise.dtype)
    noisy = noise.astype(np.int64)
    np.minimum(noisy, 2 * farthest, out=noisy)  # room for the position
    noisy += np.arange(first, first + noise.size)
    return np.clip(noisy, -farthest, farthest, out=noisy)


def farthest_position(kind: Any) -> int:
    """Return where noisy positions are clipped, in both directions, by the type of the noise."""
    return int(np.iinfo(kind).max) // 4


def noisy_order(order: PositionArray, noise: NoisyPositionArray, ties: TieArray) -> PositionArray:
    """Sort records by noisy position, ties by fresh random numbers, then by record number.

    Args:
        order: The original order, `(n_records,)`, ties broken at random: the record at position p is
            `order[p]`.
        noise: Z, `(n_records,)`, by record number.
        ties: Fresh tie-breakers, `(n_records,)`, by record number.

    Returns:
        The order of the assignment, `(n_records,)`: its q-th record gets the entry at place q.
    """
    keys = np.empty(order.size, dtype=np.int64)
    for first in range(0, order.size, POSITIONS_PER_BLOCK):
        block = slice(first, first + POSITIONS_PER_BLOCK)
        keys[block] = noisy_positions(noise.take(order[block]), first)
    lowest, highest = int(keys.min()), int(keys.max())
    record_bits, noisy_bits = (order.size - 1).bit_length(), (highest - lowest).bit_length()
    if noisy_bits + TIE_BITS + record_bits > KEY_BITS:
        return order[np.lexsort((order, ties[order], keys))]
    for first in range(0, order.size, POSITIONS_PER_BLOCK):
        block = slice(first, first + POSITIONS_PER_BLOCK)
        some = keys[block]
        some -= lowest
        some <<= TIE_BITS
        some |= ties.take(order[block])
        some <<= record_bits
        some |= order[block]
    keys.sort()
    keys &= (1 << record_bits) - 1
    return keys


def with_rank_noise(order: PositionArray, rank_noise: Decimal, bits: BitSource) -> PositionArray:
    """Draw the noise and sort records by their noisy positions.

    Args:
        order: As in `noisy_order`.
        rank_noise: w, above 0.
        bits: Source of random bits.

    Returns:
        As `noisy_order`.
    """
    noise = position_noise(rank_noise, order.size, bits)
    return noisy_order(order, noise, tie_breakers(order.size, bits))
