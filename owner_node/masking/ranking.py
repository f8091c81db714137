"""Sort records by value, ties by record position: a radix sort of packed keys.

A value and its record's position are packed into one 64-bit key, value above, position below, and the keys
are sorted by the value's digits, lowest digit first. One pass over a digit is a stable counting sort, done by
turning a sparse matrix with one entry per record (row: the record's present place, column: its digit, entry:
its key) from rows to columns: within a column the entries come out in the order of their rows. The cost
grows with the width of the values that occur, not with log n, and does not depend on which vector
instructions a processor has: `numpy.sort` of the same keys is up to five times slower where storing
selected lanes of 512-bit registers is slow, and at best about twice as fast elsewhere.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from owner_node.masking.arrays import Int64Array, PositionArray, SparseIndexArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array

KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear, so that shifting right keeps the order."""
WIDEST_DIGIT_BITS = 14
"""Buckets of one counting pass: 2^14 counters stay in the processor's nearest cache."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The records of one attribute in the order of their values."""

    order: PositionArray
    """Record positions, `(n_records,)`: the record at rank q is `order[q]`; ties by record position."""
    values: Int64Array
    """The values in that order, `(n_records,)`, in the units they came in."""


def rank(values: Int64Array, key_bits: int = KEY_BITS) -> Ranking:
    """Sort records by value, ties by record position.

    Values of one digit are counted at once. Where value and position bits do not fit into one key, the value
    is sorted piece by piece, lowest piece first; each sort is stable, so the last one leaves the order of the
    whole value.

    Args:
        values: One value per record, `(n_records,)`, at least one, in resolution units; the difference of the
            largest and the smallest below 2^63.
        key_bits: Bits of a packed key; the default is what a 64-bit integer holds.

    Returns:
        The order of the records and their values in it.
    """
    n_records = values.size
    smallest = int(values.min())
    value_bits = (int(values.max()) - smallest).bit_length()
    position_bits = (n_records - 1).bit_length()
    rows: SparseIndexArray = np.arange(n_records + 1, dtype=np.int32 if n_records < 2**31 - 1 else np.int64)
    if value_bits <= WIDEST_DIGIT_BITS:
        return _rank_few_values(values, smallest, 1 << value_bits, rows)
    if value_bits + position_bits > key_bits:
        order = _order_of_wide_values(values - smallest, value_bits, key_bits - position_bits, rows)
        return Ranking(order, values[order])
    keys = values - smallest
    keys <<= position_bits
    keys |= rows[:-1]
    keys = _sort_by_digits(keys, position_bits, value_bits, rows)
    in_order = keys >> position_bits
    in_order += smallest
    keys &= (1 << position_bits) - 1
    return Ranking(keys, in_order)


def _rank_few_values(values: Int64Array, smallest: int, n_digits: int, rows: SparseIndexArray) -> Ranking:
    """Rank values that are one digit: the rows themselves, in column order, are the order of the records."""
    digits = np.empty(values.size, rows.dtype)
    np.subtract(values, smallest, out=digits, casting="unsafe")
    by_digit = _by_column(np.zeros(values.size, dtype=np.int8), digits, n_digits, rows)
    in_order = np.repeat(np.arange(smallest, smallest + n_digits), np.diff(by_digit.indptr))
    return Ranking(by_digit.indices.astype(np.int64), in_order)


def _order_of_wide_values(
    values: Int64Array, value_bits: int, piece_bits: int, rows: SparseIndexArray
) -> PositionArray:
    """Order values that do not fit into a key beside their position, lowest piece first."""
    position_bits = (values.size - 1).bit_length()
    order = np.arange(values.size, dtype=np.int64)
    for shift in range(0, value_bits, piece_bits):
        bits = min(piece_bits, value_bits - shift)
        keys = ((values >> shift) & ((1 << bits) - 1))[order]
        keys <<= position_bits
        keys |= order
        order = _sort_by_digits(keys, position_bits, bits, rows)
        order &= (1 << position_bits) - 1
    return order


def _sort_by_digits(keys: Int64Array, low_bit: int, n_bits: int, rows: SparseIndexArray) -> Int64Array:
    """Sort keys, stably, by the `n_bits` bits from `low_bit` upwards; equally wide digits, lowest first."""
    n_passes = -(-n_bits // WIDEST_DIGIT_BITS)
    width = -(-n_bits // n_passes)
    digits = np.empty(keys.size, rows.dtype)
    for done in range(0, n_bits, width):
        bits = min(width, n_bits - done)
        # The cast drops high bits that the mask would drop anyway; an array of 64-bit digits never exists.
        np.right_shift(keys, low_bit + done, out=digits, casting="unsafe")
        digits &= (1 << bits) - 1
        keys = _by_column(keys, digits, 1 << bits, rows).data
    return keys


def _by_column(
    entries: NDArray[Any], columns: SparseIndexArray, n_columns: int, rows: SparseIndexArray
) -> "csc_array[Any]":
    """Turn a matrix with one entry per row from rows to columns: a stable counting sort."""
    from scipy.sparse import csr_array

    return csr_array((entries, columns, rows), shape=(entries.size, n_columns)).tocsc()
