"""Who is present at which owners, where a release is of everybody whom any of them holds.

An attribute's last code stands for persons whom its owners do not hold, and each group of owners has an
attribute that says who is present: 1. Every table is a partition of all persons still, so that replacing one
person, with its presence at every owner, moves one record between two cells.

Records first get their owners: as many for each group as the mean of all noisy counts of absent persons says,
weighted by the inverse of their variances, and in groups of three or more so that the tables of presence
agree. Nobody is nowhere. Swaps keep that: values are swapped between persons who are present alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from common.arrays import BoolArray, Int64Array
from common.check import Check
from common.model.schema import Attribute
from common.synthesis.binning import Attributes, Binning, StructuralZero
from common.synthesis.histogram import GRAIN
from common.synthesis.keystream import Keystream
from common.synthesis.sample import bins_of_counts
from common.synthesis.swaps import NoisyTable, swapped

_QUANTILE = 1.96


@dataclass(frozen=True, slots=True)
class Present:
    """An estimated number of persons."""

    count: float
    variance: float

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of its 95 % interval."""
        distance = _QUANTILE * sqrt(self.variance)
        return self.count - distance, self.count + distance


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


def mean_of(estimates: Sequence[Present]) -> Present:
    """Return the mean by the inverse of variances; sums in a fixed order, the same everywhere."""
    weight = total = 0.0
    for each in estimates:
        weight += 1 / each.variance
        total += each.count / each.variance
    return Present(total / weight, 1 / weight)


def start_columns(
    binnings: Sequence[Binning],
    presence: Sequence[int],
    owner_groups: Sequence[int],
    absent_alone: Sequence[int],
    n_present: Sequence[int],
    n_records: int,
    tables: Sequence[NoisyTable],
    stream: Keystream,
    check: Check,
) -> list[Int64Array]:
    """Return bins of records that are present as counted, each attribute's by itself, `(n_records,)` each.

    Args:
        n_present: By group.
        tables: All noisy tables; those of presence are used.
    """
    groups = {place: group for group, place in enumerate(presence)}
    start = []
    for place, number in zip(presence, n_present, strict=True):
        codes = np.zeros(n_records, dtype=np.int64)
        codes[stream.order(n_records)[:number]] = 1
        start.append(binnings[place].bins(codes))
    nowhere = {
        group: np.arange(binnings[place].n_bins) == binnings[place].labels[0]
        for group, place in enumerate(presence)
    }
    of_presence = [
        NoisyTable((groups[each.pair[0]], groups[each.pair[1]]), each.counts, each.variance)
        for each in tables
        if set(each.pair) <= groups.keys()
    ]
    sizes = [binnings[place].n_bins for place in presence]
    at = swapped(start, sizes, of_presence, [nowhere], stream, check)
    columns = []
    for place, binning in enumerate(binnings):
        group = owner_groups[place]
        if place in groups:
            columns.append(at[group])
            continue
        present = ~nowhere[group][at[group]]
        columns.append(present_bins(binning, present, stream, absent_alone=place in absent_alone))
    return columns


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
