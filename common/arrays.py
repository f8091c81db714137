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

    The records are sorted by 64-bit random keys. Two of n keys are equal with a probability below
    n²/2^65; such a pair keeps its order, nothing else.

    Args:
        n_records: Number of records.

    Returns:
        Positions, shape (n_records,).
    """
    keys = np.frombuffer(os.urandom(8 * n_records), dtype=np.uint64)
    return np.argsort(keys).astype(np.int64, copy=False)
