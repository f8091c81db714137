"""Record linkage by distance and by structure, and the codes that make records comparable.

*Codes*: a record becomes one 64-bit hash, and equal records have equal codes. Among a million records, two
different ones share a code with probability below 10^-7.

*By distance*: the intruder links a person to the record with the nearest values. Distances are computed in
blocks, never as a table of all distances.

*By structure alone*: the intruder uses only which released values are equal and which is larger. Noise on a
list does not hide that (docs/guarantee.md, "What is not promised").

- *By order*: equal released values are a group; in ascending order, the groups' sizes say which ranks each
  group covers. Anyone who knows the originals of a few attributes of everybody knows everybody's ranks, and
  looks for the record whose groups cover the nearest ranks. An ascending list can hide nothing but this.
- *By equality*: groups are distinguished by the records that share them. Starting from their sizes, every
  group is named after the names of its records and every record after those of its groups, repeatedly (colour
  refinement), once for the original values and once for the released ones. Equal names mean the same record,
  whatever the values are. This assumes an intruder who also knows how ties were broken.

References:
    Domingo-Ferrer and Torra 2001, "A quantitative comparison of disclosure control methods for microdata".
    Weisfeiler and Leman 1968 (colour refinement).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Float64Array, Int64Array, UInt64Array
from owner_node.masking.clusters import Clusters


def mix(words: UInt64Array) -> UInt64Array:
    """Return a hash of each word (the finisher of SplitMix64), `(n,)`."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: UInt64Array = mixed ^ (mixed >> np.uint64(31))
    return hashed


def codes(columns: Sequence[Int64Array] | Sequence[Float64Array]) -> UInt64Array:
    """Return a code per record.

    Args:
        columns: Attributes, `(n_records,)` each; no double may be -0.0, whose bits differ from those of 0.0.

    Returns:
        `(n_records,)`.
    """
    code = np.zeros(columns[0].size, dtype=np.uint64)
    for column in columns:
        code = mix(code + mix(np.ascontiguousarray(column).view(np.uint64)))
    return code


def match_rate(first: UInt64Array, second: UInt64Array) -> float:
    """Return the probability that two records, one drawn from each table, are equal, from their codes."""
    kinds, inverse = np.unique(np.concatenate([first, second]), return_inverse=True)
    counts: list[Int64Array] = [
        np.bincount(part, minlength=kinds.size) for part in (inverse[: first.size], inverse[first.size :])
    ]
    return float((counts[0] / first.size) @ (counts[1] / second.size))


def chance_above(first: Float64Array, second: Float64Array) -> float:
    """Return the probability that one number of the first is above one of the second, ties by half."""
    ascending = np.sort(second)
    below = [np.searchsorted(ascending, first, side=side).mean() for side in ("left", "right")]
    return float(np.mean(below)) / second.size


KINDS_PER_BLOCK = 2**9
MULTIPLIED_PER_BLOCK = 2**18
"""Most numbers that are multiplied at a time: the distances stay in the processor's caches, and so small a
product runs in the calling thread. Additional threads would only wait for those of the sweep."""
_ROUNDING = 1e-12
"""Squared distances are equal if they differ by at most this share of the squared lengths."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Released records that a target may be linked to, grouped by equality."""

    points: Float64Array
    """Known coordinates of each kind of record, `(n_kinds, n_known)`, in units of σ."""
    counts: Int64Array
    """Number of records of each kind, `(n_kinds,)`."""
    kind_of: Int64Array
    """Kind of each released record, `(n_records,)`."""
    middle: Float64Array
    """The median of every coordinate, `(n_known,)`, which is subtracted so that products lose no digits.
    Noise that moves some values far away does not move the median."""

    @classmethod
    def of(cls, released: Float64Array) -> "Candidates":
        """Group equal records.

        Args:
            released: `(n_records, n_known)`, in units that make the attributes comparable.
        """
        _, first, inverse, counts = np.unique(
            codes(list((released + 0.0).T)), return_index=True, return_inverse=True, return_counts=True
        )
        middle = np.median(released, axis=0)
        return cls(released[first] - middle, counts, inverse, middle)

    def rounding(self, targets: Float64Array, kinds: Int64Array) -> Float64Array:
        """Return the largest rounding error of squared distances from targets to kinds, `(n_targets,)`."""
        lengths = np.square(targets - self.middle).sum(axis=1) + np.square(self.points[kinds]).sum(axis=1)
        off: Float64Array = _ROUNDING * (1 + lengths)
        return off

    def blocks(self, targets: Float64Array) -> Iterator[tuple[slice, slice, Float64Array]]:
        """Compute distances, of some targets from some kinds of records at a time.

        Args:
            targets: Their known coordinates, `(n_targets, n_known)`.

        Yields:
            A slice of targets, a slice of kinds, and their squared distances minus the targets' own squared
            lengths.
        """
        known, factors = self._factors(targets)
        step = max(1, MULTIPLIED_PER_BLOCK // (KINDS_PER_BLOCK * known.shape[1]))
        for first in range(0, len(factors), KINDS_PER_BLOCK):
            kinds = slice(first, first + KINDS_PER_BLOCK)
            some = np.ascontiguousarray(factors[kinds].T)
            for start in range(0, len(known), step):
                block = slice(start, start + step)
                yield block, kinds, known[block] @ some

    def distances(self, targets: Float64Array, kinds: Int64Array) -> Float64Array:
        """Return each target's squared distance from one kind, as `blocks` does, `(n_targets,)`."""
        known, factors = self._factors(targets)
        distances: Float64Array = (known * factors[kinds]).sum(axis=1)
        return distances

    def _factors(self, targets: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return the factors (t, 1) and (-2 p, |p|²) for targets t and points p, `(n, n_known + 1)` each."""
        known = np.column_stack([targets - self.middle, np.ones(len(targets))])
        return known, np.column_stack([-2 * self.points, np.square(self.points).sum(axis=1)])


def linked(targets: Float64Array, own: Int64Array, candidates: Candidates) -> Float64Array:
    """Return the probability that each target is linked to its own record: the nearest, random among ties.

    Args:
        targets: Their known coordinates, `(n_targets, n_known)`.
        own: Position of each target's own released record, `(n_targets,)`.

    Returns:
        1/(number of nearest records) if the own record is one of them, else 0; `(n_targets,)`.
    """
    kinds = candidates.kind_of[own]
    mine, rounding = candidates.distances(targets, kinds), candidates.rounding(targets, kinds)
    reached = np.flatnonzero(_nearest(targets, candidates)[1] >= mine - rounding)
    reach, as_near = (mine + rounding)[reached, None], np.zeros(reached.size)
    for block, some, distances in candidates.blocks(targets[reached]):
        as_near[block] += (distances <= reach[block]) @ candidates.counts[some]
    right = np.zeros(len(targets))
    right[reached] = 1.0 / as_near
    return right


def nearest_kind(targets: Float64Array, candidates: Candidates) -> Int64Array:
    """Return the kind of record that is nearest to each target, `(n_targets,)`; the first of several."""
    return _nearest(targets, candidates)[0]


def _nearest(targets: Float64Array, candidates: Candidates) -> tuple[Int64Array, Float64Array]:
    """Return the nearest kind of each target and its distance, as `blocks` has it, `(n_targets,)` each."""
    nearest_kinds, least = np.zeros(len(targets), dtype=np.int64), np.full(len(targets), np.inf)
    for block, kinds, distances in candidates.blocks(targets):
        nearest = distances.argmin(axis=1)
        distance = distances[np.arange(nearest.size), nearest]
        nearer = np.flatnonzero(distance < least[block])
        least[block.start + nearer] = distance[nearer]
        nearest_kinds[block.start + nearer] = kinds.start + nearest[nearer]
    return nearest_kinds, least


MOST_ROUNDS = 12
"""Most rounds of refinement; it ends earlier once a round distinguishes no more records."""


def middle_ranks(places: Float64Array) -> Float64Array:
    """Return the rank of each value as a share, the middle rank for ties; `(n_records,)`."""
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Float64Array = ((ends - counts / 2.0) / places.size)[inverse]
    return ranks


def linked_by_equality(
    original: Sequence[Float64Array], released: Sequence[Float64Array], ks: Sequence[int | None]
) -> Float64Array:
    """Return the probability that each record is linked by the pattern of equal values.

    Args:
        original: Places of the original values of each known attribute, `(n_records,)`.
        released: Places of the released values of each, `(n_records,)`, records in the same order.
        ks: Minimum cluster size of each, public; None for a mechanism without clusters.

    Returns:
        1/(number of released records of the same name), or 0 if the own record has another; `(n_records,)`.
    """
    groups = [np.unique(places, return_inverse=True, return_counts=True)[1:] for places in released]
    observed = [group for group, _ in groups]
    expected = [
        _expected_groups(places, sizes, k) for places, (_, sizes), k in zip(original, groups, ks, strict=True)
    ]
    guessed, names = names_of(expected), names_of(observed)
    kinds, counts = np.unique(names, return_counts=True)
    alike = counts[np.searchsorted(kinds, names)]
    return np.where(guessed == names, 1.0 / alike, 0.0)


def _expected_groups(places: Float64Array, sizes: Int64Array, k: int | None) -> Int64Array:
    """Return the groups that an intruder expects from original values, `(n_records,)`.

    If the sizes are those of clusters of k, these clusters are the groups. If groups have coincided, or there
    were no clusters, the order of the released values determines where groups begin.
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
    """Name records by refinement: two records have equal names if no round distinguished them.

    Args:
        groups: The group of each record, from 0, by attribute; `(n_records,)` each.

    Returns:
        The names, `(n_records,)`; they depend on the pattern alone, not on how groups are numbered.
    """
    orders = [np.argsort(group, kind="stable") for group in groups]
    sizes = [np.bincount(group) for group in groups]
    starts = [np.cumsum(size) - size for size in sizes]
    salts = mix(np.arange(1, len(groups) + 1, dtype=np.uint64))
    named = [size.astype(np.uint64) for size in sizes]
    names, n_names = _names_of_records(named, groups, salts), 0
    for _ in range(MOST_ROUNDS):
        n_distinct = np.unique(names).size
        if n_distinct == n_names:
            break
        n_names, hashed = n_distinct, mix(names)
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
