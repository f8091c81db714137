"""What else a release tells about a person: the neighbourhood of a value, and values one did not know.

References:
    Mateo-Sanz, Sebé, Domingo-Ferrer 2004, "Outlier protection in continuous microdata masking" (intervals).
    Giomi et al. 2023, "A unified framework for quantifying privacy risk in synthetic data" (people who are
    not in the release as the control of an inference).
"""

from dataclasses import dataclass

import numpy as np

from owner_node.explore.links import Candidates, nearest_kind
from owner_node.masking.arrays import Float64Array

WINDOW = 0.05
"""How far a guess may be off to count as right, as a share of the ranks to either side."""


@dataclass(frozen=True, slots=True)
class Window:
    """The neighbourhoods of values among original ones, as closed intervals of places."""

    low: Float64Array
    """Lower ends, `(n,)`."""
    high: Float64Array
    """Upper ends, `(n,)`."""

    @classmethod
    def around(cls, places: Float64Array, ascending: Float64Array, share: float = WINDOW) -> "Window":
        """Return what is within a share of the ranks of some places.

        Args:
            places: The places, `(n,)`.
            ascending: Original places in order, `(n_records,)`.
            share: How far a neighbourhood reaches to either side, as a share of the ranks.
        """
        n_records = ascending.size
        first = np.searchsorted(ascending, places, side="left")
        last = np.searchsorted(ascending, places, side="right") - 1
        reach = int(share * n_records)
        # What is between two original values has the ranks of both: `last` is the one below it.
        lower = ascending[np.clip(np.minimum(first, last) - reach, 0, n_records - 1)]
        upper = ascending[np.clip(np.maximum(first, last) + reach, 0, n_records - 1)]
        return cls(np.minimum(lower, places), np.maximum(upper, places))

    @classmethod
    def exactly(cls, places: Float64Array) -> "Window":
        """Return the neighbourhoods that hold nothing else, for categories."""
        return cls(places, places)

    def holds(self, places: Float64Array) -> Float64Array:
        """Return 1 for each place that is in its own neighbourhood, else 0, `(n,)`."""
        return ((self.low <= places) & (places <= self.high)).astype(np.float64)

    def chance(self, ascending: Float64Array) -> float:
        """Return the mean share of original values that are in a neighbourhood."""
        within = np.searchsorted(ascending, self.high, side="right")
        within = within - np.searchsorted(ascending, self.low, side="left")
        return float(within.mean()) / ascending.size

    def best_guess(self) -> float:
        """Return the largest share of neighbourhoods that any single place is in."""
        starts, ends = np.sort(self.low), np.sort(self.high)
        opened = np.arange(1, starts.size + 1) - np.searchsorted(ends, starts, side="left")
        return float(opened.max()) / starts.size


def inferred(
    targets: Float64Array, truth: Window, candidates: Candidates, released: Float64Array
) -> Float64Array:
    """Return the probability that an attribute is guessed from the records that are nearest in the others.

    Args:
        targets: What is known of the targets, `(n_targets, n_known)`.
        truth: Neighbourhoods of the true places of what is guessed, of `n_targets`.
        candidates: The released records, in the attributes that are known.
        released: Places of what is guessed in them, `(n_records,)`.

    Returns:
        Of the records equal to the nearest one, the share whose place is near the truth, `(n_targets,)`.
    """
    kinds = nearest_kind(targets, candidates)
    places, code = np.unique(released, return_inverse=True)
    width = places.size + 1
    keys = np.sort(candidates.kind_of * width + code)
    from_low = np.searchsorted(keys, kinds * width + np.searchsorted(places, truth.low, side="left"))
    to_high = np.searchsorted(keys, kinds * width + np.searchsorted(places, truth.high, side="right"))
    shares: Float64Array = (to_high - from_low) / candidates.counts[kinds]
    return shares
