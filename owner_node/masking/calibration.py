"""Integer noise scales from local sensitivities: exact, rounded up, and the grid they live on.

Noise is added to 2^f times the sum of a cluster, so scales are integers in units of 2^-f of a resolution unit
(MECHANISMS §6). f is public: it follows from the domain, k, epsilon and g alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil

import numpy as np

from common.errors import UnusableDataError, UsageError
from owner_node.masking.arrays import LARGEST_INT64, Int64Array
from owner_node.masking.clusters import Clusters
from owner_node.masking.sensitivity import fall, reach, rise

MOST_FRACTION_BITS = 20
TAIL = 64
"""Scales of room above and below every sum; a draw goes further with probability below e^-64."""
WIDEST_DENOMINATOR = 2**61
"""Factors of scales stay below it: one over epsilon, whose numerator is the denominator here."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is agreed about masking one attribute; all of it public."""

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


ScaleBound = Callable[[Setting], int]
"""The largest scale that a mechanism can come to with any data, in resolution units of the sum."""
Scales = Callable[[Int64Array, Clusters, Setting, int], Int64Array]
"""Sorted values, clusters, setting, f to one scale per cluster, `(n_clusters,)`, in 2^-f resolution units."""


def fraction_bits(setting: Setting, largest_scale: int) -> int:
    """Return f, the largest up to 20 for which no noisy sum can pass 63 bits.

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


def local_scale_bound(setting: Setting) -> int:
    """Return the largest scale of `local_scales` over all data: the whole domain."""
    return max(1, ceil((setting.n_values - 1) * setting.g / setting.exact_epsilon))


def local_scales(sorted_values: Int64Array, clusters: Clusters, setting: Setting, bits: int) -> Int64Array:
    """Return the scales of `idp-ls`: t_C = ceil(2^f g max(U - min, max - L) / epsilon), at least 1.

    With g records per person each record gets epsilon / g, which here composes.

    References:
        Soria-Comas et al. 2025, Proposition 8.
    """
    moves = clusters.apply(sorted_values, lambda rows: reach(rows, setting.n_values))
    factor = Fraction(setting.g << bits) / setting.exact_epsilon
    return np.maximum(multiply_up(moves, factor), 1)


def domain_scale_bound(setting: Setting) -> int:
    """Return the largest scale of `domain_scales`: a cluster has fewer than 2k records."""
    return max(1, ceil(2 * (setting.n_values - 1) * setting.g / setting.exact_epsilon))


def domain_scales(_values: Int64Array, clusters: Clusters, setting: Setting, bits: int) -> Int64Array:
    """Return the scales of `dp` and `dp-ir`: t_C = ceil(2^f g (U - L) |C| / (k epsilon)), at least 1.

    No value enters them. One changed record moves the sums of all clusters together by at most U - L, since
    the moves telescope: what enters a cluster at one end is what left its neighbour. With g records per
    person each record gets epsilon / g, which here composes.

    References:
        Sánchez et al. 2016, Lemma 1 and Algorithm 1. Soria-Comas et al. 2025, §4.1, for k = 1.
    """
    width = Fraction(setting.g * (setting.n_values - 1) << bits) / (setting.exact_epsilon * setting.k)
    return clusters.per_size(max(ceil(width * clusters.k), 1), max(ceil(width * clusters.last_size), 1))


def cluster_scale_bound(setting: Setting) -> int:
    """Return the largest scale of `cluster_scales`: E_up and E_down are at most 3g (max C - min C)."""
    return max(1, ceil(3 * (setting.n_values - 1) * setting.g / setting.exact_epsilon))


def cluster_scales(sorted_values: Int64Array, clusters: Clusters, setting: Setting, bits: int) -> Int64Array:
    """Return the scales of `idp-cbls`: t_C = ceil(2^f S_g(C) / epsilon), and 0, no noise, where S_g(C) = 0.

    Each cluster is calibrated to itself alone, to g changed records and never to epsilon / g.

    References:
        Soria-Comas et al. 2025, Proposition 9; Soria-Comas et al. 2017, Definition 6, for g records.
    """
    moves = clusters.apply(
        sorted_values, lambda rows: np.maximum(rise(rows, setting.g), fall(rows, setting.g))
    )
    return multiply_up(moves, Fraction(1 << bits) / setting.exact_epsilon)


def joint_scale_bound(setting: Setting) -> int:
    """Return the largest scale of `joint_scales` over all data.

    E_up(C) and E_down(C) are at most 3g (max C - min C), and the clusters' ranges do not overlap, so the sum
    of E(C)/|C| is at most 3g (V - 1)/k; a cluster has fewer than 2k records.
    """
    return ceil(2 * max(3 * setting.g * (setting.n_values - 1), 1) / setting.exact_epsilon)


def joint_sensitivity(sorted_values: Int64Array, clusters: Clusters, g: int = 1) -> Fraction:
    """Return Λ, the local L1-sensitivity of the vector of all trimmed centroids, in resolution units.

    One changed record moves all touched clusters the same way, so for g = 1 it is the larger of the summed
    rises and the summed falls. Several may move in opposite directions: for g > 1 it is the sum of the larger
    of each.

    References:
        Soria-Comas et al. 2017, Proposition 5, applied to all centroids at once.
    """
    rises = clusters.apply(sorted_values, lambda rows: rise(rows, g))
    falls = clusters.apply(sorted_values, lambda rows: fall(rows, g))
    if g > 1:
        return _sum_per_record(np.maximum(rises, falls), clusters)
    return max(_sum_per_record(rises, clusters), _sum_per_record(falls, clusters))


def joint_scales(sorted_values: Int64Array, clusters: Clusters, setting: Setting, bits: int) -> Int64Array:
    """Return the scales of `idp-joint`: t_C = ceil(2^f |C| b) with b = max(Λ, 1/k) / epsilon.

    One b for all clusters. Rounding up keeps the joint bound, since every term 2^f E(C)/t_C falls as t_C
    grows. The floor of one resolution unit in one cluster keeps an attribute without variation from leaving
    exactly.
    """
    sensitivity = joint_sensitivity(sorted_values, clusters, setting.g)
    scale = max(sensitivity, Fraction(1, setting.k)) / setting.exact_epsilon * 2**bits
    return clusters.per_size(ceil(clusters.k * scale), ceil(clusters.last_size * scale))


def multiply_up(values: Int64Array, factor: Fraction) -> Int64Array:
    """Return ceil(values * factor), exactly, without a product ever passing 63 bits.

    A value is split by the factor's denominator; the numerator then enters a few bits at a time, as in
    multiplication by hand, and what exceeds the denominator is carried over at each step.

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


def _sum_per_record(moves: Int64Array, clusters: Clusters) -> Fraction:
    """Return the sum over clusters of moves / |C|, exactly.

    The sum of the moves fits: clusters do not overlap, so it is at most 3g (V - 1), below 2kV.
    """
    ordinary = int(moves[:-1].sum())
    return Fraction(ordinary, clusters.k) + Fraction(int(moves[-1]), clusters.last_size)
