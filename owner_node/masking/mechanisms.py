"""The private half of every mechanism, by id: its noise scale, its draws and its forecast.

A mechanism turns sorted values into the rank-ordered list of released values. Its public half, which has the
promise, is in `common.model.mechanisms`: a new mechanism is one entry there and one here. A mechanism that
adds noise to sums of clusters is a `SumMechanism`; one that makes its list differently has its own file.

A forecast is a mean over noise drawn for it alone, in doubles, since nothing computed there is released.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from math import ceil
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from common.errors import UnusableDataError
from common.model.counts import nearest_counts, whole_counts
from common.model.largest import TAIL, ScaleBound, Trim
from common.model.mechanisms import MECHANISMS as RULES
from common.model.tails import Tails
from owner_node.masking.arrays import BitSource, Float64Array, Int64Array
from owner_node.masking.clusters import (
    Clusters,
    ClusterStatistics,
    Setting,
    count_spikes,
    fraction_bits,
    multiply_up,
)
from owner_node.masking.exponential import TaxonomyMechanism
from owner_node.masking.histogram import HistogramMechanism
from owner_node.masking.lists import (
    DrawnExpectation,
    Expectation,
    ListMechanism,
    ReleasedList,
    Statistics,
    StreamedList,
    ascending_centroids,
    clusters_in,
    round_centroids,
    round_to_domain,
)
from owner_node.masking.noise import (
    LARGEST_SCALE,
    add_saturating,
    discrete_laplace,
    own_laplace,
    shared_laplace,
    uniform_below,
)
from owner_node.masking.quantiles import (
    LinearList,
    Stretch,
    at_middles,
    joined,
    linear_blocks,
    linear_list,
    rotated,
    shuffled_blocks,
    stretches_of,
)
from owner_node.masking.tails import inner_sizes, inner_sums, smooth_range

DRAWS_PER_BLOCK = 2**17
"""Draws made at a time: drawing needs several times the memory of its result."""
RECORDS_PER_BLOCK = 2**16
"""Records, or clusters of one record, that a forecast reads at a time: they stay in the caches."""
Scales = Callable[[ClusterStatistics, Setting, int, int], Int64Array]
"""Maps statistics, setting, h and f to scales, `(n_clusters,)`, in 2^-f resolution units."""


# --- scales ---------------------------------------------------------------------------------------------


def local_scales(statistics: ClusterStatistics, setting: Setting, _h: int, bits: int) -> Int64Array:
    """Return the scales of `idp-ls`: t_C = ceil(2^f g max(U - min, max - L) / epsilon), at least 1.

    With g records per person each record gets epsilon / g, which here composes.

    References:
        Soria-Comas et al. 2025, Proposition 8.
    """
    factor = Fraction(setting.g << bits) / setting.exact_epsilon
    return np.maximum(multiply_up(statistics.reaches(setting.n_values), factor), 1)


def domain_scales(statistics: ClusterStatistics, setting: Setting, _h: int, bits: int) -> Int64Array:
    """Return the scales of `dp`, `dp-ir` and `dp-quantiles`: t_C = ceil(2^f g (U - L) |C| / (k epsilon)).

    They do not depend on values; they are at least 1. One changed record moves the sums of all clusters
    together by at most U - L, since the moves telescope: the value that enters a cluster at one end has left
    its neighbour. With g records per person each record gets epsilon / g, which here composes.

    References:
        Sánchez et al. 2016, Lemma 1 and Algorithm 1. Soria-Comas et al. 2025, §4.1, for k = 1.
    """
    clusters = statistics.clusters
    width = Fraction(setting.g * (setting.n_values - 1) << bits) / (setting.exact_epsilon * setting.k)
    return clusters.per_size(max(ceil(width * clusters.k), 1), max(ceil(width * clusters.last_size), 1))


def cluster_scales(statistics: ClusterStatistics, setting: Setting, h: int, bits: int) -> Int64Array:
    """Return the scales of `idp-cbls`: t_C = ceil(2^f S_g(C) / epsilon), and 0, no noise, where S_g(C) = 0.

    Each cluster is calibrated to itself alone, to g changed records and never to epsilon / g.

    References:
        Soria-Comas et al. 2025, Proposition 9; Soria-Comas et al. 2017, Definition 6, for g records.
    """
    moves = np.maximum(statistics.rises(h, setting.g), statistics.falls(h, setting.g))
    return multiply_up(moves, Fraction(1 << bits) / setting.exact_epsilon)


def joint_sensitivity(statistics: ClusterStatistics, h: int, g: int = 1) -> Fraction:
    """Return Λ, the local L1-sensitivity of the vector of all trimmed centroids, in resolution units.

    One changed record moves all touched clusters the same way, so for g = 1 it is the larger of the summed
    rises and the summed falls. Several records may move clusters in opposite directions: for g > 1 it is the
    sum over clusters of the larger of rise and fall.

    References:
        Soria-Comas et al. 2017, Proposition 5, applied to all centroids at once.
    """
    rises, falls, clusters = statistics.rises(h, g), statistics.falls(h, g), statistics.clusters
    if g > 1:
        return _sum_per_record(np.maximum(rises, falls), clusters)
    return max(_sum_per_record(rises, clusters), _sum_per_record(falls, clusters))


def joint_scales(statistics: ClusterStatistics, setting: Setting, h: int, bits: int) -> Int64Array:
    """Return the scales of `idp-joint`: t_C = ceil(2^f |C| b), b = max(Λ, 1/k) / epsilon.

    b is the same for all clusters. Rounding up keeps the joint bound, since every term 2^f E(C)/t_C falls as
    t_C grows. Because of the floor of one resolution unit in one cluster the scale is never 0; where kε is
    well above 1, rounding still returns an attribute without variation to its one value.
    """
    clusters, sensitivity = statistics.clusters, joint_sensitivity(statistics, h, setting.g)
    scale = max(sensitivity, Fraction(1, setting.k)) / setting.exact_epsilon * 2**bits
    return clusters.per_size(ceil(clusters.k * scale), ceil(clusters.last_size * scale))


def smooth_scales(statistics: ClusterStatistics, setting: Setting, _h: int, bits: int) -> Int64Array:
    """Return the scales of `idp-quantiles`: t_C = ceil(2^f max(S, 1) / epsilon), S as in `tails`.

    Because of the floor of one resolution unit the scale is never 0.
    """
    clusters = statistics.clusters
    tails = Tails.of(clusters.n_records, clusters.k, setting.g)
    spread = smooth_range(statistics, setting.n_values, tails)
    scale = ceil(max(spread, Fraction(1)) / setting.exact_epsilon * 2**bits)
    return np.full(clusters.n_clusters, scale)


def _sum_per_record(moves: Int64Array, clusters: Clusters) -> Fraction:
    """Return the sum over clusters of moves / |C|, exactly.

    The sum of the moves fits: clusters do not overlap, so it is at most (2h + g)(V - 1), below 2kV.
    """
    ordinary = int(moves[:-1].sum())
    return Fraction(ordinary, clusters.k) + Fraction(int(moves[-1]), clusters.last_size)


# --- sums of clusters ------------------------------------------------------------------------------------


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
    """Noisy sums are cut at this distance below 0."""
    summed: Int64Array
    """Number of values that each sum stands for, `(n_clusters,)`."""

    @property
    def divisors(self) -> Int64Array:
        """2^f times `summed`, the divisor that turns a noisy sum into a centroid, `(n_clusters,)`."""
        return self.summed << self.bits

    @property
    def n_without_noise(self) -> int:
        """Number of records whose clusters get no noise."""
        return int(self.sizes[self.scales == 0].sum())

    def noise(self, bits: BitSource) -> Iterator[tuple[slice, Int64Array]]:
        """Draw the noise of all sums, some clusters at a time.

        Yields:
            A slice of clusters, and their noise.
        """
        for first in range(0, self.scales.size, DRAWS_PER_BLOCK):
            block = slice(first, first + DRAWS_PER_BLOCK)
            yield block, discrete_laplace(self.scales[block], bits)

    def noisy(self, bits: BitSource) -> Int64Array:
        """Draw the noise, add it to `sums` in place, and return them, `(n_clusters,)`."""
        for block, noise in self.noise(bits):
            self.sums[block] = add_saturating(self.sums[block], noise, self.tail)
        return self.sums

    def repeated_noise(self, bits: BitSource, times: int) -> Iterator[Int64Array]:
        """Draw the noise of all sums several times; several lists at once if there are few clusters.

        Yields:
            Some lists of noise at a time, `(n_lists, n_clusters)`; `times` lists in total.
        """
        at_once = max(1, DRAWS_PER_BLOCK // self.scales.size)
        for first in range(0, times, at_once):
            some = min(at_once, times - first)
            repeated = replace(self, scales=np.tile(self.scales, some))
            yield np.concatenate([drawn for _, drawn in repeated.noise(bits)]).reshape(some, -1)


@dataclass(frozen=True, slots=True)
class SumMechanism(ListMechanism):
    """A mechanism of individual-ranking clusters with one noisy sum each."""

    trim: Trim
    """How many values at each end of a cluster are trimmed before its sum gets noise."""
    scale_bound: ScaleBound
    """Public bound on the noise scale."""
    scales: Scales
    """The noise scale of each cluster."""
    monotone: bool = False
    """Whether the noisy centroids are made to ascend before they are rounded."""

    @property
    def ascending(self) -> bool:
        """Whether the released values ascend with the ranks."""
        return self.monotone

    def check(self, setting: Setting) -> None:
        """Refuse a domain whose noisy sums would not be exact."""
        fraction_bits(setting, self.scale_bound(setting, self.trim(setting)))

    def depth(self, setting: Setting) -> int:
        """Return h + g + 1, as far as trimming and sensitivities look, or 1 for plain sums."""
        h = self.trim(setting)
        return h + setting.g + 1 if h else 1

    def exact_sums(self, sorted_values: Int64Array, setting: Setting) -> ExactSums:
        """Return the sums of all clusters before noise, and the scales of their noise."""
        return self.calibrated(clusters_in(self.statistics(sorted_values, setting)), setting)

    def calibrated(self, statistics: ClusterStatistics, setting: Setting) -> ExactSums:
        """Return the sums of all clusters before noise, and the scales of their noise."""
        h, sizes = self.trim(setting), statistics.clusters.sizes
        bound = self.scale_bound(setting, h)
        f = fraction_bits(setting, bound)
        sums, summed = self.summed(statistics, h)
        return ExactSums(
            sums << f, self.scales(statistics, setting, h, f), sizes, f, TAIL * bound << f, summed
        )

    def summed(self, statistics: ClusterStatistics, h: int) -> tuple[Int64Array, Int64Array]:
        """Return the sums that get noise, and how many values each of them stands for, `(n_clusters,)`."""
        return statistics.trimmed_sums(h), statistics.clusters.sizes

    def noisy_sums(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> Int64Array:
        """Draw Y_C = 2^f T_C + DL(t_C) for every cluster, `(n_clusters,)`."""
        return self.exact_sums(sorted_values, setting).noisy(bits)

    def release_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, _shuffles: BitSource
    ) -> ReleasedList:
        """Draw the noise and return one value per cluster."""
        exact = self.calibrated(clusters_in(statistics), setting)
        values = self.rounded(exact.noisy(bits), exact.divisors, setting.n_values)
        return ReleasedList(values, exact.sizes)

    def rounded(self, noisy: Int64Array, divisors: Int64Array, n_values: int) -> Int64Array:
        """Compute released values from noisy sums, by free post-processing.

        Args:
            noisy: Noisy sums, `(n_clusters,)`, or of several lists, `(n_lists, n_clusters)`.
            divisors: Their divisors, as in `ExactSums.divisors`, of the same shape.
            n_values: V.

        Returns:
            Values from 0 to V - 1, of the same shape.
        """
        if self.monotone:
            return round_to_domain(ascending_centroids(noisy, divisors), n_values)
        return round_centroids(noisy, divisors, n_values)

    def expect(
        self,
        sorted_values: Int64Array,
        assigned: Int64Array,
        setting: Setting,
        bits: BitSource,
        n_pairs: int,
    ) -> Expectation:
        """Draw the noise of all clusters several times; squared errors come from sums computed once."""
        exact = self.exact_sums(sorted_values, setting)
        divisors = exact.divisors
        centre = (exact.sums + divisors // 2) // divisors
        blocks = list(Clusters(assigned.size, setting.k).blocks(RECORDS_PER_BLOCK))
        distances = np.empty_like(assigned)
        first, second = np.empty(centre.size), np.empty(centre.size)
        for block, ranks, shape in blocks:
            own = assigned[ranks].reshape(shape) - centre[block][:, None]
            distances[ranks] = own.ravel()
            first[block] = own.sum(axis=1, dtype=np.float64)
            second[block] = np.square(own, dtype=np.float64).sum(axis=1)
        expectation = DrawnExpectation(assigned.size, n_pairs)
        noises = exact.repeated_noise(bits, n_pairs)
        drawn = (self._both_signs(exact, noise, setting.n_values) for noise in noises)
        for number, values in enumerate(chain.from_iterable(drawn)):
            pair, moved = number // 2, values - centre
            far = moved.astype(np.float64)
            expectation.add_squares(pair, float((exact.sizes * far * far - 2 * far * first + second).sum()))
            for block, ranks, shape in blocks:
                same = distances[ranks].reshape(shape) == moved[block][:, None]
                expectation.add_same(pair, ranks, same.ravel())
        # At least the deviation if clusters were unchanged or not as a whole, independently.
        return expectation.mean(0.5 / centre.size**0.5, exact.n_without_noise)

    def _both_signs(self, exact: ExactSums, noise: Int64Array, n_values: int) -> Int64Array:
        """Return released lists for each noise and its negative, in turns, `(2 n_lists, n_clusters)`."""
        both = np.stack([noise, -noise], axis=1).reshape(-1, noise.shape[1])
        noisy = add_saturating(exact.sums, both, exact.tail)
        return self.rounded(noisy, np.broadcast_to(exact.divisors, noisy.shape), n_values)


@dataclass(frozen=True, slots=True)
class RecordMechanism(SumMechanism):
    """A mechanism with one noisy value per record (k = 1); the order does not matter."""

    def exact_sums(self, sorted_values: Int64Array, setting: Setting) -> ExactSums:
        """Return the values as sums of clusters of one record."""
        clusters, values = Clusters(sorted_values.size, 1), sorted_values[:, None]
        return self.calibrated(ClusterStatistics(clusters, sorted_values, values, values), setting)

    def release(self, sorted_values: Int64Array, setting: Setting, bits: BitSource) -> ReleasedList:
        """Draw the noise and return one value per record, in the given order of the records."""
        values = self.release_each(sorted_values, setting, bits)
        return ReleasedList(values, np.broadcast_to(np.int64(1), values.size))

    def release_each(self, values: Int64Array, setting: Setting, bits: BitSource) -> Int64Array:
        """Draw the noise of consecutive records and return their released values, `(n_records,)`.

        Records are processed in blocks: intermediate results stay in the processor's caches. Every record has
        the noise of its own number, however many are released together.

        Args:
            values: From 0 to V - 1, `(n_records,)`.
            bits: Source of random bits; its next elements are the records.
        """
        released = np.empty(values.size, dtype=np.int64)
        for first in range(0, values.size, DRAWS_PER_BLOCK):
            block = slice(first, first + DRAWS_PER_BLOCK)
            exact = self.exact_sums(values[block], setting)
            noisy = add_saturating(
                exact.sums, own_laplace(exact.scales, bits.take(exact.sums.size)), exact.tail
            )
            released[block] = self.rounded(noisy, exact.divisors, setting.n_values)
        return released


@dataclass(frozen=True, slots=True)
class TailedMechanism(SumMechanism):
    """A mechanism whose sums leave out the smallest and the largest values of all records (`tails`)."""

    def tail(self, setting: Setting, n_records: int) -> int:
        """Return h, which follows from public numbers."""
        return Tails.of(n_records, setting.k, setting.g).trimmed

    def summed(self, statistics: ClusterStatistics, _h: int) -> tuple[Int64Array, Int64Array]:
        """Return the sums without the tails."""
        return inner_sums(statistics), inner_sizes(statistics)


@dataclass(frozen=True, slots=True)
class QuantileMechanism(ListMechanism):
    """A list that is linear between noisy centroids (docs/guarantee.md, "idp-quantiles")."""

    sums: SumMechanism
    """Where its ascending centroids come from."""

    @property
    def ascending(self) -> bool:
        """True: only the entries of one cluster are in random order."""
        return True

    def check(self, setting: Setting) -> None:
        """Refuse a domain whose noisy sums would not be exact."""
        self.sums.check(setting)
        if setting.spikes and self._scale_of_spikes(setting) > LARGEST_SCALE:
            raise UnusableDataError(
                f"attribute {setting.attribute!r}: the noise of the counts of its spikes does not fit into "
                "63 bits",
                "ask for a larger epsilon",
                {"attribute": setting.attribute},
            )

    def depth(self, setting: Setting) -> int:
        """As for its centroids."""
        return self.sums.depth(setting)

    def tail(self, setting: Setting, n_records: int) -> int:
        """As for its centroids."""
        return self.sums.tail(setting, n_records)

    def release_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, shuffles: BitSource
    ) -> ReleasedList:
        """Draw the noise, and return the entry of every place, in random order within each cluster's."""
        clusters = clusters_in(statistics).clusters
        centroids, stretches = self._drawn(statistics, setting, bits)
        linear = linear_blocks(centroids, clusters, setting.n_values, stretches)
        entries = joined(shuffled_blocks(linear, clusters, shuffles), clusters)
        return ReleasedList(entries, np.broadcast_to(np.int64(1), entries.size))

    def stream_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, shuffles: BitSource
    ) -> StreamedList:
        """Draw the noise of the centroids; entries are computed and shuffled as they are needed."""
        clusters = clusters_in(statistics).clusters
        centroids, stretches = self._drawn(statistics, setting, bits)
        linear = LinearList(centroids, clusters, setting.n_values, stretches)
        return StreamedList(linear.entries_from, shuffles)

    def _drawn(
        self, statistics: Statistics, setting: Setting, bits: BitSource
    ) -> tuple[Float64Array, list[Stretch]]:
        """Draw the noise of the centroids and of the counts of spikes, and return what makes the list."""
        of_clusters = clusters_in(statistics)
        exact = self.sums.calibrated(of_clusters, setting)
        centroids = ascending_centroids(exact.noisy(bits), exact.divisors)
        centroids = at_middles(centroids, of_clusters.clusters, of_clusters.smallest.size)
        noise = self._noise_of_spikes(setting, bits)
        return centroids, self._stretches(
            of_clusters.at_spikes, noise, centroids, of_clusters.clusters, setting
        )

    def _scale_of_spikes(self, setting: Setting) -> int:
        """Return the scale of the noise of the counts, in records, rounded up.

        g changed records move one count by g, and several by 2g in total, whatever the data are.
        """
        return ceil(min(len(setting.spikes), 2) * setting.g / Fraction(setting.epsilon_spikes))

    def _noise_of_spikes(self, setting: Setting, bits: BitSource) -> Int64Array:
        if not setting.spikes:
            return np.zeros(0, dtype=np.int64)
        return shared_laplace(len(setting.spikes), self._scale_of_spikes(setting), bits, np.int64)

    def _stretches(
        self,
        counts: Int64Array,
        noise: Int64Array,
        centroids: Float64Array,
        clusters: Clusters,
        setting: Setting,
    ) -> list[Stretch]:
        """Return where spikes are put in the list, by free post-processing of their noisy counts."""
        if not setting.spikes:
            return []
        noisy = np.minimum(add_saturating(counts, noise, 0), clusters.n_records)
        if noisy.sum() > clusters.n_records:
            noisy = whole_counts(
                nearest_counts(noisy.astype(np.float64), clusters.n_records), clusters.n_records
            )
        return stretches_of(setting.spikes, noisy, centroids, clusters, setting.n_values)

    def expect(
        self,
        sorted_values: Int64Array,
        assigned: Int64Array,
        setting: Setting,
        bits: BitSource,
        n_pairs: int,
    ) -> Expectation:
        """Draw the noise of all centroids several times, and rotate the entries of every cluster at random.

        A rotation gives every record of a cluster each of its entries with the same probability, as a random
        order does, which is all that expectations over single records need.
        """
        exact, clusters = (
            self.sums.exact_sums(sorted_values, setting),
            Clusters(sorted_values.size, setting.k),
        )
        tail, counts = self.tail(setting, sorted_values.size), count_spikes(sorted_values, setting.spikes)
        expectation = DrawnExpectation(assigned.size, n_pairs)
        noises = chain.from_iterable(exact.repeated_noise(bits, n_pairs))
        for pair, noise in enumerate(noises):
            turns = uniform_below(np.full(2, clusters.k), bits)
            of_spikes = self._noise_of_spikes(setting, bits)
            for sign, turn in zip((1, -1), turns.tolist(), strict=True):
                signed = sign * noise
                noisy = add_saturating(exact.sums, signed, exact.tail)
                centroids = at_middles(ascending_centroids(noisy, exact.divisors), clusters, tail)
                stretches = self._stretches(counts, sign * of_spikes, centroids, clusters, setting)
                entries = linear_list(centroids, clusters, setting.n_values, stretches)
                entries = rotated(entries, clusters, turn)
                moved = entries - assigned
                expectation.add_squares(pair, float(np.square(moved, dtype=np.float64).sum()))
                expectation.add_same(pair, slice(None), moved == 0)
        # At least the deviation if clusters were unchanged or not as a whole, independently.
        return expectation.mean(0.5 / clusters.n_clusters**0.5, exact.n_without_noise)


# --- all mechanisms -------------------------------------------------------------------------------------

_Sums = TypeVar("_Sums", bound=SumMechanism)


def _sums(kind: type[_Sums], name: str, scales: Scales) -> _Sums:
    """Make a mechanism on sums that trims, is bounded and orders its values as its public half says."""
    rules = RULES[name]
    if rules.scale_bound is None:
        raise ValueError(f"{name} adds no noise to sums")
    return kind(rules.trim, rules.scale_bound, scales, rules.monotone)


MECHANISMS: Mapping[str, ListMechanism] = MappingProxyType(
    {
        "dp": _sums(RecordMechanism, "dp", domain_scales),
        "dp-ir": _sums(SumMechanism, "dp-ir", domain_scales),
        "dp-quantiles": QuantileMechanism(_sums(SumMechanism, "dp-quantiles", domain_scales)),
        "idp": _sums(RecordMechanism, "idp", local_scales),
        "idp-ls": _sums(SumMechanism, "idp-ls", local_scales),
        "idp-cbls": _sums(SumMechanism, "idp-cbls", cluster_scales),
        "idp-joint": _sums(SumMechanism, "idp-joint", joint_scales),
        "idp-quantiles": QuantileMechanism(_sums(TailedMechanism, "idp-quantiles", smooth_scales)),
        "dp-hist": HistogramMechanism(),
        "exponential": TaxonomyMechanism(),
    }
)
