"""Sort 64-bit keys in place by some of their bits, stably: a radix sort made of counting passes.

A counting pass turns a sparse matrix with one entry per key (row: the key's present place, column: its
digit) from rows to columns; within a column the entries come out in the order of their rows. The cost grows
with the number of bits, not with log n, and does not depend on which vector instructions a processor has:
`numpy.sort` of the same keys is up to five times slower where storing selected lanes of 512-bit registers is
slow.

Many keys are first dealt into pieces by their highest digit, so that every later pass stays within the
processor's caches and within memory that the allocator hands out again and again.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.model.schema import Attribute
from owner_node.masking.arrays import (
    BitSource,
    Int64Array,
    KeyArray,
    NarrowPositionArray,
    PositionArray,
    SparseIndexArray,
    TieArray,
)

if TYPE_CHECKING:
    from scipy.sparse import csc_array

WIDEST_DIGIT_BITS = 14
"""Buckets of one counting pass: 2^14 counters stay in the processor's nearest caches."""
TOP_BITS = 12
"""Width of the digit by which keys are dealt into pieces."""
PIECE = 2**17
"""Keys of a piece, about; also of a block of keys that is dealt at a time."""
MOST_PIECES = 2**8


def sort_keys(keys: Int64Array, low_bit: int, n_bits: int, piece: int = PIECE) -> None:
    """Sort keys in place by the `n_bits` bits from `low_bit` upwards, equal ones in the order they came.

    Args:
        keys: Integers of at least 0, `(n,)`.
        low_bit: Lowest bit that counts.
        n_bits: Number of bits that count.
        piece: About how many keys are sorted at a time.
    """
    piece = max(piece, keys.size // MOST_PIECES)
    if n_bits == 0:
        return
    if keys.size <= 2 * piece:
        _sort_by_digits(keys, low_bit, n_bits)
        return
    shift = low_bit + max(0, n_bits - TOP_BITS)
    mask = (1 << min(TOP_BITS, n_bits)) - 1
    counts = np.zeros(mask + 1, dtype=np.int64)
    for start in range(0, keys.size, piece):
        counts += np.bincount((keys[start : start + piece] >> shift) & mask, minlength=mask + 1)
    firsts = _first_digits(counts, piece)
    ends = np.append(np.cumsum(counts)[firsts[1:] - 1], keys.size).tolist()
    piece_of = np.zeros(mask + 1, dtype=np.int32)
    piece_of[firsts[1:]] = 1
    np.cumsum(piece_of, out=piece_of)
    _deal(keys, shift, piece_of, ends, piece)
    lasts = np.append(firsts[1:], mask + 1) - 1
    start = 0
    for first, last, end in zip(firsts.tolist(), lasts.tolist(), ends, strict=True):
        # All digits of a piece share the bits above the highest one in which its first and last differ.
        sort_keys(keys[start:end], low_bit, shift - low_bit + (first ^ last).bit_length(), piece)
        start = end


def counting_order(digits: SparseIndexArray) -> tuple[PositionArray, PositionArray]:
    """Order numbers below a few ten thousand in one counting pass.

    Args:
        digits: Numbers of at least 0, `(n,)`.

    Returns:
        The places of the numbers in ascending order, equal ones in the order they came, `(n,)`; where in this
        order each number up to the largest begins.
    """
    sorted_places = _by_column(np.zeros(digits.size, dtype=np.int8), digits, int(digits.max()) + 1)
    return sorted_places.indices.astype(np.int64), sorted_places.indptr[:-1].astype(np.int64)


def _first_digits(counts: Int64Array, piece: int) -> NDArray[np.intp]:
    """Return the digits at which a piece begins: few keys share one, a digit of many keys has its own."""
    windows = (np.cumsum(counts) - counts) // piece
    many = counts > piece
    begins = np.diff(windows, prepend=-1) > 0
    begins |= many
    begins[1:] |= many[:-1]
    return np.flatnonzero(begins)


def _deal(keys: Int64Array, shift: int, piece_of: SparseIndexArray, ends: list[int], block_size: int) -> None:
    """Put keys, block by block, into the piece of their digit, in the order they came."""
    source = keys.copy()
    free = [0, *ends[:-1]]
    for start in range(0, keys.size, block_size):
        block = source[start : start + block_size]
        dealt = _by_column(block, piece_of[(block >> shift) & (piece_of.size - 1)], len(ends))
        bounds = dealt.indptr.tolist()
        for index, (first, last) in enumerate(pairwise(bounds)):
            keys[free[index] : free[index] + last - first] = dealt.data[first:last]
            free[index] += last - first


def _sort_by_digits(keys: Int64Array, low_bit: int, n_bits: int) -> None:
    """Sort keys in place, digit by digit of equal width, lowest first."""
    n_passes = -(-n_bits // WIDEST_DIGIT_BITS)
    in_order = keys
    for index in range(n_passes):
        done, after = index * n_bits // n_passes, (index + 1) * n_bits // n_passes
        digits = ((in_order >> (low_bit + done)) & ((1 << (after - done)) - 1)).astype(np.int32)
        in_order = _by_column(in_order, digits, 1 << (after - done)).data
    keys[:] = in_order


def _by_column(entries: SparseIndexArray, columns: SparseIndexArray, n_columns: int) -> "csc_array[Any]":
    """Turn a matrix with one entry per row from rows to columns: a stable counting sort."""
    from scipy.sparse import csr_array

    rows = np.arange(entries.size + 1, dtype=columns.dtype)
    return csr_array((entries, columns, rows), shape=(entries.size, n_columns)).tocsc()


KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear, so that shifting right keeps the order."""

FEW_BITS = 16
"""Bits of values and tie-breakers up to which one counting pass is quicker; fewer of few records."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The records of one attribute in the order of their values."""

    order: PositionArray
    """Record positions, `(n_records,)`: the record at rank q is `order[q]`; ties as they were broken."""
    values: Int64Array
    """The values in that order, `(n_records,)`, in the units they came in."""


def rank(values: Int64Array, key_bits: int = KEY_BITS, ties: TieArray | None = None) -> Ranking:
    """Sort records by value, ties by tie-breakers, then by record position.

    Where all that does not fit into one key, it is sorted part by part, lowest part first; each sort is
    stable, so the last one leaves the order of the whole.

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
    if value_bits + tie_bits <= min(FEW_BITS, position_bits - 1):
        return _rank_by_few_bits(values, smallest, ties)
    if value_bits + tie_bits + position_bits > key_bits:
        order = np.arange(values.size)
        if ties is not None:
            order = _order_of_wide_values(ties.astype(np.int64), tie_bits, key_bits - position_bits, order)
        order = _order_of_wide_values(values - smallest, value_bits, key_bits - position_bits, order)
        return Ranking(order, values[order])
    keys = values - smallest
    if ties is not None:
        keys <<= tie_bits
        keys |= ties
    keys <<= position_bits
    keys |= np.arange(values.size)
    sort_keys(keys, position_bits, tie_bits + value_bits)
    in_order = keys >> (position_bits + tie_bits)
    in_order += smallest
    keys &= (1 << position_bits) - 1
    return Ranking(keys, in_order)


def _rank_by_few_bits(values: Int64Array, smallest: int, ties: TieArray | None) -> Ranking:
    """Sort values that fit into a few bits with their tie-breakers in one counting pass."""
    digits = np.empty(values.size, dtype=np.int32)
    np.subtract(values, smallest, out=digits, casting="unsafe")
    tie_bits = 0 if ties is None else 8 * ties.itemsize
    if ties is not None:
        digits <<= tie_bits
        digits |= ties
    order, begins = counting_order(digits)
    counts = np.diff(begins[:: 1 << tie_bits], append=values.size)
    return Ranking(order, np.repeat(np.arange(counts.size) + smallest, counts))


def _order_of_wide_values(
    values: Int64Array, value_bits: int, part_bits: int, order: PositionArray
) -> PositionArray:
    """Order values that do not fit into a key beside their position, lowest part first, ties as given."""
    position_bits = (values.size - 1).bit_length()
    for shift in range(0, value_bits, part_bits):
        bits = min(part_bits, value_bits - shift)
        keys = ((values >> shift) & ((1 << bits) - 1))[order]
        keys <<= position_bits
        keys |= order
        sort_keys(keys, position_bits, bits)
        keys &= (1 << position_bits) - 1
        order = keys
    return order


TIE_BITS = 8
MOST_KEYS = 2**16
"""Most pairs of value and number that are counted: each has 16 bits, and their counts stay in the caches."""
RECORDS_PER_BLOCK = 2**16
"""Records that are counted at a time: what is made of them on the way stays in the processor's caches."""
FEWEST_SAMPLED = 2**17
"""Of fewer records a sample takes as long as it can save."""
SAMPLE = 2**14
"""Records of which a sample has about so many."""
Places = TypeVar("Places", slice, PositionArray)


class OriginalOrder(Protocol):
    """Has the records at some places, each once, and says at which position each of them is."""

    steps: ClassVar[int]
    """Into how many steps every position is divided."""

    def positions(self, places: slice) -> NarrowPositionArray:
        """Return the positions of the records at some places, `(n_places,)`, in steps."""
        ...

    def records(self, places: Places) -> Places | PositionArray:
        """Return the records at some places."""
        ...


@dataclass(frozen=True, slots=True)
class SortedRecords:
    """Records in their order; the place of each is its position."""

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
    """Records that are not sorted: the place of each is its own, and its position may be a half."""

    steps: ClassVar[int] = 2
    keys: KeyArray
    """Value and random number of every record, `(n_records,)`."""
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
    """Whether records are counted: values are few, and noise is no narrower than what may share a position.

    Of one value, about 1/256 of the records share one, and these are all records at most.

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
    """Draw a secret random number for every record, `(n_records,)`; many records can have the same."""
    return bits.words(-(-n_records // 8)).view(np.uint8)[:n_records]


def rank_with_random_ties(values: Int64Array, bits: BitSource) -> Ranking:
    """Sort records by value, ties by secret random numbers, then by record position.

    Where few values repeat, only their records draw a number: sorting by value and number costs a third more.

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
    """Return ascending places together with the one that follows each, ascending, each once."""
    ends = np.diff(places, append=-1) != 1
    found = np.repeat(places, 1 + ends)
    found[np.flatnonzero(ends) + np.cumsum(ends)[ends]] += 1
    return found


def _seldom_repeats(values: Int64Array) -> bool:
    """Tell from a sample whether a record has fewer than one in eight others with its value, on average."""
    if values.size < FEWEST_SAMPLED:
        return False
    sample = values[:: max(1, values.size // SAMPLE)]
    most_values = int(sample.max()) - int(sample.min()) + 1
    if 16 * (sample.size - most_values) * values.size >= sample.size**2:
        return False  # there are more records than values to go round
    sample = np.sort(sample)
    repeats = int(np.count_nonzero(sample[1:] == sample[:-1]))
    return 16 * repeats * values.size < sample.size**2
