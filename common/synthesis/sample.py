"""Records drawn from a model, the same bytes everywhere from the same seed.

Everything here is made of whole numbers. A cell whose share of m records is e gets floor(e) or ceil(e) of
them, and the cells of a group get all m (systematic sampling): with whole weights w_1…w_C of sum W and U
uniform below W, cells up to c get floor((m (w_1 + … + w_c) + U)/W) records. So there is less noise than with
independent draws, and each cell's expected number is exact. The records of a group get its cells in random
order.

References:
    Cox 1987, "A constructive procedure for unbiased controlled rounding".
    Madow 1949, "On the theory of systematic sampling, II".
    NIST FIPS 202, 6.2 (SHAKE256, which the random words are taken from).
"""

from collections.abc import Sequence
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

from common.arrays import Float64Array, Int64Array
from common.synthesis.model import Model
from common.synthesis.rounds import Coding

WEIGHT_BITS = 40
MOST_RECORDS = 2**22
"""Products of numbers of records and sums of weights then fit into 63 bits."""


class Keystream:
    """Words that a seed determines: SHAKE256 of the seed and the number of the call."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._calls = seed, 0

    def words(self, n_words: int) -> NDArray[np.uint64]:
        """Return the next words, `(n_words,)`."""
        stream = shake_256(self._seed + self._calls.to_bytes(8)).digest(8 * n_words)
        self._calls += 1
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64)

    def below(self, bounds: Int64Array) -> Int64Array:
        """Return whole numbers from 0 to bound - 1, `(n,)`: uniform but for bound/2^64."""
        return (self.words(bounds.size) % bounds.astype(np.uint64)).astype(np.int64)


def draw_records(
    model: Model, codings: Sequence[Coding], n_records: int, stream: Keystream
) -> list[Int64Array]:
    """Draw records.

    Args:
        model: The fitted model, of the bins of the codings.
        n_records: How many, at most `MOST_RECORDS`.

    Returns:
        Codes of values, from 0 to V - 1, `(n_records,)` by attribute.
    """
    bins = draw_bins(model, n_records, stream)
    return [draw_values(coding, own, stream) for coding, own in zip(codings, bins, strict=True)]


def draw_bins(model: Model, n_records: int, stream: Keystream) -> list[Int64Array]:
    """Draw the bins of records, clique by clique, `(n_records,)` by attribute; arguments as above."""
    tree = model.tree
    bins = [np.zeros(n_records, dtype=np.int64) for _ in tree.sizes]
    for i, (clique, separator) in enumerate(zip(tree.cliques, tree.separators, strict=True)):
        new = tuple(attribute for attribute in clique if attribute not in separator)
        table = np.zeros((tree.n_cells(separator), tree.n_cells(new)))
        table[tree.places(i, separator), tree.places(i, new)] = model.tables[i]
        group = np.zeros(n_records, dtype=np.int64)
        for attribute in separator:
            group = group * tree.sizes[attribute] + bins[attribute]
        cells = draw_cells(_weights(table, model.tree.summed(model.tables[i], i, separator)), group, stream)
        for attribute in reversed(new):
            cells, bins[attribute] = np.divmod(cells, tree.sizes[attribute])
    return bins


def _weights(table: Float64Array, totals: Float64Array) -> Int64Array:
    """Return whole weights of every row, of a sum of at most 2^40; rows without records have none."""
    shares = np.divide(table, totals[:, None], out=np.zeros_like(table), where=totals[:, None] > 0)
    whole: Int64Array = np.floor(np.minimum(shares, 1) * (2.0**WEIGHT_BITS - table.shape[1])).astype(np.int64)
    return whole


def draw_cells(weights: Int64Array, group: Int64Array, stream: Keystream) -> Int64Array:
    """Draw a cell for each record, with the weights of its group.

    Args:
        weights: Whole weights, `(n_groups, n_cells)`, each row of a sum of at most 2^40.
        group: The group of each record, `(n_records,)`.

    Returns:
        The cells, `(n_records,)`.
    """
    order = np.lexsort((stream.words(group.size), group))
    sizes = np.bincount(group, minlength=len(weights))
    up_to = np.cumsum(weights, axis=1)
    whole = np.maximum(up_to[:, -1], 1)
    start = stream.below(whole)
    ends = (sizes[:, None] * up_to + start[:, None]) // whole[:, None]
    counts = np.diff(ends, axis=1, prepend=0)
    cells = np.empty_like(group)
    cells[order] = np.repeat(np.tile(np.arange(weights.shape[1]), len(weights)), counts.ravel())
    return cells


def draw_values(coding: Coding, bins: Int64Array, stream: Keystream) -> Int64Array:
    """Draw values in bins: leaves by their counts, uniform within a leaf.

    Args:
        bins: The bin of each record, `(n_records,)`.

    Returns:
        Codes of values, from 0 to V - 1, `(n_records,)`.
    """
    widths = np.diff(coding.leaves.edges)
    counts = coding.leaves.counts
    in_bin = np.bincount(coding.labels, counts, coding.n_bins)[coding.labels]
    # A bin without counts has equally many records of each value.
    shares = np.where(in_bin > 0, counts / np.maximum(in_bin, 1), widths / coding.widths[coding.labels])
    table = np.zeros((coding.n_bins, counts.size))
    table[coding.labels, np.arange(counts.size)] = shares
    leaves = draw_cells(_weights(table, np.ones(coding.n_bins)), bins, stream)
    return coding.leaves.edges[leaves] + stream.below(widths[leaves])
