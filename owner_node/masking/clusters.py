"""Individual-ranking clusters: their sums, the local sensitivities of these, and integer noise scales.

Clusters are consecutive sorted values, k each, the last with the remainder.

*Sums*, plain and trimmed, are exact integers. Centroids come from them: noise is added to the sum, and the
division comes after it (MECHANISMS §6).

*Local sensitivities* say how far a sum of the actual data can move. They are exact integers, too.

*Noise scales* follow from local sensitivities, rounded up. Noise is added to 2^f times the sum of a cluster,
so scales are integers in units of 2^-f of a resolution unit (MECHANISMS §6). f is public: it follows from the
domain, k, epsilon and g alone.

References:
    Del Vasto-Terrientes et al. 2025, Algorithm 1 (individual ranking).
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from common.errors import UnusableDataError, UsageError
from owner_node.masking.arrays import LARGEST_INT64, Int64Array
from owner_node.values.taxonomy import Taxonomy

ClusterStatistic: TypeAlias = Callable[[Int64Array], Int64Array]
"""Maps sorted values of clusters of one size, `(n_clusters, size)`, to one integer each, `(n_clusters,)`."""


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

    def apply(self, sorted_values: Int64Array, statistic: ClusterStatistic) -> Int64Array:
        """Compute a statistic of every cluster.

        Args:
            sorted_values: `(n_records,)`, ascending.
            statistic: Computed once for all clusters of size k and once for the last.

        Returns:
            The statistics in rank order, `(n_clusters,)`.
        """
        ordinary = sorted_values[: self.last_start].reshape(-1, self.k)
        last = sorted_values[self.last_start :].reshape(1, -1)
        results = np.empty(self.n_clusters, dtype=np.int64)
        results[:-1] = statistic(ordinary)
        results[-1:] = statistic(last)
        return results


def plain_sums(rows: Int64Array, _g: int = 1) -> Int64Array:
    """Return the sum of each cluster.

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, in resolution units.

    Returns:
        The sums, `(n_clusters,)`, in resolution units.
    """
    # numpy takes many times as long to sum rows of one value each as to take the values.
    sums: Int64Array = rows.sum(axis=1) if rows.shape[1] > 1 else rows[:, 0]
    return sums


def trimmed_sums(rows: Int64Array, g: int = 1) -> Int64Array:
    """Return W_g, the trimmed sum of each cluster.

    The g smallest values are replaced by the (g+1)-th smallest, the g largest by the (g+1)-th largest
    (order statistics with repetition), so that the sum depends on no single extreme value.

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, size at least 2g + 1, in
            resolution units.
        g: The most records that one person has.

    Returns:
        The trimmed sums, `(n_clusters,)`, in resolution units.

    References:
        Soria-Comas et al. 2025, §3.2.2, for g = 1; the general form W_g is in MECHANISMS §4.
    """
    size = rows.shape[1]
    low, high = rows[:, g], rows[:, size - g - 1]
    # W_g = (g+1)(v_(g+1) + v_(q-g)) + the sum strictly between them; this form holds for q = 2g + 1, too.
    sums: Int64Array = g * (low + high) + rows[:, g : size - g].sum(axis=1)
    return sums


def rise(rows: Int64Array, g: int = 1) -> Int64Array:
    """Return E_up, the largest rise of each trimmed sum when g records change.

    The trimmed sum is monotone in the order statistics, so its largest rise is reached by removing the g
    smallest values and adding g values above the largest: W_g(v_(g+1) … v_q, then v_q g times) - W_g(v).
    The values that both have in common cancel. For g = 1 the rest is
    (M1 - m2) + (m3 - m2) + (M1 - M2).

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, size at least 2g + 1, in
            resolution units.
        g: The most records that one person has.

    Returns:
        The rises, `(n_clusters,)`, in resolution units of the sum.

    References:
        Soria-Comas et al. 2025, Proposition 9 (the two terms of the cluster-based local sensitivity).
    """
    size = rows.shape[1]
    ends = rows[:, 2 * g] + rows[:, -1] - rows[:, g] - rows[:, size - g - 1]
    moved: Int64Array = g * ends + rows[:, size - g :].sum(axis=1) - rows[:, g : 2 * g].sum(axis=1)
    return moved


def fall(rows: Int64Array, g: int = 1) -> Int64Array:
    """Return E_down, the largest fall of each trimmed sum when g records change.

    Mirrors `rise`: W_g(v) - W_g(v_1 g times, then v_1 … v_(q-g)); for g = 1 this is
    (M2 - m1) + (M2 - M3) + (m2 - m1).

    Args:
        rows: As in `rise`.
        g: The most records that one person has.

    Returns:
        The falls, `(n_clusters,)`, in resolution units of the sum, as numbers of at least 0.

    References:
        Soria-Comas et al. 2025, Proposition 9.
    """
    size = rows.shape[1]
    ends = rows[:, g] + rows[:, size - g - 1] - rows[:, 0] - rows[:, size - 2 * g - 1]
    moved: Int64Array = g * ends + rows[:, size - 2 * g : size - g].sum(axis=1) - rows[:, :g].sum(axis=1)
    return moved


def reach(rows: Int64Array, n_values: int) -> Int64Array:
    """Return max(U - min, max - L), how far one value of each cluster can move within the domain.

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, in resolution units above L.
        n_values: V; the domain is 0 to V - 1.

    Returns:
        The local sensitivities of the plain sums, `(n_clusters,)`, in resolution units.

    References:
        Soria-Comas et al. 2025, Proposition 8.
    """
    return np.maximum(n_values - 1 - rows[:, 0], rows[:, -1])


MOST_FRACTION_BITS = 20
TAIL = 64
"""Room above and below every sum, in scales; a draw exceeds it with probability below e^-64."""
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
    """The attribute's share of the budget."""
    k: int
    """Minimum cluster size; 1 where the mechanism makes no clusters."""
    g: int = 1
    """The most records that one person has."""
    taxonomy: Taxonomy | None = None
    """The taxonomy of its categories; None if the attribute has none."""

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
        setting: The attribute's setting.
        largest_scale: The mechanism's bound on the scale, in resolution units of the sum.

    Returns:
        The largest f with 2^f (2kV + 64 t_max) < 2^63.

    Raises:
        UnusableDataError: If there is none.
    """
    widest = 2 * setting.k * setting.n_values + TAIL * largest_scale
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
