"""The order of the records of one attribute: by value, then by tie-breaker, then by record position.

*Sorting.* `rank` packs value, tie-breaker and record position into one 64-bit key: the value in the highest
bits, the position in the lowest. No two keys are equal, so that one sort without regard to stability gives
the order and the values in it; `numpy.sort` of such keys is several times faster than a stable argsort. If
they do not fit into a key, `numpy.lexsort` sorts the records.

*Original order.* Rank noise starts from the original order of the records, with ties broken at random: by
value, then by a secret random number of a few bits. There are two forms of it:

- `SortedRecords`, if values are many, records few, or noise narrow: records are sorted, and those with the
  same value and number are ordered by record position.
- `CountedRecords`, otherwise: nothing is sorted. Records are counted by value and number, and those that
  agree in both share the middle of their positions.

`are_counted` chooses between them by the declared domain, the number of records and the noise, never by the
values. The bound of `rank_noise` holds for either form. It would not hold for a choice that one record could
change.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from common.model.schema import Attribute
from owner_node.masking.arrays import (
    BitSource,
    Int64Array,
    KeyArray,
    NarrowPositionArray,
    PositionArray,
    TieArray,
)

KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear, so that shifting right keeps the order."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The records of one attribute in the order of their values."""

    order: PositionArray
    """Record positions, `(n_records,)`: the record at rank q is `order[q]`; ties as they were broken."""
    values: Int64Array
    """The values in that order, `(n_records,)`, in the units they came in."""


def rank(values: Int64Array, key_bits: int = KEY_BITS, ties: TieArray | None = None) -> Ranking:
    """Sort records by value, ties by tie-breakers, then by record position.

    Args:
        values: One value per record, `(n_records,)`, at least one, in resolution units; the difference of the
            largest and the smallest below 2^63.
        key_bits: Bits of a packed key; the default is what a 64-bit integer holds.
        ties: Tie-breakers, `(n_records,)`; None for record position alone.

    Returns:
        The order of the records and their values in it.
    """
    smallest = int(values.min())
    value_bits = (int(values.max()) - smallest).bit_length()
    position_bits = (values.size - 1).bit_length()
    tie_bits = 0 if ties is None else 8 * ties.itemsize
    if value_bits + tie_bits + position_bits > key_bits:
        order = np.lexsort((values,) if ties is None else (ties, values))
        return Ranking(order, values[order])
    keys = values - smallest
    if ties is not None:
        keys <<= tie_bits
        keys |= ties
    keys <<= position_bits
    keys |= np.arange(values.size)
    keys.sort()
    in_order = keys >> (position_bits + tie_bits)
    in_order += smallest
    keys &= (1 << position_bits) - 1
    return Ranking(keys, in_order)


TIE_BITS = 8
MOST_KEYS = 2**16
"""Most pairs of value and number to count: a pair has 16 bits, and the counts fit into the caches."""
RECORDS_PER_BLOCK = 2**16
"""Records counted at a time: intermediate results stay in the processor's caches."""
FEWEST_SAMPLED = 2**17
"""With fewer records, taking a sample costs as much time as it can save."""
SAMPLE = 2**14
"""Approximate number of records in a sample."""
Places = TypeVar("Places", slice, PositionArray)


class OriginalOrder(Protocol):
    """Maps places to records, one to one, and gives the position of the record at each place."""

    steps: ClassVar[int]
    """Number of steps that every position is divided into."""

    def positions(self, places: slice) -> NarrowPositionArray:
        """Return the positions of the records at some places, `(n_places,)`, in steps."""
        ...

    def records(self, places: Places) -> Places | PositionArray:
        """Return the records at some places."""
        ...


@dataclass(frozen=True, slots=True)
class SortedRecords:
    """Sorted records: the place of each is its position."""

    steps: ClassVar[int] = 1
    order: PositionArray
    """The record at position p is `order[p]`, `(n_records,)`."""

    def positions(self, places: slice) -> NarrowPositionArray:
        """Return the positions of the records at some places, `(n_places,)`, in steps."""
        return np.arange(places.start, places.stop, dtype=np.int32)

    def records(self, places: slice | PositionArray) -> PositionArray:
        """Return the records at some places."""
        return self.order[places]


@dataclass(frozen=True, slots=True)
class CountedRecords:
    """Counted, unsorted records: the place of each is its record number, its position may be a half."""

    steps: ClassVar[int] = 2
    keys: KeyArray
    """Key of every record, `(n_records,)`: its value and random number."""
    middles: NarrowPositionArray
    """The middle of the positions of all records with a key, in steps, by key."""
    counts: Int64Array
    """How many records have each value, `(V,)`."""

    def positions(self, places: slice) -> NarrowPositionArray:
        """Return the positions of the records at some places, `(n_places,)`, in steps."""
        # "clip" is quicker than a check; no key is outside.
        return self.middles.take(self.keys[places], mode="clip")

    def records(self, places: Places) -> Places:
        """Return the records at some places."""
        return places


def are_counted(n_values: int, n_records: int, scale: int) -> bool:
    """Return whether records are counted: values are few, and noise is at least as wide as a shared position.

    About 1/256 of the records of one value share a position, and one value can have all records.

    Args:
        n_values: V.
        n_records: n.
        scale: t, of the noise on positions.
    """
    return n_values << TIE_BITS <= min(MOST_KEYS, n_records) and n_records <= scale << TIE_BITS


def count_with_random_ties(values: Int64Array, attribute: Attribute, bits: BitSource) -> CountedRecords:
    """Count records by value and by secret random number.

    Args:
        values: Within the domain, in resolution units, `(n_records,)`.
        attribute: The attribute, for whose V `are_counted` holds.
        bits: Source of random bits for ties.
    """
    n_values = attribute.n_values
    keys = np.empty(values.size, dtype=np.uint16)
    counts = np.zeros(n_values << TIE_BITS, dtype=np.int64)
    for first in range(0, values.size, RECORDS_PER_BLOCK):
        block = slice(first, first + RECORDS_PER_BLOCK)
        some = values[block] - attribute.lower
        some <<= TIE_BITS
        some |= tie_breakers(some.size, bits)
        counts += np.bincount(some, minlength=counts.size)
        keys[block] = some
    # The mean of the first and the last position of a key, sum - count and sum - 1, in halves.
    middles = 2 * np.cumsum(counts) - counts - 1
    return CountedRecords(keys, middles.astype(np.int32), counts.reshape(n_values, -1).sum(axis=1))


def tie_breakers(n_records: int, bits: BitSource) -> TieArray:
    """Draw a secret random number for every record, `(n_records,)`; several records can draw the same one."""
    return bits.words(-(-n_records // 8)).view(np.uint8)[:n_records]


def rank_with_random_ties(values: Int64Array, bits: BitSource) -> Ranking:
    """Sort records by value, ties by secret random numbers, then by record position.

    If few values repeat, only their records draw a number: sorting all by value and number takes a third more
    time.

    Args:
        values: As in `rank`.
        bits: Source of random bits for ties.

    Returns:
        The order of the records and their values in it.
    """
    if not _seldom_repeats(values):
        return rank(values, ties=tie_breakers(values.size, bits))
    ranking = rank(values)
    firsts = np.flatnonzero(ranking.values[1:] == ranking.values[:-1])
    if firsts.size:
        tied = with_next(firsts)
        among = rank(ranking.values[tied], ties=tie_breakers(tied.size, bits)).order
        ranking.order[tied] = ranking.order[tied[among]]
    return ranking


def with_next(places: PositionArray) -> PositionArray:
    """Return ascending places together with the next place after each, ascending, without repetition."""
    ends = np.diff(places, append=-1) != 1
    found = np.repeat(places, 1 + ends)
    found[np.flatnonzero(ends) + np.cumsum(ends)[ends]] += 1
    return found


def _seldom_repeats(values: Int64Array) -> bool:
    """Estimate from a sample whether a record shares its value with fewer than 1/8 others on average."""
    if values.size < FEWEST_SAMPLED:
        return False
    sample = values[:: max(1, values.size // SAMPLE)]
    most_values = int(sample.max()) - int(sample.min()) + 1
    if 16 * (sample.size - most_values) * values.size >= sample.size**2:
        return False  # by the number of possible values alone, too many in the sample must repeat
    sample = np.sort(sample)
    repeats = int(np.count_nonzero(sample[1:] == sample[:-1]))
    return 16 * repeats * values.size < sample.size**2
