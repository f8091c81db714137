"""Released lists: what every kind of mechanism makes, what is expected of it, and how centroids are rounded.

A list is made to ascend by isotonic regression, by pooling. Neighbours that do not ascend have one value in
the nearest list, whichever are found first. So all of them are pooled at once, and again as long as there are
some, which is a few rounds. scipy does the same pair by pair; to load its optimisation takes longer than
masking a table of some ten thousand records.

References:
    Robertson, Wright and Dykstra 1988, Order Restricted Statistical Inference, section 1.2: violators may be
    pooled in any order.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import (
    LARGEST_INT64,
    BitSource,
    BoolArray,
    Float64Array,
    Int64Array,
)
from owner_node.masking.clusters import Setting

HALF = 32
MOST_ROUNDS = 32
"""A round looks at all pools. Some lists take as many rounds as they are long; these are left to scipy."""


@dataclass(frozen=True, slots=True)
class ReleasedList:
    """The rank-ordered list of released values: one of the two products of masking (MECHANISMS §1)."""

    values: Int64Array
    """One released value per cluster, `(n_clusters,)`, in resolution units; in rank order, or in the order of
    the records where each is a cluster by itself."""
    sizes: Int64Array
    """Number of records of each cluster, `(n_clusters,)`."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of one attribute, before its noise is drawn."""

    squared_error: float
    """Expected sum over the records of the squared difference between released and original value."""
    unchanged: Float64Array
    """Probability that a record's value leaves unchanged, `(n_records,)`, in the original order."""
    deviation: float
    """Standard error of the mean of `unchanged`; 0 where that is exact."""
    zero_noise: int
    """Number of records whose value gets no noise."""


class ListMechanism(ABC):
    """The private half of a mechanism: makes the released list of one attribute, and forecasts it.

    The public half is the entry of the same id in `common.model.mechanisms`. Which record gets which entry of
    the list is not a mechanism's business.
    """

    @property
    def ascending(self) -> bool:
        """Whether the released values are sure to ascend with the ranks."""
        return False

    @abstractmethod
    def check(self, setting: Setting) -> None:
        """Refuse a setting that the list cannot be made with exactly; called before anything is spent.

        Raises:
            UnusableDataError: With the reason.
        """

    @abstractmethod
    def release(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return the released list.

        Args:
            sorted_values: `(n_records,)`, ascending, from 0 to V - 1, at least k of them.
            setting: What is agreed about the attribute.
            bits: Source of random bits.

        Returns:
            Values from 0 to V - 1.
        """

    def release_counts(self, counts: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return the released list, as `release` does.

        Args:
            counts: Exact count of every value, `(V,)`.
            setting: What is agreed about the attribute.
            bits: Source of random bits.
        """
        return self.release(np.repeat(np.arange(counts.size), counts), setting, bits)

    @abstractmethod
    def expect(
        self,
        sorted_values: Int64Array,
        assigned: Int64Array,
        setting: Setting,
        bits: BitSource,
        n_pairs: int,
    ) -> Expectation:
        """Compute or estimate what the released list does to the values, without a draw of any release.

        Args:
            sorted_values: As in `release`.
            assigned: The values of the records that get the entries, rank by rank, `(n_records,)`.
            setting: What is agreed about the attribute.
            bits: Source of random bits.
            n_pairs: Draws of the noise of the whole list where draws are needed, at least two, each used with
                both signs.
        """

    def spread(self, sorted_values: Int64Array, _setting: Setting) -> float:
        """Return the sum of squared differences from the best single value, here the mean."""
        return float(np.square(sorted_values - sorted_values.mean()).sum())


class DrawnExpectation:
    """Averages over drawn lists, each noise used with both signs, which have the same probability."""

    def __init__(self, n_records: int, n_pairs: int) -> None:
        """Prepare for so many pairs of draws."""
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
            moving: The least standard deviation of a pair's share of unchanged values: a few draws may agree
                by chance.
            zero_noise: Number of records whose value gets no noise.
        """
        n_pairs = self._shares.size
        deviation = max(float(self._shares.std()) / (n_pairs - 1) ** 0.5, moving / n_pairs**0.5)
        return Expectation(float(self._squares.mean()), self._hits / (2.0 * n_pairs), deviation, zero_noise)


def nearest_ascending(sums: Int64Array, weights: Int64Array, begins: BoolArray | None = None) -> Float64Array:
    """Return the ascending list with the least weighted squared distance from `sums / weights`.

    Args:
        sums: What each value is multiplied by its weight, `(n,)`.
        weights: Positive weights, `(n,)`, whose sum fits into 63 bits.
        begins: Where a list begins if there are several, one after the other, `(n,)`; the first always does.

    Returns:
        The list, or each list by itself, `(n,)`.
    """
    edges, reached, reached_weights = np.arange(sums.size + 1), _running_totals(sums), _running_total(weights)
    means = sums / weights
    if begins is None:
        begins = edges[:-1] == 0
    for _ in range(MOST_ROUNDS):
        ascends = begins.copy()
        ascends[1:] |= means[1:] > means[:-1]
        firsts = np.flatnonzero(ascends)
        if firsts.size == means.size:
            break
        edges, begins = edges[np.append(firsts, means.size)], begins[firsts]
        pooled = sum(unit * np.diff(total[edges]) for total, unit in reached)
        means = pooled / np.diff(reached_weights[edges])
    else:
        means = _by_pairs(means, np.diff(reached_weights[edges]), begins)
    return np.repeat(means, np.diff(edges))


def _running_totals(sums: Int64Array) -> list[tuple[Int64Array, float]]:
    """Return the totals of the first q sums for every q, exact: in two parts where one would pass 63 bits."""
    if max(int(sums.max()), -int(sums.min())) <= LARGEST_INT64 // sums.size:
        return [(_running_total(sums), 1.0)]
    return [(_running_total(sums >> HALF), 2.0**HALF), (_running_total(sums & (2**HALF - 1)), 1.0)]


def _running_total(numbers: Int64Array) -> Int64Array:
    total = np.zeros(numbers.size + 1, dtype=np.int64)
    np.cumsum(numbers, out=total[1:])
    return total


def _by_pairs(means: Float64Array, weights: Int64Array, begins: BoolArray) -> Float64Array:
    from scipy.optimize import isotonic_regression

    starts = np.flatnonzero(begins)[1:]
    lists = zip(np.split(means, starts), np.split(weights, starts), strict=True)
    return np.concatenate([isotonic_regression(each, weights=weight).x for each, weight in lists])


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
        # Records by themselves: what is shifted out last says where to round.
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


def round_monotone_centroids(noisy_sums: Int64Array, divisors: Int64Array, n_values: int) -> Int64Array:
    """Divide noisy sums, make them ascend, then clamp to the domain and round.

    The true centroids ascend in rank order; the ascending list nearest to the noisy one, in squared distance
    weighted by cluster size, averages noise away where neighbours disagree. Doubles do no harm here: the
    noise has been added, exactly, before.

    Args:
        noisy_sums: As in `round_centroids`.
        divisors: As in `round_centroids`; in the ratio of the clusters' sizes, they are the weights.
        n_values: As in `round_centroids`.

    Returns:
        Released values, of the same shape, ascending in each list.
    """
    begins = np.zeros(noisy_sums.shape, dtype=np.bool_)
    begins[..., 0] = True
    ascending = nearest_ascending(noisy_sums.ravel(), divisors.ravel(), begins.ravel())
    ascending = ascending.reshape(noisy_sums.shape)
    rounded = np.rint(np.clip(ascending, 0, n_values - 1)).astype(np.int64)
    # A domain of more than 2^53 values ends at an integer that a double may round up past its end.
    return np.minimum(rounded, n_values - 1)
