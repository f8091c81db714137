"""Insensitive multivariate microaggregation with Laplace noise, for comparison only: it is in no release.

Records are put into a total order by their distance from a corner of the domain and cut into clusters of k;
one changed record then changes every cluster by one record at most. A centroid of an attribute of width Δ
moves by Δ/k at most, each of n/k centroids, so the noise on it has scale (n/k)·Δ/(kε), whatever the number of
attributes.

References:
    Soria-Comas et al. 2014, "Enhancing data utility in differential privacy via microaggregation-based
    k-anonymity" (insensitive MDAV).
    Sánchez et al. 2016, §4.4 (comparison with individual ranking).
"""

import numpy as np

from common.schema import Attribute
from owner_node.masking.arrays import Float64Array, Int64Array


def insensitive_clusters(columns: list[Int64Array], attributes: list[Attribute], k: int) -> list[Int64Array]:
    """Return the records of each cluster.

    Args:
        columns: Values by attribute, `(n_records,)` each.
        attributes: The attributes; distances count in widths of their domains.
        k: Cluster size; the last cluster takes the remainder.
    """
    widths = [max(each.upper - each.lower, 1) for each in attributes]
    shares = [(v - a.lower) / w for v, a, w in zip(columns, attributes, widths, strict=True)]
    distance = np.sqrt(sum(np.square(each) for each in shares))
    order = np.argsort(distance, kind="stable")
    n_clusters = max(order.size // k, 1)
    return np.split(order, np.arange(1, n_clusters) * k)


def masked(
    columns: list[Int64Array],
    attributes: list[Attribute],
    k: int,
    epsilon: float | None,
    random: np.random.Generator,
) -> list[Int64Array]:
    """Return every record as the noisy centroid of its cluster, by attribute.

    Args:
        columns: As in `insensitive_clusters`.
        attributes: The same.
        k: The same.
        epsilon: For the whole data set; None for no noise.
        random: Makes the noise.
    """
    n_records = columns[0].size
    clusters = insensitive_clusters(columns, attributes, k)
    of = np.empty(n_records, dtype=np.int64)
    for number, members in enumerate(clusters):
        of[members] = number
    sizes = np.bincount(of)
    found = []
    for values, attribute in zip(columns, attributes, strict=True):
        centroids: Float64Array = np.bincount(of, weights=values) / sizes
        if epsilon is not None:
            scale = len(clusters) * (attribute.upper - attribute.lower) / (k * epsilon)
            centroids = centroids + random.laplace(0, scale, centroids.size)
        released = np.clip(np.rint(centroids), attribute.lower, attribute.upper).astype(np.int64)
        found.append(released[of])
    return found
