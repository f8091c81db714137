"""What the rounds of a synthetic release ask for, as functions of public numbers: the plan and answers.

1. One-way counts of every attribute: of all values, or of the parts of a wide domain (`Leaves`), which are
   divided further level by level.
2. Scores of pairs of attributes: how far their table is from independence, in bins of the noisy one-way
   counts (`Coding`). For pairs that two vertical owners hold a coarse table takes the place of the
   score. The pairs with the best scores are chosen: a spanning tree, and more while their scores are positive
   and the model stays small.
3. The tables of the chosen pairs. Their number is fixed before the tables are asked for, and so is the noise.

Every owner computes all of this from what it was sent, and answers only what it computes too. All have to
arrive at the same. So choices are made with whole numbers: counts after post-processing are in grains of a
record, scores in units of one.

References:
    Chow, Liu 1968, "Approximating discrete probability distributions with dependence trees".
    Coifman, Donoho 1995, "Translation-invariant de-noising".
    McKenna, Miklau, Sheldon 2021, "Winning the NIST contest" (MST).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import combinations, pairwise
from math import isqrt, log, sqrt
from typing import TypeAlias

import numpy as np

from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.counts import nearest_counts, whole_counts
from common.model.schema import Attribute
from common.synthesis.model import Attributes, Impossible, Measurement, is_possible, n_model_cells

GRAIN = 2**10
"""Counts after post-processing are whole numbers of so many to a record."""
UNIT = 4
"""Scores and expected tables are whole numbers of so many to a record."""
FULL_RESOLUTION = 128
"""Attributes of at most so many values are counted value by value, and so are all categories."""
PARTS = 16
FEWEST_BINS, MOST_BINS = 3, 16
MOST_MODEL_CELLS = 60_000
MOST_ATTRIBUTES = 30

Range: TypeAlias = tuple[int, int]
"""The first and the last of consecutive codes."""
StructuralZero: TypeAlias = Mapping[int, Sequence[Range]]
"""A rule: no record has, for all of these attributes, a code in one of the attribute's ranges."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """A partition of the codes of an attribute, from 0 to V - 1, and what is known of its counts."""

    edges: Int64Array
    """The first code of every part, and V, `(n_leaves + 1,)`."""
    counts: Int64Array
    """Counts after post-processing, in grains; they sum to the number of records, `(n_leaves,)`."""
    noisy: Float64Array
    """Counts to fit a model to, `(n_leaves,)`."""
    variance: Float64Array
    """Of their noise, `(n_leaves,)`."""


@dataclass(frozen=True, slots=True)
class Coding:
    """The bins of an attribute."""

    leaves: Leaves
    """What the bins are made of."""
    labels: Int64Array
    """The bin of each leaf, `(n_leaves,)`."""
    n_bins: int
    """How many there are."""

    @property
    def counts(self) -> Int64Array:
        """The counts of the bins, in grains, `(n_bins,)`."""
        counts = np.zeros(self.n_bins, dtype=np.int64)
        np.add.at(counts, self.labels, self.leaves.counts)
        return counts

    @property
    def widths(self) -> Int64Array:
        """How many codes each bin has, `(n_bins,)`."""
        widths = np.zeros(self.n_bins, dtype=np.int64)
        np.add.at(widths, self.labels, np.diff(self.leaves.edges))
        return widths

    def bins(self, codes: Int64Array) -> Int64Array:
        """Return the bins of codes, `(n_records,)`."""
        return self.labels[np.searchsorted(self.leaves.edges, codes, side="right") - 1]

    def measurement(self, attribute: int) -> Measurement:
        """Return the noisy counts of the bins as something to fit a model to."""
        counts, variance = (
            np.bincount(self.labels, numbers, self.n_bins).astype(np.float64)
            for numbers in (self.leaves.noisy, self.leaves.variance)
        )
        return Measurement((attribute,), counts, variance)


def attribute_weights(attributes: Sequence[Attribute]) -> list[Decimal]:
    """Return what each attribute gets of the budget of the one-way counts: sqrt(min(V, 128))."""
    return [Context(prec=30).sqrt(Decimal(min(a.n_values, FULL_RESOLUTION))) for a in attributes]


def n_levels(attribute: Attribute, n_records: int, variance: float) -> int:
    """Return in how many levels an attribute is counted.

    Args:
        variance: Of one noisy count, if all of its budget paid for one level.
    """
    if attribute.is_categorical or attribute.n_values <= FULL_RESOLUTION or 8 * n_records**2 < 4e6 * variance:
        return 1
    return 2 if attribute.n_values < 2**12 else 3


def first_edges(attribute: Attribute, n_records: int, variance: float, levels: int) -> Int64Array:
    """Return the partition whose counts are asked for first; arguments as in `n_levels`."""
    n_values = attribute.n_values
    if attribute.is_categorical or n_values <= FULL_RESOLUTION:
        return np.arange(n_values + 1)
    parts = PARTS
    if levels == 1:
        # 2^round(log2(sqrt(2) n/sd)): with few records few parts, which are denoised.
        parts = 2 ** min(max(((int(4 * n_records**2 / variance) | 1).bit_length() - 1) // 2, 4), 7)
    # Missing values are no neighbours of the largest ones, and have a part of their own.
    present = _equal_parts(0, n_values - attribute.keeps_missing, parts)
    return np.append(present, n_values) if attribute.keeps_missing else present


def _equal_parts(first: int, width: int, parts: int) -> Int64Array:
    """Divide codes into parts of equal width, but for one code."""
    return np.unique(np.array([first + width * i // parts for i in range(parts + 1)], dtype=np.int64))


def next_edges(leaves: Leaves) -> Int64Array:
    """Return the partition of the next level: leaves above four standard deviations are divided into 16."""
    large = (leaves.noisy > 0) & (leaves.noisy**2 > 16 * leaves.variance)
    parts = [
        _equal_parts(int(first), int(end - first), PARTS if split else 1)[:-1]
        for first, end, split in zip(leaves.edges, leaves.edges[1:], large, strict=False)
    ]
    return np.concatenate([*parts, leaves.edges[-1:]])


def leaves_of(
    attribute: Attribute, edges: Int64Array, noisy: Int64Array, n_records: int, variance: float
) -> Leaves:
    """Make noisy counts of a partition into counts.

    Args:
        edges: Of the partition.
        noisy: Noisy counts, `(n_leaves,)`.
        variance: Of the noise of each.
    """
    smooth = noisy.astype(np.float64)
    n_ordered = noisy.size - attribute.keeps_missing
    if not attribute.is_categorical and n_ordered > PARTS:
        smooth[:n_ordered] = denoised(smooth[:n_ordered], variance)
    counts = whole_counts(nearest_counts(smooth * GRAIN, n_records * GRAIN), n_records * GRAIN)
    return Leaves(edges, counts, noisy.astype(np.float64), np.full(noisy.size, variance))


def divided_leaves(leaves: Leaves, edges: Int64Array, noisy: Int64Array, variance: float) -> Leaves:
    """Divide leaves by noisy counts of the next level.

    Args:
        leaves: Of the level before.
        edges: As `next_edges` returns them.
        noisy: Noisy counts, `(n_parts,)`.
        variance: Of the noise of each.

    Returns:
        Leaves in which the parts of a leaf sum to its count.
    """
    starts = np.searchsorted(edges, leaves.edges)
    counts, variances = np.empty(noisy.size, dtype=np.int64), np.empty(noisy.size)
    for i, (start, end) in enumerate(pairwise(starts.tolist())):
        whole = int(leaves.counts[i])
        within = noisy[start:end].astype(np.float64) * GRAIN
        counts[start:end] = whole_counts(nearest_counts(within, whole), whole) if end - start > 1 else whole
        variances[start:end] = leaves.variance[i] if end - start == 1 else variance
    return Leaves(edges, counts, counts / GRAIN, variances)


def denoised(noisy: Float64Array, variance: float) -> Float64Array:
    """Smooth noisy counts of values in order: small Haar coefficients become 0, for all shifts of the values.

    References:
        Coifman, Donoho 1995 (the mean of all shifts).
    """
    size = 1 << (noisy.size - 1).bit_length()
    padded = np.concatenate([noisy, np.zeros(size - noisy.size)])
    sums = padded[(np.arange(size)[:, None] + np.arange(size)) % size]
    least = sqrt(variance * 2 * round(log(size), 6)) * 0.7
    details = []
    while sums.shape[1] > 1:
        even, odd = sums[:, ::2], sums[:, 1::2]
        detail = (even - odd) / sqrt(2)
        details.append(np.where(np.abs(detail) > least, detail, 0.0))
        sums = (even + odd) / sqrt(2)
    for detail in reversed(details):
        sums = np.stack([sums + detail, sums - detail], axis=2).reshape(size, -1) / sqrt(2)
    total = np.zeros(size)
    for shift in range(size):
        total += np.roll(sums[shift], shift)
    return total[: noisy.size] / size


def separated(leaves: Leaves, attribute: int, rules: Sequence[StructuralZero]) -> tuple[Leaves, Int64Array]:
    """Divide leaves where a range of a rule begins or ends.

    Returns:
        The leaves, and the side of each: leaves of one side are in the same ranges, `(n_leaves,)`.
    """
    ranges = [span for rule in rules for span in rule.get(attribute, ())]
    cuts = np.array([cut for first, last in ranges for cut in (first, last + 1)], dtype=np.int64)
    cuts = cuts[(cuts > 0) & (cuts < leaves.edges[-1])]
    edges = np.union1d(leaves.edges, cuts)
    of = np.searchsorted(leaves.edges, edges[:-1], side="right") - 1
    share = np.diff(edges) / np.diff(leaves.edges)[of]
    total = int(leaves.counts.sum())
    counts = (
        leaves.counts if edges.size == leaves.edges.size else whole_counts(leaves.counts[of] * share, total)
    )
    inside = [(edges[:-1] >= first) & (edges[:-1] <= last) for first, last in ranges]
    sides = np.zeros(edges.size - 1, dtype=np.int64)
    for within in inside:
        sides = np.unique(2 * sides + within, return_inverse=True)[1].astype(np.int64)
    return Leaves(edges, counts, leaves.noisy[of] * share, leaves.variance[of] * share), sides


def most_bins(n_records: int, variance: float) -> int:
    """Return the most bins of a number: as many as keep the noise of a pair's table below a quarter of n."""
    # sqrt(n/(1.6 sd))
    return min(max(isqrt(isqrt(int(n_records**2 / (2.56 * variance)))), FEWEST_BINS), MOST_BINS)


def coding_of(
    attribute: Attribute, leaves: Leaves, most: int, variance: float, sides: Int64Array | None = None
) -> Coding:
    """Put leaves together to bins.

    Numbers and dates have at most `most` bins of about equal counts. A leaf that is heavier than a bin is a
    bin. The heaviest categories have bins of their own, those below three standard deviations share one.

    Args:
        most: As `most_bins` returns it.
        variance: As in `most_bins`.
        sides: Leaves of different sides are never in one bin, `(n_leaves,)`.
    """
    sides = np.zeros(leaves.counts.size, dtype=np.int64) if sides is None else 2 * sides
    if attribute.keeps_missing:
        sides[-1] += 1
    noise = float(leaves.variance.max())
    if attribute.is_categorical:
        least = GRAIN * isqrt(int(9 * max(noise, variance)))
        labels = _by_weight(leaves.counts, max(most, MOST_BINS), least, sides)
    else:
        n_records = int(leaves.counts.sum()) // GRAIN
        enough = max(2, n_records // max(isqrt(int(9 * noise)), 1))
        labels = _by_order(leaves.counts, min(most, enough), sides)
    return Coding(leaves, labels, int(labels.max()) + 1)


def _by_weight(counts: Int64Array, most: int, least: int, sides: Int64Array) -> Int64Array:
    if counts.size <= most and bool((counts >= least).all()):
        return np.arange(counts.size)
    heaviest = np.argsort(-counts, kind="stable")[: most - 1]
    own = np.zeros(counts.size, dtype=np.bool_)
    own[heaviest] = counts[heaviest] >= least
    # A name for every bin: the leaf itself, or the rest of its side.
    names = np.where(own, np.arange(counts.size), counts.size + sides)
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _by_order(counts: Int64Array, most: int, sides: Int64Array) -> Int64Array:
    if counts.size <= most:
        return np.arange(counts.size)
    labels, bin_, filled, left, todo = [], 0, 0, int(counts.sum()), most
    for i, count in enumerate(counts.tolist()):
        # The next bin begins if half of this leaf already passes an even share of what is left.
        full = filled > 0 and (2 * filled + count) * todo >= 2 * left and todo > 1
        if full or (i and sides[i] != sides[i - 1]):
            bin_, left, todo, filled = bin_ + 1, left - filled, max(todo - 1, 1), 0
        labels.append(bin_)
        filled += count
    return np.array(labels, dtype=np.int64)


def impossible_cells(codings: Sequence[Coding], rules: Sequence[StructuralZero]) -> list[Impossible]:
    """Return the cells of bins that rules exclude; codings are of leaves that `separated` them."""
    excluded = []
    for rule in rules:
        attributes = tuple(sorted(rule))
        cells = np.ones(1, dtype=np.bool_)
        for attribute in attributes:
            coding = codings[attribute]
            inside = np.zeros(coding.n_bins, dtype=np.bool_)
            for first, last in rule[attribute]:
                starts = coding.leaves.edges[:-1]
                inside[coding.labels[(starts >= first) & (starts <= last)]] = True
            cells = (cells[:, None] & inside).ravel()
        excluded.append(Impossible(attributes, cells))
    return excluded


def check_rules(attributes: Sequence[Attribute], n_records: int, rules: Sequence[StructuralZero]) -> None:
    """Check, before anything is counted, that records can be drawn by the rules.

    Raises:
        UsageError: If they leave no possible record, or relate so many attributes that no model has room.
    """
    if not rules:
        return
    sizes, codings = [], []
    for place, attribute in enumerate(attributes):
        whole = Leaves(
            np.array([0, attribute.n_values]), np.array([n_records * GRAIN]), np.zeros(1), np.ones(1)
        )  # fmt: skip
        parts, _ = separated(whole, place, rules)
        codings.append(Coding(parts, np.arange(parts.counts.size), parts.counts.size))
        sizes.append(min(attribute.n_values, MOST_BINS + 1 + parts.counts.size))
    # As large as bins can become, with room for the tables that are measured.
    n_cells = n_model_cells(sizes, [tuple(sorted(rule)) for rule in rules])
    if n_cells > MOST_MODEL_CELLS // 2:
        raise UsageError(
            f"the structural zeros relate too many attributes: a model of them has up to {n_cells:,} cells",
            f"at most {MOST_MODEL_CELLS // 2:,} are possible: declare fewer, or of fewer attributes each",
        )
    if not is_possible([coding.n_bins for coding in codings], impossible_cells(codings, rules)):
        raise UsageError("the structural zeros leave no possible record", "correct them")


def expected_table(one: Coding, other: Coding, n_records: int) -> Int64Array:
    """Return the table of independent attributes, `(n_cells,)`: the product of noisy margins, in units."""
    # Python's integers: the products do not fit into 64 bits.
    products = np.outer(one.counts.astype(object), other.counts.astype(object)).ravel()
    whole = int(one.counts.sum()) * int(other.counts.sum())
    return np.array((2 * UNIT * n_records * products + whole) // (2 * whole), dtype=np.int64)


def coarse_groups(n_records: int) -> int:
    """Return of how many merged bins coarse tables are made."""
    return 4 if n_records < 3_000 else 6


def coarse(coding: Coding, groups: int) -> Coding:
    """Put neighbouring bins together to at most so many of about equal counts."""
    counts = coding.counts
    middle = 2 * np.cumsum(counts) - counts
    group = np.minimum(middle * groups // (2 * int(counts.sum())), groups - 1)
    merged = np.unique(group, return_inverse=True)[1].astype(np.int64)
    return Coding(coding.leaves, merged[coding.labels], int(merged.max()) + 1)


def coarse_score(noisy: Int64Array, expected: Int64Array, variance: float) -> int:
    """Return the score of a coarse table, in units: 0.8 sqrt(cells max(0, Σ D² - cells σ²)).

    For normally distributed differences D it is Σ |D| but for what noise adds.

    Args:
        noisy: Noisy counts, in records, `(n_cells,)`.
        expected: As `expected_table` returns it.
        variance: Of the noise.
    """
    apart = (UNIT * noisy - expected).astype(object)
    squares = int((apart**2).sum()) - noisy.size * UNIT**2 * int(variance)
    return 4 * isqrt(noisy.size * max(squares, 0)) // 5


def most_pairs(n_attributes: int, n_records: int) -> int:
    """Return how many pairs may be chosen: a tree, and more if there are enough records."""
    return n_attributes - 1 + (2 * n_attributes if n_records > 10_000 else n_attributes // 2)


def choose_pairs(
    scores: Mapping[Attributes, int],
    variances: Mapping[Attributes, float],
    sizes: Sequence[int],
    most: int,
    zeros: Sequence[Attributes] = (),
) -> list[Attributes]:
    """Choose the pairs of attributes whose tables are asked for.

    Args:
        scores: Noisy scores of all pairs, in units.
        variances: Of one noisy count of each pair's table, if as many are chosen as may be.
        sizes: Number of bins by attribute.
        zeros: The attributes of each structural zero, which the model has to hold, too.

    Returns:
        The pairs, ascending.
    """
    # Less 0.4 sd for each cell, half of the total variation that the table's noise makes.
    worth = {
        pair: score - isqrt(4 * UNIT**2 * (sizes[pair[0]] * sizes[pair[1]]) ** 2 * int(variances[pair]) // 25)
        for pair, score in scores.items()
    }
    falling = sorted(worth, key=lambda pair: (-worth[pair], pair))
    group = list(range(len(sizes)))
    chosen: list[Attributes] = []
    for one, other in falling:
        if group[one] == group[other]:
            continue
        # A tree by itself always has room.
        if not zeros or n_model_cells(sizes, [*zeros, *chosen, (one, other)]) <= MOST_MODEL_CELLS:
            chosen.append((one, other))
            group = [group[one] if number == group[other] else number for number in group]
    for pair in falling:
        if len(chosen) >= most or worth[pair] <= 0:
            break
        if pair not in chosen and n_model_cells(sizes, [*zeros, *chosen, pair]) <= MOST_MODEL_CELLS:
            chosen.append(pair)
    return sorted(chosen)


def all_pairs(n_attributes: int) -> list[Attributes]:
    """Return all pairs of attributes, ascending."""
    return list(combinations(range(n_attributes), 2))
