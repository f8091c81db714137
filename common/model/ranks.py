"""What rank noise does to records, from public numbers: to which ranks it moves them.

A record at the rank u, a share from 0 to 1, gets the noisy position s = u + wZ with standard Laplace noise Z,
and the new rank H(s), H the distribution function of all noisy positions. That is the limit for many records;
with a thousand it is exact to three digits.
"""

from decimal import Decimal
from functools import lru_cache

import numpy as np

from common.arrays import Float64Array

_BISECTIONS = 60
_BINS = 512
_FINEST = Decimal("0.01")
"""From this w on, bins are fine enough; below it a record moves by w on average, to two digits."""
_MOST_ODDS = 10**6


def joint_ranks(n_bins: int, scale: float) -> Float64Array:
    """Return the probability of each new rank, by original rank.

    Args:
        n_bins: Number of bins of equally many ranks.
        scale: Scale of the Laplace noise on ranks, as a share of all ranks.

    Returns:
        `(n_bins, n_bins)`; lines and columns sum to 1.
    """
    # Three digits decide: owners whose scales were rounded up from the same share have the same distribution.
    return _joint_ranks(n_bins, float(f"{scale:.3g}"))


@lru_cache(maxsize=8)
def _joint_ranks(n_bins: int, scale: float) -> Float64Array:
    edges = np.linspace(0, 1, n_bins + 1)
    # P(u + wZ < s) for u uniform from 0 to 1 is the integral of the distribution function of the noise.
    low, high = np.full(n_bins - 1, -1.0 - 40 * scale), np.full(n_bins - 1, 2.0 + 40 * scale)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = _integral(middle, scale) - _integral(middle - 1, scale) < edges[1:-1]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    above = _integral((low + high)[None, :] / 2 - edges[:, None], scale)
    inner = (above[:-1] - above[1:]) * n_bins
    joint: Float64Array = np.diff(np.hstack([np.zeros((n_bins, 1)), inner, np.ones((n_bins, 1))]), axis=1)
    joint.flags.writeable = False
    return joint


def _integral(positions: Float64Array, scale: float) -> Float64Array:
    """Return the integral of the Laplace distribution function up to some positions."""
    integral: Float64Array = np.maximum(positions, 0) + scale / 2 * np.exp(-np.abs(positions) / scale)
    return integral


def mean_move(rank_noise: Decimal) -> float:
    """Return by how much a record's rank changes on average, as a share of all ranks.

    It is below w, the scale of the noise: noise beyond either end moves a record only to the end. Records in
    random order are a third of all ranks away.

    Args:
        rank_noise: w, above 0.
    """
    if rank_noise < _FINEST:
        return float(rank_noise)
    places = np.arange(_BINS)
    moves = np.abs(places[:, None] - places)
    return float((joint_ranks(_BINS, float(rank_noise)) * moves).sum()) / _BINS**2


def odds_of_next(n_values: int, rank_noise: Decimal) -> float:
    """Return how much more probable a released value is for records that have it than for the next value's.

    Args:
        n_values: V, at least 2; the values are equally frequent.
        rank_noise: w, above 0.

    Returns:
        The largest factor over all pairs of neighbouring values, up to a million; noise of the list is not
        counted.
    """
    joint = joint_ranks(n_values, float(rank_noise))
    own, (after, before) = np.diag(joint), (np.diag(joint, side) for side in (-1, 1))
    pairs = ((own[:-1], after), (own[1:], before))
    return max(float((kept / np.maximum(moved, kept / _MOST_ODDS)).max()) for kept, moved in pairs)
