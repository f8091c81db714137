"""Individual-ranking clusters: consecutive sorted values, k each, the last with the remainder.

References:
    Del Vasto-Terrientes et al. 2025, Algorithm 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from owner_node.masking.arrays import Int64Array

ClusterStatistic: TypeAlias = Callable[[Int64Array], Int64Array]
"""Sorted values of clusters of one size, `(n_clusters, size)`, to an integer per cluster, `(n_clusters,)`."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """How sorted records fall into clusters; decided by two numbers, never by the values."""

    n_records: int
    """Number of records, at least k."""
    k: int
    """Minimum cluster size."""

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n_records:
            raise ValueError(f"{self.n_records} records make no cluster of {self.k}")

    @property
    def n_clusters(self) -> int:
        """p, the number of clusters."""
        return self.n_records // self.k

    @property
    def last_start(self) -> int:
        """Rank at which the last cluster starts; every cluster before it has exactly k records."""
        return (self.n_clusters - 1) * self.k

    @property
    def last_size(self) -> int:
        """Number of records of the last cluster, from k to 2k - 1."""
        return self.n_records - self.last_start

    @property
    def sizes(self) -> Int64Array:
        """Number of records of each cluster, `(n_clusters,)`."""
        return self.per_size(self.k, self.last_size)

    def per_size(self, ordinary: int, last: int) -> Int64Array:
        """Return an array `(n_clusters,)` with one number for all clusters of size k and one for the last."""
        numbers = np.full(self.n_clusters, ordinary, dtype=np.int64)
        numbers[-1] = last
        return numbers

    def apply(self, sorted_values: Int64Array, statistic: ClusterStatistic) -> Int64Array:
        """Compute a statistic of every cluster.

        Args:
            sorted_values: `(n_records,)`, ascending.
            statistic: Computed once for all clusters of size k and once for the last.

        Returns:
            The statistics in rank order, `(n_clusters,)`.
        """
        ordinary = sorted_values[: self.last_start].reshape(-1, self.k)
        last = sorted_values[self.last_start :].reshape(1, -1)
        results = np.empty(self.n_clusters, dtype=np.int64)
        results[:-1] = statistic(ordinary)
        results[-1:] = statistic(last)
        return results
