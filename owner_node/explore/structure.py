"""Record linkage by structure alone: by which released values are equal and which is larger, by nothing else.

No noise hides that, since all records of a cluster get one value (MECHANISMS §4).

*By order*: equal released values are a group; in ascending order the groups' sizes say which ranks each of
them stands for. Whoever knows the originals of a few attributes of everybody knows everybody's ranks, and
looks for the record whose groups stand for the nearest ones. This is all that a list which ascends can hide.

*By equality*: the groups are told apart by who shares them. Starting from their sizes, every group is named
after the names of its records and every record after those of its groups, over and over (colour refinement),
once among the original values and once among the released ones. What has the same name in the end is the same
record, whatever the values are. It is tried for an intruder who also knows how ties were broken.

References:
    Weisfeiler and Leman 1968 (colour refinement).
"""

from collections.abc import Sequence

import numpy as np

from owner_node.explore.rows import mix
from owner_node.masking.arrays import Float64Array, Int64Array, UInt64Array
from owner_node.masking.clusters import Clusters

MOST_ROUNDS = 12
"""Refinement ends earlier once it tells no more records apart."""


def middle_ranks(places: Float64Array) -> Float64Array:
    """Return the rank of each value, the middle one of those it is tied with, as a share; `(n_records,)`."""
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Float64Array = ((ends - counts / 2.0) / places.size)[inverse]
    return ranks


def linked_by_equality(
    original: Sequence[Float64Array], released: Sequence[Float64Array], ks: Sequence[int | None]
) -> Float64Array:
    """Return the probability that each record is found by the pattern of equal values.

    Args:
        original: Places of the original values of each known attribute, `(n_records,)`.
        released: Places of the released values of each, `(n_records,)`, records in the same order.
        ks: Minimum cluster size of each, public; None for a mechanism without clusters.

    Returns:
        1/(number of released records of the same name), or 0 where the own one has another; `(n_records,)`.
    """
    groups = [np.unique(each, return_inverse=True, return_counts=True)[1:] for each in released]
    observed = [each for each, _ in groups]
    expected = [
        _expected(places, sizes, k) for places, (_, sizes), k in zip(original, groups, ks, strict=True)
    ]
    guessed, found = names_of(expected), names_of(observed)
    kinds, counts = np.unique(found, return_counts=True)
    alike = counts[np.searchsorted(kinds, found)]
    return np.where(guessed == found, 1.0 / alike, 0.0)


def _expected(places: Float64Array, sizes: Int64Array, k: int | None) -> Int64Array:
    """Return the groups that an intruder expects of original values, `(n_records,)`.

    Where the sizes are those of clusters of k, these are the groups; where groups have fallen together, or
    there were none, the order of the released values says where they begin.
    """
    n_records = places.size
    if k is not None and k <= n_records:
        clusters = Clusters(n_records, k).sizes
        if sizes.size == clusters.size and np.array_equal(np.sort(sizes), clusters):
            sizes = clusters
    group = np.empty(n_records, dtype=np.int64)
    group[np.argsort(places, kind="stable")] = np.repeat(np.arange(sizes.size), sizes)
    return group


def names_of(groups: Sequence[Int64Array]) -> UInt64Array:
    """Name records by refinement: equal names where no round told two records apart.

    Args:
        groups: The group of each record, from 0, by attribute; `(n_records,)` each.

    Returns:
        The names, `(n_records,)`; they depend on the pattern alone, not on how groups are numbered.
    """
    orders = [np.argsort(each, kind="stable") for each in groups]
    sizes = [np.bincount(each) for each in groups]
    starts = [np.cumsum(each) - each for each in sizes]
    salts = mix(np.arange(1, len(groups) + 1, dtype=np.uint64))
    named = [size.astype(np.uint64) for size in sizes]
    names, n_names = _names_of_records(named, groups, salts), 0
    for _ in range(MOST_ROUNDS):
        found = np.unique(names).size
        if found == n_names:
            break
        n_names, hashed = found, mix(names)
        named = [np.add.reduceat(hashed[order], start) for order, start in zip(orders, starts, strict=True)]
        names = mix(names + _names_of_records(named, groups, salts))
    return names


def _names_of_records(
    named: Sequence[UInt64Array], groups: Sequence[Int64Array], salts: UInt64Array
) -> UInt64Array:
    names = np.zeros(groups[0].size, dtype=np.uint64)
    for of_group, group, salt in zip(named, groups, salts, strict=True):
        names += mix(of_group + salt)[group]
    return names
