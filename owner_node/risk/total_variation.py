"""How far distributions of one attribute and of pairs of attributes are off, by total variation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute

MOST_VALUES, QUANTILES = 128, 20
"""Attributes with more possible values are compared by this many bins, of equally many original values."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """Original values, as bins that released ones are counted in."""

    starts: tuple[Int64Array, ...]
    """Where bins begin, by attribute, in ascending order."""
    original: tuple[Int64Array, ...]
    """The bin of each original value, `(n_records,)` by attribute."""

    @classmethod
    def of(cls, attributes: Sequence[Attribute], columns: Mapping[str, Int64Array]) -> "Distributions":
        """Choose the bins of original values.

        Args:
            columns: Original values by attribute, `(n_records,)`, in resolution units.
        """
        starts = tuple(_starts(attribute, columns[attribute.name]) for attribute in attributes)
        binned = [
            _bins_of(start, columns[attribute.name])
            for start, attribute in zip(starts, attributes, strict=True)
        ]
        return cls(starts, tuple(binned))

    def total_variation(self, masked: Sequence[Int64Array]) -> tuple[float, float]:
        """Return the mean total variation of single attributes, and of pairs of them; 0 if there are none.

        Args:
            masked: Released values by attribute, `(n_records,)`.
        """
        two = self.of_pairs(masked)
        return float(np.mean(self.of_single(masked))), float(np.mean(two)) if two else 0.0

    def of_pairs(self, masked: Sequence[Int64Array]) -> list[float]:
        """Return the total variation of every pair, ascending; arguments as in `total_variation`."""
        binned = [_bins_of(start, column) for start, column in zip(self.starts, masked, strict=True)]
        sizes = [start.size for start in self.starts]
        return [
            _distance(
                self.original[i] * sizes[j] + self.original[j],
                binned[i] * sizes[j] + binned[j],
                sizes[i] * sizes[j],
            )
            for i, j in combinations(range(len(sizes)), 2)
        ]

    def of_single(self, masked: Sequence[Int64Array]) -> list[float]:
        """Return the total variation of every attribute; arguments as in `total_variation`."""
        triples = zip(self.starts, self.original, masked, strict=True)
        return [_distance(before, _bins_of(start, after), start.size) for start, before, after in triples]


def _starts(attribute: Attribute, values: Int64Array) -> Int64Array:
    if attribute.n_values <= MOST_VALUES:
        return np.arange(attribute.lower, attribute.highest + 1)
    ends = np.sort(values)[np.arange(1, QUANTILES) * values.size // QUANTILES]
    missing = [attribute.highest] if attribute.keeps_missing else []
    return np.unique(np.concatenate([[attribute.lower], ends, missing]).astype(np.int64))


def _bins_of(starts: Int64Array, values: Int64Array) -> Int64Array:
    return np.searchsorted(starts, values, side="right") - 1


def _distance(before: Int64Array, after: Int64Array, n_bins: int) -> float:
    counts = [np.bincount(bins, minlength=n_bins) for bins in (before, after)]
    return float(np.abs(counts[0] - counts[1]).sum()) / (2 * before.size)
