"""Exact discrete Laplace noise, vectorised, with an integer scale per element.

`discrete_laplace(t)` returns X with P(X = x) = (1 - q)/(1 + q) q^|x|, q = exp(-1/t), for every element's own
integer scale t >= 1, and 0 where t = 0. What is drawn are integers: the leading bits of a double, and with
them the number it was added to, show in noise made from floating-point formulas (Mironov 2012).

Proof (Canonne, Kamath, Steinke 2020, Algorithm 2, with denominator s = 1).

1. `_by_coins(t)`: U uniform below t, kept with probability exp(-U/t), has P(U = u) ∝ exp(-u/t). V, the
   number of successes of coins with exp(-1) before a failure, has P(V = v) ∝ exp(-v); `_runs` reads the V off
   one long row of such coins, as the lengths of the runs that its failures end. So Y = U + t V runs through
   every integer y >= 0 once, y = u + t v, with P(Y = y) ∝ exp(-u/t) exp(-v) = exp(-y/t). Coins are `coins`.
   `shared_scale` and `own_scales` draw the same Y in a fraction of the time.
2. `discrete_laplace`: a fair sign, minus zero rejected, gives P(X = x) ∝ exp(-|x|/t) for every integer x.

Y above 2^63 - 1, or 2^31 - 1 where 32 bits are asked for, is returned as that. The probability is below
exp(-60) for t below 2^57, or exp(-31) for t below 2^26. `add_saturating` makes the result a function of the
exact noisy sum all the same, and `rank_noise` that of the exact noisy position, so that no guarantee hangs on
it.
"""

import numpy as np
from numpy.typing import NDArray

from owner_node.masking.arrays import LARGEST_INT64, Int64Array, PositionArray
from owner_node.masking.bits import BitSource
from owner_node.masking.coins import exponential_coin, fair_coin, uniform_below
from owner_node.masking.own_scales import LARGEST_MIXED_SCALE, mixed_draws
from owner_node.masking.shared_scale import (
    LARGEST_NARROW_SCALE,
    LARGEST_SCALE,
    GeometricDraws,
    Integer,
    geometric_draws,
)

FEWEST_SHARED = 2**15
"""Elements of one scale from which on making a table for it pays."""


def discrete_laplace(scales: Int64Array, bits: BitSource) -> Int64Array:
    """Draw independent discrete Laplace noise.

    Args:
        scales: Integer scales t of at least 0, `(n,)`; 0 means no noise.
        bits: Source of random bits.

    Returns:
        The noise, `(n,)`, in the units of the scales.

    References:
        Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Algorithm 2.
    """
    if scales.size >= FEWEST_SHARED and scales[0] == scales[1]:
        # Clusters of one size often share a scale, the last one has its own.
        shared = scales == scales[0]
        n_shared = int(np.count_nonzero(shared))
        if n_shared >= FEWEST_SHARED and 0 < scales[0] <= LARGEST_SCALE:
            drawn = shared_laplace(n_shared, int(scales[0]), bits, np.int64)
            if n_shared == scales.size:
                return drawn
            noise = np.empty(scales.size, dtype=np.int64)
            noise[shared], noise[~shared] = drawn, discrete_laplace(scales[~shared], bits)
            return noise
    if np.all(scales):
        return _own_laplace(scales, bits)
    noise = np.zeros(scales.size, dtype=np.int64)
    noise[scales > 0] = _own_laplace(scales[scales > 0], bits)
    return noise


def _own_laplace(scales: Int64Array, bits: BitSource) -> Int64Array:
    """Draw noise of scales of at least 1."""
    draw = mixed_draws if np.all(scales <= LARGEST_MIXED_SCALE) else _by_coins
    noise, again = _signed(draw(scales, bits))
    if again.size:
        noise[again] = _own_laplace(scales[again], bits)
    return noise


def shared_laplace(n_draws: int, scale: int, bits: BitSource, integer: type[Integer]) -> NDArray[Integer]:
    """Draw independent discrete Laplace noise of one scale.

    Args:
        n_draws: How many.
        scale: t, at least 1.
        bits: Source of random bits.
        integer: What to draw: noise that is too large for it is returned as its largest number, or as that
            below 0.

    Returns:
        The noise, `(n_draws,)`, in the units of the scale.
    """
    if n_draws < FEWEST_SHARED or scale > (LARGEST_SCALE if integer is np.int64 else LARGEST_NARROW_SCALE):
        largest = np.iinfo(integer).max
        return np.clip(discrete_laplace(np.full(n_draws, scale), bits), -largest, largest).astype(integer)
    noise, again = _signed(geometric_draws(n_draws, scale, bits, integer))
    if again.size:
        noise[again] = shared_laplace(again.size, scale, bits, integer)
    return noise


def _signed(draws: GeometricDraws[Integer]) -> tuple[NDArray[Integer], PositionArray]:
    """Return draws with their signs, in their place, and where minus zero is to be drawn anew."""
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


def _by_coins(scales: Int64Array, bits: BitSource) -> GeometricDraws[np.int64]:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, for every scale t >= 1, and a fair sign."""
    low = np.empty(scales.size, dtype=np.int64)
    pending = np.arange(scales.size)
    while pending.size:
        wanted = scales[pending]
        drawn = uniform_below(wanted, bits)
        kept = exponential_coin(drawn, wanted, bits)
        low[pending[kept]] = drawn[kept]
        pending = pending[~kept]
    turns = _runs(scales.size, bits)
    too_far = turns > (LARGEST_INT64 - low) // scales
    magnitudes = np.where(too_far, LARGEST_INT64, low + scales * np.where(too_far, 0, turns))
    return GeometricDraws(magnitudes, -fair_coin(scales.size, bits).astype(np.int8))


def _runs(n_runs: int, bits: BitSource) -> Int64Array:
    """Draw numbers of successes before a failure, of coins that are true with probability exp(-1)."""
    failures = np.zeros(1, dtype=np.int64)  # the place before the first coin, as if it were a failure
    n_tossed = 0
    while failures.size <= n_runs:
        # A run takes 1.58 coins on average: too few are made up in the next turn, too many are dropped.
        one = np.ones(8 * (n_runs + 1 - failures.size) // 5 + 32, dtype=np.int64)
        coins = exponential_coin(one, one, bits)
        failures = np.concatenate([failures, np.flatnonzero(~coins) + n_tossed + 1])
        n_tossed += coins.size
    runs: Int64Array = np.diff(failures[: n_runs + 1]) - 1
    return runs
