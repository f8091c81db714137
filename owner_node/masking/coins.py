"""Events of exactly stated probability, for many elements at once; integers only.

Proof (Canonne, Kamath, Steinke 2020, Algorithm 1).

1. `uniform_below(b)`: a word below m b, m = floor(2^64 / b), leaves each remainder modulo b for exactly m
   words; a word that is not below m b is replaced by a new one.
   `one_in(j)` does the same with 16-bit words and keeps only whether a word is below m, one j-th of those
   below m j.
2. `exponential_coin(a, b)`, 0 <= a <= b, is true with probability exp(-γ), γ = a/b. Trial j succeeds with
   probability γ/j, drawn as two independent events of probability a/b and 1/j, so that no product b*j is
   formed. The first failure comes at trial j with probability γ^(j-1)/(j-1)! - γ^j/j!; the sum over odd j is
   Σ_i (-γ)^i/i! = exp(-γ).

References:
    Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Algorithm 1.
"""

import numpy as np

from owner_node.masking.arrays import BoolArray, Int64Array
from owner_node.masking.bits import BitSource

LARGEST_WORD = np.uint64(2**64 - 1)


def exponential_coin(
    numerators: Int64Array, denominators: Int64Array, bits: BitSource, trial: int = 1
) -> BoolArray:
    """Toss coins that are true with probability exp(-a/b), numerators 0 <= a <= denominators b.

    Args:
        numerators: a, `(n,)`.
        denominators: b, `(n,)`.
        bits: Source of random bits.
        trial: The trial to go on with, where all trials before it are known to have succeeded.

    Returns:
        The coins, `(n,)`.
    """
    result = np.empty(numerators.size, dtype=np.bool_)
    running = np.arange(numerators.size)
    while running.size:
        success = uniform_below(denominators, bits) < numerators
        success[success] = one_in(trial, int(np.count_nonzero(success)), bits)
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
        success = one_in(trial, running.size, bits)
        result[running[~success]] = trial % 2 == 1
        running = running[success]
        trial += 1
    return result


def fair_coin(n_coins: int, bits: BitSource) -> BoolArray:
    """Toss fair coins."""
    tosses: BoolArray = np.unpackbits(bits.words(-(-n_coins // 64)).view(np.uint8), count=n_coins).view(
        np.bool_
    )
    return tosses


def one_in(choices: int, n_draws: int, bits: BitSource) -> BoolArray:
    """Draw events of probability 1/choices, choices below 2^16; for 1 choice it costs no bits."""
    if choices == 1:
        return np.ones(n_draws, dtype=np.bool_)
    share = 2**16 // choices
    words = bits.words(-(-n_draws // 4)).view(np.uint16)[:n_draws]
    chosen: BoolArray = words < share
    rejected = np.flatnonzero(words >= share * choices)
    if rejected.size:
        chosen[rejected] = one_in(choices, rejected.size, bits)
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
