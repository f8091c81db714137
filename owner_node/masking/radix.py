"""Sort 64-bit keys in place by some of their bits, stably: a radix sort made of counting passes.

A counting pass turns a sparse matrix with one entry per key (row: the key's present place, column: its
digit) from rows to columns; within a column the entries come out in the order of their rows. The cost grows
with the number of bits, not with log n, and does not depend on which vector instructions a processor has:
`numpy.sort` of the same keys is up to five times slower where storing selected lanes of 512-bit registers is
slow.

Many keys are first dealt into pieces by their highest digit, so that every later pass stays within the
processor's caches and within memory that the allocator hands out again and again.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from owner_node.masking.arrays import Int64Array, PositionArray, SparseIndexArray

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
