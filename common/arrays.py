"""The array types that both sides hand to each other."""

import os

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
"""Values of one attribute in resolution units, or positions of records; shape (n_records,)."""
Float64Array = NDArray[np.float64]
TokenArray = NDArray[np.uint8]
"""Linkage tokens; shape (n_records, 16)."""
SortableArray = NDArray[np.bytes_]
"""Tokens as single elements; shape (n_records,)."""


_PACKED_RECORDS = 1 << 20
"""Most records whose numbers are part of the keys that `random_order` sorts; a power of two."""


def sortable(tokens: TokenArray) -> SortableArray:
    """View tokens as elements that numpy sorts and compares; all sixteen bytes count, zeros too.

    Args:
        tokens: Shape (n_records, 16).

    Returns:
        The same bytes, shape (n_records,).
    """
    return np.ascontiguousarray(tokens).view(f"S{tokens.shape[1]}").ravel()


def random_order(n_records: int) -> Int64Array:
    """Return a permutation of 0…n_records-1 from the system's secure randomness.

    The records are sorted by random keys. All keys are drawn again if two of them are equal, so that every
    order has exactly the same probability. Keys have 64 bits; up to 2^20 records, the lower 20 give way to
    the number of the record, because sorting numbers takes a third of the time of sorting positions. Then
    keys are drawn again in one case in 30 at most.
    """
    while True:
        keys = np.frombuffer(bytearray(os.urandom(8 * n_records)), dtype=np.uint64)
        if n_records <= _PACKED_RECORDS:
            mask = np.uint64(_PACKED_RECORDS - 1)
            keys &= ~mask
            keys |= np.arange(n_records, dtype=np.uint64)
            keys.sort()
            order = (keys & mask).astype(np.int64)
            keys &= ~mask
            if not np.any(keys[1:] == keys[:-1]):
                return order
            continue
        order = np.argsort(keys)
        ordered = keys[order]
        if not np.any(ordered[1:] == ordered[:-1]):
            return order.astype(np.int64, copy=False)


def order_of(keys: NDArray[np.uint64]) -> Int64Array:
    """Return the order of records by their keys, equal ones by their positions, shape (n_records,)."""
    order = np.argsort(keys)
    ascending = keys[order]
    if np.any(ascending[1:] == ascending[:-1]):
        order = np.argsort(keys, kind="stable")
    return order.astype(np.int64, copy=False)
