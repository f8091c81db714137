"""Distance-based record linkage: whose record is nearest? In blocks, never with a table of all distances.

References:
    Domingo-Ferrer and Torra 2001, "A quantitative comparison of disclosure control methods for microdata".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from owner_node.explore.rows import codes
from owner_node.masking.arrays import Float64Array, Int64Array

KINDS_PER_BLOCK = 2**9
MULTIPLIED_PER_BLOCK = 2**18
"""Numbers that are multiplied at a time, at most: the distances stay near the processor, and a product of so
few is made by the thread that asks for it. Threads of its own would only wait for those of the sweep."""
_ROUNDING = 1e-12
"""Squared distances that differ by no more than this share of the squared lengths behind them are equal."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Released records that somebody may be looked for among, equal ones together."""

    points: Float64Array
    """What an intruder knows of each kind of record, `(n_kinds, n_known)`, each coordinate in units of σ."""
    counts: Int64Array
    """Number of records of each kind, `(n_kinds,)`."""
    kind_of: Int64Array
    """Kind of each released record, `(n_records,)`."""
    middle: Float64Array
    """What is subtracted from every coordinate, `(n_known,)`, so that products lose no digits: the medians,
    which noise that throws some values far off does not move."""

    @classmethod
    def of(cls, released: Float64Array) -> "Candidates":
        """Put equal records together.

        Args:
            released: `(n_records, n_known)`, in units that make the attributes comparable.
        """
        _, first, inverse, counts = np.unique(
            codes(list((released + 0.0).T)), return_index=True, return_inverse=True, return_counts=True
        )
        middle = np.median(released, axis=0)
        return cls(released[first] - middle, counts, inverse, middle)

    def rounding(self, targets: Float64Array, kinds: Int64Array) -> Float64Array:
        """Return how far off squared distances of targets from kinds of records may be, `(n_targets,)`."""
        lengths = np.square(targets - self.middle).sum(axis=1) + np.square(self.points[kinds]).sum(axis=1)
        off: Float64Array = _ROUNDING * (1 + lengths)
        return off

    def blocks(self, targets: Float64Array) -> Iterator[tuple[slice, slice, Float64Array]]:
        """Compute distances, of some targets from some kinds of records at a time.

        Args:
            targets: What is known of them, `(n_targets, n_known)`.

        Yields:
            Which targets, which kinds, and their squared distances less the targets' own squared length.
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
        """Return what is multiplied: of t and p it is (t, 1) and (-2 p, |p|²), `(n, n_known + 1)` each."""
        known = np.column_stack([targets - self.middle, np.ones(len(targets))])
        return known, np.column_stack([-2 * self.points, np.square(self.points).sum(axis=1)])


def linked(targets: Float64Array, own: Int64Array, candidates: Candidates) -> Float64Array:
    """Return the probability that each target is linked to its own record: the nearest, ties by lot.

    Args:
        targets: What an intruder knows of them, `(n_targets, n_known)`.
        own: Position of each target's own released record, `(n_targets,)`.
        candidates: The released records.

    Returns:
        1/(number of records as near) where no record is nearer than the own one, else 0; `(n_targets,)`.
    """
    kinds = candidates.kind_of[own]
    mine, rounding = candidates.distances(targets, kinds), candidates.rounding(targets, kinds)
    found = np.flatnonzero(_nearest(targets, candidates)[1] >= mine - rounding)
    reach, as_near = (mine + rounding)[found, None], np.zeros(found.size)
    for block, some, distances in candidates.blocks(targets[found]):
        as_near[block] += (distances <= reach[block]) @ candidates.counts[some]
    right = np.zeros(len(targets))
    right[found] = 1.0 / as_near
    return right


def nearest_kind(targets: Float64Array, candidates: Candidates) -> Int64Array:
    """Return the kind of record that is nearest to each target, `(n_targets,)`; the first of several."""
    return _nearest(targets, candidates)[0]


def _nearest(targets: Float64Array, candidates: Candidates) -> tuple[Int64Array, Float64Array]:
    """Return the nearest kind of each target and its distance, as `blocks` has it, `(n_targets,)` each."""
    found, least = np.zeros(len(targets), dtype=np.int64), np.full(len(targets), np.inf)
    for block, kinds, distances in candidates.blocks(targets):
        nearest = distances.argmin(axis=1)
        distance = distances[np.arange(nearest.size), nearest]
        nearer = np.flatnonzero(distance < least[block])
        least[block.start + nearer] = distance[nearer]
        found[block.start + nearer] = kinds.start + nearest[nearer]
    return found, least
