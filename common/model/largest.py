"""The largest numbers that masking sums of clusters computes with: public, so that plans can refuse them.

Noisy sums are exact integers of 63 bits. Whether they fit follows from the domain, k, ε and g alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Protocol

LARGEST_INT64 = 2**63 - 1
TAIL = 64
"""Room above and below every sum, in scales; a draw exceeds it with probability below e^-64."""


class Numbers(Protocol):
    """The public numbers of an attribute that is masked."""

    @property
    def n_values(self) -> int:
        """V, the number of values of the domain."""

    @property
    def k(self) -> int:
        """Minimum cluster size; 1 where the mechanism makes no clusters."""

    @property
    def g(self) -> int:
        """The most records that one person has."""

    @property
    def exact_epsilon(self) -> Fraction:
        """The attribute's share of the budget."""


@dataclass(frozen=True, slots=True)
class PlannedNumbers:
    """The numbers of an attribute in a plan."""

    n_values: int
    k: int
    g: int
    exact_epsilon: Fraction


Trim = Callable[[Numbers], int]
"""h: how many values at each end of a cluster a mechanism trims."""
ScaleBound = Callable[[Numbers, int], int]
"""Maps numbers and h to the largest scale over all data, in resolution units of the sum."""


def trim_none(_setting: Numbers) -> int:
    """Return 0: plain sums."""
    return 0


def trim_changed(setting: Numbers) -> int:
    """Return g: as many values as one person can change."""
    return setting.g


def local_scale_bound(setting: Numbers, _h: int) -> int:
    """Return the largest scale of `local_scales` over all data: the whole domain."""
    return max(1, ceil((setting.n_values - 1) * setting.g / setting.exact_epsilon))


def smooth_scale_bound(setting: Numbers, _h: int) -> int:
    """Return the largest scale of `smooth_scales` over all data: the whole domain, at least one unit."""
    return ceil(max((setting.n_values - 1) * setting.g, 1) / setting.exact_epsilon)


def domain_scale_bound(setting: Numbers, _h: int) -> int:
    """Return the largest scale of `domain_scales`: a cluster has fewer than 2k records."""
    return max(1, ceil(2 * (setting.n_values - 1) * setting.g / setting.exact_epsilon))


def cluster_scale_bound(setting: Numbers, h: int) -> int:
    """Return the largest scale of `cluster_scales`: E_up and E_down are at most (2h + g)(max C - min C)."""
    return max(1, ceil((2 * h + setting.g) * (setting.n_values - 1) / setting.exact_epsilon))


def joint_scale_bound(setting: Numbers, h: int) -> int:
    """Return the largest scale of `joint_scales` over all data.

    E_up(C) and E_down(C) are at most (2h + g)(max C - min C), and the clusters' ranges do not overlap, so the
    sum of E(C)/|C| is at most (2h + g)(V - 1)/k; a cluster has fewer than 2k records.
    """
    widest = max((2 * h + setting.g) * (setting.n_values - 1), 1)
    return ceil(2 * widest / setting.exact_epsilon)


def widest_sum(numbers: Numbers, largest_scale: int) -> int:
    """Return 2kV + 64 t_max, which no noisy sum exceeds."""
    return 2 * numbers.k * numbers.n_values + TAIL * largest_scale


def fits(numbers: Numbers, trim: Trim, scale_bound: ScaleBound) -> bool:
    """Whether all noisy sums of a mechanism fit into 63 bits, whatever the data are."""
    return widest_sum(numbers, scale_bound(numbers, trim(numbers))) <= LARGEST_INT64
