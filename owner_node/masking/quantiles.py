"""Lists that are linear between centroids, and the random order in which a cluster hands out its entries.

`idp-quantiles` and `dp-quantiles` release a list of one entry per place. Its knots are the middle place of
every cluster and the noisy centroid of the cluster, after isotonic regression. Between two knots the list is
linear; beyond the outermost ones the outer slopes go on. Then entries are clamped to the domain and rounded.

The smallest and largest values of all records are left out of the centroids of `idp-quantiles` (`tails`). The
outermost knots are then the middles of the places that are left.

Proof of the bound on the privacy loss of the list:

1. `idp-quantiles`. One changed record moves all sums together by at most the smooth range S (`tails`), g
   records likewise. With a scale of S/epsilon for every sum the noisy sums are epsilon-individually
   differentially private (Soria-Comas et al. 2017, Proposition 5).
2. `dp-quantiles`. The moves of plain sums telescope: together at most U - L for one changed record. With a
   scale of g (U - L)/epsilon for sums of k records, and in proportion for the last cluster, the noisy sums
   are epsilon-differentially private (Sánchez et al. 2016, Lemma 1).
3. The list is a function of the noisy sums and of public numbers: n, k, g and V. The random order does not
   depend on the data at all.

Why the order within a cluster is random: the list has more different entries than clusters. Handed out in
rank order, they would disclose the rank of a record within its cluster. In random order an entry discloses
which cluster a record was assigned to, as the centroid itself would. The random order is drawn for the
places of the list, not for records: it needs no further sort of the records.

References:
    Dwork and Roth 2014, Proposition 2.1 (post-processing).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from owner_node.masking.arrays import BitSource, Float64Array, Int64Array, Purpose
from owner_node.masking.clusters import Clusters
from owner_node.masking.lists import round_to_domain

PLACES_PER_BLOCK = 2**15
"""Approximate number of places processed at a time: intermediate results stay in the processor's caches."""
MOST_IN_SHORT_KEYS = 2**10
"""Most places of a cluster whose order is drawn with 32 bits per place."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The places of a list whose entries are a spike."""

    value: int
    """The spike, from 0 to V - 1."""
    start: int
    """Its first place."""
    stop: int
    """The place after its last one."""


def linear_list(
    centroids: Float64Array, clusters: Clusters, n_values: int, stretches: Sequence[Stretch] = ()
) -> Int64Array:
    """Return the list that is linear between the centroids, at every place, `(n_records,)`.

    Args:
        centroids: Ascending, in resolution units above L, `(n_clusters,)`.
        n_values: V; the domain is 0 to V - 1.
        stretches: Where spikes are, ascending.

    Returns:
        Values from 0 to V - 1, ascending.
    """
    return joined(linear_blocks(centroids, clusters, n_values, stretches), clusters)


def at_middles(centroids: Float64Array, clusters: Clusters, tail: int) -> Float64Array:
    """Return the values of the same list at the middle places of all clusters, `(n_clusters,)`.

    The list is one line from the last knot but one to its end, so any two places there describe it.

    Args:
        centroids: Ascending, `(n_clusters,)`. The first and the last one are those of the middles of their
            places without the tails.
        tail: How many of the first and of the last places are tails.
    """
    if not tail or clusters.n_clusters == 1:
        return centroids
    knots = middle_places(clusters)
    knots[0] += tail / 2
    knots[-1] -= tail / 2
    slopes = np.diff(centroids) / np.diff(knots)
    moved = centroids.copy()
    moved[0] -= slopes[0] * tail / 2
    moved[-1] += slopes[-1] * tail / 2
    return moved


def middle_places(clusters: Clusters) -> Float64Array:
    """Return the middle place of each cluster, `(n_clusters,)`."""
    middles: Float64Array = np.arange(clusters.n_clusters, dtype=np.float64)
    middles *= clusters.k
    middles += (clusters.k - 1) / 2
    middles[-1] = clusters.last_start + (clusters.last_size - 1) / 2
    return middles


def stretches_of(
    spikes: Sequence[int], counts: Int64Array, centroids: Float64Array, clusters: Clusters, n_values: int
) -> list[Stretch]:
    """Return where spikes are put: each takes the places whose entries are nearest to it.

    A spike at an end of the domain takes that end of the list.

    Args:
        spikes: Ascending, from 0 to V - 1.
        counts: How many places each gets, `(n_spikes,)`; at most n_records in total.
    """
    middles = middle_places(clusters)
    slopes = np.diff(centroids) / np.diff(middles) if clusters.n_clusters > 1 else np.zeros(1)

    def entry(place: int) -> float:
        knot = min(max(int(np.searchsorted(middles, place)) - 1, 0), slopes.size - 1)
        return float(centroids[knot] + slopes[knot] * (place - middles[knot]))

    stretches: list[Stretch] = []
    first, left = 0, int(counts.sum())
    for spike, count in zip(spikes, counts.tolist(), strict=True):
        low, high = first, clusters.n_records - left
        if spike == 0:
            high = low
        elif spike == n_values - 1:
            low = high
        while low < high:
            place = (low + high) // 2
            if spike - entry(place) > entry(place + count) - spike:
                low = place + 1
            else:
                high = place
        stretches.append(Stretch(spike, low, low + count))
        first, left = low + count, left - count
    return stretches


def with_stretches(entries: Int64Array, first: int, stretches: Sequence[Stretch], n_values: int) -> None:
    """Put spikes into entries; no other entry is a spike.

    Args:
        entries: At the places from `first` on, ascending, `(n_places,)`; changed.
        stretches: Where spikes are, ascending.
        n_values: V.
    """
    for stretch in stretches:
        start, stop = (min(max(place - first, 0), entries.size) for place in (stretch.start, stretch.stop))
        np.minimum(entries[:start], max(stretch.value - 1, 0), out=entries[:start])
        entries[start:stop] = stretch.value
        np.maximum(entries[stop:], min(stretch.value + 1, n_values - 1), out=entries[stop:])


def linear_blocks(
    centroids: Float64Array,
    clusters: Clusters,
    n_values: int,
    stretches: Sequence[Stretch] = (),
    begin: int = 0,
) -> Iterator[Int64Array]:
    """Return the list of `linear_list` from a cluster on: some clusters at a time, `(n_clusters, size)`."""
    slopes = np.diff(centroids) / np.diff(middle_places(clusters))
    if slopes.size == 0:
        slopes = np.zeros(1)
    before, after = np.append(slopes[:1], slopes), np.append(slopes, slopes[-1:])
    for block, places, shape in clusters.blocks(PLACES_PER_BLOCK, begin):
        offsets = np.arange(shape[1]) - (shape[1] - 1) / 2
        half = shape[1] // 2
        line = np.empty(shape)
        np.multiply(before[block, None], offsets[:half], out=line[:, :half])
        np.multiply(after[block, None], offsets[half:], out=line[:, half:])
        line += centroids[block, None]
        entries = round_to_domain(line, n_values)
        with_stretches(entries.reshape(-1), places.start, stretches, n_values)
        yield entries


@dataclass(frozen=True, slots=True)
class LinearList:
    """The list of `linear_list`, with the entries of every cluster in random order."""

    centroids: Float64Array
    """As in `linear_list`."""
    clusters: Clusters
    """Which places belong to each."""
    n_values: int
    """V; the domain is 0 to V - 1."""
    stretches: Sequence[Stretch] = ()
    """Where spikes are."""

    def entries_from(self, place: int, shuffles: BitSource) -> Iterator[Int64Array]:
        """Return the entries at the places from one on, some at a time.

        Args:
            shuffles: Source of random bits of all places; every place has the bits of its number.
        """
        begin = min(place // self.clusters.k, self.clusters.n_clusters - 1)
        first = begin * self.clusters.k
        bits = shuffles.of(Purpose.SHUFFLE, first)
        blocks = linear_blocks(self.centroids, self.clusters, self.n_values, self.stretches, begin)
        for entries in shuffled_blocks(blocks, self.clusters, bits):
            yield entries[max(place - first, 0) :]
            first += entries.size


def shuffled_blocks(
    blocks: Iterator[Int64Array], clusters: Clusters, bits: BitSource
) -> Iterator[Int64Array]:
    """Return entries with those of every cluster in random order, for some clusters at a time.

    Every place draws a number. The places of a cluster are sorted by their numbers, whose lowest bits are
    replaced by the place; two that agree in all other bits, at least 22, are sorted by place.

    Args:
        blocks: Entries by place, `(n_clusters, size)` each.
        bits: Source of random bits; its next elements are the places.

    Yields:
        The entries of some consecutive places.
    """
    short = clusters.last_size <= MOST_IN_SHORT_KEYS
    kind: type[np.unsignedinteger[Any]] = np.uint32 if short else np.uint64
    for entries in blocks:
        shape = entries.shape
        low = (shape[1] - 1).bit_length()
        mask = kind((1 << low) - 1)
        keys = bits.take(entries.size).integers(kind).reshape(shape)
        keys &= ~mask
        keys |= np.arange(shape[1], dtype=kind)
        keys.sort(axis=1)
        keys &= mask
        within = keys.astype(np.int64)
        within += np.arange(0, within.size, shape[1])[:, None]
        # "clip" is quicker than a check; no place is outside.
        yield np.take(entries.ravel(), within.ravel(), mode="clip")


def joined(blocks: Iterator[Int64Array], clusters: Clusters) -> Int64Array:
    """Join entries that come some places at a time, `(n_records,)`."""
    entries, first = np.empty(clusters.n_records, dtype=np.int64), 0
    for block in blocks:
        entries[first : first + block.size] = block.ravel()
        first += block.size
    return entries


def rotated(entries: Int64Array, clusters: Clusters, turn: int) -> Int64Array:
    """Return entries with those of every cluster moved on by some places, the last ones to its beginning."""
    moved = np.empty_like(entries)
    for _, places, shape in clusters.blocks(PLACES_PER_BLOCK):
        moved[places] = np.roll(entries[places].reshape(shape), turn, axis=1).ravel()
    return moved
