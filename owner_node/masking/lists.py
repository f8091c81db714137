"""Released lists: the interface of mechanisms, their forecasts, and the way from noisy sums to values.

Released values are made from noisy sums by free post-processing, which sees only public numbers.

References:
    Dwork and Roth 2014, Proposition 2.1 (post-processing).
    Robertson, Wright and Dykstra 1988, Order Restricted Statistical Inference, section 1.2 (isotonic
    regression).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np

from owner_node.masking.arrays import BitSource, BoolArray, Float64Array, Int64Array
from owner_node.masking.clusters import Clusters, ClusterStatistics, Setting

SEARCHED = 32
"""Records per value from which on searching for values takes less time than counting records."""
PLACES_PER_BLOCK = 2**17
"""Places of a list that are written at a time where records are streamed."""
MOST_EXACT = 2**53
"""Integers up to it are doubles."""


@dataclass(frozen=True, slots=True)
class ReleasedList:
    """The rank-ordered list of released values: one of the two products of masking."""

    values: Int64Array
    """Entries, `(n_entries,)`, in resolution units: ascending with the ranks where a mechanism says so; in
    random order within the places of a cluster where each has entries of its own; in record order if each
    record is its own cluster."""
    sizes: Int64Array
    """Number of consecutive ranks that get each entry, `(n_entries,)`; they sum to the number of records."""

    @property
    def by_place(self) -> Int64Array:
        """The entry at every place, `(n_records,)`."""
        return self.values if self.sizes.strides == (0,) else np.repeat(self.values, self.sizes)

    def mapped(self, function: Callable[[Int64Array], Int64Array]) -> Self:
        """Return the list with a function applied to its entries."""
        return replace(self, values=function(self.values))

    def blocks(self) -> Iterator[Int64Array]:
        """Return the entry at every place, at most `PLACES_PER_BLOCK` places at a time."""
        return self.entries_from(0)

    def entries_from(self, place: int, _shuffles: BitSource | None = None) -> Iterator[Int64Array]:
        """Return the entries at the places from one on, at most `PLACES_PER_BLOCK` places at a time."""
        ends = np.cumsum(self.sizes)
        for first in range(place, int(ends[-1]), PLACES_PER_BLOCK):
            after = min(first + PLACES_PER_BLOCK, int(ends[-1]))
            low, high = np.searchsorted(ends, [first, after - 1], side="right")
            edges = np.clip(ends[low : high + 1], None, after)
            yield np.repeat(self.values[low : high + 1], np.diff(edges, prepend=first))

    def recipe(self) -> "Recipe":
        """Return what makes the entries; the list has no secret."""
        return self.entries_from


@dataclass(frozen=True, slots=True)
class StreamedList:
    """A released list whose entries are computed as they are needed, for lists of one entry per place."""

    entries_from: "Recipe"
    """Makes the entries."""
    shuffles: BitSource
    """Source of random bits for the order within clusters; its elements are places."""

    def mapped(self, function: Callable[[Int64Array], Int64Array]) -> "StreamedList":
        """As `ReleasedList.mapped`."""
        made = self.entries_from
        return StreamedList(lambda place, shuffles: map(function, made(place, shuffles)), self.shuffles)

    def blocks(self) -> Iterator[Int64Array]:
        """Return the entry at every place, some places at a time."""
        return self.entries_from(0, self.shuffles)

    def recipe(self) -> "Recipe":
        """Return what makes the entries, without the key of their order."""
        return self.entries_from


Recipe: TypeAlias = Callable[[int, BitSource], Iterator[Int64Array]]
"""Makes the entries at the places from one on, some at a time, with the bits of their random order."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The forecast of a mechanism for one attribute, before its noise is drawn."""

    squared_error: float
    """Expected sum over the records of the squared difference between released and original value."""
    unchanged: Float64Array
    """Probability that a record's value leaves unchanged, `(n_records,)`, in the original order."""
    deviation: float
    """Standard error of the mean of `unchanged`; 0 if it is exact."""
    zero_noise: int
    """Number of records whose value gets no noise."""


Statistics: TypeAlias = ClusterStatistics | Int64Array
"""All that a list is made from: statistics of clusters, or counts of all values, `(V,)`."""


def clusters_in(statistics: Statistics) -> ClusterStatistics:
    """Return statistics of clusters, for a mechanism whose depth asks for them."""
    if not isinstance(statistics, ClusterStatistics):
        raise TypeError("the list is made from clusters")
    return statistics


def counts_in(statistics: Statistics) -> Int64Array:
    """Return counts of all values, for a mechanism whose depth asks for them."""
    if isinstance(statistics, ClusterStatistics):
        raise TypeError("the list is made from counts")
    return statistics


class ListMechanism(ABC):
    """The private half of a mechanism: makes the released list of one attribute, and forecasts it.

    The public half is the entry of the same id in `common.model.mechanisms`. A mechanism does not
    decide which record gets which entry of the list.
    """

    @property
    def ascending(self) -> bool:
        """Whether the released values always ascend with the ranks, within a cluster in whatever order."""
        return False

    @abstractmethod
    def check(self, setting: Setting) -> None:
        """Refuse a setting for which the list cannot be made exactly; called before any budget is spent.

        Raises:
            UnusableDataError: With the reason.
        """

    def depth(self, _setting: Setting) -> int | None:
        """Return how many values at each end of a cluster its list depends on; None if it needs counts."""
        return None

    def tail(self, _setting: Setting, _n_records: int) -> int:
        """Return how many of the smallest and of the largest values of all records its list depends on."""
        return 0

    def statistics(self, sorted_values: Int64Array, setting: Setting) -> Statistics:
        """Compute what the list of some values is made from.

        Args:
            sorted_values: `(n_records,)`, ascending, from 0 to V - 1.
        """
        depth, n_records = self.depth(setting), sorted_values.size
        if depth is None and setting.n_values * SEARCHED < n_records:
            return np.diff(np.searchsorted(sorted_values, np.arange(setting.n_values + 1)))
        if depth is None:
            return np.bincount(sorted_values, minlength=setting.n_values)
        clusters, tail = Clusters(n_records, setting.k), self.tail(setting, n_records)
        return ClusterStatistics.of(sorted_values, clusters, depth, tail, setting.spikes)

    @abstractmethod
    def release_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, shuffles: BitSource
    ) -> ReleasedList:
        """Draw the noise and return the released list.

        Args:
            statistics: Of clusters, to the depth of the mechanism, or counts of all values, `(V,)`.
            shuffles: Source of random bits for the order within clusters; its elements are places.

        Returns:
            Values from 0 to V - 1.
        """

    def stream_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, shuffles: BitSource
    ) -> ReleasedList | StreamedList:
        """Draw the noise and return the same list as `release_from`, without an entry per place in memory."""
        return self.release_from(statistics, setting, bits, shuffles)

    def release(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return the released list of values in memory.

        Args:
            sorted_values: `(n_records,)`, ascending, from 0 to V - 1, at least k of them.
        """
        return self.release_from(self.statistics(sorted_values, setting), setting, bits, bits)

    @abstractmethod
    def expect(
        self,
        sorted_values: Int64Array,
        assigned: Int64Array,
        setting: Setting,
        bits: BitSource,
        n_pairs: int,
    ) -> Expectation:
        """Compute or estimate the effect of the released list on the values, without draws of any release.

        Args:
            sorted_values: As in `release`.
            assigned: The values of the records that get the entries, rank by rank, `(n_records,)`.
            n_pairs: Number of draws of the noise of the whole list, for mechanisms that need draws; at least
                two, each used with both signs.
        """

    def spread(self, sorted_values: Int64Array, _setting: Setting) -> float:
        """Return the sum of squared differences from the best single value, here the mean."""
        return float(np.square(sorted_values - sorted_values.mean()).sum())


class DrawnExpectation:
    """Averages over drawn lists; each noise is used with both signs, which are equally probable."""

    def __init__(self, n_records: int, n_pairs: int) -> None:
        """Prepare for `n_pairs` pairs of draws."""
        self._hits = np.zeros(n_records, dtype=np.uint16)
        self._squares, self._shares = np.zeros(n_pairs), np.zeros(n_pairs)

    def add_squares(self, pair: int, squares: float) -> None:
        """Add the sum over all records of the squared differences in one of a pair of draws."""
        self._squares[pair] += squares / 2

    def add_same(self, pair: int, ranks: slice, same: BoolArray) -> None:
        """Add which records of some ranks kept their value in one of a pair of draws."""
        self._hits[ranks] += same
        self._shares[pair] += np.count_nonzero(same) / (2 * self._hits.size)

    def mean(self, moving: float, zero_noise: int) -> Expectation:
        """Return the averages.

        Args:
            moving: Lower bound on the standard deviation of a pair's share of unchanged values, since a few
                draws may agree by chance.
            zero_noise: Number of records whose value gets no noise.
        """
        n_pairs = self._shares.size
        deviation = max(float(self._shares.std()) / (n_pairs - 1) ** 0.5, moving / n_pairs**0.5)
        return Expectation(float(self._squares.mean()), self._hits / (2.0 * n_pairs), deviation, zero_noise)


def round_centroids(noisy_sums: Int64Array, divisors: Int64Array, n_values: int) -> Int64Array:
    """Divide noisy sums, round to the nearest resolution unit and clamp to the domain, in integers.

    Args:
        noisy_sums: 2^f times the noisy sums, `(n_clusters,)`, or of several lists, `(n_lists, n_clusters)`.
        divisors: 2^f |C|, of the same shape.
        n_values: V; the domain is 0 to V - 1.

    Returns:
        Released values, of the same shape; halves are rounded up.
    """
    divisor = int(divisors.flat[0])
    if divisor & (divisor - 1) == 0 and np.all(divisors == divisor):
        # All clusters have one record: the last bit that is shifted out decides the rounding.
        quotients, places = noisy_sums.copy(), divisor.bit_length() - 1
        if places:
            quotients >>= places - 1
            halves = quotients & 1
            quotients >>= 1
            quotients += halves
    else:
        quotients, remainders = np.divmod(noisy_sums, divisors)
        quotients += remainders >= divisors - remainders
    return np.clip(quotients, 0, n_values - 1)


def ascending_centroids(noisy_sums: Int64Array, divisors: Int64Array) -> Float64Array:
    """Divide noisy sums and make them ascend.

    The true centroids ascend in rank order; the ascending list nearest to the noisy one, in squared distance
    weighted by cluster size, averages noise out where neighbours are not in order. Doubles are safe here,
    because the exact noise has already been added.

    Args:
        noisy_sums: As in `round_centroids`.
        divisors: As in `round_centroids`; they are the weights, being proportional to cluster sizes.

    Returns:
        Centroids, of the same shape, ascending in each list.
    """
    # The module takes longer to load than a small table to mask, and not every mechanism needs it.
    from scipy.optimize import isotonic_regression

    noisy = noisy_sums / divisors
    lists = zip(np.atleast_2d(noisy), np.atleast_2d(divisors), strict=True)
    return np.reshape(
        [isotonic_regression(values, weights=weights).x for values, weights in lists], noisy.shape
    )


def round_to_domain(values: Float64Array, n_values: int) -> Int64Array:
    """Clamp numbers after the noise to the domain, 0 to V - 1, and round them to resolution units."""
    rounded = np.clip(values, 0, n_values - 1)
    whole = np.rint(rounded, out=rounded).astype(np.int64)
    # In a domain of more than 2^53 values, a double may round its last integer up, out of the domain.
    return whole if n_values < MOST_EXACT else np.minimum(whole, n_values - 1)
