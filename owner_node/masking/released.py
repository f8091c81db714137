"""From noisy sums to released values: free post-processing, which sees nothing but public numbers.

References:
    Dwork and Roth 2014, Proposition 2.1 (post-processing).
"""

from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Int64Array
from owner_node.masking.ascending import nearest_ascending


@dataclass(frozen=True, slots=True)
class ReleasedList:
    """The rank-ordered list of released values: one of the two products of masking (MECHANISMS §1)."""

    values: Int64Array
    """One released value per cluster, `(n_clusters,)`, in resolution units; in rank order, or in the order of
    the records where each is a cluster by itself."""
    sizes: Int64Array
    """Number of records of each cluster, `(n_clusters,)`."""


def round_centroids(noisy_sums: Int64Array, divisors: Int64Array, n_values: int) -> Int64Array:
    """Divide noisy sums, round to the nearest resolution unit and clamp to the domain, in integers.

    Args:
        noisy_sums: 2^f times the noisy sums, `(n_clusters,)`, or of several lists, `(n_lists, n_clusters)`.
        divisors: 2^f |C|, of the same shape.
        n_values: V; the domain is 0 to V - 1.

    Returns:
        Released values, of the same shape; halves are rounded up.
    """
    divisor = int(divisors.flat[0])
    if divisor & (divisor - 1) == 0 and np.all(divisors == divisor):
        # Records by themselves: what is shifted out last says where to round.
        quotients, places = noisy_sums.copy(), divisor.bit_length() - 1
        if places:
            quotients >>= places - 1
            halves = quotients & 1
            quotients >>= 1
            quotients += halves
    else:
        quotients, remainders = np.divmod(noisy_sums, divisors)
        quotients += remainders >= divisors - remainders
    return np.clip(quotients, 0, n_values - 1)


def round_monotone_centroids(noisy_sums: Int64Array, divisors: Int64Array, n_values: int) -> Int64Array:
    """Divide noisy sums, make them ascend, then clamp to the domain and round.

    The true centroids ascend in rank order; the ascending list nearest to the noisy one, in squared distance
    weighted by cluster size, averages noise away where neighbours disagree. Doubles do no harm here: the
    noise has been added, exactly, before.

    Args:
        noisy_sums: As in `round_centroids`.
        divisors: As in `round_centroids`; in the ratio of the clusters' sizes, they are the weights.
        n_values: As in `round_centroids`.

    Returns:
        Released values, of the same shape, ascending in each list.
    """
    begins = np.zeros(noisy_sums.shape, dtype=np.bool_)
    begins[..., 0] = True
    ascending = nearest_ascending(noisy_sums.ravel(), divisors.ravel(), begins.ravel())
    ascending = ascending.reshape(noisy_sums.shape)
    rounded = np.rint(np.clip(ascending, 0, n_values - 1)).astype(np.int64)
    # A domain of more than 2^53 values ends at an integer that a double may round up past its end.
    return np.minimum(rounded, n_values - 1)
