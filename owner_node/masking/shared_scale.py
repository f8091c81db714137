"""Exact geometric numbers of one scale for many elements: a table for the high part, bits for the low part.

`geometric_draws(n, t)` draws Y >= 0 with P(Y = y) ∝ exp(-y/t), and a fair sign of each, which discrete
Laplace noise is made of (`noise`). One scale for all elements lets a table do what `coins` do.

Proof.

1. Let Y = 2^s H + L, 0 <= L < 2^s. exp(-y/t) is a product over H and L, so they are independent, and
   P(H = h) ∝ exp(-h 2^s/t), P(L = l) ∝ exp(-l/t). L is drawn uniformly and kept with probability exp(-L/t),
   by the trials of `coins.exponential_coin`: the first one fails, and L is kept, with probability 1 - L/t.
   As L/t = κ L/2^s, κ = 2^s/t, that trial can be made of two events: one of probability κ, which has no
   regard to L, and one of probability L/2^s, a uniform number below 2^s that is less than L.
2. One uniform U in [0, 1) decides both whether the event of κ comes true, if U >= 1 - κ, and H where it
   does not: H is the number of C_h = (1 - κ)(1 - exp(-(h + 1) 2^s/t)) that are at most U. Given U < 1 - κ
   this has the distribution of H, and L is kept. Where U >= 1 - κ, the rest of the trials are made; where
   they keep L, H is the one of a new draw, and where they do not, the new draw takes the place of the old
   one. So the draw has the distribution of (H, L) in both cases.
3. H has no end: it is M or more with probability exp(-M 2^s/t), and has beyond M its own distribution once
   more: there H is M and the H of a new draw. L is kept as below M: the L of a new draw is no longer uniform,
   as the one that goes with U < 1 - κ has to be for the trials to come out right.
4. Of U only as many leading bits are drawn as it takes to know on which side of every C_h and of 1 - κ it
   lies: 16 bits, a table's index, settle all but those in whose cell one of these thresholds lies; then 64;
   then 64 more at a time. floor(2^b C_h) is exact: it is computed in integers with a bound on the error, and
   again with more digits should that bound leave it open. 1 - κ is a fraction.

No double and no rounded probability enters. Y above the largest number of the integers that are asked for,
2^63 - 1 or 2^31 - 1, is returned as that number.

References:
    Devroye 1986, "Non-Uniform Random Variate Generation", II.2 and III.2 (inversion and guide tables).
    Knuth and Yao 1976, "The complexity of nonuniform random number generation" (bits drawn as needed).
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from owner_node.masking.arrays import BoolArray, Int64Array, PositionArray, SignArray, UInt64Array
from owner_node.masking.bits import BitSource
from owner_node.masking.coins import exponential_coin

Integer = TypeVar("Integer", np.int32, np.int64)

LARGEST_SCALE = 2**57
"""No scale of masking is larger (`calibration.fraction_bits`)."""
LARGEST_NARROW_SCALE = 2**26
"""The same for draws of 32 bits: all that a table settles has room in them."""
INDEX_BITS = 16
HIGH_BITS = 7
"""The scale of H is from 2^7 to 2^8: then two or three draws in a hundred are not settled by their index.

For t above 2^55, where L has no more bits, it is up to 2^10, and for t below 2^8 it is t itself."""
WIDEST_LOW = 64 - INDEX_BITS - 1
"""Bits of L that one word has room for, beside index and sign."""
REST_TYPES: dict[int, type[np.integer[Any]]] = {
    7: np.int8,
    8: np.uint8,
    15: np.int16,
    16: np.uint16,
    31: np.int32,
}
"""What L and its sign are drawn as beside an index of their own, by the most bits of L; without the sign
where L fills all bytes."""
REACH = 16
"""M is so many scales of H: a draw goes further with probability e^-16."""
DRAWS_PER_BLOCK = 2**17
"""Draws that are made at a time: with fewer, threads wait for each other; more do not fit into the caches."""
_TABLES_KEPT = 8


@dataclass(frozen=True, slots=True)
class GeometricDraws(Generic[Integer]):
    """Draws with P(Y = y) ∝ exp(-y/t), and a fair sign of each."""

    magnitudes: NDArray[Integer]
    """Y, `(n_draws,)`."""
    signs: SignArray
    """0 for plus, -1 for minus, `(n_draws,)`; a minus of Y = 0 included."""


def geometric_draws(
    n_draws: int, scale: int, bits: BitSource, integer: type[Integer]
) -> GeometricDraws[Integer]:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, and a fair sign.

    Args:
        n_draws: How many.
        scale: t, from 1 to `LARGEST_SCALE`, or to `LARGEST_NARROW_SCALE` for 32 bits.
        bits: Source of random bits.
        integer: What to draw; fewer bits take less time.

    Returns:
        Independent draws, in the units of the scale.
    """
    return table_of(scale, integer).draw(n_draws, bits)


@dataclass(frozen=True, slots=True)
class Law:
    """What U decides: H up to M, which is M or more, or that the trials are to go on."""

    scale: int
    """t."""
    low_bits: int
    """s; with none there is no trial, and κ is 0."""

    @property
    def size(self) -> int:
        """M."""
        return -(-REACH * self.scale >> self.low_bits)

    def thresholds(self, n_bits: int) -> list[int]:
        """Return floor(2^n_bits C_h) for all h below M, and if s > 0 that of 1 - κ, exactly."""
        precision = n_bits + 64
        while True:
            found = self._attempt(n_bits, precision)
            if found is not None:
                return found
            precision *= 2

    def _attempt(self, n_bits: int, precision: int) -> list[int] | None:
        exact, unit = Context(prec=precision // 3 + 8), 1 << precision
        step = exact.divide(Decimal(-(1 << self.low_bits)), Decimal(self.scale))
        ratio = int(exact.multiply(exact.exp(step), Decimal(unit)))
        left = self.scale - (1 << self.low_bits) if self.low_bits else self.scale  # (1 - κ) t
        whole, power, slack, found = self.scale << precision, unit, 0, []
        for _ in range(self.size):
            # The ratio is off by less than 2 units, and each product of two such numbers below 1 adds one.
            power, slack = power * ratio >> precision, slack + 3
            reached = (unit - power) * left << n_bits
            least = (reached - (slack * left << n_bits)) // whole
            if (reached + (slack * left << n_bits)) // whole != least:
                return None
            found.append(least)
        return [*found, (left << n_bits) // self.scale] if self.low_bits else found


@lru_cache(_TABLES_KEPT)
def _table(scale: int, dtype: np.dtype[Integer]) -> "Table[Integer]":
    return Table.of(Law(scale, max(0, min(WIDEST_LOW, scale.bit_length() - 1 - HIGH_BITS))), dtype.type)


def table_of(scale: int, integer: type[Integer]) -> "Table[Integer]":
    """Return the table of a scale."""
    return _table(scale, np.dtype(integer))


@dataclass(frozen=True, slots=True)
class Table(Generic[Integer]):
    """A law and the table that it is drawn with."""

    law: Law
    """What U decides."""
    by_index: NDArray[Integer]
    """2^s H by the first 16 bits of U, `(2^16,)`; the least integer where they do not settle it."""
    thresholds: UInt64Array
    """The floors of 2^64 times the thresholds, ascending."""
    passed: Int64Array
    """How many thresholds lie below the cell of an index, `(2^16,)`."""

    @classmethod
    def of(cls, law: Law, integer: type[Integer]) -> "Table[Integer]":
        """Make the table of a law."""
        thresholds = np.array(law.thresholds(64), dtype=np.uint64)
        cells = (thresholds >> np.uint64(64 - INDEX_BITS)).astype(np.int64)
        inside = np.bincount(cells, minlength=2**INDEX_BITS)
        passed = np.cumsum(inside) - inside
        settled = (inside == 0) & (passed < law.size)
        by_index = np.where(settled, passed << law.low_bits, np.iinfo(integer).min)
        return cls(law, by_index.astype(integer), thresholds, passed)

    @property
    def largest(self) -> int:
        """What every larger draw is returned as."""
        return int(np.iinfo(self.by_index.dtype).max)

    def draw(self, n_draws: int, bits: BitSource) -> GeometricDraws[Integer]:
        """Draw as `geometric_draws` says."""
        magnitudes, signs = np.empty(n_draws, self.by_index.dtype), np.empty(n_draws, np.int8)
        places, indices = [], []
        for first in range(0, n_draws, DRAWS_PER_BLOCK):
            block = slice(first, min(first + DRAWS_PER_BLOCK, n_draws))
            index, low, signs[block] = self._words(block.stop - first, bits)
            found = self._indexed(index, low, magnitudes[block])
            places.append(found + first)
            indices.append(index[found].astype(np.int64))
        if places:
            self._settle(magnitudes, np.concatenate(places), np.concatenate(indices), bits)
        return GeometricDraws(magnitudes, signs)

    def _words(self, n_draws: int, bits: BitSource) -> tuple[NDArray[Any], NDArray[Any], SignArray]:
        """Draw indices, L in as few bytes as have room for it, and signs, all `(n_draws,)`."""
        low_mask = (1 << self.law.low_bits) - 1
        widest = next((each for each in REST_TYPES if self.law.low_bits <= each), None)
        if widest is None:
            words = bits.words(n_draws).view(np.int64)
            low = words >> INDEX_BITS & low_mask
            return words & (2**INDEX_BITS - 1), low, (words >> 63).astype(np.int8)
        index, rest = _integers(n_draws, np.uint16, bits), _integers(n_draws, REST_TYPES[widest], bits)
        if widest == self.law.low_bits and widest % 8 == 0:
            return index, rest, _signs(n_draws, bits)
        return index, rest & low_mask, (rest >> widest).astype(np.int8, copy=False)

    def _indexed(self, index: NDArray[Any], low: NDArray[Any], magnitudes: NDArray[Integer]) -> PositionArray:
        """Add L to 2^s H where the index settles it.

        Returns:
            Where it does not; the magnitude there is L above the least integer.
        """
        # "clip" is quicker than a check; no index is outside.
        np.take(self.by_index, index, out=magnitudes, mode="clip")
        magnitudes += low
        return np.flatnonzero(magnitudes < 0)

    def _settle(
        self, magnitudes: NDArray[Integer], places: PositionArray, indices: Int64Array, bits: BitSource
    ) -> None:
        """Draw more bits of each U, and trials of L, or all anew, where that takes it."""
        if places.size == 0:
            return
        s, size, largest = self.law.low_bits, self.law.size, self.largest
        low = magnitudes[places].astype(np.int64) & largest
        decided = self._closer(indices, bits)
        magnitudes[places] = (decided << s) + low
        again = np.flatnonzero(decided >= size)
        if again.size == 0:
            return
        new = self.draw(again.size, bits).magnitudes.astype(np.int64)
        low, beyond = low[again], decided[again] == size
        kept = self._kept(low, bits)
        cut = np.flatnonzero(new == largest)
        if cut.size:
            # What was cut has no high part that L could go with. Given the largest or more, exp(-1/t) is cut.
            one = np.ones(cut.size, dtype=np.int64)
            kept[cut] &= ~exponential_coin(one, np.full(cut.size, self.law.scale), bits)
        with_low = np.where(kept | beyond, new >> s << s | low, new)
        more = np.where(beyond, size << s, 0)
        magnitudes[places[again]] = np.minimum(with_low, largest - more) + more

    def _kept(self, low: Int64Array, bits: BitSource) -> BoolArray:
        """Make the trials of L where the event of κ has come true in the first one."""
        s = self.law.low_bits
        kept = np.ones(low.size, dtype=np.bool_)
        if s:
            on = np.flatnonzero((bits.words(low.size) >> np.uint64(64 - s)).view(np.int64) < low)
            kept[on] = exponential_coin(low[on], np.full(on.size, self.law.scale), bits, trial=2)
        return kept

    def _closer(self, indices: Int64Array, bits: BitSource) -> PositionArray:
        """Draw 48 more bits of each U, and more of those that still lie in the cell of a threshold."""
        words = bits.words(indices.size) >> np.uint64(INDEX_BITS)
        words |= indices.view(np.uint64) << np.uint64(64 - INDEX_BITS)
        # Most cells have one threshold, behind which the next one is above already: no need to search.
        decided = self.passed[indices]
        decided += self._above(decided) < words
        further = np.flatnonzero(self._above(decided) < words)
        decided[further] = np.searchsorted(self.thresholds, words[further])
        above = self._above(decided)
        for place in np.flatnonzero(above == words).tolist():
            decided[place] = self._to_the_end(int(words[place]), bits)
        return decided

    def _above(self, decided: PositionArray) -> UInt64Array:
        """Return the first threshold that is not passed, or the last one."""
        return self.thresholds.take(decided, mode="clip")

    def _to_the_end(self, prefix: int, bits: BitSource) -> int:
        """Draw 64 more bits of one U at a time until they decide."""
        n_bits = 64
        while True:
            n_bits += 64
            prefix = prefix << 64 | int(bits.words(1)[0])
            thresholds = self.law.thresholds(n_bits)
            decided = bisect_left(thresholds, prefix)
            if decided == bisect_right(thresholds, prefix):
                return decided


def _signs(n_draws: int, bits: BitSource) -> SignArray:
    """Draw fair signs by themselves, `(n_draws,)`."""
    words = bits.words(-(-n_draws // 64))
    return -np.unpackbits(words.view(np.uint8), count=n_draws).view(np.int8)


def _integers(n_draws: int, integer: type[np.integer[Any]], bits: BitSource) -> NDArray[Any]:
    """Draw uniform integers of few bytes, `(n_draws,)`."""
    n_bytes = n_draws * np.dtype(integer).itemsize
    return bits.words(-(-n_bytes // 8)).view(integer)[:n_draws]
