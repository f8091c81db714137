"""Trimmed tails, and a scale of noise that no record changes by much: the noise of `idp-quantiles`.

Let v_1 ≤ … ≤ v_n be the values of all records, v_i = 0 for i < 1 and v_i = V - 1 for i > n. The h smallest
and the h largest values are left out of the sums of the clusters.

*Sensitivity.* Replace the values of g ≤ h records. The i-th smallest value is still at least v_(i-g) and at
most v_(i+g), so those that are summed stay between A = v_(h+1-g) and B = v_(n-h+g). Clamp all values to
[A, B], before and after: that changes no summed one. Lists in order are the nearest in L1-distance, so all
sums together move by at most what the clamped records move: g (B - A). This is Lemma 1 of Sánchez et al. 2016
with [A, B] in place of the domain. Noise of scale g (B - A)/epsilon on every sum is epsilon-individually
differentially private (Soria-Comas et al. 2017, Proposition 5), and so is noise of any larger scale.

*Smoothness.* Such a scale alone may disclose a record. If exactly h - g + 1 records are far above all others,
B is the least of them; without one of them it is not. So the scale is that of

    S = g max over a, b ≥ 0 of q^(a+b) (v_(n-h+g+b) - v_(h+1-g-a)),    q = s/(s + 1),

which a = b = 0 bounds from below. If one record rises, each v_i rises to at most v_(i+1) and none falls; if
it falls, the reverse. So every term for the changed data is at most 1/q times another one for the actual
data, and conversely: one record changes S, and the scale, by at most a factor of 1 + 1/s (a smooth upper
bound: Nissim, Raskhodnikova and Smith 2007, Definition 2.1). s is at least 2√p g for p clusters. So g
records change the scale by at most a factor of exp(1/(2√p)). From p draws no test infers which of two such
scales they have with an AUC above 0.64.

*How many are trimmed.* The ends of the domain count with q^(h-g+1). h is 6s + g - 1, or 32 if that is more,
where clusters have room for it. Then the factor is below 1/170: a domain may be so many times wider than the
data before it costs noise. In small clusters h is two fifths of k, and a wide domain costs noise earlier. All
of it follows from public numbers.
"""

from fractions import Fraction

import numpy as np

from common.model.tails import Tails
from owner_node.masking.arrays import Int64Array
from owner_node.masking.clusters import ClusterStatistics


def smooth_range(statistics: ClusterStatistics, n_values: int, tails: Tails) -> Fraction:
    """Return S, in resolution units.

    Args:
        statistics: With as many of the smallest and of the largest values as are trimmed.
        n_values: V.
    """
    begin = tails.g - 1
    low = np.append(statistics.smallest[::-1][begin:], 0)
    high = np.append(statistics.largest[begin:], n_values - 1)
    weights = np.multiply.accumulate(np.full(2 * low.size - 1, tails.steps / (tails.steps + 1)))
    weights /= weights[0]
    far = np.arange(low.size)
    widest = float((weights[far[:, None] + far] * (high - low[:, None])).max())
    # The bound on the loss rests on the first one alone, which is exact.
    return tails.g * max(Fraction(int(high[0] - low[0])), Fraction(widest))


def inner_sums(statistics: ClusterStatistics) -> Int64Array:
    """Return the sum of each cluster without the tails, `(n_clusters,)`."""
    sums = statistics.sums.copy()
    sums[0] -= statistics.smallest.sum()
    sums[-1] -= statistics.largest.sum()
    return sums


def inner_sizes(statistics: ClusterStatistics) -> Int64Array:
    """Return the number of records of each cluster without the tails, `(n_clusters,)`."""
    sizes = statistics.clusters.sizes
    sizes[0] -= statistics.smallest.size
    sizes[-1] -= statistics.largest.size
    return sizes
