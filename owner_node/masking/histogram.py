"""`dp-hist`: the released list made from noisy counts of the values, for attributes of few values.

Each declared value is counted, each count gets exact discrete Laplace noise of scale 2g/ε, and the list
repeats every value as often as its count says, in order. One changed record moves two counts by one each, g
records at most 2g in total, whatever the data are. So with one scale for all counts, the noisy counts are
ε-differentially private (global sensitivity), and so is everything that is computed from them and the number
of records, which is not secret.

Free post-processing turns noisy counts into counts: the nearest counts, in squared distance, that are not
negative and sum to the number of records; for values with an order, `without_stray_counts`; then whole
numbers, largest remainders first. Doubles are safe there, because the exact noise has already been added.

The nearest counts of a wide domain have a few records at values far from all others, where the noise was
large, and few such records are a large error. `without_stray_counts` divides the domain into halves, these
into halves and so on. A half is emptied if the sum of its noisy counts is near zero (at most 2.5 standard
deviations of its noise) and far from an even share of what both halves have (3 below), unless a count in it
stands out by itself. A count that stands out of its neighbours (a zero, a round number, a top code) is left
out of the sums. What is left is projected again, and with fewer values more can be seen to be empty. For how
this compares with the projection alone, over shapes, numbers of records and widths of domains:
docs/decisions.md.

References:
    Donoho and Johnstone 1994, "Ideal spatial adaptation by wavelet shrinkage" (thresholds of dyadic sums).
    Dwork, McSherry, Nissim, Smith 2006, Example 3 (histograms).
    Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private histograms through
    consistency" (sums of intervals as post-processing).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from common.errors import UnusableDataError
from common.model.counts import nearest_counts, whole_counts
from common.model.largest import TAIL
from common.model.mechanisms import MOST_HISTOGRAM_VALUES
from owner_node.masking.arrays import LARGEST_INT64, BitSource, BoolArray, Float64Array, Int64Array
from owner_node.masking.clusters import MOST_FRACTION_BITS, Setting
from owner_node.masking.lists import (
    DrawnExpectation,
    Expectation,
    ListMechanism,
    ReleasedList,
    Statistics,
    counts_in,
)
from owner_node.masking.noise import add_saturating, shared_laplace

_NEAR_ZERO, _FROM_EVEN = 2.5, 3.0
"""Standard deviations of the noise of a sum: up to which it is near zero, from which it is far from even."""
_OUTSTANDING = 3.0
"""A count above scale · (ln V + this) stands out: noise alone gets there in one attribute of 40."""
_FEWEST_VALUES = 24
"""Of a domain in which stray counts are looked for: in smaller ones they cost less than what is emptied."""
_MOST_VALUES = 2**17
"""Beyond it a draw takes a second, and forecasts draw several times."""
_PASSES = 4
_FEWEST_PRESENT = 0.5
"""With fewer values that are not missing, all records get a missing one."""
MOST_RECORDS = 2**34
"""The largest number of records that a fragment can have."""


def grid_bits(setting: Setting) -> int:
    """Return f, the largest number up to 20 for which no noisy count, in steps of 2^-f, can exceed 63 bits.

    Raises:
        UnusableDataError: If there is none, or there are too many values to count.
    """
    if setting.n_values > MOST_HISTOGRAM_VALUES:
        raise UnusableDataError(
            f"attribute {setting.attribute!r}: {setting.n_values} possible values are too many for dp-hist",
            "choose another mechanism for it, or declare fewer decimals or a narrower domain",
            {"attribute": setting.attribute, "values": setting.n_values, "most": MOST_HISTOGRAM_VALUES},
        )
    widest = MOST_RECORDS + TAIL * ceil(_scale(setting))
    for bits in range(MOST_FRACTION_BITS, -1, -1):
        if widest << bits <= LARGEST_INT64:
            return bits
    raise UnusableDataError(
        f"attribute {setting.attribute!r}: the noise of its counts does not fit into 63 bits",
        "ask for a larger epsilon",
        {"attribute": setting.attribute},
    )


def _scale(setting: Setting) -> Fraction:
    """Return 2g/ε, in records."""
    return 2 * setting.g / setting.exact_epsilon


@dataclass(frozen=True, slots=True)
class HistogramMechanism(ListMechanism):
    """Noisy counts of all declared values (docs/guarantee.md, "dp-hist")."""

    @property
    def ascending(self) -> bool:
        """True: each value is repeated its count of times, in order."""
        return True

    def check(self, setting: Setting) -> None:
        """Refuse a domain of too many values."""
        grid_bits(setting)

    def noise(self, setting: Setting, bits: BitSource) -> Int64Array:
        """Draw the noise of all counts, `(V,)`, in steps of 2^-f: of scale ceil(2^f 2g/ε)."""
        scale = ceil(_scale(setting) * 2 ** grid_bits(setting))
        return shared_laplace(setting.n_values, scale, bits, np.int64)

    def list_of(self, counts: Int64Array, noise: Int64Array, setting: Setting) -> ReleasedList:
        """Return the list that counts and their noise make.

        Args:
            counts: Exact count of every value, `(V,)`.
            noise: As `noise` draws it, `(V,)`.
            setting: What is agreed about the attribute.
        """
        f = grid_bits(setting)
        noisy = add_saturating(counts << f, noise, TAIL * ceil(_scale(setting)) << f)
        n_records = int(counts.sum())
        drawn = noisy / 2.0**f
        if setting.keeps_missing:
            nearest = _apart_from_missing(drawn, n_records, float(_scale(setting)))
        elif setting.ordered:
            nearest = without_stray_counts(drawn, n_records, float(_scale(setting)))
        else:
            nearest = nearest_counts(drawn, n_records)
        found = whole_counts(nearest, n_records)
        there = np.flatnonzero(found)
        return ReleasedList(there, found[there])

    def release_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, _shuffles: BitSource
    ) -> ReleasedList:
        """Draw the noise and return the values whose count is not 0, and their counts."""
        return self.list_of(counts_in(statistics), self.noise(setting, bits), setting)

    def expect(
        self,
        sorted_values: Int64Array,
        assigned: Int64Array,
        setting: Setting,
        bits: BitSource,
        n_pairs: int,
    ) -> Expectation:
        """Draw the noise of all counts several times: their projection mixes all values."""
        n_records, counts = sorted_values.size, counts_of(sorted_values, setting)
        found = DrawnExpectation(n_records, n_pairs)
        for pair in range(n_pairs):
            noise = self.noise(setting, bits)
            for signed in (noise, -noise):
                drawn = self.list_of(counts, signed, setting)
                moved = np.repeat(drawn.values, drawn.sizes) - assigned
                found.add_squares(pair, float(np.square(moved, dtype=np.float64).sum()))
                found.add_same(pair, slice(None), moved == 0)
        # The deviation if the noise of every count moved its scale in records, at most all.
        moving = min(0.5, 2 * setting.g * setting.n_values / (float(setting.epsilon) * n_records))
        return found.mean(moving, 0)


def counts_of(values: Int64Array, setting: Setting) -> Int64Array:
    """Count every value of the domain, `(V,)`."""
    return np.bincount(values, minlength=setting.n_values)


def _apart_from_missing(noisy: Float64Array, n_records: int, scale: float) -> Float64Array:
    """Project noisy counts of which the last one, of missing values, has no neighbours.

    The arguments are those of `without_stray_counts`.
    """
    n_missing = float(nearest_counts(noisy, n_records)[-1])
    if n_records - n_missing < _FEWEST_PRESENT:
        return np.append(np.zeros(noisy.size - 1), n_records)
    return np.append(without_stray_counts(noisy[:-1], n_records - n_missing, scale), n_missing)


def without_stray_counts(noisy: Float64Array, n_records: float, scale: float) -> Float64Array:
    """Project noisy counts onto those of the regions that are not empty, by the sums of noisy counts.

    Args:
        noisy: Noisy counts of values in order, `(V,)`.
        n_records: What they are to sum to.
        scale: The scale of the noise, in records.

    Returns:
        As `nearest_counts`.
    """
    nearest = nearest_counts(noisy, n_records)
    kept, least = np.arange(noisy.size), scale * (np.log(noisy.size) + _OUTSTANDING)
    for _ in range(_PASSES if _FEWEST_VALUES <= noisy.size <= _MOST_VALUES else 0):
        stays = ~_are_empty(noisy[kept], nearest, least, scale)
        if stays.all():
            break
        kept = kept[stays]
        nearest = nearest_counts(noisy[kept], n_records)
    counts = np.zeros(noisy.size)
    counts[kept] = nearest
    return counts


def _are_empty(noisy: Float64Array, nearest: Float64Array, least: float, scale: float) -> BoolArray:
    """Return which values lie in a half that is empty, `(n_kept,)`; a count above `least` stands out."""
    variance, n_kept = 2 * scale**2, noisy.size
    beside = np.pad(noisy, 1, constant_values=0)
    rest: BoolArray = noisy - np.maximum(np.maximum(beside[:-2], beside[2:]), 0) <= least
    n_rest = int(np.count_nonzero(rest))
    # The likeliest sum of all but the spikes, given the sum of all.
    summed = noisy[rest].sum() + (nearest.sum() - noisy.sum()) * n_rest / n_kept
    if n_rest < n_kept and summed < _NEAR_ZERO * np.sqrt(variance * n_rest * (n_kept - n_rest) / n_kept):
        return rest
    levels = [np.stack([np.where(rest, each, 0.0) for each in (noisy, nearest, 1.0, noisy > least)])]
    while levels[-1].shape[1] > 1:
        if levels[-1].shape[1] % 2:
            levels[-1] = np.pad(levels[-1], ((0, 0), (0, 1)))
        levels.append(levels[-1][:, ::2] + levels[-1][:, 1::2])
    totals, empty = levels[-1][1], np.zeros(1, dtype=np.bool_)
    for level in reversed(levels[:-1]):
        # Regions that fill up a level have nothing.
        n_regions = level.shape[1] // 2
        totals, found = _divided(totals[:n_regions], level, variance)
        empty = np.repeat(empty[:n_regions], 2) | found
    rest &= empty[:n_kept]
    return rest


def _divided(totals: Float64Array, level: Float64Array, variance: float) -> tuple[Float64Array, BoolArray]:
    """Divide what regions have among their halves.

    Args:
        totals: Of the regions, `(n_regions,)`.
        level: Sums of noisy and of nearest counts, numbers of values and of outstanding ones, of the halves,
            `(4, 2 n_regions)`.
        variance: Of the noise of one count.

    Returns:
        What the halves have, and which of them are empty, `(2 n_regions,)`.
    """
    (first, second), (near, other), (size, rest), (stands, beside) = (e.reshape(-1, 2).T for e in level)
    share = size / np.maximum(size + rest, 1)
    deviation = np.sqrt(variance * size * (1 - share))
    # The likeliest sum of the first half, given the sum of both.
    summed = first + (totals - first - second) * share
    above, far = summed - totals * share, _FROM_EVEN * deviation
    empty = (summed < _NEAR_ZERO * deviation) & (above < -far) & (stands == 0)
    whole = (totals - summed < _NEAR_ZERO * deviation) & (above > far) & (beside == 0)
    by_nearest = np.divide(totals * near, near + other, out=totals * share, where=near + other > 0)
    found = np.where(empty | (size == 0), 0, np.where(whole | (rest == 0), totals, by_nearest))
    halves = np.maximum(np.stack([found, totals - found], axis=1).ravel(), 0)
    return halves, np.stack([empty, whole], axis=1).ravel()
