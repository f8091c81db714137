"""The assignment of records to the places of the released list, with rank noise.

Masking has two products: the list of released values, which its mechanism protects, and the assignment of
records to the places of the list. Rank noise protects the assignment (docs/guarantee.md, "Who has which
value: rank noise"). Without it the record at rank q gets the entry at place q.

With it the record at position p of the original order gets the noisy position s = p + Z_p. Z_0, Z_1, … are
independent exact discrete Laplace noise of scale t = max(1, ceil(w n)), on the integers. The records are
sorted by s, ties by fresh random numbers, then by record number; the record at rank q of this new order gets
the entry at place q. Noise and fresh random numbers are drawn for positions, not for record numbers: they are
independent of the order and of each other, so that those of a record have the same distribution either way.

Proof of the bound on the privacy loss of the assignment:

1. The original order sorts records by value; then by a secret random number, which is drawn independently of
   the data and fixed here; then by record number.
2. By record, s is the vector of the positions with independent noise of one scale on each, since no two
   records share a position. Let one record's value change, so that its position changes by d. The d records
   that it passes move by one position each, all others stay. So the vector of positions changes by 2d in
   L1-distance, and the probability of s by a factor of at most exp(2d/t), whatever s is. The new order is a
   function of s, of fresh randomness and of record numbers.
3. d is at most n - 1, and 2(n - 1)/t is below 2/w. For g records of one person the bound is g times as large:
   change one record after the other.
4. List and assignment are drawn independently, so the bounds of both add up to one for the whole table.

The proof requires an order of the values that does not depend on the data. If categories are masked in the
order of their frequency, one record can make two of them swap places, which moves every record that has
either: no bound is stated there (`common.model.mechanisms.Mechanism.rank_loss`).

Ties of noisy positions must never be broken by the original positions: the new order would be a function of
more than s. Noisy positions are clipped at 32 t below the first and above the last position, which one in
e^32 reaches, so that the packed keys of the sort have room. That is a function of s, too, also where the
noise itself was cut (`noise.SharedScale`).

References:
    Dwork, McSherry, Nissim, Smith 2006, "Calibrating noise to sensitivity in private data analysis",
    Proposition 1 (noise on a vector of bounded L1-sensitivity); the use on positions is ours.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Self

import numpy as np

from owner_node.masking.arrays import BitSource, NoisyPositionArray, PositionArray, TieArray
from owner_node.masking.noise import SharedScale
from owner_node.masking.order import KEY_BITS, TIE_BITS, tie_breakers

MOST_NARROW = 2**27
"""Largest number of records whose noise is drawn in 32 bits."""
LARGEST_NARROW = 2**23
"""Largest scale of noise for 32 bits: at the last position, one draw in 2e^32 is cut."""
POSITIONS_PER_BLOCK = 2**15
"""Positions processed at a time: intermediate results stay in the processor's caches."""
_FARTHEST = 32
"""Scales of the noise from the first and the last position at which noisy positions are clipped."""


@dataclass(frozen=True, slots=True)
class PositionNoise:
    """The noise on the positions of all records, drawn for some of them at a time."""

    scale: int
    """t."""
    n_records: int
    """n."""

    @classmethod
    def of(cls, rank_noise: Decimal, n_records: int) -> Self:
        """Return the noise of w > 0: t = max(1, ceil(w n))."""
        return cls(max(1, int((rank_noise * n_records).to_integral_value(ROUND_CEILING))), n_records)

    @property
    def lowest(self) -> int:
        """The lowest noisy position."""
        return -_FARTHEST * self.scale

    @property
    def width(self) -> int:
        """How many noisy positions there are."""
        return self.n_records + 2 * _FARTHEST * self.scale

    def draw(self, bits: BitSource, some: int | None = None) -> NoisyPositionArray:
        """Draw Z of the next positions: of all, or of some; of 32 bits where that is enough for all."""
        elements = bits.take(self.n_records if some is None else some)
        if self.n_records <= MOST_NARROW and self.scale <= LARGEST_NARROW:
            return SharedScale(self.n_records, self.scale, np.int32).draw(elements)
        return SharedScale(self.n_records, self.scale, np.int64).draw(elements)

    def noisy_positions(self, noise: NoisyPositionArray, first: int) -> PositionArray:
        """Return the noisy positions s of consecutive positions, counted from the lowest one.

        Args:
            noise: Z of these positions.
        """
        noisy: PositionArray = np.clip(
            noise, -self.width, self.width, dtype=np.int64
        )  # room for the position
        noisy += np.arange(first - self.lowest, first - self.lowest + noise.size)
        np.clip(noisy, 0, self.width - 1, out=noisy)
        return noisy


def noisy_order(
    order: PositionArray, drawn: PositionNoise, noise: NoisyPositionArray, ties: TieArray
) -> PositionArray:
    """Sort records by noisy position, ties by fresh random numbers, then by record number.

    Args:
        order: The original order, `(n_records,)`, ties broken at random: the record at position p is
            `order[p]`.
        noise: Z, `(n_records,)`, by position.
        ties: Fresh tie-breakers, `(n_records,)`, by position.

    Returns:
        The order of the assignment, `(n_records,)`: its q-th record gets the entry at place q.
    """
    record_bits = (order.size - 1).bit_length()
    packed = (drawn.width - 1).bit_length() + TIE_BITS + record_bits <= KEY_BITS
    keys = np.empty(order.size, dtype=np.int64)
    for first in range(0, order.size, POSITIONS_PER_BLOCK):
        block = slice(first, first + POSITIONS_PER_BLOCK)
        some = drawn.noisy_positions(noise[block], first)
        if packed:
            some <<= TIE_BITS
            some |= ties[block]
            some <<= record_bits
            some |= order[block]
        keys[block] = some
    if not packed:
        return order[np.lexsort((order, ties, keys))]
    keys.sort()
    keys &= (1 << record_bits) - 1
    return keys


def with_rank_noise(order: PositionArray, rank_noise: Decimal, bits: BitSource) -> PositionArray:
    """Draw the noise and sort records by their noisy positions.

    Args:
        order: As in `noisy_order`.
        rank_noise: w, above 0.

    Returns:
        As `noisy_order`.
    """
    drawn = PositionNoise.of(rank_noise, order.size)
    return noisy_order(order, drawn, drawn.draw(bits), tie_breakers(order.size, bits))
