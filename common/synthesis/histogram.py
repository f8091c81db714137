"""One-way counts: which parts of a domain are counted, and what their noisy counts say.

Every attribute of up to 128 values, and every category, is counted value by value. A wider domain is counted
in parts, and its full parts are counted again in parts, level by level. Declared spikes, and missing values,
are parts by themselves: they are no neighbours of other values.

Every owner computes all of this from what it was sent, and answers only what it computes too. All have to
arrive at the same. So doubles are added, multiplied, divided and rooted one by one in a fixed order, and
counts after post-processing are whole numbers of grains of a record.

References:
    Coifman, Donoho 1995, "Translation-invariant de-noising".
    Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private histograms through
    consistency" (sums of dyadic intervals, from above).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from math import log, sqrt

import numpy as np

from common.arrays import BoolArray, Float64Array, Int64Array
from common.model.counts import nearest_counts, whole_counts
from common.model.schema import Attribute
from common.model.together import Joint, parts_of

GRAIN = 2**10
"""The unit of counts after post-processing: a record has this many grains."""
FULL_RESOLUTION = 128
"""Attributes of at most so many values are counted value by value, and so are all categories."""
PARTS = 16
_MOST_IN_BLOCK = 64
"""Most parts of a block of a joint attribute in its second level."""
_EMPTY, _MOST_EMPTIED = 1.5, 0.05
"""A half of an interval is empty if its count is below so many standard deviations of its noise, but not
above this share of the records: with few records, noise alone would decide."""
_LOGARITHMS = Context(prec=40)


@dataclass(frozen=True, slots=True)
class Histogram:
    """A partition of the codes of an attribute, from 0 to V - 1, and what is known of its counts."""

    edges: Int64Array
    """The first code of every part, and V, `(n_parts + 1,)`."""
    counts: Int64Array
    """Counts after post-processing, in grains; they sum to the number of records, `(n_parts,)`."""
    noisy: Float64Array
    """Noisy counts, `(n_parts,)`; of a divided part what its count leaves for each."""
    variance: Float64Array
    """Of their noise, `(n_parts,)`."""


def attribute_weights(attributes: Sequence[Attribute]) -> list[Decimal]:
    """Return what each attribute gets of the budget of the one-way counts: sqrt(min(V, 128))."""
    return [Context(prec=30).sqrt(Decimal(min(a.n_values, FULL_RESOLUTION))) for a in attributes]


def is_wide(attribute: Attribute) -> bool:
    """Return True if an attribute is counted in parts; two that are counted together have blocks first."""
    wide = isinstance(attribute, Joint) or attribute.n_values > FULL_RESOLUTION
    return wide and not attribute.is_categorical


def n_levels(attribute: Attribute, n_records: int, variance: float) -> int:
    """Return in how many levels an attribute is counted.

    Args:
        variance: Of one noisy count, if all of its budget paid for one level.
    """
    if not is_wide(attribute):
        return 1
    # The blocks of two attributes that are counted together come first: their counts need no sum of parts.
    blocks, n_values = isinstance(attribute, Joint), parts_of(attribute)[0].n_values
    if n_values <= FULL_RESOLUTION or 8 * n_records**2 < 4e6 * variance:
        return 1 + blocks
    return blocks + (2 if n_values < 2**12 else 3)


def stands_alone(attribute: Attribute, edges: Int64Array) -> BoolArray:
    """Return which parts are one value that is counted by itself: no neighbours of others, `(n_parts,)`."""
    codes = np.array(attribute.alone, dtype=np.int64) - attribute.lower
    alone: BoolArray = np.isin(edges[:-1], codes) & (np.diff(edges) == 1)
    return alone


def first_edges(attribute: Attribute, n_records: int, variance: float, levels: int) -> Int64Array:
    """Return the partition whose counts are asked for first; arguments as in `n_levels`."""
    if not is_wide(attribute):
        return np.arange(attribute.n_values + 1)
    alone = np.array(attribute.alone, dtype=np.int64) - attribute.lower
    if isinstance(attribute, Joint):
        present = np.arange(attribute.second.n_values + 1) * attribute.first.n_values
    else:
        parts = _parts_above_noise(n_records, variance, FULL_RESOLUTION) if levels == 1 else PARTS
        present = _divided(attribute, 0, attribute.upper + 1 - attribute.lower, parts)
    return np.union1d(present, np.concatenate([alone, alone + 1]))


def _parts_above_noise(n_records: int, variance: float, most: int) -> int:
    """Return 2^round(log2(sqrt(2) n/sd)) within limits: with few records few parts, which are denoised."""
    parts = 2 ** (((int(4 * n_records**2 / variance) | 1).bit_length() - 1) // 2)
    return int(min(max(parts, PARTS), most))


def _divided(attribute: Attribute, first: int, end: int, parts: int) -> Int64Array:
    """Divide codes into parts of equal width, or of equal ratio on a logarithmic scale."""
    if isinstance(attribute, Joint):
        block = first // attribute.first.n_values * attribute.first.n_values
        return _divided(attribute.first, first - block, end - block, parts) + block
    if not attribute.is_logarithmic:
        return np.unique(np.array([first + (end - first) * i // parts for i in range(parts + 1)], np.int64))
    # Zero, where it is in the domain, has a part of its own.
    low, high = Decimal(max(attribute.lower + first, 1)), Decimal(attribute.lower + end)
    with localcontext(_LOGARITHMS):
        step = (high / low).ln() / parts
        values = [int((low * (step * i).exp()).to_integral_value()) for i in range(parts)]
    inner = (min(max(value - attribute.lower, first), end) for value in values)
    return np.unique(np.array([first, *inner, end], dtype=np.int64))


def next_edges(attribute: Attribute, histogram: Histogram) -> Int64Array:
    """Return the partition of the next level: parts above four standard deviations are divided into 16."""
    edges, noisy = histogram.edges, histogram.noisy
    large = (noisy > 0) & (noisy**2 > 16 * histogram.variance)
    parts = PARTS
    if isinstance(attribute, Joint) and edges.size == first_edges(attribute, 1, 1.0, 1).size:
        n_records = int(histogram.counts.sum()) // GRAIN
        parts = _parts_above_noise(n_records, float(histogram.variance.max()), _MOST_IN_BLOCK)
    divided = [
        _divided(attribute, int(first), int(end), parts if split else 1)[:-1]
        for first, end, split in zip(edges, edges[1:], large, strict=False)
    ]
    return np.concatenate([*divided, edges[-1:]])


def histogram_of(
    attribute: Attribute, edges: Int64Array, noisy: Int64Array, n_records: int, variance: float
) -> Histogram:
    """Make noisy counts of a partition into counts.

    Args:
        edges: Of the partition.
        noisy: Noisy counts, `(n_parts,)`.
        variance: Of the noise of each.
    """
    smooth, alone = noisy.astype(np.float64), stands_alone(attribute, edges)
    if not attribute.is_categorical and np.count_nonzero(~alone) > PARTS:
        smooth[~alone] = denoised(smooth[~alone], variance)
    if is_wide(attribute):
        smooth[alone] = np.clip(smooth[alone], 0, n_records)
        # Without noise in spikes, all others would have what they leave.
        others = max(n_records - float(np.cumsum(np.append(0.0, smooth[alone]))[-1]), 0.0)
        smooth[~alone] = halved(smooth[~alone], variance, others, n_records)
    counts = whole_counts(nearest_counts(smooth * GRAIN, n_records * GRAIN), n_records * GRAIN)
    return Histogram(edges, counts, noisy.astype(np.float64), np.full(noisy.size, variance))


def divided_histogram(before: Histogram, edges: Int64Array, noisy: Int64Array, variance: float) -> Histogram:
    """Divide parts by noisy counts of the next level.

    Args:
        before: Of the level before.
        edges: As `next_edges` returns them.
        noisy: Noisy counts, `(n_parts,)`.
        variance: Of the noise of each.

    Returns:
        A histogram in which the counts of what a part was divided into sum to its count.
    """
    starts, n_records = np.searchsorted(edges, before.edges), int(before.counts.sum()) // GRAIN
    sizes = np.diff(starts)
    counts, variances = np.repeat(before.counts, sizes), np.repeat(before.variance, sizes)
    for i in np.flatnonzero(sizes > 1):
        start, end, whole = starts[i], starts[i + 1], int(before.counts[i])
        within = halved(noisy[start:end].astype(np.float64), variance, whole / GRAIN, n_records)
        counts[start:end] = whole_counts(within * GRAIN, whole)
        variances[start:end] = variance
    return Histogram(edges, counts, counts / GRAIN, variances)


def halved(noisy: Float64Array, variance: float, total: float, n_records: int) -> Float64Array:
    """Distribute a total over parts in order, from above: halves get what their noisy sums say.

    A half that is empty but for noise gets nothing, and the other one all. In a domain that is far too wide,
    noise of many empty parts would otherwise add up to records that are nowhere near the others.

    Args:
        noisy: Noisy counts, `(n_parts,)`.
        variance: Of the noise of each.
        total: What they have together.
        n_records: Of the whole domain.

    Returns:
        Counts, not negative and of that total, `(n_parts,)`.
    """
    sums, counts = np.cumsum(np.append(0.0, noisy)), np.zeros(noisy.size)
    intervals = [(0, noisy.size, total)]
    while intervals:
        start, end, count = intervals.pop()
        if end - start <= 1 or count <= 0:
            counts[start:end] = count
            continue
        middle = (start + end) // 2
        share = (middle - start) / (end - start)
        left = sums[middle] - sums[start]
        # The likeliest count of the left half, given that of both, and the deviation of its noise.
        left += (count - (sums[end] - sums[start])) * share
        deviation = sqrt(variance * (middle - start) * (1 - share))
        least = min(_EMPTY * deviation, _MOST_EMPTIED * n_records)
        if min(left, count - left) < least:
            left = 0.0 if left < count - left else count
        intervals += [(start, middle, left), (middle, end, count - left)]
    return counts


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
