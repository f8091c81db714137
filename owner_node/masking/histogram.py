"""`dp-hist`: the released list made from noisy counts of the values, for attributes of few values.

Each declared value is counted, each count gets exact discrete Laplace noise of scale 2g/ε, and the list
repeats every value as often as its count says, in order. One changed record moves two counts by one each, g
records at most 2g in total, whatever the data are. So with one scale for all counts, the noisy counts are
ε-differentially private (global sensitivity), and so is everything that is computed from them and the number
of records, which is not secret.

Free post-processing turns noisy counts into counts (`common.model.counts`, with why it is free): the nearest
counts, in squared distance, that are not negative and sum to the number of records; for values with an order,
`without_stray_counts`; then whole numbers, largest remainders first.

References:
    Dwork, McSherry, Nissim, Smith 2006, Example 3 (histograms).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from common.errors import UnusableDataError
from common.model.counts import nearest_counts, whole_counts
from common.model.empty_regions import projected_counts, without_stray_counts
from common.model.largest import TAIL
from common.model.mechanisms import MOST_HISTOGRAM_VALUES
from owner_node.masking.arrays import LARGEST_INT64, BitSource, Float64Array, Int64Array
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
        """
        f = grid_bits(setting)
        noisy = add_saturating(counts << f, noise, TAIL * ceil(_scale(setting)) << f)
        n_records = int(counts.sum())
        drawn = noisy / 2.0**f
        if setting.keeps_missing:
            nearest = _apart_from_missing(drawn, n_records, float(_scale(setting)))
        else:
            nearest = projected_counts(drawn, n_records, float(_scale(setting)), ordered=setting.ordered)
        whole = whole_counts(nearest, n_records)
        there = np.flatnonzero(whole)
        return ReleasedList(there, whole[there])

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
        n_records, counts = sorted_values.size, np.bincount(sorted_values, minlength=setting.n_values)
        expectation = DrawnExpectation(n_records, n_pairs)
        for pair in range(n_pairs):
            noise = self.noise(setting, bits)
            for signed in (noise, -noise):
                drawn = self.list_of(counts, signed, setting)
                moved = np.repeat(drawn.values, drawn.sizes) - assigned
                expectation.add_squares(pair, float(np.square(moved, dtype=np.float64).sum()))
                expectation.add_same(pair, slice(None), moved == 0)
        # The deviation if the noise of every count moved its scale in records, at most all.
        moving = min(0.5, 2 * setting.g * setting.n_values / (float(setting.epsilon) * n_records))
        return expectation.mean(moving, 0)


def _apart_from_missing(noisy: Float64Array, n_records: int, scale: float) -> Float64Array:
    """Project noisy counts of which the last one, of missing values, has no neighbours.

    The arguments are those of `without_stray_counts`.
    """
    n_missing = float(nearest_counts(noisy, n_records)[-1])
    if n_records - n_missing < _FEWEST_PRESENT:
        return np.append(np.zeros(noisy.size - 1), n_records)
    return np.append(without_stray_counts(noisy[:-1], n_records - n_missing, scale), n_missing)
