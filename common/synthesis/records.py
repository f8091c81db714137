"""The records of a synthetic release, drawn from the sums of its rounds: the same for everybody.

Where a release is of everybody whom any owner holds, records first get their owners: as many for each group
as the mean of all noisy counts of absent persons says, weighted by the inverse of their variances, and in
groups of three or more so that the tables of presence agree. Nobody is nowhere. Swaps keep that: values are
swapped between persons who are present alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from common.arrays import Int64Array
from common.check import Check, unchecked
from common.model.together import released_units
from common.synthesis.binning import Binning, Excluded, excluded_bins
from common.synthesis.determined import with_determined
from common.synthesis.events import first_bins, start_events
from common.synthesis.keystream import Keystream
from common.synthesis.presence import present_bins
from common.synthesis.sample import draw_values, start_bins
from common.synthesis.schedule import RoundSums, attributes_of, split
from common.synthesis.swaps import NoisyTable, swapped


@dataclass(frozen=True, slots=True)
class SyntheticRelease:
    """Released records, and the counts that they were made of."""

    codes: Sequence[Int64Array]
    """Codes of values, `(n_records,)` by counted attribute."""
    measured: RoundSums

    @property
    def units(self) -> dict[str, Int64Array]:
        """Values in resolution units by released attribute that is not derived, `(n_records,)` each."""
        return released_units(self.measured.design.attributes, self.codes)


def noisy_tables(measured: RoundSums) -> list[NoisyTable]:
    """Return the tables of pairs with the variance of their noise."""
    design = measured.design
    return [
        NoisyTable(
            table.pair,
            counts,
            round(design.variance(table.noise, table.pair)),
            of_slots=design.is_of_slots(table.pair),
        )
        for table, counts in measured.tables
    ]


def excluded(measured: RoundSums, tables: Sequence[NoisyTable]) -> list[Excluded]:
    """Return the bins that no record has together: by declared rules, and as the tables show."""
    design, binnings = measured.design, measured.binnings
    categories = [attribute.is_categorical for attribute in design.attributes]
    declared = excluded_bins(binnings, design.zeros)
    if design.presence:
        # Tables across groups are of other persons than one-way counts, but for those who are present.
        tables = [each for each in tables if not design.is_across(each.pair)]
    absent = {
        place: int(binning.labels[-1])
        for place, binning in enumerate(binnings)
        if design.presence or design.is_of_slots((place,))
    }
    return with_determined(declared, binnings, categories, tables, absent)


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


def mean_of(estimates: Sequence[Present]) -> Present:
    """Return the mean by the inverse of variances; sums in a fixed order, the same everywhere."""
    weight = total = 0.0
    for each in estimates:
        weight += 1 / each.variance
        total += each.count / each.variance
    return Present(total / weight, 1 / weight)


def overlaps(measured: RoundSums) -> dict[tuple[int, ...], Present]:
    """Return how many persons are estimated to be present in each group and in each two, by their groups.

    Of two groups, both together have everybody; of more, tables of presence are counted.
    """
    design, of_groups = measured.design, dict[tuple[int, ...], Present]()
    n_records, answered = (
        design.n_records,
        list(zip(measured.rounds[0], split(measured.rounds[0], measured.sums[0]), strict=True)),
    )
    for group, at in enumerate(design.presence):
        found = []
        for question, noisy in answered:
            place = attributes_of(question)[0]
            variance = design.variance(question.noise, (place,))
            if place == at:
                found.append(Present((n_records + int(noisy[1]) - int(noisy[0])) / 2, variance / 2))
            elif design.home(place) == group and place in design.absent_alone:
                found.append(Present(float(n_records - int(noisy[-1])), variance))
        of_groups[(group,)] = mean_of(found)
    if len(design.presence) == 2:
        first, second = of_groups[(0,)], of_groups[(1,)]
        both = first.count + second.count - n_records
        return of_groups | {(0, 1): Present(both, first.variance + second.variance)}
    groups = {place: group for group, place in enumerate(design.presence)}
    for table, counts in measured.tables:
        if set(table.pair) <= groups.keys():
            i, j = table.pair
            at_both = counts.reshape([each.n_bins for each in table.binnings])[
                int(table.binnings[0].labels[1]), int(table.binnings[1].labels[1])
            ]
            variance = design.variance(table.noise, table.pair)
            of_groups[groups[i], groups[j]] = Present(float(at_both), variance)
    return of_groups


def synthesise(measured: RoundSums, check: Check = unchecked) -> SyntheticRelease:
    """Make the records from what was measured: the same bytes for everybody."""
    design, tables = measured.design, noisy_tables(measured)
    binnings, stream = measured.binnings, Keystream(measured.seed)
    if design.presence:
        found = overlaps(measured)
        n_present = [
            min(max(round(found[(group,)].count), 0), design.n_records) for group in range(design.n_groups)
        ]
        start = start_columns(
            binnings, design.presence, design.owner_groups, design.absent_alone, n_present,
            design.n_records, tables, stream, check,
        )  # fmt: skip
    elif design.events is not None:
        start = start_events(design.events, binnings, design.n_records, stream)
    else:
        start = [start_bins(binning, design.n_records, stream) for binning in binnings]
    sizes = [binning.n_bins for binning in binnings]
    events = design.events
    number, of_events = (None, {}) if events is None else (events.number, first_bins(events, binnings))
    rules = excluded(measured, tables)
    bins = swapped(start, sizes, tables, rules, stream, check, number=number, first_bins=of_events)
    codes = [draw_values(binning, own, stream) for binning, own in zip(binnings, bins, strict=True)]
    return SyntheticRelease(codes, measured)


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
