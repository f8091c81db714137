"""Exact geometric numbers of every element's own scale, all made of draws of one scale.

`mixed_draws(scales)` draws Y >= 0 with P(Y = y) ∝ exp(-y/t) of every element's own t, and a fair sign.

Proof.

1. Y = floor(t E), E exponentially distributed: P(t E >= y) = exp(-y/t). Of E is drawn G = floor(2^55 E),
   which is geometric of scale 2^55 (`shared_scale`), so E lies from G/2^55 up to (G + 1)/2^55. Where an
   integer lies within t times that, more digits of E are drawn: 7 first, then 64 at a time. They are
   independent of those before, since exp(-e) is a product over the digits of e, and P(d) ∝ exp(-d/2^n) for
   the digit d that ends n places after the point: d is drawn uniformly and kept with that probability.
2. With G = 2^47 H + L, t G / 2^55 = (t H + t L / 2^47) / 2^8. Let Q be the product of t and L / 2^47 in
   doubles, rounded down. t and L are integers below 2^53, and 2^-47 is a power of two, so that IEEE 754
   rounds once, by at most 2^-6: the product is at most t <= 2^48. So t times what E has beyond H / 2^8 lies
   above Q - 1 and below Q + 1 + 2^-6 + t / 2^47 < Q + 4, and Y is floor((t H + Q) / 2^8) unless one of the
   integers from t H + Q to t H + Q + 3 is a multiple of 2^8. There, once in 64 times, the product is made in
   integers. So the double decides what else has to be looked at, and never what Y is.
3. From E = 16 on, E is 16 and another E: P(E >= 16 + x) = exp(-16) P(E >= x), and t times 16 is an integer.

Y above 2^63 - 1 is returned as 2^63 - 1, as in `noise`.

References:
    Devroye 1986, "Non-Uniform Random Variate Generation", X.2 (geometric numbers from exponential ones).
    IEEE 754-2019, 4.3.1 and 5.4.1 (products are rounded to the nearest double).
"""

from functools import cache

import numpy as np

from owner_node.masking.arrays import LARGEST_INT64, Int64Array
from owner_node.masking.bits import BitSource
from owner_node.masking.coins import exponential_coin, one_in
from owner_node.masking.shared_scale import DRAWS_PER_BLOCK, REACH, GeometricDraws, Law, Table

LARGEST_MIXED_SCALE = 2**48
"""Up to it the products of proof 2 are as stated, and few draws need more digits."""
UNIT_BITS = 55
LOW_BITS = 47
MORE_BITS = 7
"""More digits of E where they are needed: with them its fraction still fits into 63 bits."""
_HIGH_BITS = UNIT_BITS - LOW_BITS
_NEAR = 4
_PIECE_BITS = 15
_STEP_BITS = 64


def mixed_draws(scales: Int64Array, bits: BitSource) -> GeometricDraws[np.int64]:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, of every element's own scale, and a fair sign.

    Args:
        scales: t, each from 1 to `LARGEST_MIXED_SCALE`, `(n,)`.
        bits: Source of random bits.

    Returns:
        Independent draws, `(n,)`, in the units of the scales.
    """
    drawn = _table().draw(scales.size, bits)
    grid, values, places = drawn.magnitudes, np.empty_like(scales), []
    for first in range(0, scales.size, DRAWS_PER_BLOCK):
        block = slice(first, first + DRAWS_PER_BLOCK)
        values[block], near = _nearly(grid[block], scales[block])
        places.append(near + first)
    if places:
        near = np.concatenate(places)
        values[near] = _exactly(grid[near], scales[near], bits)
    beyond = np.flatnonzero(grid >= REACH << UNIT_BITS)
    if beyond.size:
        certain = REACH * scales[beyond]
        more = mixed_draws(scales[beyond], bits).magnitudes
        values[beyond] = np.minimum(more, LARGEST_INT64 - certain) + certain
    return GeometricDraws(values, drawn.signs)


@cache
def _table() -> Table[np.int64]:
    """Return the table of G, the same for all scales: it takes some milliseconds to make."""
    return Table.of(Law(2**UNIT_BITS, LOW_BITS), np.int64)


def _nearly(grid: Int64Array, scales: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return floor((t H + Q)/2^8), and where Y may be something else."""
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
    return values, np.flatnonzero(whole < _NEAR)


def _exactly(grid: Int64Array, scales: Int64Array, bits: BitSource) -> Int64Array:
    """Return floor(t E), with more digits of E where that takes them."""
    fraction = grid & (2**UNIT_BITS - 1)
    values, rest = whole_products(fraction, UNIT_BITS, scales)
    further = np.flatnonzero(rest + scales > 2**UNIT_BITS)
    if further.size:
        finer = fraction[further] << MORE_BITS | _more_digits(further.size, bits)
        values[further] = _with_more_digits(finer, scales[further], bits)
    return values + (grid >> UNIT_BITS) * scales


def _with_more_digits(fraction: Int64Array, scales: Int64Array, bits: BitSource) -> Int64Array:
    """Return floor(t F), F lying from fraction/2^62 to (fraction + 1)/2^62."""
    n_bits = UNIT_BITS + MORE_BITS
    values, rest = whole_products(fraction, n_bits, scales)
    for place in np.flatnonzero(rest > 2**n_bits - scales).tolist():
        values[place] = _to_the_end(int(fraction[place]), n_bits, int(scales[place]), bits)
    return values


def whole_products(fraction: Int64Array, n_bits: int, scales: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Multiply numbers below 1 by scales, as by hand, 15 bits at a time.

    Args:
        fraction: The numbers in units of 2^-n, `(n,)`.
        n_bits: n, at most 62.
        scales: Up to `LARGEST_MIXED_SCALE`, `(n,)`.

    Returns:
        The products rounded down, and what is left in units of 2^-n, both `(n,)`.
    """
    carried, rest = np.zeros_like(fraction), np.zeros_like(fraction)
    for low in range(0, n_bits, _PIECE_BITS):
        width = min(_PIECE_BITS, n_bits - low)
        carried += ((fraction >> low) & (2**width - 1)) * scales
        rest |= (carried & (2**width - 1)) << low
        carried >>= width
    return carried, rest


def _more_digits(n_draws: int, bits: BitSource) -> Int64Array:
    """Draw the digits of E from 55 to 62 places after the point, `(n_draws,)`."""
    digits, pending = np.empty(n_draws, dtype=np.int64), np.arange(n_draws)
    while pending.size:
        drawn = (bits.words(pending.size) >> np.uint64(64 - MORE_BITS)).view(np.int64)
        kept = exponential_coin(drawn, np.full(drawn.size, 2 ** (UNIT_BITS + MORE_BITS)), bits)
        digits[pending[kept]] = drawn[kept]
        pending = pending[~kept]
    return digits


def _to_the_end(fraction: int, n_bits: int, scale: int, bits: BitSource) -> int:
    """Draw 64 more digits of one E at a time until they say what t times its fraction is rounded down."""
    while True:
        n_bits += _STEP_BITS
        digit = int(bits.words(1)[0])
        while not _kept(digit, n_bits, bits):
            digit = int(bits.words(1)[0])
        fraction = fraction << _STEP_BITS | digit
        least, most = fraction * scale >> n_bits, (fraction + 1) * scale - 1 >> n_bits
        if least == most:
            return least


def _kept(digit: int, n_bits: int, bits: BitSource) -> bool:
    """Return true with probability exp(-d/2^n), as `coins.exponential_coin` does for larger ones."""
    trial, n_words = 1, -(-n_bits // 64)
    while True:
        uniform = int.from_bytes(bits.words(n_words).tobytes()) >> (64 * n_words - n_bits)
        if uniform >= digit or not one_in(trial, 1, bits)[0]:
            return trial % 2 == 1
        trial += 1
