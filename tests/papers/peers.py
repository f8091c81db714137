"""Other ways of protecting records, which Tessera is compared with: microaggregation and rank swapping.

References:
    Domingo-Ferrer, Torra 2005, "Ordinal, continuous and heterogeneous k-anonymity through microaggregation",
    Data Mining and Knowledge Discovery 11 (MDAV-generic, algorithm 1; the centroid of labels is the most
    frequent one).
    Moore 1996, "Controlled data-swapping techniques for masking public use microdata sets", U.S. Bureau of
    the Census (each value goes to a record whose rank is not farther away than a share of all).
"""

from collections.abc import Sequence

import numpy as np

from common.arrays import Float64Array, Int64Array
from common.model.schema import Attribute


def standardised(attributes: Sequence[Attribute], columns: Sequence[Int64Array]) -> Float64Array:
    """Return records as points whose squared distances add up: numbers in standard deviations, two labels
    one apart, `(n_records, n_coordinates)`.
    """
    parts = []
    for attribute, column in zip(attributes, columns, strict=True):
        if attribute.is_categorical:
            parts.append(np.eye(attribute.n_values)[column - attribute.lower] / np.sqrt(2))
        else:
            parts.append((column - column.mean())[:, None] / (column.std() or 1))
    return np.hstack(parts)


def mdav(points: Float64Array, k: int) -> Int64Array:
    """Return the cluster of every record, `(n_records,)`: each has from k to 2k - 1 of them.

    Args:
        points: Coordinates, `(n_records, n_coordinates)`.
        k: Minimum cluster size.
    """
    clusters = np.zeros(len(points), dtype=np.int64)
    left, own, squares = np.arange(len(points)), points.copy(), np.square(points).sum(axis=1)
    total, size, number = points.sum(axis=0), len(points), 0

    def apart(center: Float64Array) -> Float64Array:
        # Squared distances less a constant, which no order depends on.
        found: Float64Array = squares[:size] - 2 * (own[:size] @ center)
        return found

    def take(nearness: Float64Array) -> None:
        nonlocal size, number
        chosen = np.argpartition(nearness, k - 1)[:k]
        clusters[left[chosen]] = number
        total[:] -= own[chosen].sum(axis=0)
        # The last records take the places of those that leave: nothing else is moved.
        size, number = size - k, number + 1
        places, movers = chosen[chosen < size], np.setdiff1d(np.arange(size, size + k), chosen)
        for each in (left, own, squares):
            each[places] = each[movers]

    while size >= 3 * k:
        first = own[apart(total / size).argmax()].copy()
        from_first = apart(first)
        second = own[from_first.argmax()].copy()
        take(from_first)
        take(apart(second))
    if size >= 2 * k:
        take(apart(own[apart(total / size).argmax()].copy()))
    clusters[left[:size]] = number
    return clusters


def microaggregated(
    attributes: Sequence[Attribute], columns: Sequence[Int64Array], k: int
) -> list[Int64Array]:
    """Return every record as the centroid of its cluster of all attributes, `(n_records,)` by attribute."""
    clusters = mdav(standardised(attributes, columns), k)
    n_clusters = int(clusters.max()) + 1
    made = []
    for attribute, column in zip(attributes, columns, strict=True):
        codes = column - attribute.lower
        if attribute.is_categorical:
            counts = np.zeros((n_clusters, attribute.n_values), dtype=np.int64)
            np.add.at(counts, (clusters, codes), 1)
            centroids = counts.argmax(axis=1)
        else:
            centroids = np.rint(np.bincount(clusters, codes) / np.bincount(clusters)).astype(np.int64)
        made.append(centroids[clusters] + attribute.lower)
    return made


def rank_swapped(column: Int64Array, share: float, draw: np.random.Generator) -> Int64Array:
    """Return values that were swapped in pairs whose ranks differ by a share of all at most, `(n_records,)`.

    Args:
        column: Values; the ranks of equal ones are drawn.
        share: Farthest distance of two ranks, as a share of the number of records.
        draw: Source of randomness.
    """
    order = np.lexsort((draw.random(column.size), column))
    reach = int(share * column.size)
    partner, free = np.arange(column.size), np.ones(column.size, dtype=np.bool_)
    for rank in range(column.size):
        within = rank + 1 + np.flatnonzero(free[rank + 1 : rank + 1 + reach])
        if free[rank] and within.size:
            other = draw.choice(within)
            partner[rank], partner[other] = other, rank
            free[rank] = free[other] = False
    swapped = np.empty_like(column)
    swapped[order] = column[order][partner]
    return swapped
