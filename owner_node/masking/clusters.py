"""Individual-ranking clusters: their sums, the local sensitivities of these, and integer noise scales.

Clusters are consecutive sorted values, k each, the last with the remainder.

*Sums*, plain and trimmed, are exact integers. Centroids come from them: noise is added to the sum, and the
division comes after it (docs/guarantee.md, "From the formulas to the program").

*Local sensitivities* say how far a sum of the actual data can move. They are exact integers, too.

*Noise scales* follow from local sensitivities, rounded up. Noise is added to 2^f times the sum of a cluster,
so scales are integers in units of 2^-f of a resolution unit. f is public: it follows from the domain, k,
epsilon and g alone.

References:
    Del Vasto-Terrientes et al. 2025, Algorithm 1 (individual ranking).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np

from common.errors import UnusableDataError, UsageError
from common.model.largest import widest_sum
from owner_node.masking.arrays import LARGEST_INT64, Int64Array
from owner_node.values.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class Clusters:
    """How sorted records are divided into clusters; this depends on two numbers, never on the values."""

    n_records: int
    """Number of records, at least k."""
    k: int
    """Minimum cluster size."""

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n_records:
            raise ValueError(f"{self.n_records} records make no cluster of {self.k}")

    @property
    def n_clusters(self) -> int:
        """p, the number of clusters."""
        return self.n_records // self.k

    @property
    def last_start(self) -> int:
        """Rank at which the last cluster starts; every cluster before it has exactly k records."""
        return (self.n_clusters - 1) * self.k

    @property
    def last_size(self) -> int:
        """Number of records of the last cluster, from k to 2k - 1."""
        return self.n_records - self.last_start

    @property
    def sizes(self) -> Int64Array:
        """Number of records of each cluster, `(n_clusters,)`."""
        return self.per_size(self.k, self.last_size)

    def per_size(self, ordinary: int, last: int) -> Int64Array:
        """Return an array `(n_clusters,)` with one number for all clusters of size k and one for the last."""
        numbers = np.full(self.n_clusters, ordinary, dtype=np.int64)
        numbers[-1] = last
        return numbers

    def blocks(self, n_records: int, begin: int = 0) -> Iterator[tuple[slice, slice, tuple[int, int]]]:
        """Divide the clusters into blocks of whole clusters of one size.

        Args:
            n_records: Approximate number of records of a block.

        Yields:
            A slice of clusters, a slice of ranks, and the shape (n_clusters, size) of their values.
        """
        last = self.n_clusters - 1
        step = max(1, n_records // self.k)
        for first in range(begin, last, step):
            after = min(first + step, last)
            yield slice(first, after), slice(first * self.k, after * self.k), (after - first, self.k)
        yield slice(last, last + 1), slice(self.last_start, self.n_records), (1, self.last_size)


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """The numbers of clusters that mechanisms on sums need.

    Everything that trimming and local sensitivities look at is near the ends of a cluster: v_1 … v_m and
    v_(q-m+1) … v_q of its q sorted values. W_h, its sum with the h smallest values replaced by v_(h+1) and
    the h largest by v_(q-h), is

        W_h(v) = h (v_(h+1) + v_(q-h)) + Σ_(i=h+1)^(q-h) v_i.

    W_h is monotone in the order statistics. So its largest rise, when g ≤ h records change, is reached by
    removing the g smallest values and adding g values above all others, and its largest fall by the reverse.
    What both sums have in common cancels:

        E_up   = h (v_(h+1+g) - v_(h+1) + v_(q-h+g) - v_(q-h)) + Σ_(i=q-h+1)^(q-h+g) v_i - Σ_(i=h+1)^(h+g) v_i
        E_down = h (v_(h+1) - v_(h+1-g) + v_(q-h) - v_(q-h-g)) + Σ_(i=q-h-g+1)^(q-h) v_i - Σ_(i=h+1-g)^h v_i

    References:
        Soria-Comas et al. 2025, §3.2.2 and Proposition 9, for h = g = 1.
        docs/guarantee.md, "idp-joint", for others.
    """

    clusters: Clusters
    """How the records are divided."""
    sums: Int64Array
    """Sum of all values of each cluster, `(n_clusters,)`, in resolution units above L."""
    lowest: Int64Array
    """The m smallest values of each cluster, ascending, `(n_clusters, m)`."""
    highest: Int64Array
    """The m largest values of each cluster, ascending, `(n_clusters, m)`."""
    smallest: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The smallest values of all records, ascending, `(tail,)`."""
    largest: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The largest values of all records, ascending, `(tail,)`."""
    at_spikes: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """How many records have each declared spike, `(n_spikes,)`."""

    @classmethod
    def of(
        cls,
        sorted_values: Int64Array,
        clusters: Clusters,
        depth: int,
        tail: int = 0,
        spikes: Sequence[int] = (),
    ) -> "ClusterStatistics":
        """Compute the statistics of sorted values.

        Args:
            sorted_values: `(n_records,)`, ascending, in resolution units above L.
            depth: m, at most k.
            tail: How many of the smallest and of the largest values of all records are kept.
            spikes: The declared spikes, in resolution units above L.
        """
        rows = sorted_values[: clusters.last_start].reshape(-1, clusters.k)
        last = sorted_values[clusters.last_start :].reshape(1, -1)
        parts = rows, last
        return cls(
            clusters,
            np.concatenate([part.sum(axis=1) for part in parts]),
            np.concatenate([part[:, :depth] for part in parts]),
            np.concatenate([part[:, part.shape[1] - depth :] for part in parts]),
            sorted_values[:tail],
            sorted_values[sorted_values.size - tail :],
            count_spikes(sorted_values, spikes),
        )

    def trimmed_sums(self, h: int) -> Int64Array:
        """Return W_h, the sum of each cluster with h values at each end trimmed, `(n_clusters,)`."""
        if h == 0:
            return self.sums
        first = self.highest.shape[1] - h
        ends: Int64Array = self.lowest[:, h] + self.highest[:, first - 1]
        low, high = self.lowest[:, :h].sum(axis=1), self.highest[:, first:].sum(axis=1)
        trimmed: Int64Array = self.sums - low - high + h * ends
        return trimmed

    def rises(self, h: int, g: int) -> Int64Array:
        """Return E_up, the largest rise of each W_h when g ≤ h records change, `(n_clusters,)`."""
        low, high, first = self.lowest, self.highest, self.highest.shape[1] - h
        ends = low[:, h + g] - low[:, h] + high[:, first - 1 + g] - high[:, first - 1]
        moved: Int64Array = h * ends + high[:, first : first + g].sum(axis=1) - low[:, h : h + g].sum(axis=1)
        return moved

    def falls(self, h: int, g: int) -> Int64Array:
        """Return E_down, the largest fall of each W_h when g ≤ h records change, `(n_clusters,)`."""
        low, high, first = self.lowest, self.highest, self.highest.shape[1] - h
        ends = low[:, h] - low[:, h - g] + high[:, first - 1] - high[:, first - 1 - g]
        moved: Int64Array = h * ends + high[:, first - g : first].sum(axis=1) - low[:, h - g : h].sum(axis=1)
        return moved

    def reaches(self, n_values: int) -> Int64Array:
        """Return max(U - min, max - L), how far one value of each cluster can move in the domain 0 to V - 1.

        References:
            Soria-Comas et al. 2025, Proposition 8.
        """
        return np.maximum(n_values - 1 - self.lowest[:, 0], self.highest[:, -1])


class StreamedStatistics:
    """Computes `ClusterStatistics` of sorted values that come some at a time."""

    def __init__(self, clusters: Clusters, depth: int, tail: int = 0, spikes: Sequence[int] = ()) -> None:
        """Start at the first rank.

        Args:
            depth: m, at most k.
        """
        self._spikes, self._at_spikes = spikes, np.zeros(len(spikes), dtype=np.int64)
        shape = (clusters.n_clusters, depth)
        self._clusters, self._depth, self._next = clusters, depth, 0
        self._sums = np.zeros(clusters.n_clusters, dtype=np.int64)
        self._lowest, self._highest = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        self._smallest, self._largest = np.empty(tail, dtype=np.int64), np.empty(tail, dtype=np.int64)

    def add(self, values: Int64Array) -> None:
        """Add the values of the next ranks, ascending, in resolution units above L."""
        k, last = self._clusters.k, self._clusters.n_clusters - 1
        first, after = self._next, self._next + values.size
        self._next = after
        self._at_spikes += count_spikes(values, self._spikes)
        low, high = min(first // k, last), min((after - 1) // k, last)
        numbers = np.arange(low, high + 1)
        starts = numbers * k
        ends = np.where(numbers < last, starts + k, self._clusters.n_records)
        self._sums[low : high + 1] += np.add.reduceat(values, np.maximum(starts - first, 0))
        for index in range(self._depth):
            for kept, ranks in ((self._lowest, starts + index), (self._highest, ends - self._depth + index)):
                here = (ranks >= first) & (ranks < after)
                kept[numbers[here], index] = values[ranks[here] - first]
        largest_from = self._clusters.n_records - self._largest.size
        for tail, begin in ((self._smallest, 0), (self._largest, largest_from)):
            low, high = max(first, begin), min(after, begin + tail.size)
            if low < high:
                tail[low - begin : high - begin] = values[low - first : high - first]

    def result(self) -> ClusterStatistics:
        """Return the statistics, once all values were added."""
        return ClusterStatistics(
            self._clusters,
            self._sums,
            self._lowest,
            self._highest,
            self._smallest,
            self._largest,
            self._at_spikes,
        )


def count_spikes(ascending: Int64Array, spikes: Sequence[int]) -> Int64Array:
    """Count the values that are spikes, `(n_spikes,)`."""
    counts: Int64Array = np.searchsorted(ascending, spikes, "right") - np.searchsorted(ascending, spikes)
    return counts.astype(np.int64, copy=False)


MOST_FRACTION_BITS = 20
WIDEST_DENOMINATOR = 2**61
"""Denominators of scale factors are below it; they divide the numerator of epsilon."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The agreed, public settings for masking one attribute."""

    attribute: str
    """Name, for error messages."""
    n_values: int
    """V, the number of values of the domain; the values are 0 to V - 1."""
    epsilon: Decimal
    """The attribute's share of the budget, without that of the counts of spikes."""
    k: int
    """Minimum cluster size; 1 where the mechanism makes no clusters."""
    g: int = 1
    """The most records that one person has."""
    taxonomy: Taxonomy | None = None
    """The taxonomy of its categories; None if the attribute has none."""
    ordered: bool = True
    """Whether the order of its values means something."""
    keeps_missing: bool = False
    """Whether V - 1 stands for a missing value, which has no place in the order."""
    spikes: tuple[int, ...] = ()
    """Values that are counted for themselves, ascending, from 0 to V - 1."""
    epsilon_spikes: Decimal = Decimal(0)
    """What the counts of spikes get, beside `epsilon`."""

    def __post_init__(self) -> None:
        if not self.epsilon.is_finite() or self.epsilon <= 0:
            raise UsageError(
                f"attribute {self.attribute!r}: epsilon must be positive, not {self.epsilon}",
                "write epsilon as a positive decimal number, for example 0.5 or 1",
            )
        if self.exact_epsilon.numerator >= WIDEST_DENOMINATOR:
            raise UsageError(
                f"attribute {self.attribute!r}: epsilon has too many digits for exact scales",
                "use at most 12 decimal places and 6 digits before them",
            )

    @property
    def exact_epsilon(self) -> Fraction:
        """The share as a fraction."""
        return Fraction(self.epsilon)


def fraction_bits(setting: Setting, largest_scale: int) -> int:
    """Return f, the largest number up to 20 for which no noisy sum can exceed 63 bits.

    Args:
        largest_scale: The mechanism's bound on the scale, in resolution units of the sum.

    Returns:
        The largest f with 2^f (2kV + 64 t_max) < 2^63.

    Raises:
        UnusableDataError: If there is none.
    """
    widest = widest_sum(setting, largest_scale)
    for bits in range(MOST_FRACTION_BITS, -1, -1):
        if widest << bits <= LARGEST_INT64:
            return bits
    raise UnusableDataError(
        f"attribute {setting.attribute!r}: sums of {2 * setting.k} of {setting.n_values} possible values and"
        " their noise do not fit into 63 bits",
        "declare fewer decimals or a narrower domain, or ask for a larger epsilon or a smaller k",
        {"attribute": setting.attribute, "values": setting.n_values, "k": setting.k},
    )


def multiply_up(values: Int64Array, factor: Fraction) -> Int64Array:
    """Return ceil(values * factor), exactly, without a product of more than 63 bits.

    A value is split by the factor's denominator; the numerator then enters a few bits at a time, as in
    multiplication by hand, and the part above the denominator is carried over at each step.

    Args:
        values: Integers of at least 0 whose results fit into 63 bits, `(n,)`.
        factor: A positive factor with a denominator below `WIDEST_DENOMINATOR`, as every setting has.

    Returns:
        The products, rounded up, `(n,)`.
    """
    numerator, denominator = factor.numerator, factor.denominator
    if max(int(values.max()), 1) * numerator + denominator <= LARGEST_INT64:
        products = values * numerator
        if denominator > 1:
            products += denominator - 1
            products //= denominator
        return products
    step = 62 - denominator.bit_length()
    n_steps = -(-numerator.bit_length() // step)
    whole, rest = np.divmod(values, denominator)
    carried, remainder = np.zeros_like(values), np.zeros_like(values)
    for index in range(n_steps - 1, -1, -1):
        piece = (numerator >> (index * step)) & ((1 << step) - 1)
        more, remainder = np.divmod((remainder << step) + rest * piece, denominator)
        carried = (carried << step) + more
    # The numerator is Python's integer: where it is wider than 63 bits, no whole part can be above 0.
    from_whole = whole * numerator if numerator <= LARGEST_INT64 else np.zeros_like(values)
    result: Int64Array = from_whole + carried + (remainder > 0)
    return result
