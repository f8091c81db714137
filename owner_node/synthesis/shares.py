"""An owner's share of the noise of synthetic releases, drawn exactly, in integers only.

`common.synthesis.accounting` says which shares make up which noise. Two are new here; both are made of the
geometric and discrete Laplace draws and the coins of `owner_node.masking.noise`.

Negative binomial numbers of order 1/h, P(X = x) ∝ C(x + 1/h - 1, x) q^x. Let G be geometric, P(G = g) ∝ q^g,
which is negative binomial of order 1. Divide G among h parts by Pólya's urn: ball j of 0…G-1 joins the first
part, which has x of the j balls before it, with probability (x + 1/h)/(j + 1) = (1 + h x)/(h (1 + j)). The h
parts are Dirichlet-multinomial with all weights 1/h, and a negative binomial number of order 1 divided like
this has independent negative binomial parts of order 1/h. The rational probability is decided by a whole
number below h (1 + j).

Discrete Gaussian numbers, P(X = x) ∝ exp(-x²/(2v)). With t = floor(sqrt(v)) + 1 draw Y, discrete Laplace of
scale t, and keep it with probability exp(-γ), γ = (|Y| - v/t)²/(2v) = (|Y| t - v)²/(2 v t²); otherwise draw a
new one. exp(-γ) is a coin of exp(-1) for every whole of γ, all of which must succeed, and one for the rest: a
geometric number of scale 1 is at least k with probability exp(-k).

References:
    Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Algorithm 3.
    Goryczka, Xiong 2017, "A comprehensive comparison of multiparty secure additions with differential
    privacy" (Laplace noise from shares). Johnson, Kotz, Balakrishnan 1997, "Discrete Multivariate
    Distributions", 40.2 (Pólya's urn).
"""

from math import isqrt

import numpy as np

from common.synthesis.accounting import Kind, Noise
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.masking.noise import discrete_laplace, exponential_coin, geometric, uniform_below

_BALLS_AT_ONCE = 2**16
_NEVER = np.iinfo(np.int64).max


def noise_share(n_numbers: int, noise: Noise, bits: BitSource) -> Int64Array:
    """Draw one owner's share of the noise of an answer, `(n_numbers,)`, in the answer's units."""
    if noise.kind is Kind.GAUSSIAN:
        return discrete_gaussian(n_numbers, noise.size, bits)
    if noise.n_honest == 1:
        share = discrete_laplace(np.full(n_numbers, noise.size), bits)
    else:
        share = negative_binomial(n_numbers, noise.size, noise.n_honest, bits)
        share -= negative_binomial(n_numbers, noise.size, noise.n_honest, bits)
    return share + discrete_laplace(np.full(n_numbers, noise.floor), bits) if noise.floor else share


def negative_binomial(n_numbers: int, scale: int, parts: int, bits: BitSource) -> Int64Array:
    """Draw negative binomial numbers of order 1/parts with q = exp(-1/scale), `(n_numbers,)`."""
    balls = geometric(np.full(n_numbers, scale), bits)
    limits = np.ones(n_numbers, dtype=np.int64)  # 1 + h x
    # Ball j of all numbers at once. Uniform integers do not depend on the balls before, so they are drawn for
    # many j at once; those for more balls than a number has are drawn in vain.
    begin, left = 0, np.flatnonzero(balls)
    while left.size:
        n_balls = min(max(_BALLS_AT_ONCE // left.size, 1), int(balls[left].max()) - begin)
        before = np.arange(begin, begin + n_balls)[:, None]
        bounds = np.broadcast_to(parts * (1 + before), (n_balls, left.size))
        drawn = uniform_below(bounds.ravel(), bits).reshape(bounds.shape)
        drawn[before >= balls[left]] = _NEVER
        reached = limits[left]
        for ones in drawn:
            reached += parts * (ones < reached)
        limits[left] = reached
        begin += n_balls
        left = left[balls[left] > begin]
    return (limits - 1) // parts


def discrete_gaussian(n_numbers: int, variance: int, bits: BitSource) -> Int64Array:
    """Draw discrete Gaussian numbers, `(n_numbers,)`.

    Args:
        variance: v, from 1 to `common.synthesis.accounting.MOST_SIZE`.
    """
    scale = isqrt(variance) + 1
    divisor = 2 * variance * scale**2
    drawn = np.empty(n_numbers, dtype=np.int64)
    again = np.arange(n_numbers)
    while again.size:
        drawn[again] = discrete_laplace(np.full(again.size, scale), bits)
        # Python's integers: the squares do not fit into 64 bits.
        squares = (np.abs(drawn[again]).astype(object) * scale - variance) ** 2
        wholes, rests = (squares // divisor).astype(np.int64), (squares % divisor).astype(np.int64)
        kept = geometric(np.ones(again.size, dtype=np.int64), bits) >= wholes
        kept &= exponential_coin(rests, np.full(again.size, divisor), bits)
        again = again[~kept]
    return drawn
