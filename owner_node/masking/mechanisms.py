"""The mechanisms by id: sorted values in, the rank-ordered list of released values out.

What a mechanism promises is in `common.model.privacy`; here is what it does. A mechanism that adds noise to
sums of clusters is a `SumMechanism`; one that makes its list another way implements `Mechanism` itself. Which
record gets which entry of the list is not a mechanism's business.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np

from common.errors import UsageError
from common.model.privacy import HISTOGRAM
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.masking.clusters import (
    TAIL,
    Clusters,
    ScaleBound,
    Scales,
    Setting,
    cluster_scale_bound,
    cluster_scales,
    domain_scale_bound,
    domain_scales,
    fraction_bits,
    joint_scale_bound,
    joint_scales,
    local_scale_bound,
    local_scales,
    plain_sums,
    trimmed_sums,
)
from owner_node.masking.histogram import HistogramMechanism
from owner_node.masking.noise import add_saturating, discrete_laplace
from owner_node.masking.released import ReleasedList, round_centroids, round_monotone_centroids

DRAWS_PER_BLOCK = 2**17
"""Draws that are made at a time: drawing needs several times the memory of what is drawn."""


class Mechanism(Protocol):
    """Makes the released list of one attribute."""

    def check(self, setting: Setting) -> None:
        """Raise what `release` could raise because of the setting; called before anything is spent."""
        ...

    def release(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return the released list, in resolution units above L."""
        ...


@dataclass(frozen=True, slots=True)
class ExactSums:
    """The sums of the clusters of one attribute, and the scales of their noise."""

    sums: Int64Array
    """2^f T_C, `(n_clusters,)`."""
    scales: Int64Array
    """t_C, `(n_clusters,)`; 0 means no noise."""
    sizes: Int64Array
    """|C|, `(n_clusters,)`."""
    bits: int
    """f."""
    tail: int
    """The largest distance of a noisy sum below 0 that is told apart."""

    @property
    def divisors(self) -> Int64Array:
        """2^f |C|, by which a noisy sum becomes a centroid, `(n_clusters,)`."""
        return self.sizes << self.bits

    def noise(self, bits: BitSource) -> Iterator[tuple[slice, Int64Array]]:
        """Draw the noise of all sums, some clusters at a time.

        Yields:
            Which clusters, and their noise.
        """
        for first in range(0, self.scales.size, DRAWS_PER_BLOCK):
            block = slice(first, first + DRAWS_PER_BLOCK)
            yield block, discrete_laplace(self.scales[block], bits)

    def noisy(self, bits: BitSource) -> Int64Array:
        """Draw the noise and add it, in place: the sums are the noisy ones then, `(n_clusters,)`."""
        for block, noise in self.noise(bits):
            self.sums[block] = add_saturating(self.sums[block], noise, self.tail)
        return self.sums

    def repeated_noise(self, bits: BitSource, times: int) -> Iterator[Int64Array]:
        """Draw the noise of all sums several times, of few clusters several times at once.

        Yields:
            Some lists of noise at a time, `(n_lists, n_clusters)`; in the end as many as asked for.
        """
        at_once = max(1, DRAWS_PER_BLOCK // self.scales.size)
        for first in range(0, times, at_once):
            some = min(at_once, times - first)
            repeated = replace(self, scales=np.tile(self.scales, some))
            yield np.concatenate([drawn for _, drawn in repeated.noise(bits)]).reshape(some, -1)


@dataclass(frozen=True, slots=True)
class SumMechanism:
    """Individual-ranking clusters, one noisy sum each (MECHANISMS §2 and §6)."""

    sums: Callable[[Int64Array, int], Int64Array]
    """Sorted values of clusters of equal size and g to the sums the noise is added to."""
    scale_bound: ScaleBound
    """Public bound on the noise scale."""
    scales: Scales
    """The noise scale of each cluster."""
    monotone: bool
    """Whether the noisy centroids are made to ascend before they are rounded."""

    def check(self, setting: Setting) -> None:
        """Refuse a domain whose noisy sums cannot be kept exact.

        Raises:
            UnusableDataError: With the reason.
        """
        fraction_bits(setting, self.scale_bound(setting))

    def exact_sums(self, sorted_values: Int64Array, setting: Setting) -> ExactSums:
        """Return the sums of all clusters before their noise, and what it is drawn with."""
        clusters = Clusters(sorted_values.size, setting.k)
        bound = self.scale_bound(setting)
        f = fraction_bits(setting, bound)
        sums = clusters.apply(sorted_values, lambda rows: self.sums(rows, setting.g)) << f
        scales = self.scales(sorted_values, clusters, setting, f)
        return ExactSums(sums, scales, clusters.sizes, f, TAIL * bound << f)

    def noisy_sums(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> Int64Array:
        """Draw Y_C = 2^f T_C + DL(t_C) for every cluster, `(n_clusters,)`."""
        return self.exact_sums(sorted_values, setting).noisy(bits)

    def release(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return the released list.

        Args:
            sorted_values: `(n_records,)`, ascending, from 0 to V - 1, at least k of them.
            setting: What is agreed about the attribute.
            bits: Source of random bits.

        Returns:
            One value per cluster, from 0 to V - 1.
        """
        exact = self.exact_sums(sorted_values, setting)
        values = self.rounded(exact.noisy(bits), exact.divisors, setting.n_values)
        return ReleasedList(values, exact.sizes)

    def rounded(self, noisy: Int64Array, divisors: Int64Array, n_values: int) -> Int64Array:
        """Return the released values that noisy sums come to, by free post-processing.

        Args:
            noisy: Noisy sums, `(n_clusters,)`, or of several lists, `(n_lists, n_clusters)`.
            divisors: By which they become centroids, of the same shape.
            n_values: V.

        Returns:
            From 0 to V - 1, of the same shape.
        """
        if self.monotone:
            return round_monotone_centroids(noisy, divisors, n_values)
        return round_centroids(noisy, divisors, n_values)


@dataclass(frozen=True, slots=True)
class RecordMechanism(SumMechanism):
    """Records by themselves, one noisy value each (MECHANISMS §2, k = 1): in which order is no matter."""

    def release(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return one value per record, in the order of the records, whichever it is.

        Records are done some at a time: all that is made of them on the way stays in the processor's caches.
        """
        values = np.empty(sorted_values.size, dtype=np.int64)
        for first in range(0, values.size, DRAWS_PER_BLOCK):
            block = slice(first, first + DRAWS_PER_BLOCK)
            exact = self.exact_sums(sorted_values[block], setting)
            values[block] = self.rounded(exact.noisy(bits), exact.divisors, setting.n_values)
        return ReleasedList(values, np.broadcast_to(np.int64(1), values.size))


def _plain_sums(rows: Int64Array, _g: int) -> Int64Array:
    return plain_sums(rows)


MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {
        "dp": RecordMechanism(_plain_sums, domain_scale_bound, domain_scales, monotone=False),
        "dp-ir": SumMechanism(_plain_sums, domain_scale_bound, domain_scales, monotone=False),
        "idp": RecordMechanism(_plain_sums, local_scale_bound, local_scales, monotone=False),
        "idp-ls": SumMechanism(_plain_sums, local_scale_bound, local_scales, monotone=False),
        "idp-cbls": SumMechanism(trimmed_sums, cluster_scale_bound, cluster_scales, monotone=False),
        "idp-joint": SumMechanism(trimmed_sums, joint_scale_bound, joint_scales, monotone=True),
        HISTOGRAM: HistogramMechanism(),
    }
)


def mechanism(name: str) -> Mechanism:
    """Return a mechanism by its id.

    Raises:
        UsageError: If there is none of that id.
    """
    if name not in MECHANISMS:
        raise UsageError(f"unknown mechanism {name!r}", f"mechanisms are: {', '.join(sorted(MECHANISMS))}")
    return MECHANISMS[name]
