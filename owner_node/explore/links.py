"""Distance-based record linkage: whose record is nearest? In blocks, never with a table of all distances.

References:
    Domingo-Ferrer and Torra 2001, "A quantitative comparison of disclosure control methods for microdata".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from owner_node.explore.rows import codes
from owner_node.masking.arrays import Float64Array, Int64Array

DISTANCES_PER_BLOCK = 2**21
"""Distances that exist at a time: 16 MiB of them."""
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

    def blocks(self, targets: Float64Array) -> Iterator[tuple[slice, Float64Array]]:
        """Compute distances, some targets at a time.

        Args:
            targets: What is known of them, `(n_targets, n_known)`.

        Yields:
            Which targets, and their squared distances from all kinds less their own squared length.
        """
        squares, factors = np.square(self.points).sum(axis=1), -2 * self.points.T
        step = max(1, DISTANCES_PER_BLOCK // len(self.points))
        for start in range(0, len(targets), step):
            block = slice(start, start + step)
            distances = (targets[block] - self.middle) @ factors
            distances += squares
            yield block, distances


def linked(targets: Float64Array, own: Int64Array, candidates: Candidates) -> Float64Array:
    """Return the probability that each target is linked to its own record: the nearest, ties by lot.

    Args:
        targets: What an intruder knows of them, `(n_targets, n_known)`.
        own: Position of each target's own released record, `(n_targets,)`.
        candidates: The released records.

    Returns:
        1/(number of records as near) where no record is nearer than the own one, else 0; `(n_targets,)`.
    """
    right = np.zeros(len(targets))
    for block, distances in candidates.blocks(targets):
        kinds = candidates.kind_of[own[block]]
        mine = distances[np.arange(len(distances)), kinds]
        rounding = candidates.rounding(targets[block], kinds)
        nearest = np.flatnonzero(distances.min(axis=1) >= mine - rounding)
        as_near = distances[nearest] <= (mine + rounding)[nearest, None]
        right[block.start + nearest] = 1.0 / (as_near @ candidates.counts)
    return right


def nearest_kind(targets: Float64Array, candidates: Candidates) -> Int64Array:
    """Return the kind of record that is nearest to each target, `(n_targets,)`; the first of several."""
    found = np.empty(len(targets), dtype=np.int64)
    for block, distances in candidates.blocks(targets):
        found[block] = distances.argmin(axis=1)
    return found
