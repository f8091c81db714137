"""The array types that both sides hand to each other."""

import os
from typing import Any

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


def order_of(keys: NDArray[np.uint64] | Int64Array) -> Int64Array:
    """Return the order of records by their keys, equal ones by their positions, shape (n_records,)."""
    order, upper, is_whole = _order_by_upper_bits(keys)
    return order if is_whole else _ordered_further(order, upper, keys)


def token_order(tokens: TokenArray) -> Int64Array:
    """Return the same by tokens, shape (n_records, 16)."""
    first_half = np.ascontiguousarray(tokens).view(">u8")[:, 0].astype(np.uint64)
    order, upper, _ = _order_by_upper_bits(first_half)
    return _ordered_further(order, upper, sortable(tokens))


def random_order(n_records: int) -> Int64Array:
    """Return a permutation of 0…n_records-1 from the system's secure randomness.

    The records are sorted by random keys of 64 bits. Records with equal keys are put into a random order of
    their own, as if their keys went on. So every order has exactly the same probability.
    """
    order, upper, _ = _order_by_upper_bits(np.frombuffer(os.urandom(8 * n_records), dtype=np.uint64))
    alike = _alike(upper)
    if alike.size:
        order[alike] = order[alike[np.lexsort((random_order(len(alike)), upper[alike]))]]
    return order


def _order_by_upper_bits(
    keys: NDArray[np.uint64] | Int64Array,
) -> tuple[Int64Array, NDArray[np.uint64], bool]:
    """Sort keys together with the positions of their records, which take the place of the lowest bits.

    Sorting numbers takes a third of the time of sorting positions. Bits that no key uses make room.

    Returns:
        The stable order by the upper bits, these bits in it, and whether they are the whole keys.
    """
    bits = np.uint64(max(len(keys) - 1, 0).bit_length())
    least, largest = int(keys.min(initial=0)), int(keys.max(initial=0))
    unused = np.uint64(64 - (largest - least).bit_length())
    packed = keys.astype(np.uint64) - np.uint64(least % 2**64) << unused
    packed = packed >> bits << bits | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    return order, packed >> bits, bool(unused >= bits)


def _ordered_further(order: Int64Array, upper: NDArray[np.uint64], whole: NDArray[Any]) -> Int64Array:
    """Put records whose upper bits are alike into the stable order of the whole keys, in place."""
    alike = _alike(upper)
    among = order[alike]
    order[alike] = among[np.argsort(whole[among], kind="stable")]
    return order


def _alike(ascending: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the places of the keys that equal a neighbour."""
    equal = ascending[1:] == ascending[:-1]
    return np.flatnonzero(np.append(equal, False) | np.append(False, equal))
