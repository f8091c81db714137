"""Empty regions of wide domains, found from noisy counts. Free post-processing (`common.model.counts`).

The nearest counts of a wide domain have a few records at values far from all others, where
the noise was large, and few such records are a large error. `without_stray_counts` sums noisy counts over
pairs of neighbours, over fours, eights and so on. A region is emptied if all of the following hold:

- its sum is nearer to 0 than to what the projection has there, but for some standard deviations of its noise.
  A projection adds up the positive noise of many values, a sum does not. Where both have about as much,
  nothing would be gained;
- its sum is far from an even share of all sums, by some standard deviations: in a domain that values fill,
  all sums are near 0 in terms of the noise;
- nothing in it stands out: no count, and no sum of a smaller region.

A count that stands out of its neighbours (a zero, a round number, a top code) is left out of the sums. All
others together are emptied if nothing stands out and their sum is nearer to 0 by a standard deviation.

Tails of a distribution reach into what is emptied beside it. So a sixth of every stretch that is emptied
stays at either end that borders on what is kept. Then what is left is projected again, and with fewer values
more can be seen to be empty.

That is done boldly first, until fewer than 24 values are left. These are emptied further, and that stands if
at most a third of them have counts then: few values in a row that many records have, and stray counts beside
them. If values that have counts are at most an eighth of the domain, it is too wide, and the result stands.
Otherwise the domain may well be filled by thin tails, and it is done again carefully: no shape that was tried
is then much worse off. For how this compares with the projection alone, over shapes, numbers of records and
widths of domains: docs/decisions.md.

References:
    Donoho and Johnstone 1994, "Ideal spatial adaptation by wavelet shrinkage" (thresholds of dyadic sums).
    Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private histograms through
    consistency" (sums of intervals as post-processing).
"""

from dataclasses import dataclass
from math import log

import numpy as np

from common.arrays import BoolArray, Float64Array, Int64Array
from common.model.counts import nearest_counts


@dataclass(frozen=True, slots=True)
class _Thresholds:
    """How far regions have to be from what is kept, to be emptied."""

    to_spare: float
    """Standard deviations of the noise of a sum that it may lie above half of what the projection has."""
    from_even: float
    """Standard deviations from which a sum is far from an even share."""
    outstanding: float
    """x is the logarithm of the number of counts, or of sums of a size, plus this. A count above scale · x
    stands out, and a sum of m above scale · (2 sqrt(m x) + x/4)."""


_CAREFULLY = _Thresholds(0.0, 4.5, 4.0)
"""Noise alone stands out in one attribute of 25 to 100, and keeps a part of it."""
_BOLDLY = _Thresholds(1.5, 3.5, 8.0)
"""Noise alone stands out in one attribute of thousands."""
_TOO_WIDE = 8
"""A domain with this many times the values that have counts is too wide."""
_MARGIN = 6
"""One value in this number of an emptied stretch stays at an end that borders on what is kept."""
_FEW = 3
"""Fewer values left than `_FEWEST_VALUES` are emptied further if one in this number has counts then."""
_FEWEST_VALUES = 24
"""Stray counts of smaller domains are left: they cost less than what is emptied."""
_FEWEST_LEFT = 4
"""The same of what is left of a larger domain."""
_MOST_VALUES = 2**17
"""Beyond it a draw takes a second, and forecasts draw several times."""
_PASSES = 12


def projected_counts(noisy: Float64Array, n_records: float, scale: float, *, ordered: bool) -> Float64Array:
    """Project noisy counts; stray ones of values that have an order are left out.

    The arguments, and what is returned, are those of `without_stray_counts`.
    """
    return without_stray_counts(noisy, n_records, scale) if ordered else nearest_counts(noisy, n_records)


def without_stray_counts(noisy: Float64Array, n_records: float, scale: float) -> Float64Array:
    """Project noisy counts onto those of the regions that are not empty, by the sums of noisy counts.

    Args:
        noisy: Noisy counts of values in order, `(V,)`.
        n_records: What they are to sum to.
        scale: The scale of the noise, in records.

    Returns:
        As `nearest_counts`.
    """
    if not _FEWEST_VALUES <= noisy.size <= _MOST_VALUES:
        return nearest_counts(noisy, n_records)
    kept, counts = _emptied(noisy, np.arange(noisy.size), n_records, scale, _BOLDLY, _FEWEST_VALUES)
    if kept.size < _FEWEST_VALUES:
        _, fewer = _emptied(noisy, kept, n_records, scale, _BOLDLY, _FEWEST_LEFT)
        if np.count_nonzero(fewer) * _FEW <= kept.size and np.count_nonzero(fewer) * _TOO_WIDE <= noisy.size:
            return fewer
    if np.count_nonzero(counts) * _TOO_WIDE <= noisy.size:
        return counts
    return _emptied(noisy, np.arange(noisy.size), n_records, scale, _CAREFULLY, _FEWEST_VALUES)[1]


def _emptied(
    noisy: Float64Array, kept: Int64Array, n_records: float, scale: float, way: _Thresholds, fewest: int
) -> tuple[Int64Array, Float64Array]:
    """Empty regions of the values that are kept so far, as long as there are any and `fewest` are left.

    Returns:
        The values that are kept, and the counts of all, `(V,)`.
    """
    nearest = nearest_counts(noisy[kept], n_records)
    least = scale * (_log(noisy.size) + way.outstanding)
    for _ in range(_PASSES):
        if kept.size < fewest:
            break
        emptied = _without_margins(_are_empty(noisy[kept], nearest, n_records, least, scale, way))
        if not emptied.any():
            break
        kept = kept[~emptied]
        nearest = nearest_counts(noisy[kept], n_records)
    counts = np.zeros(noisy.size)
    counts[kept] = nearest
    return kept, counts


def _log(number: float) -> float:
    return round(log(number), 6)


def _are_empty(
    noisy: Float64Array,
    nearest: Float64Array,
    n_records: float,
    least: float,
    scale: float,
    way: _Thresholds,
) -> BoolArray:
    """Return which values lie in a region that is empty, `(n_kept,)`; a count above `least` stands out."""
    variance, n_kept = 2 * scale**2, noisy.size
    padded = np.concatenate([[0.0], noisy, [0.0]])
    rest: BoolArray = noisy - np.maximum(np.maximum(padded[:-2], padded[2:]), 0) <= least
    per_value = (n_records - noisy.cumsum()[-1]) / n_kept
    even = max(noisy[rest].cumsum()[-1] / np.count_nonzero(rest) + per_value, 0) if rest.any() else 0
    empty, width = np.zeros(n_kept, dtype=np.bool_), 1
    # Of regions of this width: noisy counts, nearest ones, how many they are, whether anything stands out.
    regions = np.stack([np.where(rest, each, 0.0) for each in (noisy, nearest, 1.0, noisy > least)])
    while regions.shape[1] > 1:
        if regions.shape[1] % 2:
            regions = np.concatenate([regions, np.zeros((len(regions), 1))], axis=1)
        regions, width = regions[:, ::2] + regions[:, 1::2], 2 * width
        summed, near, size, stands = regions
        x = max(_log(n_kept / width), 0) + way.outstanding
        stands += summed > scale * (2 * np.sqrt(size * x) + x / 4)
        # The likeliest sum, given the sum of all, and its standard deviation.
        likeliest = summed + per_value * size
        deviation = np.sqrt(variance * size * (1 - size / n_kept))
        is_empty = (
            (likeliest - way.to_spare * deviation < near / 2)
            & (likeliest + way.from_even * deviation < even * size)
            & (stands == 0)
        )
        empty |= np.repeat(is_empty, width)[:n_kept]
    summed_all, near_all, n_rest, stands_any = regions[:, 0]
    # Its noise is that of the spikes, since the sum of all is known.
    deviation_all = np.sqrt(variance * n_rest * (1 - n_rest / n_kept))
    only_spikes = not stands_any and summed_all + per_value * n_rest + deviation_all < near_all / 2
    return rest if only_spikes else empty & rest


def _without_margins(emptied: BoolArray) -> BoolArray:
    """Return what is emptied but for the ends of stretches that border on what is not."""
    steps = np.diff(emptied.astype(np.int8), prepend=0, append=0)
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    margins = (ends - starts) // _MARGIN
    starts, ends = starts + margins * (starts > 0), ends - margins * (ends < emptied.size)
    size = emptied.size + 1
    inner: BoolArray = np.cumsum(np.bincount(starts, minlength=size) - np.bincount(ends, minlength=size)) > 0
    return inner[:-1]
