"""A random order of records, from the operating system's randomness."""

import os

import numpy as np

from common.arrays import Int64Array


def random_order(n_records: int) -> Int64Array:
    """Return a permutation of 0…n_records-1 that nobody can foresee.

    The records are sorted by 64-bit random keys. Two of n keys are equal with a probability below
    n²/2^65; such a pair keeps its order, nothing else.

    Args:
        n_records: Number of records.

    Returns:
        Positions, shape (n_records,).
    """
    keys = np.frombuffer(os.urandom(8 * n_records), dtype=np.uint64)
    return np.argsort(keys).astype(np.int64, copy=False)
