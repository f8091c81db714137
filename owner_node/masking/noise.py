"""Exact discrete Laplace noise, vectorised, with an integer scale per element.

`discrete_laplace(t)` returns X with P(X = x) = (1 - q)/(1 + q) q^|x|, q = exp(-1/t), for every element's own
integer scale t >= 1, and 0 where t = 0. Only integers are drawn: noise from floating-point formulas shows
its leading bits, and with them the number that it was added to (Mironov 2012).

The sampler has four layers: coins, draws of one scale from a table, draws of different scales as multiples of
draws of one scale, and signs.

Coins (Canonne, Kamath, Steinke 2020, Algorithm 1).

1. `uniform_below(b)`: a word below m b, m = floor(2^64 / b), leaves each remainder modulo b for exactly m
   words; a word that is not below m b is replaced by a new one.
   `one_in(j)` keeps only whether a word is below m, one j-th of those below m j.
2. `exponential_coin(a, b)`, 0 <= a <= b, is true with probability exp(-γ), γ = a/b. Trial j succeeds with
   probability γ/j, drawn as two independent events of probability a/b and 1/j, so that no product b*j is
   formed. The first failure comes at trial j with probability γ^(j-1)/(j-1)! - γ^j/j!; the sum over odd j is
   Σ_i (-γ)^i/i! = exp(-γ).

One scale for all elements: a `NoiseTable` draws Y >= 0 with P(Y = y) ∝ exp(-y/t), and a fair sign.

1. Let Y = 2^s H + L, 0 <= L < 2^s. exp(-y/t) is a product over H and L, so they are independent, and
   P(H = h) ∝ exp(-h 2^s/t), P(L = l) ∝ exp(-l/t). L is drawn uniformly and kept with probability exp(-L/t),
   by the trials of `exponential_coin`: the first one fails, and L is kept, with probability 1 - L/t.
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

A scale for every element: `mixed_draws(scales)` draws the same Y of every element's own t.

1. Y = floor(t E), E exponentially distributed: P(t E >= y) = exp(-y/t). Of E is drawn G = floor(2^55 E),
   which is geometric of scale 2^55 and comes from a table, so E lies from G/2^55 up to (G + 1)/2^55. Where an
   integer lies within t times that, more digits of E are drawn: 7 first, then 64 at a time. They are
   independent of those before, since exp(-e) is a product over the digits of e, and P(d) ∝ exp(-d/2^n) for
   the digit d that ends n places after the point: d is drawn uniformly and kept with that probability.
2. With G = 2^47 H + L, t G / 2^55 = (t H + t L / 2^47) / 2^8. For t <= 2^48, let Q be the product of t and
   L / 2^47 in doubles, rounded down. t and L are integers below 2^53, and 2^-47 is a power of two, so that
   IEEE 754 rounds once, by at most 2^-6: the product is at most t <= 2^48. So t times what E has beyond
   H / 2^8 lies above Q - 1 and below Q + 1 + 2^-6 + t / 2^47 < Q + 4, and Y is floor((t H + Q) / 2^8) unless
   one of the integers from t H + Q to t H + Q + 3 is a multiple of 2^8. There, once in 64 times, and for all
   larger t, the product is made in integers. So the double decides what else has to be looked at, and never
   what Y is.
3. From E = 16 on, E is 16 and another E: P(E >= 16 + x) = exp(-16) P(E >= x), and t times 16 is an integer.

Signs (Canonne, Kamath, Steinke 2020, Algorithm 2, with denominator s = 1): a fair sign of Y, minus zero
rejected, gives P(X = x) ∝ exp(-|x|/t) for every integer x.

No double and no rounded probability decides a draw. Y above the largest number of the integers that are asked
for, 2^63 - 1 or 2^31 - 1, is returned as that number. The probability is at most exp(-63) for t up to 2^57,
or exp(-31) for t up to 2^26. `add_saturating` makes the result a function of the exact noisy sum all the
same, and `rank_noise` that of the exact noisy position, so that no guarantee depends on it.

References:
    Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Algorithms 1 and 2.
    Devroye 1986, "Non-Uniform Random Variate Generation", II.2 and III.2 (inversion and guide tables), X.2
    (geometric numbers from exponential ones).
    IEEE 754-2019, 4.3.1 and 5.4.1 (products are rounded to the nearest double).
    Knuth and Yao 1976, "The complexity of nonuniform random number generation" (bits drawn as needed).
    Mironov 2012, "On significance of the least significant bits for differential privacy".
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from owner_node.masking.arrays import (
    LARGEST_INT64,
    BitSource,
    BoolArray,
    Chosen,
    ElementBits,
    Int64Array,
    PositionArray,
    SignArray,
    UInt64Array,
    Words,
)

LARGEST_WORD = np.uint64(2**64 - 1)


def exponential_coin(
    numerators: Int64Array, denominators: Int64Array, bits: Words, trial: int = 1
) -> BoolArray:
    """Toss coins that are true with probability exp(-a/b), numerators 0 <= a <= denominators b.

    Args:
        numerators: a, `(n,)`.
        denominators: b, `(n,)`.
        trial: The trial to continue with, where all trials before it are known to have succeeded.

    Returns:
        The coins, `(n,)`.
    """
    result = np.empty(numerators.size, dtype=np.bool_)
    running = np.arange(numerators.size)
    while running.size:
        success = _uniform_below(denominators, bits, running) < numerators
        success[success] = one_in(trial, bits, running[success])
        result[running[~success]] = trial % 2 == 1
        running, numerators, denominators = running[success], numerators[success], denominators[success]
        trial += 1
    return result


def two_over_e_coin(n_coins: int, bits: Words) -> BoolArray:
    """Toss coins that are true with probability 2/e: the trials of exp(-1) from the third onwards.

    Trial j succeeds with probability 1/j, so the number of successes is at least i with probability
    2/(i + 2)!; it is even with probability Σ_i (-1)^i 2/(i + 2)! = 2/e.
    """
    one = np.ones(n_coins, dtype=np.int64)
    return exponential_coin(one, one, bits, trial=3)


def one_in(choices: int, bits: Words, which: PositionArray) -> BoolArray:
    """Draw events of probability 1/choices for some elements; for 1 choice it costs no bits."""
    if choices == 1:
        return np.ones(which.size, dtype=np.bool_)
    share = 2**64 // choices
    words = bits.next(which)
    chosen: BoolArray = words < np.uint64(share)
    rejected = np.flatnonzero(words > np.uint64(share * choices - 1))
    if rejected.size:
        chosen[rejected] = one_in(choices, bits, which[rejected])
    return chosen


def uniform_below(bounds: Int64Array, bits: Words) -> Int64Array:
    """Draw a uniform integer from 0 to bound - 1 for every bound >= 1."""
    return _uniform_below(bounds, bits, np.arange(bounds.size))


def _uniform_below(bounds: Int64Array, bits: Words, which: PositionArray) -> Int64Array:
    limits = bounds.astype(np.uint64)
    words = bits.next(which)
    drawn = words % limits
    # words - drawn is the multiple of the bound that a word lies above; the last, incomplete one is rejected.
    rejected = np.flatnonzero(words - drawn > LARGEST_WORD - (limits - np.uint64(1)))
    found = drawn.astype(np.int64)
    if rejected.size:
        found[rejected] = _uniform_below(bounds[rejected], bits, which[rejected])
    return found


Integer = TypeVar("Integer", np.int32, np.int64)

LARGEST_SCALE = 2**57
"""No scale of masking is larger (`clusters.fraction_bits`)."""
LARGEST_NARROW_SCALE = 2**26
"""The same for draws of 32 bits: all that a table settles has room in them."""
INDEX_BITS = 16
HIGH_BITS = 7
"""The scale of H is from 2^7 to 2^8: then two or three draws in a hundred are not settled by their index.

For t above 2^55, where L has no more bits, it is up to 2^10, and for t below 2^8 it is t itself."""
WIDEST_LOW = 64 - INDEX_BITS - 1
"""Bits of L that one word has room for, beside index and sign."""
REST_TYPES: dict[int, type[np.integer[Any]]] = {7: np.int8, 15: np.int16, 31: np.int32}
"""What L and its sign are drawn as beside an index of their own, by the most bits of L."""
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


@dataclass(frozen=True, slots=True)
class Law:
    """What U decides: H up to M, which is M or more, or that the trials are to continue."""

    scale: int
    """t."""
    low_bits: int
    """s; with none there is no trial, and κ is 0."""

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= LARGEST_SCALE:
            raise ValueError(f"no noise of scale {self.scale}")

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


@dataclass(frozen=True, slots=True)
class NoiseTable(Generic[Integer]):
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
    def of(cls, law: Law, integer: type[Integer]) -> "NoiseTable[Integer]":
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

    def draw(self, bits: ElementBits) -> GeometricDraws[Integer]:
        """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, and a fair sign, for every element.

        Returns:
            Independent draws, in the units of the scale.
        """
        magnitudes, signs = np.empty(bits.size, self.by_index.dtype), np.empty(bits.size, np.int8)
        places, indices = [], []
        for first in range(0, bits.size, DRAWS_PER_BLOCK):
            block = slice(first, min(first + DRAWS_PER_BLOCK, bits.size))
            index, low, signs[block] = self._parts(bits, block)
            found = self._indexed(index, low, magnitudes[block])
            places.append(found + first)
            indices.append(index[found].astype(np.int64))
        if places:
            self._settle(magnitudes, np.concatenate(places), np.concatenate(indices), bits)
        return GeometricDraws(magnitudes, signs)

    def draw_anew(self, n_draws: int, bits: Words) -> GeometricDraws[Integer]:
        """Draw the same for elements whose fixed places in the stream have been used, from further words."""
        index, low, signs = self._parts_of(bits.next(np.arange(n_draws)))
        magnitudes = np.empty(n_draws, self.by_index.dtype)
        found = self._indexed(index, low, magnitudes)
        self._settle(magnitudes, found, index[found], bits)
        return GeometricDraws(magnitudes, signs)

    def _parts(self, bits: ElementBits, block: slice) -> tuple[NDArray[Any], NDArray[Any], SignArray]:
        """Draw indices, L in as few bytes as have room for it, and signs, all `(n_draws,)`."""
        widest = next((each for each in REST_TYPES if self.law.low_bits <= each), None)
        if widest is None:
            return self._parts_of(bits.integers(np.uint64, 0, block))
        index = bits.integers(np.uint16, 0, block)
        rest = bits.integers(REST_TYPES[widest], 1, block)
        return index, rest & ((1 << self.law.low_bits) - 1), (rest >> widest).astype(np.int8, copy=False)

    def _parts_of(self, drawn: UInt64Array) -> tuple[Int64Array, Int64Array, SignArray]:
        """Divide words into indices, L and signs, all `(n_draws,)`."""
        words = drawn.view(np.int64)
        low = words >> INDEX_BITS & ((1 << self.law.low_bits) - 1)
        return words & (2**INDEX_BITS - 1), low, (words >> 63).astype(np.int8)

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
        self, magnitudes: NDArray[Integer], places: PositionArray, indices: Int64Array, bits: Words
    ) -> None:
        """Draw more bits of each U, and trials of L, or all anew, where that takes it."""
        if places.size == 0:
            return
        s, size, largest = self.law.low_bits, self.law.size, self.largest
        low = magnitudes[places].astype(np.int64) & largest
        decided = self._closer(indices, Chosen(bits, places))
        magnitudes[places] = (decided << s) + low
        again = np.flatnonzero(decided >= size)
        if again.size == 0:
            return
        left = Chosen(bits, places[again])
        new = self.draw_anew(again.size, left).magnitudes.astype(np.int64)
        low, beyond = low[again], decided[again] == size
        kept = self._kept(low, left)
        cut = np.flatnonzero(new == largest)
        if cut.size:
            # What was cut has no high part that L could go with. Given the largest or more, exp(-1/t) is cut.
            one = np.ones(cut.size, dtype=np.int64)
            kept[cut] &= ~exponential_coin(one, np.full(cut.size, self.law.scale), Chosen(left, cut))
        with_low = np.where(kept | beyond, new >> s << s | low, new)
        more = np.where(beyond, size << s, 0)
        magnitudes[places[again]] = np.minimum(with_low, largest - more) + more

    def _kept(self, low: Int64Array, bits: Words) -> BoolArray:
        """Make the trials of L where the event of κ has come true in the first one."""
        s = self.law.low_bits
        kept = np.ones(low.size, dtype=np.bool_)
        if s:
            words = bits.next(np.arange(low.size))
            on = np.flatnonzero((words >> np.uint64(64 - s)).view(np.int64) < low)
            kept[on] = exponential_coin(low[on], np.full(on.size, self.law.scale), Chosen(bits, on), trial=2)
        return kept

    def _closer(self, indices: Int64Array, bits: Words) -> PositionArray:
        """Draw 48 more bits of each U, and more of those that still lie in the cell of a threshold."""
        words = bits.next(np.arange(indices.size)) >> np.uint64(INDEX_BITS)
        words |= indices.view(np.uint64) << np.uint64(64 - INDEX_BITS)
        # Most cells have one threshold, behind which the next one is above already: no need to search.
        decided = self.passed[indices]
        decided += self._above(decided) < words
        further = np.flatnonzero(self._above(decided) < words)
        decided[further] = np.searchsorted(self.thresholds, words[further])
        above = self._above(decided)
        for place in np.flatnonzero(above == words).tolist():
            decided[place] = self._to_the_end(int(words[place]), Chosen(bits, np.array([place])))
        return decided

    def _above(self, decided: PositionArray) -> UInt64Array:
        """Return the first threshold that is not passed, or the last one."""
        return self.thresholds.take(decided, mode="clip")

    def _to_the_end(self, prefix: int, bits: Words) -> int:
        """Draw 64 more bits of one U at a time until they decide."""
        n_bits = 64
        while True:
            n_bits += 64
            prefix = prefix << 64 | _word(bits)
            thresholds = self.law.thresholds(n_bits)
            decided = bisect_left(thresholds, prefix)
            if decided == bisect_right(thresholds, prefix):
                return decided


@lru_cache(_TABLES_KEPT)
def _table(scale: int, dtype: np.dtype[Integer]) -> NoiseTable[Integer]:
    return NoiseTable.of(Law(scale, max(0, min(WIDEST_LOW, scale.bit_length() - 1 - HIGH_BITS))), dtype.type)


def table_of(scale: int, integer: type[Integer]) -> NoiseTable[Integer]:
    """Return the table of a scale; 32 bits, for scales up to `LARGEST_NARROW_SCALE`, take less time."""
    return _table(scale, np.dtype(integer))


def _word(bits: Words) -> int:
    """Draw a word for a single element."""
    return int(bits.next(np.zeros(1, dtype=np.int64))[0])


LARGEST_DOUBLE_SCALE = 2**48
"""Largest scale whose products are first made in doubles."""
UNIT_BITS = 55
LOW_BITS = 47
MORE_BITS = 7
"""More digits of E where they are needed: with them its fraction still fits into 63 bits."""
_HIGH_BITS = UNIT_BITS - LOW_BITS
_NEAR = 4
_STEP_BITS = 64


def mixed_draws(scales: Int64Array, drawn: GeometricDraws[np.int64], bits: Words) -> GeometricDraws[np.int64]:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, of every element's own scale, and a fair sign.

    Args:
        scales: t, each from 1 to `LARGEST_SCALE`, `(n,)`.
        drawn: G and a sign of every element; overwritten.

    Returns:
        Independent draws, `(n,)`, in the units of the scales.

    Raises:
        ValueError: If a scale is larger.
    """
    if scales.max(initial=0) > LARGEST_SCALE:
        raise ValueError(f"no noise of a scale above {LARGEST_SCALE}")
    grid, values, places = drawn.magnitudes, np.empty_like(scales), []
    for first in range(0, scales.size, DRAWS_PER_BLOCK):
        block = slice(first, first + DRAWS_PER_BLOCK)
        values[block], near = _nearly(grid[block], scales[block])
        places.append(near + first)
    if places:
        near = np.concatenate(places)
        values[near] = _exactly(grid[near], scales[near], Chosen(bits, near))
    beyond = np.flatnonzero(grid >= REACH << UNIT_BITS)
    if beyond.size:
        certain, left = REACH * scales[beyond], Chosen(bits, beyond)
        more = mixed_draws(scales[beyond], _exponential_table().draw_anew(beyond.size, left), left).magnitudes
        values[beyond] = np.minimum(more, LARGEST_INT64 - certain) + certain
    return GeometricDraws(values, drawn.signs)


def geometric(scales: Int64Array, bits: BitSource) -> Int64Array:
    """Draw independent Y with P(Y = y) ∝ exp(-y/t), y >= 0.

    Args:
        scales: t, each from 1 to `LARGEST_SCALE`, `(n,)`.

    Returns:
        The draws, `(n,)`, in the units of the scales.
    """
    own = bits.take(scales.size)
    return mixed_draws(scales, _exponential_table().draw(own), own).magnitudes


@cache
def _exponential_table() -> NoiseTable[np.int64]:
    """Return the table of G, the same for all scales: it takes some milliseconds to make."""
    return NoiseTable.of(Law(2**UNIT_BITS, LOW_BITS), np.int64)


def _nearly(grid: Int64Array, scales: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return floor((t H + Q)/2^8), and where Y may be something else: always for t above 2^48."""
    values = grid >> LOW_BITS
    values *= scales
    whole = grid & (2**LOW_BITS - 1)
    product = whole.astype(np.float64)
    product *= scales
    product *= 2.0**-LOW_BITS
    np.copyto(whole, product, casting="unsafe")
    values += whole
    np.add(values, _NEAR - 1, out=whole)
    whole &= 2**_HIGH_BITS - 1
    values >>= _HIGH_BITS
    return values, np.flatnonzero((whole < _NEAR) | (scales > LARGEST_DOUBLE_SCALE))


def _exactly(grid: Int64Array, scales: Int64Array, bits: Words) -> Int64Array:
    """Return floor(t E), with more digits of E where that takes them."""
    fraction = grid & (2**UNIT_BITS - 1)
    values, rest = whole_products(fraction, UNIT_BITS, scales)
    further = np.flatnonzero(rest + scales > 2**UNIT_BITS)
    if further.size:
        left = Chosen(bits, further)
        finer = fraction[further] << MORE_BITS | _more_digits(further.size, left)
        values[further] = _with_more_digits(finer, scales[further], left)
    return values + (grid >> UNIT_BITS) * scales


def _with_more_digits(fraction: Int64Array, scales: Int64Array, bits: Words) -> Int64Array:
    """Return floor(t F), F lying from fraction/2^62 to (fraction + 1)/2^62."""
    n_bits = UNIT_BITS + MORE_BITS
    values, rest = whole_products(fraction, n_bits, scales)
    for place in np.flatnonzero(rest > 2**n_bits - scales).tolist():
        only = Chosen(bits, np.array([place]))
        values[place] = _to_the_end(int(fraction[place]), n_bits, int(scales[place]), only)
    return values


def whole_products(fraction: Int64Array, n_bits: int, scales: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Multiply numbers below 1 by scales, as by hand, as many bits at a time as leave room for the scale.

    Args:
        fraction: The numbers in units of 2^-n, `(n,)`.
        n_bits: n, at most 62.
        scales: Up to `LARGEST_SCALE`, `(n,)`.

    Returns:
        The products rounded down, and what is left in units of 2^-n, both `(n,)`.
    """
    carried, rest = np.zeros_like(fraction), np.zeros_like(fraction)
    # A piece of p bits times t, and less than t carried, stays below 2^p t.
    piece_bits = 63 - int(scales.max(initial=1)).bit_length()
    for low in range(0, n_bits, piece_bits):
        width = min(piece_bits, n_bits - low)
        carried += ((fraction >> low) & (2**width - 1)) * scales
        rest |= (carried & (2**width - 1)) << low
        carried >>= width
    return carried, rest


def _more_digits(n_draws: int, bits: Words) -> Int64Array:
    """Draw the digits of E from 55 to 62 places after the point, `(n_draws,)`."""
    digits, pending = np.empty(n_draws, dtype=np.int64), np.arange(n_draws)
    while pending.size:
        drawn = (bits.next(pending) >> np.uint64(64 - MORE_BITS)).view(np.int64)
        unit = np.full(drawn.size, 2 ** (UNIT_BITS + MORE_BITS))
        kept = exponential_coin(drawn, unit, Chosen(bits, pending))
        digits[pending[kept]] = drawn[kept]
        pending = pending[~kept]
    return digits


def _to_the_end(fraction: int, n_bits: int, scale: int, bits: Words) -> int:
    """Draw 64 more digits of one E at a time until they say what t times its fraction is rounded down."""
    while True:
        n_bits += _STEP_BITS
        digit = _word(bits)
        while not _kept(digit, n_bits, bits):
            digit = _word(bits)
        fraction = fraction << _STEP_BITS | digit
        least, most = fraction * scale >> n_bits, (fraction + 1) * scale - 1 >> n_bits
        if least == most:
            return least


def _kept(digit: int, n_bits: int, bits: Words) -> bool:
    """Return true with probability exp(-d/2^n), as `exponential_coin` does for larger numbers."""
    trial, n_words = 1, -(-n_bits // 64)
    while True:
        uniform = 0
        for _ in range(n_words):
            uniform = uniform << 64 | _word(bits)
        uniform >>= 64 * n_words - n_bits
        if uniform >= digit or not one_in(trial, bits, np.zeros(1, dtype=np.int64))[0]:
            return trial % 2 == 1
        trial += 1


FEWEST_SHARED = 2**15
"""Elements of one scale from which on making a table for it pays."""


def discrete_laplace(scales: Int64Array, bits: BitSource) -> Int64Array:
    """Draw independent discrete Laplace noise.

    Args:
        scales: Integer scales t from 0 to `LARGEST_SCALE`, `(n,)`; 0 means no noise.

    Returns:
        The noise, `(n,)`, in the units of the scales.

    References:
        Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Algorithm 2.
    """
    noise = np.zeros(scales.size, dtype=np.int64)
    own = scales > 0
    # Elements without noise need no bits; the others are numbered in turn.
    # Clusters of one size often share a scale, the last one has its own.
    if scales.size >= FEWEST_SHARED and scales[0] == scales[1] > 0:
        shared = scales == scales[0]
        n_shared = int(np.count_nonzero(shared))
        if n_shared >= FEWEST_SHARED:
            drawn = shared_laplace(n_shared, int(scales[0]), bits, np.int64)
            if n_shared == scales.size:
                return drawn
            noise[shared] = drawn
            own &= ~shared
    if np.all(own):
        return own_laplace(scales, bits.take(scales.size))
    noise[own] = own_laplace(scales[own], bits.take(int(np.count_nonzero(own))))
    return noise


def own_laplace(scales: Int64Array, bits: ElementBits) -> Int64Array:
    """Draw noise of scales of at least 1, every element's from its own bits.

    Args:
        scales: t, each from 1 to `LARGEST_SCALE`, `(n,)`.

    Returns:
        The noise, `(n,)`, in the units of the scales.
    """
    table = _exponential_table()
    noise, again = _signed(mixed_draws(scales, table.draw(bits), bits))
    while again.size:
        left = Chosen(bits, again)
        noise[again], minus_zero = _signed(
            mixed_draws(scales[again], table.draw_anew(again.size, left), left)
        )
        again = again[minus_zero]
    return noise


def shared_laplace(n_draws: int, scale: int, bits: BitSource, integer: type[Integer]) -> NDArray[Integer]:
    """Draw independent discrete Laplace noise of one scale; arguments as in `SharedScale`."""
    return SharedScale(n_draws, scale, integer).draw(bits.take(n_draws))


@dataclass(frozen=True, slots=True)
class SharedScale(Generic[Integer]):
    """Discrete Laplace noise of one scale for all elements, drawn for some of them at a time."""

    n_draws: int
    """How many draws there are altogether: many are drawn from a table, which few do not pay for."""
    scale: int
    """t, from 1 to `LARGEST_SCALE`."""
    integer: type[Integer]
    """What to draw: noise that is too large for it is its largest number, or as far below 0."""

    def draw(self, bits: ElementBits) -> NDArray[Integer]:
        """Draw the noise of some elements, each from its own bits, `(n,)`, in the units of the scale."""
        narrow = self.integer is np.int32
        if self.n_draws < FEWEST_SHARED or (narrow and self.scale > LARGEST_NARROW_SCALE):
            largest = np.iinfo(self.integer).max
            drawn = own_laplace(np.full(bits.size, self.scale), bits)
            return np.clip(drawn, -largest, largest).astype(self.integer)
        table = table_of(self.scale, self.integer)
        noise, again = _signed(table.draw(bits))
        while again.size:
            noise[again], minus_zero = _signed(table.draw_anew(again.size, Chosen(bits, again)))
            again = again[minus_zero]
        return noise


def _signed(draws: GeometricDraws[Integer]) -> tuple[NDArray[Integer], PositionArray]:
    """Return draws with their signs, in their place, and where minus zero is to be drawn again."""
    # Minus y is the complement of y - 1: quicker than negating some elements and not others.
    noise = draws.magnitudes
    noise += draws.signs
    again = np.flatnonzero(noise < 0)
    noise ^= draws.signs
    return noise, again


def add_saturating(sums: Int64Array, noise: Int64Array, tail: int) -> Int64Array:
    """Add noise to sums; results stop at -tail and at 2^63 - 1.

    The result is a function of the exact noisy sum even where the noise was cut at 2^63 - 1: such a noise
    leads to one of the two ends, whatever the sum, as long as no sum plus tail passes 2^63 - 1.

    Args:
        sums: Integers from 0 to 2^63 - 1 - tail, `(n,)`.
        noise: Exact noise, cut at plus and minus 2^63 - 1, `(n,)`.
        tail: The largest distance below 0 that is told apart.

    Returns:
        The noisy sums, `(n,)`.
    """
    if int(noise.max()) <= LARGEST_INT64 - int(sums.max()):
        noisy = sums + noise
    else:
        too_high = noise > LARGEST_INT64 - sums
        noisy = np.where(too_high, LARGEST_INT64, sums + np.where(too_high, 0, noise))
    np.maximum(noisy, -tail, out=noisy)
    return noisy
