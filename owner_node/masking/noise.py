"""Exact discrete Laplace noise, vectorised, with an integer scale per element.

`discrete_laplace(t)` returns X with P(X = x) = (1 - q)/(1 + q) q^|x|, q = exp(-1/t), for every element's own
integer scale t >= 1, and 0 where t = 0. All arithmetic is on integers: the leading bits of a double, and with
them the number it was added to, show in noise made from floating-point formulas (Mironov 2012).

Proof (Canonne, Kamath, Steinke 2020, Algorithms 1 and 2, with denominator s = 1).

1. `uniform_below(b)`: a word below m b, m = floor(2^64 / b), leaves each remainder modulo b for exactly m
   words; a word that is not below m b is replaced by a new one.
   `_one_in(j)` does the same with 16-bit words and keeps only whether a word is below m, one j-th of those
   below m j.
2. `exponential_coin(a, b)`, 0 <= a <= b, is true with probability exp(-γ), γ = a/b. Trial j succeeds with
   probability γ/j, drawn as two independent events of probability a/b and 1/j, so that no product b*j is
   formed. The first failure comes at trial j with probability γ^(j-1)/(j-1)! - γ^j/j!; the sum over odd j is
   Σ_i (-γ)^i/i! = exp(-γ).
3. `_magnitudes(t)`: U uniform below t, kept with probability exp(-U/t), has P(U = u) ∝ exp(-u/t). V, the
   number of successes of coins with exp(-1) before a failure, has P(V = v) ∝ exp(-v); `_runs` reads the V off
   one long row of such coins, as the lengths of the runs that its failures end. So Y = U + t V runs through
   every integer y >= 0 once, y = u + t v, with P(Y = y) ∝ exp(-u/t) exp(-v) = exp(-y/t).
   Of many elements `shared_scale` draws the same Y in less time, and in a tenth of it if they share a scale.
4. `discrete_laplace`: a fair sign, minus zero rejected, gives P(X = x) ∝ exp(-|x|/t) for every integer x.

Y above 2^63 - 1 is returned as 2^63 - 1. The probability is below exp(-60) for t below 2^57, and
`add_saturating` makes the result a function of the exact noisy sum all the same, so that no guarantee hangs
on it.
"""

import numpy as np

from owner_node.masking.arrays import BoolArray, Int64Array
from owner_node.masking.bits import BitSource
from owner_node.masking.shared_scale import (
    LARGEST_MIXED_SCALE,
    LARGEST_SCALE,
    geometric_magnitudes,
    mixed_magnitudes,
)

FEWEST_MIXED = 2**11
"""Elements from which on tables are quicker than coins."""
FEWEST_SHARED = 2**14
"""Elements of one scale from which on making tables for it pays."""
LARGEST_INT64 = 2**63 - 1
LARGEST_WORD = np.uint64(2**64 - 1)


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
    noise = np.zeros(scales.size, dtype=np.int64)
    drawn = scales == 0
    if scales.size >= FEWEST_SHARED:
        # Clusters of one size often share a scale, the last one has its own.
        shared = scales == scales[0]
        n_shared = int(np.count_nonzero(shared))
        if n_shared >= FEWEST_SHARED and 0 < scales[0] <= LARGEST_SCALE:
            noise[shared] = shared_laplace(n_shared, int(scales[0]), bits)
            drawn |= shared
    pending = np.flatnonzero(~drawn)
    while pending.size:
        magnitudes = _magnitudes(scales[pending], bits)
        negative = _fair_coin(pending.size, bits)
        noise[pending] = np.where(negative, -magnitudes, magnitudes)
        pending = pending[negative & (magnitudes == 0)]
    return noise


def shared_laplace(n_draws: int, scale: int, bits: BitSource) -> Int64Array:
    """Draw independent discrete Laplace noise of one scale.

    Args:
        n_draws: How many.
        scale: t, at least 1.
        bits: Source of random bits.

    Returns:
        The noise, `(n_draws,)`, in the units of the scale.
    """
    if n_draws < FEWEST_SHARED or scale > LARGEST_SCALE:
        return discrete_laplace(np.full(n_draws, scale), bits)
    noise = geometric_magnitudes(n_draws, scale, bits)
    negative = _fair_coin(n_draws, bits)
    again = np.flatnonzero(negative & (noise == 0))
    # Minus y is the complement of y - 1: quicker than negating some elements and not others.
    noise -= negative
    noise ^= -negative.astype(np.int64)
    noise[again] = shared_laplace(again.size, scale, bits)
    return noise


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
    too_high = noise > LARGEST_INT64 - sums
    noisy = np.where(too_high, LARGEST_INT64, sums + np.where(too_high, 0, noise))
    return np.maximum(noisy, -tail)


def _magnitudes(scales: Int64Array, bits: BitSource) -> Int64Array:
    """Draw Y with P(Y = y) ∝ exp(-y/t), y >= 0, for every scale t >= 1."""
    if scales.size >= FEWEST_MIXED and scales.max() <= LARGEST_MIXED_SCALE:
        return mixed_magnitudes(scales, bits)
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
    return np.where(too_far, LARGEST_INT64, low + scales * np.where(too_far, 0, turns))


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


def exponential_coin(numerators: Int64Array, denominators: Int64Array, bits: BitSource) -> BoolArray:
    """Toss coins that are true with probability exp(-a/b), numerators 0 <= a <= denominators b."""
    result = np.empty(numerators.size, dtype=np.bool_)
    running = np.arange(numerators.size)
    trial = 1
    while running.size:
        success = uniform_below(denominators, bits) < numerators
        success[success] = _one_in(trial, int(np.count_nonzero(success)), bits)
        result[running[~success]] = trial % 2 == 1
        running, numerators, denominators = running[success], numerators[success], denominators[success]
        trial += 1
    return result


def two_over_e_coin(n_coins: int, bits: BitSource) -> BoolArray:
    """Toss coins that are true with probability 2/e: the trials of exp(-1) from the third onwards.

    Trial j succeeds with probability 1/j, so the number of successes is at least i with probability
    2/(i + 2)!; it is even with probability Σ_i (-1)^i 2/(i + 2)! = 2/e.
    """
    result = np.empty(n_coins, dtype=np.bool_)
    running = np.arange(n_coins)
    trial = 3
    while running.size:
        success = _one_in(trial, running.size, bits)
        result[running[~success]] = trial % 2 == 1
        running = running[success]
        trial += 1
    return result


def _fair_coin(n_coins: int, bits: BitSource) -> BoolArray:
    """Toss fair coins."""
    tosses: BoolArray = np.unpackbits(bits.words(-(-n_coins // 64)).view(np.uint8), count=n_coins).view(
        np.bool_
    )
    return tosses


def _one_in(choices: int, n_draws: int, bits: BitSource) -> BoolArray:
    """Draw events of probability 1/choices, choices below 2^16; for 1 choice it costs no bits."""
    if choices == 1:
        return np.ones(n_draws, dtype=np.bool_)
    share = 2**16 // choices
    words = bits.words(-(-n_draws // 4)).view(np.uint16)[:n_draws]
    chosen: BoolArray = words < share
    rejected = np.flatnonzero(words >= share * choices)
    if rejected.size:
        chosen[rejected] = _one_in(choices, rejected.size, bits)
    return chosen


def uniform_below(bounds: Int64Array, bits: BitSource) -> Int64Array:
    """Draw a uniform integer from 0 to bound - 1 for every bound >= 1; bounds of 1 alone cost no bits."""
    if not np.any(bounds > 1):
        return np.zeros(bounds.size, dtype=np.int64)
    limits = bounds.astype(np.uint64)
    words = bits.words(bounds.size)
    drawn = words % limits
    # words - drawn is the multiple of the bound that a word lies above; the last, incomplete one is rejected.
    rejected = np.flatnonzero(words - drawn > LARGEST_WORD - (limits - np.uint64(1)))
    if rejected.size:
        drawn[rejected] = uniform_below(bounds[rejected], bits)
    return drawn.astype(np.int64)
