"""What masking one attribute can be expected to do to its values, without a draw of any release.

For mechanisms whose clusters are noised by themselves the distribution of every released value has a closed
form: Y = 2^f T + DL(t) is rounded to v or above exactly if the noise reaches an integer m(v), which grows by
D = 2^f |C| from v to v + 1, and P(DL(t) >= m) = q^m/(1 + q) for m >= 0, q = exp(-1/t). So the distance of the
released value from the noise-free one, z0, has geometric tails to both sides, cut at the ends of the domain:

    P(Z >= z0 + j) = q^a R^(j-1)/(1 + q)     a = m(z0 + 1), from 1 to D     R = exp(-D/t)
    P(Z <= z0 - j) = q^b R^(j-1)/(1 + q)     b = D + 1 - a

Isotonic regression mixes all clusters: there the expectation is the mean over noise drawn for nothing else,
each noise used with both signs, which have the same probability. So it is for counts, whose projection mixes
all values. Rank noise, which is drawn apart from the list, is drawn a few times as well: given who gets which
entry of the list, all of the above holds as it stands. Doubles serve everywhere, since nothing computed here
is released.

References:
    Canonne, Kamath, Steinke 2020 (the distribution of discrete Laplace noise).
    Sánchez et al. 2016, equation 6 (the probabilities of the exponential mechanism).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain

import numpy as np

from common.errors import UsageError
from owner_node.masking.arrays import BitSource, Float64Array, Int64Array
from owner_node.masking.clusters import Clusters, Setting
from owner_node.masking.exponential import GRID_BITS, TaxonomyMechanism, distance_table
from owner_node.masking.histogram import HistogramMechanism, counts_of
from owner_node.masking.mechanisms import ExactSums, Mechanism, SumMechanism
from owner_node.masking.noise import add_saturating
from owner_node.masking.rank_noise import with_rank_noise
from owner_node.masking.released import round_monotone_centroids

RECORDS_PER_BLOCK = 2**16
"""Records, or clusters of one record, that are looked at together: they stay in the processor's caches."""
NO_RANK_NOISE = Decimal(0)
_NO_NOISE = 1e-3
"""Stands for a scale of 0: such noise differs from 0 with a probability that no double can hold."""
_NEARLY_UNIFORM = 1e-5


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


@dataclass(frozen=True, slots=True)
class Draws:
    """How many draws an expectation is made of, where draws are needed."""

    n_pairs: int
    """Draws of the noise of the whole list, at least two, each used with both signs."""
    n_moves: int = 1
    """Draws of the assignment, at least two where there is rank noise; the others are shared among them."""


def expect(
    mechanism: Mechanism,
    sorted_values: Int64Array,
    setting: Setting,
    bits: BitSource,
    draws: Draws,
    rank_noise: Decimal = NO_RANK_NOISE,
) -> Expectation:
    """Compute or estimate what a mechanism does to one attribute.

    Args:
        mechanism: The mechanism.
        sorted_values: `(n_records,)`, ascending, from 0 to V - 1, at least k of them.
        setting: What is agreed about the attribute.
        bits: Source of random bits.
        draws: How much to draw.
        rank_noise: w.

    Raises:
        UsageError: If nothing is known about the mechanism.
    """
    if not rank_noise:
        return _given(mechanism, sorted_values, sorted_values, setting, bits, draws.n_pairs)
    n_records, n_pairs = sorted_values.size, max(2, draws.n_pairs // draws.n_moves)
    squares, zero = 0.0, 0
    unchanged, shares, variance = np.zeros(n_records), np.empty(draws.n_moves), 0.0
    for move in range(draws.n_moves):
        order = with_rank_noise(np.arange(n_records), rank_noise, bits)
        found = _given(mechanism, sorted_values, sorted_values[order], setting, bits, n_pairs)
        unchanged[order] += found.unchanged
        shares[move] = found.unchanged.mean()
        squares, variance, zero = (
            squares + found.squared_error,
            variance + found.deviation**2,
            found.zero_noise,
        )
    # As if each record stayed or went by itself, at least: two draws may agree by chance.
    of_moves = max(float(shares.var()) / (draws.n_moves - 1), 0.25 / (draws.n_moves * n_records))
    deviation = (of_moves + variance / draws.n_moves**2) ** 0.5
    return Expectation(squares / draws.n_moves, unchanged / draws.n_moves, deviation, zero)


def _given(
    mechanism: Mechanism,
    sorted_values: Int64Array,
    assigned: Int64Array,
    setting: Setting,
    bits: BitSource,
    n_pairs: int,
) -> Expectation:
    """Compute or estimate it, given who gets which entry: `assigned` has their values, `(n_records,)`."""
    if isinstance(mechanism, TaxonomyMechanism):
        return _of_categories(mechanism, sorted_values, assigned, setting)
    if isinstance(mechanism, HistogramMechanism):
        return _of_counts(mechanism, sorted_values, assigned, setting, bits, n_pairs)
    if not isinstance(mechanism, SumMechanism):
        raise UsageError("nothing can be foreseen of this mechanism", "choose another mechanism")
    exact = mechanism.exact_sums(sorted_values, setting)
    if mechanism.monotone:
        return _of_monotone(exact, assigned, setting, bits, n_pairs)
    return _of_single(exact, assigned, setting)


def _blocks(n_records: int, clusters: Clusters) -> Iterator[tuple[slice, slice, tuple[int, int]]]:
    """Cut into blocks of whole clusters of one size.

    Yields:
        Which clusters, which ranks, and the shape (n_clusters, size) of their values.
    """
    last = clusters.n_clusters - 1
    step = max(1, RECORDS_PER_BLOCK // clusters.k)
    for first in range(0, last, step):
        after = min(first + step, last)
        ranks = slice(first * clusters.k, after * clusters.k)
        yield slice(first, after), ranks, (after - first, clusters.k)
    yield slice(last, last + 1), slice(clusters.last_start, n_records), (1, clusters.last_size)


# --- clusters by themselves: closed forms --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Distribution of the released value of each cluster, as Z = z0 + J; all arrays `(n_clusters,)`."""

    centre: Int64Array
    """z0, the value that is released if there is no noise."""
    log_up: Float64Array
    """Logarithm of P(J >= 1)."""
    log_down: Float64Array
    """Logarithm of P(J <= -1)."""
    step: Float64Array
    """D/t: each tail falls by exp(-D/t) from one value to the next."""
    room_up: Int64Array
    """How far the domain goes on above z0."""
    room_down: Int64Array
    """And below it."""

    @classmethod
    def of(cls, sums: Int64Array, divisors: Int64Array, scales: Int64Array, n_values: int) -> "_Outcome":
        half = divisors // 2
        centre = (sums + half) // divisors
        # m(z0 + 1): what the noise has to reach for the next value.
        above = divisors - half - (sums - centre * divisors)
        scale = np.where(scales > 0, scales, _NO_NOISE)
        normal = np.log1p(np.exp(-1 / scale))
        return cls(
            centre,
            -above / scale - normal,
            -(divisors + 1 - above) / scale - normal,
            divisors / scale,
            n_values - 1 - centre,
            centre,
        )

    def moments(self) -> tuple[Float64Array, Float64Array]:
        """Return E[J] and E[J²]."""
        up, down = np.exp(self.log_up), np.exp(self.log_down)
        up_once, up_twice = _geometric_sums(self.step, self.room_up)
        down_once, down_twice = _geometric_sums(self.step, self.room_down)
        # E[X] = Σ P(X >= j) and E[X²] = Σ (2j - 1) P(X >= j), j >= 1.
        second = up * (2 * up_twice - up_once) + down * (2 * down_twice - down_once)
        return up * up_once - down * down_once, second

    def probability(self, distances: Int64Array) -> Float64Array:
        """Return P(J = j) for the j of each cluster's records, `(n_clusters, size)`."""
        j = distances.astype(np.float64)
        upward = j > 0
        first = np.where(upward, self.log_up[:, None], self.log_down[:, None])
        np.abs(j, out=j)
        tail = np.exp(first - np.maximum(j - 1, 0) * self.step[:, None])
        room = np.where(upward, self.room_up[:, None], self.room_down[:, None])
        # At an end of the domain is also what would go further.
        tail *= np.where(j == room, 1.0, -np.expm1(-self.step)[:, None])
        stays = 1 - np.where(self.room_up > 0, np.exp(self.log_up), 0)
        stays -= np.where(self.room_down > 0, np.exp(self.log_down), 0)
        return np.where(j == 0, stays[:, None], tail)


def _geometric_sums(step: Float64Array, n_terms: Int64Array) -> tuple[Float64Array, Float64Array]:
    """Return Σ R^(j-1) and Σ j R^(j-1) over j = 1…h, R = exp(-step)."""
    h = n_terms.astype(np.float64)
    once = np.expm1(-h * step) / np.expm1(-step)
    twice = (once - h * np.exp(-h * step)) / -np.expm1(-step)
    # Where the tail hardly falls within the domain, the difference above would be lost to rounding.
    flat = h * (h + 1) / 2 - step * (h + 1) * h * (h - 1) / 3
    return once, np.where(h * step < _NEARLY_UNIFORM, flat, twice)


def _of_single(exact: ExactSums, assigned: Int64Array, setting: Setting) -> Expectation:
    """Add up the closed forms of all clusters."""
    n_records, divisors = assigned.size, exact.divisors
    unchanged = np.empty(n_records)
    squares = 0.0
    for clusters, ranks, shape in _blocks(n_records, Clusters(n_records, setting.k)):
        outcome = _Outcome.of(
            exact.sums[clusters], divisors[clusters], exact.scales[clusters], setting.n_values
        )
        distances = assigned[ranks].reshape(shape) - outcome.centre[:, None]
        once, twice = outcome.moments()
        # Σ (J - j)² over the records of a cluster, j their own distances from z0.
        own = distances.astype(np.float64)
        squares += float((shape[1] * twice - 2 * once * own.sum(axis=1) + np.square(own).sum(axis=1)).sum())
        unchanged[ranks] = outcome.probability(distances).ravel()
    zero = int(exact.sizes[exact.scales == 0].sum())
    return Expectation(squares, unchanged, 0.0, zero)


# --- clusters together: draws ---------------------------------------------------------------------------


def _of_monotone(
    exact: ExactSums, assigned: Int64Array, setting: Setting, bits: BitSource, n_pairs: int
) -> Expectation:
    """Draw the noise of all clusters again and again; ranks and sums stay."""
    n_records, clusters = assigned.size, Clusters(assigned.size, setting.k)
    divisors = exact.divisors
    centre = (exact.sums + divisors // 2) // divisors
    blocks = list(_blocks(n_records, clusters))
    distances = np.empty_like(assigned)
    first, second = np.empty(centre.size), np.empty(centre.size)
    for block, ranks, shape in blocks:
        own = assigned[ranks].reshape(shape) - centre[block][:, None]
        distances[ranks] = own.ravel()
        first[block] = own.sum(axis=1, dtype=np.float64)
        second[block] = np.square(own, dtype=np.float64).sum(axis=1)
    hits = np.zeros(n_records, dtype=np.uint16)
    squares, shares = np.zeros(n_pairs), np.zeros(n_pairs)
    drawn = (_lists(exact, noise, setting) for noise in exact.repeated_noise(bits, n_pairs))
    for number, values in enumerate(chain.from_iterable(drawn)):
        pair, moved = number // 2, values - centre
        far = moved.astype(np.float64)
        squares[pair] += float((exact.sizes * far * far - 2 * far * first + second).sum()) / 2
        for block, ranks, shape in blocks:
            same = distances[ranks].reshape(shape) == moved[block][:, None]
            hits[ranks] += same.ravel()
            shares[pair] += np.count_nonzero(same) / (2 * n_records)
    # A few draws may agree by chance: as if each cluster stayed or went as a whole, by itself.
    deviation = max(float(shares.std()) / (n_pairs - 1) ** 0.5, 0.5 / (n_pairs * centre.size) ** 0.5)
    zero = int(exact.sizes[exact.scales == 0].sum())
    return Expectation(float(squares.mean()), hits / (2.0 * n_pairs), deviation, zero)


def _lists(exact: ExactSums, noise: Int64Array, setting: Setting) -> Int64Array:
    """Return the lists that noise makes, after each the one of its negative, `(2 n_lists, n_clusters)`."""
    both = np.stack([noise, -noise], axis=1).reshape(-1, noise.shape[1])
    noisy = add_saturating(exact.sums, both, exact.tail)
    return round_monotone_centroids(noisy, np.broadcast_to(exact.divisors, noisy.shape), setting.n_values)


def _of_counts(
    mechanism: HistogramMechanism,
    sorted_values: Int64Array,
    assigned: Int64Array,
    setting: Setting,
    bits: BitSource,
    n_pairs: int,
) -> Expectation:
    """Draw the noise of all counts again and again."""
    n_records, counts = sorted_values.size, counts_of(sorted_values, setting)
    hits = np.zeros(n_records, dtype=np.uint16)
    squares, shares = np.zeros(n_pairs), np.zeros(n_pairs)
    for pair in range(n_pairs):
        noise = mechanism.noise(setting, bits)
        for signed in (noise, -noise):
            drawn = mechanism.list_of(counts, signed, setting)
            moved = np.repeat(drawn.values, drawn.sizes) - assigned
            squares[pair] += float(np.square(moved, dtype=np.float64).sum()) / 2
            same = moved == 0
            hits += same
            shares[pair] += np.count_nonzero(same) / (2 * n_records)
    # A few draws may agree by chance: as if the noise of every count moved that many records, at most all.
    moving = min(0.5, 2 * setting.g * setting.n_values / (float(setting.epsilon) * n_records))
    deviation = max(float(shares.std()) / (n_pairs - 1) ** 0.5, moving / n_pairs**0.5)
    return Expectation(float(squares.mean()), hits / (2.0 * n_pairs), deviation, 0)


# --- categories of a taxonomy: their probabilities ------------------------------------------------------


def _of_categories(
    mechanism: TaxonomyMechanism, sorted_values: Int64Array, assigned: Int64Array, setting: Setting
) -> Expectation:
    """Add up the probabilities of all categories; the difference of two is their semantic distance."""
    squared = squared_distances(mechanism)
    clusters = Clusters(sorted_values.size, setting.k)
    starts = np.arange(clusters.n_clusters) * clusters.k
    unchanged = np.empty(sorted_values.size)
    squares = 0.0
    for kinds in mechanism.kinds(sorted_values, setting):
        above = kinds.marginality - kinds.marginality.min(axis=1, keepdims=True)
        weights = np.exp(-above / kinds.scale)
        weights /= weights.sum(axis=1, keepdims=True)
        expected = weights @ squared
        first, last = starts[kinds.clusters.start], kinds.clusters.stop - 1
        ranks = slice(first, starts[last] + clusters.sizes[last])
        rows = np.repeat(kinds.row_of, clusters.sizes[kinds.clusters])
        squares += float(expected[rows, assigned[ranks]].sum())
        unchanged[ranks] = weights[rows, assigned[ranks]]
    return Expectation(squares, unchanged, 0.0, 0)


def squared_distances(mechanism: TaxonomyMechanism) -> Float64Array:
    """Return the squared semantic distances of all categories, `(V, V)`, in the taxonomy's order."""
    squared: Float64Array = np.square(distance_table(mechanism.taxonomy) / 2.0**GRID_BITS)
    return squared
