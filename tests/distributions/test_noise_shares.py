"""Shares of noise have exactly the distribution they claim, and so have their sums; a wrong scale, a lost
share and a share that counts twice would be seen.

Draws come from fixed seeds, so a test passes always or never. A p-value is called bad below 1e-4; where
something is wrong it must fall far below that.
"""

from functools import reduce

import numpy as np
import pytest
from scipy import stats

from common.synthesis.accounting import MOST_SIZE, Kind, Noise
from owner_node.synthesis.shares import discrete_gaussian, negative_binomial, noise_share
from tests.fakes.bits import SeededBits

BAD, HOPELESS = 1e-4, 1e-12
N_DRAWS = 200_000
"""Of one share: fewer would not see a scale that is a tenth off."""
N_SUMS = 100_000
"""Of sums of shares."""
REACH = 2000
"""Probabilities are computed from -REACH to REACH, 20 times the largest standard deviation."""


def negative_binomial_probabilities(scale: float, parts: int) -> np.ndarray:
    """P(X = x) for x from 0 to REACH, by the recurrence of the distribution."""
    q = np.exp(-1 / scale)
    ratios = q * (np.arange(REACH) + 1 / parts) / np.arange(1, REACH + 1)
    return (1 - q) ** (1 / parts) * np.concatenate([[1.0], np.cumprod(ratios)])


def share_probabilities(noise: Noise) -> np.ndarray:
    """Return the probabilities of one share, from -REACH to REACH."""
    x = np.arange(-REACH, REACH + 1)
    if noise.kind is Kind.GAUSSIAN:
        weights = np.exp(-(x**2) / (2 * noise.size))
        return weights / weights.sum()
    one = negative_binomial_probabilities(noise.size, noise.n_honest)
    share = together(np.concatenate([np.zeros(REACH), one]), np.concatenate([one[::-1], np.zeros(REACH)]))
    return together(share, laplace(noise.floor)) if noise.floor else share


def laplace(scale: int) -> np.ndarray:
    """Return the probabilities of discrete Laplace noise, from -REACH to REACH."""
    weights = np.exp(-np.abs(np.arange(-REACH, REACH + 1)) / scale)
    return weights / weights.sum()


def together(*each: np.ndarray) -> np.ndarray:
    """Return the probabilities of a sum, from -REACH to REACH."""
    return reduce(lambda a, b: np.convolve(a, b)[REACH : 3 * REACH + 1], each)


def p_value(draws: np.ndarray, probabilities: np.ndarray) -> float:
    """P-value of a chi-square test with classes of neighbouring values of at least 50 expected draws."""
    expected = probabilities * draws.size
    classes = np.minimum((np.cumsum(expected) / 50).astype(int), int(expected.sum() / 50) - 1)
    observed = np.bincount(draws + REACH, minlength=2 * REACH + 1)
    kept = np.unique(classes, return_inverse=True)[1]
    counts, wanted = (np.bincount(kept, weights=w) for w in (observed, expected))
    counts, wanted = counts[wanted > 0], wanted[wanted > 0]
    return float(stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue)


def drawn(noise: Noise, n_shares: int, seed: int) -> list[np.ndarray]:
    """Draw shares for sums, each owner's from bits of its own."""
    return [noise_share(N_SUMS, noise, SeededBits(100 * seed + owner)) for owner in range(n_shares)]


NOISES = [
    *(Noise(Kind.LAPLACE, scale, n_honest) for scale in (1, 7, 60) for n_honest in (1, 2, 3, 9)),
    Noise(Kind.LAPLACE, 30, 3, floor=10),
    *(Noise(Kind.GAUSSIAN, variance, 2) for variance in (1, 2, 25, 900, 10_001)),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_a_share_has_its_distribution(noise):
    """One share against exact probabilities; a scale that is a tenth off would be seen."""
    share = noise_share(N_DRAWS, noise, SeededBits(100))
    assert p_value(share, share_probabilities(noise)) > BAD
    wrong = Noise(noise.kind, -(-noise.size * 11 // 10), noise.n_honest, noise.floor)
    assert p_value(share, share_probabilities(wrong)) < HOPELESS


@pytest.mark.parametrize(("parts", "at_once"), [(1, 2**16), (2, 2**16), (5, 2**16), (3, 1), (3, 2**22)])
def test_negative_binomial_numbers(monkeypatch, parts, at_once):
    """What shares are differences of, by itself, with one ball after the other or many at once."""
    monkeypatch.setattr("owner_node.synthesis.shares._BALLS_AT_ONCE", at_once)
    one = negative_binomial(N_DRAWS, 20, parts, SeededBits(3))
    exact = np.concatenate([np.zeros(REACH), negative_binomial_probabilities(20, parts)])
    assert p_value(one, exact) > BAD


@pytest.mark.parametrize("n_honest", [2, 3, 9])
def test_shares_make_up_discrete_laplace_noise(n_honest):
    """The sum of h shares is the whole noise; with a share lost, or one counted twice, it is not."""
    shares = drawn(Noise(Kind.LAPLACE, 20, n_honest), n_honest, 5)
    whole = laplace(20)
    assert p_value(np.sum(shares, axis=0), whole) > BAD
    assert p_value(np.sum(shares[1:], axis=0), whole) < HOPELESS
    assert p_value(np.sum([*shares[1:], shares[1]], axis=0), whole) < HOPELESS


@pytest.mark.parametrize("n_honest", [2, 3, 9])
def test_shares_make_up_discrete_gaussian_noise(n_honest):
    """The same for sums of discrete Gaussians."""
    shares = drawn(Noise(Kind.GAUSSIAN, 40, n_honest), n_honest, 6)
    whole = share_probabilities(Noise(Kind.GAUSSIAN, 40 * n_honest))
    assert p_value(np.sum(shares, axis=0), whole) > BAD
    assert p_value(np.sum(shares[1:], axis=0), whole) < HOPELESS
    assert p_value(np.sum([*shares[1:], shares[1]], axis=0), whole) < HOPELESS


@pytest.mark.parametrize(("variance", "owners"), [(0.4, 2), (0.5, 3), (0.7, 4), (1.0, 10)])
def test_sums_of_discrete_gaussians_are_nearly_discrete_gaussian(variance, owners):
    """Probabilities of a sum differ by factors within exp(±τ): what accounting says about 25 and more."""
    x = np.arange(-60, 61)
    one = np.exp(-(x**2) / (2 * variance))
    one /= one.sum()
    summed = reduce(np.convolve, [one] * owners)
    middle = summed[summed.size // 2 - 8 : summed.size // 2 + 9]
    whole = np.exp(-(np.arange(-60, 61) ** 2) / (2 * variance * owners))
    whole = (whole / whole.sum())[60 - 8 : 60 + 9]
    steps = np.arange(1, owners)
    tau = 10 * np.exp(-2 * np.pi**2 * variance * steps / (steps + 1)).sum()
    apart = np.abs(np.log(middle / whole)).max()
    assert 0 < apart <= tau


def test_gaussian_noise_of_the_largest_variance():
    """Where squares do not fit into 64 bits."""
    noise = discrete_gaussian(20_000, MOST_SIZE, SeededBits(9))
    assert stats.kstest(noise / MOST_SIZE**0.5, "norm").pvalue > BAD


@pytest.mark.parametrize("noise", NOISES[-6:], ids=str)
def test_variances(noise):
    """What the fit weighs answers by is the variance of what is drawn."""
    summed = np.sum(drawn(noise, 4, 7), axis=0)
    assert summed.var() == pytest.approx(noise.variance(4), rel=0.03)


def test_no_numbers():
    """An answer without numbers needs no noise."""
    for noise in NOISES:
        assert noise_share(0, noise, SeededBits(1)).size == 0
