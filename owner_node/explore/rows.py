"""Records as single numbers: equal records have equal codes, in whatever order their attributes are mixed in.

Codes are 64-bit hashes: among a million records two unlike ones share one with probability below 10^-7.
"""

from collections.abc import Sequence

import numpy as np

from owner_node.masking.arrays import Float64Array, Int64Array, UInt64Array


def mix(words: UInt64Array) -> UInt64Array:
    """Return a hash of each word (the finisher of SplitMix64), `(n,)`."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: UInt64Array = mixed ^ (mixed >> np.uint64(31))
    return hashed


def codes(columns: Sequence[Int64Array] | Sequence[Float64Array]) -> UInt64Array:
    """Return a code per record.

    Args:
        columns: Attributes, `(n_records,)` each; of doubles none may be -0.0, which has other bits than 0.0.

    Returns:
        `(n_records,)`.
    """
    code = np.zeros(columns[0].size, dtype=np.uint64)
    for column in columns:
        code = mix(code + mix(np.ascontiguousarray(column).view(np.uint64)))
    return code


def match_rate(first: UInt64Array, second: UInt64Array) -> float:
    """Return the probability that a record drawn from each table are equal, from the codes of both."""
    kinds, inverse = np.unique(np.concatenate([first, second]), return_inverse=True)
    counts: list[Int64Array] = [
        np.bincount(part, minlength=kinds.size) for part in (inverse[: first.size], inverse[first.size :])
    ]
    return float((counts[0] / first.size) @ (counts[1] / second.size))
