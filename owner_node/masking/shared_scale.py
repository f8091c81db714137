"""Exact geometric numbers for many elements: inversion, digit by digit, in a few bytes each.

`geometric_magnitudes(n, t)` draws Y >= 0 with P(Y = y) ∝ exp(-y/t), which discrete Laplace noise takes its
magnitude from (`noise`). One scale for all elements lets tables do what `noise` does with coins.
`mixed_magnitudes` makes draws of every element's own scale from draws of one scale.

Proof.

1. Let B = 2^10 and r = exp(-B^j/t). The digits of Y to base B are independent, since exp(-y/t) is a product
   over them: digit j has P(d) ∝ r^d for d below B. The last one has no end: it is M or more with probability
   r^M, and what it then has beyond M has its own distribution once more, so that it is drawn again and M
   added.
2. A digit is #{d: C_d <= U}, U uniform in [0, 1), C_d its cumulative probabilities. Of U only as many leading
   bits are drawn as it takes to know on which side of every C_d it lies: 16 bits, a table's index, settle all
   but those in whose cell a C_d lies; then 64; then 64 more at a time. floor(2^b C_d) is exact: it is
   computed in decimals with a bound on the error, and again with more digits should that bound leave it open.

3. Of its own scale t an element gets floor(t E), E exponentially distributed: P(t E >= y) = exp(-y/t). Of E
   is drawn G = floor(2^57 E), which is geometric of scale 2^57, so E lies from G/2^57 to (G + 1)/2^57. Where
   an integer lies within t times that, more digits of E are drawn, of scale 2^67, 2^77, … as in 1; that is
   rare. From 64 on, which is rarer still, E is 64 and another E: P(E >= 64 + x) = exp(-64) P(E >= x).

No double and no rounded probability enters. Y above 2^63 - 1 is returned as 2^63 - 1, as in `noise`.

References:
    Devroye 1986, "Non-Uniform Random Variate Generation", II.2 and III.2 (inversion and guide tables).
    Knuth and Yao 1976, "The complexity of nonuniform random number generation" (bits drawn as needed).
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from math import floor

import numpy as np
from numpy.typing import NDArray

from owner_node.masking.arrays import Int64Array, PositionArray, UInt64Array
from owner_node.masking.bits import BitSource

LARGEST_INT64 = 2**63 - 1
LARGEST_SCALE = 2**57
"""No scale of masking is larger (`calibration.fraction_bits`)."""
LARGEST_MIXED_SCALE = 2**48
"""Up to it products of scales with a few digits fit into 64 bits, and few draws need more digits."""
BASE_BITS = 10
INDEX_BITS = 16
_BASE = 2**BASE_BITS
_REACH = 32
"""Scales up to which the last digit is drawn at once; further it goes with probability below e^-16."""
_UNDECIDED = -1
_TABLES_KEPT = 12
_UNIT_BITS = 57
_FARTHEST = 64
"""E from which on `geometric_magnitudes` cuts draws of scale 2^57."""
_PIECE_BITS = 15


def geometric_magnitudes(n_draws: int, scale: int, bits: BitSource) -> Int64Array:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0.

    Args:
        n_draws: How many.
        scale: t, from 1 to `LARGEST_SCALE`.
        bits: Source of random bits.

    Returns:
        Independent draws, `(n_draws,)`, in the units of the scale.
    """
    *lower, last = _digits(scale)
    values = last.draw(n_draws, bits)
    beyond = np.flatnonzero(values == last.law.size)
    while beyond.size:
        more = last.draw(beyond.size, bits)
        values[beyond] += more
        beyond = beyond[more == last.law.size]
    shift = BASE_BITS * len(lower)
    too_far = values > LARGEST_INT64 >> shift
    values <<= shift
    for place, digit in enumerate(lower):
        values += digit.draw(n_draws, bits) << (BASE_BITS * place)
    values[too_far] = LARGEST_INT64
    return values


def mixed_magnitudes(scales: Int64Array, bits: BitSource) -> Int64Array:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, of every element's own scale.

    Args:
        scales: t, each from 1 to `LARGEST_MIXED_SCALE`, `(n,)`.
        bits: Source of random bits.

    Returns:
        Independent draws, `(n,)`, in the units of the scales.
    """
    grid = geometric_magnitudes(scales.size, 2**_UNIT_BITS, bits)
    values, rest = _whole_products(grid, scales)
    for index in np.flatnonzero(rest + scales > 2**_UNIT_BITS).tolist():
        values[index] = _with_more_digits(int(grid[index]), int(scales[index]), bits)
    beyond = np.flatnonzero(grid == LARGEST_INT64)
    if beyond.size:
        values[beyond] = _FARTHEST * scales[beyond] + mixed_magnitudes(scales[beyond], bits)
    return values


def _whole_products(grid: Int64Array, scales: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return floor(t G / 2^57) and what is left, as in multiplication by hand, 15 bits at a time."""
    fraction = grid & (2**_UNIT_BITS - 1)
    carried, rest = np.zeros_like(grid), np.zeros_like(grid)
    for low in range(0, _UNIT_BITS, _PIECE_BITS):
        width = min(_PIECE_BITS, _UNIT_BITS - low)
        carried += ((fraction >> low) & (2**width - 1)) * scales
        rest |= (carried & (2**width - 1)) << low
        carried >>= width
    carried += (grid >> _UNIT_BITS) * scales
    return carried, rest


def _with_more_digits(grid: int, scale: int, bits: BitSource) -> int:
    """Draw more digits of E until they say what t E is rounded down."""
    n_bits = _UNIT_BITS
    while True:
        n_bits += BASE_BITS
        grid = grid << BASE_BITS | int(_finer_digit(n_bits).draw(1, bits)[0])
        least, most = grid * scale >> n_bits, (grid + 1) * scale - 1 >> n_bits
        if least == most:
            return least


@lru_cache(_TABLES_KEPT)
def _finer_digit(n_bits: int) -> "_Digit":
    """Return the lowest digit of floor(2^n_bits E)."""
    return _Digit.of(_Law(2**n_bits, 0, _BASE, is_last=False))


@lru_cache(_TABLES_KEPT)
def _digits(scale: int) -> "tuple[_Digit, ...]":
    """Return the digits of a scale, lowest first."""
    n_lower = ((_REACH * scale // 2).bit_length() - 1) // BASE_BITS
    last = min(_BASE, -(-_REACH * scale // _BASE**n_lower))
    lower = [_Law(scale, place, _BASE, is_last=False) for place in range(n_lower)]
    return tuple(map(_Digit.of, [*lower, _Law(scale, n_lower, last, is_last=True)]))


@dataclass(frozen=True, slots=True)
class _Law:
    """The distribution of one digit."""

    scale: int
    """t."""
    place: int
    """j."""
    size: int
    """B, or for the last digit M."""
    is_last: bool
    """Whether it has no end, and M stands for everything from M on."""

    def thresholds(self, n_bits: int) -> list[int]:
        """Return floor(2^n_bits C_d) for all d below the largest, exactly."""
        precision = 2 * n_bits
        while True:
            found = self._attempt(n_bits, precision)
            if found is not None:
                return found
            precision *= 2

    def _attempt(self, n_bits: int, precision: int) -> list[int] | None:
        exact = Context(prec=precision)
        ratio = exact.exp(exact.divide(Decimal(-(_BASE**self.place)), Decimal(self.scale)))
        # Each power is off by less than d + 2 units of the last place, 10^(1 - precision), and C_d, which is
        # a quotient by 1/(2t) at least, by less than what follows, with room to spare.
        slack = Decimal(1024 * _BASE * self.scale).scaleb(-precision, exact)
        whole = Decimal(1) if self.is_last else exact.subtract(Decimal(1), exact.power(ratio, self.size))
        power, unit, found = ratio, Decimal(2**n_bits), []
        for _ in range(self.size if self.is_last else self.size - 1):
            reached = exact.divide(exact.subtract(Decimal(1), power), whole)
            least, most = (
                floor(exact.multiply(edge(reached, slack), unit)) for edge in (exact.subtract, exact.add)
            )
            if least != most:
                return None
            found.append(least)
            power = exact.multiply(power, ratio)
        return found


@dataclass(frozen=True, slots=True)
class _Digit:
    """One digit and the tables that it is drawn with."""

    law: _Law
    """Its distribution."""
    by_index: NDArray[np.int16]
    """The digit by the first 16 bits of U, `(2^16,)`; -1 where they leave it open."""
    thresholds: UInt64Array
    """floor(2^64 C_d), `(B - 1,)`, or `(M,)` for the last digit."""

    @classmethod
    def of(cls, law: _Law) -> "_Digit":
        thresholds = np.array(law.thresholds(64), dtype=np.uint64)
        cells = (thresholds >> np.uint64(64 - INDEX_BITS)).astype(np.int64)
        by_index = np.searchsorted(cells, np.arange(2**INDEX_BITS)).astype(np.int16)
        by_index[cells] = _UNDECIDED
        return cls(law, by_index, thresholds)

    def draw(self, n_draws: int, bits: BitSource) -> Int64Array:
        """Draw the digit of every element, `(n_draws,)`."""
        leading = bits.words(-(-n_draws // 4)).view(np.uint16)[:n_draws]
        drawn = self.by_index[leading].astype(np.int64)
        undecided = np.flatnonzero(drawn == _UNDECIDED)
        if undecided.size:
            drawn[undecided] = self._closer(leading[undecided], bits)
        return drawn

    def _closer(self, leading: NDArray[np.uint16], bits: BitSource) -> PositionArray:
        """Draw 48 more bits of each U, and more of those that still lie in the cell of a threshold."""
        words = bits.words(leading.size) >> np.uint64(INDEX_BITS)
        words |= leading.astype(np.uint64) << np.uint64(64 - INDEX_BITS)
        drawn = np.searchsorted(self.thresholds, words)
        open_still = np.flatnonzero(np.searchsorted(self.thresholds, words, side="right") != drawn)
        for index in open_still.tolist():
            drawn[index] = self._to_the_end(int(words[index]), bits)
        return drawn

    def _to_the_end(self, prefix: int, bits: BitSource) -> int:
        """Draw 64 more bits of one U at a time until they decide."""
        n_bits = 64
        while True:
            n_bits += 64
            prefix = prefix << 64 | int(bits.words(1)[0])
            thresholds = self.law.thresholds(n_bits)
            digit = bisect_left(thresholds, prefix)
            if digit == bisect_right(thresholds, prefix):
                return digit
