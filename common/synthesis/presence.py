"""Who is present at which owners, where a release is of everybody whom any of them holds.

An attribute's last code stands for persons whom its owners do not hold, and each group of owners has an
attribute that says who is present: 1. Every table is a partition of all persons still, so that replacing one
person, with its presence at every owner, moves one record between two cells.
"""

from collections.abc import Sequence

import numpy as np

from common.arrays import BoolArray, Int64Array
from common.model.schema import Attribute
from common.synthesis.binning import Attributes, Binning, StructuralZero
from common.synthesis.histogram import GRAIN
from common.synthesis.keystream import Keystream
from common.synthesis.sample import bins_of_counts


def presence_pairs(presence: Sequence[int]) -> list[Attributes]:
    """Return the pairs of presence to be counted; of two groups, who is at both follows from their sizes."""
    return [(i, j) for i in presence for j in presence if i < j] if len(presence) > 2 else []


def presence_rules(
    attributes: Sequence[Attribute],
    owner_groups: Sequence[int],
    presence: Sequence[int],
    absent_alone: Sequence[int],
) -> list[StructuralZero]:
    """Return the rules of presence: an absent person has no value, a present one has one.

    Args:
        owner_groups: The group of each attribute.
        presence: By group, the attribute that says who is present.
        absent_alone: Attributes whose last code stands for nothing else.
    """
    rules: list[StructuralZero] = []
    for place, (attribute, group) in enumerate(zip(attributes, owner_groups, strict=True)):
        if place not in presence:
            last = attribute.n_values - 1
            rules.append({presence[group]: [(0, 0)], place: [(0, last - 1)]})
            if place in absent_alone:
                rules.append({presence[group]: [(1, 1)], place: [(last, last)]})
    return rules


def present_bins(
    binning: Binning, present: BoolArray, stream: Keystream, *, absent_alone: bool
) -> Int64Array:
    """Return bins of records of which some are present, the others in the last bin, `(n_records,)`.

    Args:
        present: Which records are, `(n_records,)`.
        absent_alone: Whether none of these is in the last bin.
    """
    absent, weights = int(binning.labels[-1]), binning.counts
    n_others = GRAIN * int((~present).sum())
    weights[absent] = 0 if absent_alone else max(int(weights[absent]) - n_others, 0)
    if not weights.any():
        weights = (np.arange(binning.n_bins) != absent).astype(np.int64)
    column = np.full(present.size, absent, dtype=np.int64)
    column[present] = bins_of_counts(weights, int(present.sum()), stream)
    return column
