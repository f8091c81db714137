"""The array types that both sides hand to each other."""

import os

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
"""Values of one attribute in resolution units, or positions of records; shape (n_records,)."""
Float64Array = NDArray[np.float64]
UInt8Array = NDArray[np.uint8]
BoolArray = NDArray[np.bool_]
TokenArray = NDArray[np.uint8]
"""Linkage tokens; shape (n_records, 16)."""
SortableArray = NDArray[np.bytes_]
"""Tokens as single elements; shape (n_records,)."""


def sortable(tokens: TokenArray) -> SortableArray:
    """View tokens, shape (n_records, 16), as elements that numpy sorts and compares by all sixteen bytes."""
    return np.ascontiguousarray(tokens).view(f"S{tokens.shape[1]}").ravel()


def random_order(n_records: int) -> Int64Array:
    """Return a permutation of 0…n_records-1 from the system's secure randomness.

    The records are sorted by random keys of 64 bits, of which the lower ones give way to the number of the
    record: sorting numbers takes a third of the time of sorting positions. Records with equal keys are put
    into a random order of their own, as if their keys went on. So every order has exactly the same
    probability.
    """
    bits = max(n_records - 1, 0).bit_length()
    keys = np.frombuffer(bytearray(os.urandom(8 * n_records)), dtype=np.uint64)
    keys >>= np.uint64(bits)
    keys <<= np.uint64(bits)
    keys |= np.arange(n_records, dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << bits) - 1)).astype(np.int64)
    keys >>= np.uint64(bits)
    equal = keys[1:] == keys[:-1]
    if np.any(equal):
        places = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        order[places] = order[places[np.lexsort((random_order(len(places)), keys[places]))]]
    return order


def order_of(keys: NDArray[np.uint64]) -> Int64Array:
    """Return the order of records by their keys, equal ones by their positions, shape (n_records,)."""
    order = np.argsort(keys)
    ascending = keys[order]
    if np.any(ascending[1:] == ascending[:-1]):
        order = np.argsort(keys, kind="stable")
    return order.astype(np.int64, copy=False)
