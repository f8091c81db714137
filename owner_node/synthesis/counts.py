"""Exact counts of an owner's records, for the rounds of a synthetic release. They leave only with noise."""

import numpy as np

from common.synthesis.rounds import UNIT
from owner_node.masking.arrays import Int64Array


def one_way_counts(codes: Int64Array, edges: Int64Array) -> Int64Array:
    """Count the records in every part of an attribute's codes.

    Args:
        codes: From 0 to V - 1, `(n_records,)`.
        edges: The first code of every part, and V, `(n_parts + 1,)`.

    Returns:
        The counts, `(n_parts,)`.
    """
    return np.bincount(np.searchsorted(edges, codes, side="right") - 1, minlength=edges.size - 1)


def pair_counts(one: Int64Array, other: Int64Array, shape: tuple[int, int]) -> Int64Array:
    """Count the records in every cell of two attributes' bins.

    Args:
        one: Bins of the first attribute, `(n_records,)`.
        other: Bins of the second attribute, `(n_records,)`.
        shape: Number of bins of both.

    Returns:
        The counts, the second attribute moving fastest, `(n_cells,)`.
    """
    return np.bincount(one * shape[1] + other, minlength=shape[0] * shape[1])


def pair_score(counts: Int64Array, expected: Int64Array) -> int:
    """Return how far a table is from independence, Σ |T - E|, in units.

    Args:
        counts: The table, as `pair_counts` returns it.
        expected: As `common.synthesis.rounds.expected_table` returns it for this owner's number of records.
    """
    return int(np.abs(UNIT * counts - expected).sum())
