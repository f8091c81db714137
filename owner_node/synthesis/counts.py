"""An owner's answers to the rounds of a synthetic release: counts of its records, with its noise."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from common.synthesis.binning import Binning
from common.synthesis.schedule import OneWay, Question
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.synthesis.shares import noise_share

Columns: TypeAlias = Sequence[Int64Array] | Mapping[int, Int64Array]
"""Codes of an owner's records, from 0 to V - 1, `(n_records,)` by attribute, of those that it has."""


def noisy_answer(questions: Sequence[Question], columns: Columns, bits: Iterable[BitSource]) -> Int64Array:
    """Answer a round with the owner's share of its noise, `(n_numbers,)`.

    Args:
        bits: The random bits of each question's noise.
    """
    drawn = zip(questions, bits, strict=False)
    shares = [noise_share(each.n_numbers, each.noise, source) for each, source in drawn]
    return exact_answer(questions, columns) + np.concatenate(shares)


def exact_answer(questions: Sequence[Question], columns: Columns) -> Int64Array:
    """Answer a round without noise, `(n_numbers,)`. It stays at the owner."""
    binned: dict[int, Int64Array] = {}

    def bins(attribute: int, binning: Binning) -> Int64Array:
        if attribute not in binned:
            binned[attribute] = binning.bins(columns[attribute])
        return binned[attribute]

    def counted(question: Question) -> Int64Array:
        if isinstance(question, OneWay):
            return one_way_counts(columns[question.attribute], question.edges)
        (i, j), (one, other) = question.pair, question.binnings
        return pair_counts(bins(i, one), bins(j, other), (one.n_bins, other.n_bins))

    return np.concatenate([counted(each) for each in questions])


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
