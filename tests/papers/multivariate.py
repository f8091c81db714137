"""Insensitive multivariate microaggregation with noise, for comparison only: it is in no release.

Records are put into a total order by their distance from a corner of the domain and cut into clusters of k;
one changed record then changes every cluster by one record at most. A centroid of an attribute of width Δ
moves by Δ/k at most, each of n/k centroids, so the noise on it has scale (n/k)·Δ/(kε), whatever the number of
attributes. Categories are drawn by the exponential mechanism, for the same reason with ε/(n/k) per cluster.

References:
    Soria-Comas et al. 2014, "Enhancing data utility in differential privacy via microaggregation-based
    k-anonymity" (insensitive MDAV).
    Sánchez et al. 2016, §4.4 (comparison with individual ranking), Algorithm 2 (drawn categories).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.model.schema import Attribute
from owner_node.masking.arrays import Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class Column:
    """One attribute of all records."""

    attribute: Attribute
    """The attribute."""
    values: Int64Array
    """Its values, `(n_records,)`."""
    distances: Float64Array | None = None
    """Semantic distances of its categories, `(V, V)`; None for numbers."""

    def from_corner(self) -> Float64Array:
        """Return how far each value is from a corner of the domain, from 0 to 1, `(n_records,)`.

        The corner of categories is the most marginal one of the domain, which is public.
        """
        if self.distances is not None:
            corner = int(self.distances.sum(axis=0).argmax())
            far: Float64Array = self.distances[corner][self.values]
            return far
        width = max(self.attribute.upper - self.attribute.lower, 1)
        return (self.values - self.attribute.lower) / width


def insensitive_clusters(columns: Sequence[Column], k: int) -> Int64Array:
    """Return the cluster of each record, `(n_records,)`.

    Args:
        columns: The attributes.
        k: Cluster size; the last cluster takes the remainder.
    """
    order = np.argsort(sum(np.square(each.from_corner()) for each in columns), kind="stable")
    n_clusters = max(order.size // k, 1)
    of = np.empty(order.size, dtype=np.int64)
    of[order] = np.minimum(np.arange(order.size) // k, n_clusters - 1)
    return of


def masked(
    columns: Sequence[Column], k: int, epsilon: float | None, random: np.random.Generator
) -> list[Int64Array]:
    """Return every record as the noisy centroid of its cluster, by attribute.

    Args:
        columns: The attributes.
        k: Cluster size.
        epsilon: For the whole data set; None for no noise.
        random: Makes the noise.
    """
    of = insensitive_clusters(columns, k)
    per_cluster = None if epsilon is None else epsilon / (int(of.max()) + 1)
    return [
        (_means(each, of, k, per_cluster, random) if each.distances is None
         else _drawn(each.values, each.distances, of, per_cluster, random))[of]
        for each in columns
    ]  # fmt: skip


def _means(
    column: Column, of: Int64Array, k: int, epsilon: float | None, random: np.random.Generator
) -> Int64Array:
    """Return the noisy mean of each cluster, `(n_clusters,)`."""
    attribute = column.attribute
    means: Float64Array = np.bincount(of, weights=column.values) / np.bincount(of)
    if epsilon is not None:
        means = means + random.laplace(0, (attribute.upper - attribute.lower) / (k * epsilon), means.size)
    return np.clip(np.rint(means), attribute.lower, attribute.upper).astype(np.int64)


def _drawn(
    values: Int64Array,
    distances: Float64Array,
    of: Int64Array,
    epsilon: float | None,
    random: np.random.Generator,
) -> Int64Array:
    """Return a category for each cluster, `(n_clusters,)`: of least marginality, or drawn by it."""
    n_clusters, n_values = int(of.max()) + 1, len(distances)
    counts = np.bincount(of * n_values + values, minlength=n_clusters * n_values)
    marginality = counts.reshape(n_clusters, n_values) @ distances
    if epsilon is None:
        return marginality.argmin(axis=1).astype(np.int64)
    # The largest of scores with Gumbel noise is drawn with probabilities proportional to exp(score).
    scores = -epsilon / (2 * distances.max()) * marginality
    return (scores + random.gumbel(size=scores.shape)).argmax(axis=1).astype(np.int64)
