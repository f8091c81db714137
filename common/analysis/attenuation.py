"""How much masking weakens correlations and regression slopes, from public numbers only.

All of it follows from the plan, the owners' numbers of records and the released values: anyone who has a
release can compute it, and it discloses nothing further.

*Model.* A record has the original value x = F(u) at its rank u, a share from 0 to 1. Its noisy position is
s = u + wZ with standard Laplace noise Z, its new rank is q = H(s) with the distribution function H of s, and
its released value is ℓ(q) with the released list ℓ. The quantile mechanisms then hand out the entries of each
cluster at random: in expectation, the value at q is the mean of ℓ over the cluster of q.

*Attenuation.* The noise on the ranks of two attributes a and b is independent. Where the mean of b depends
linearly on a, and that of a on b,

    Cov(a', b') = λ_a·λ_b·Cov(a, b),    λ_a = Cov(a', a)/Var(a).

With the list instead of the original values, λ = Cov(ℓ(q), ℓ(u))/Var(ℓ): a sum over the joint
distribution of u and q, which has a closed form. Variances are not attenuated, since the released values are
the list itself. So correlations and simple slopes shrink by λ_a·λ_b.

*Scores.* λ needs linear relations; for skewed attributes of Wine Quality it corrected by half too much. A
score τ(q) whose expected value at rank u is ℓ(u) needs none: whatever the relation is, Cov(τ_a, τ_b) =
Cov(a, b). A score is a function of the released value, so equal values share theirs. The equation is solved
by Neumann's series, τ_1 = Mℓ, τ_(i+1) = τ_i + TM(ℓ - PMτ_i), with P the expectation over the new rank, M
the mean within clusters and T that within equal values. Four terms leave the finest shapes attenuated and
amplify noise four times at most; on Wine Quality more terms only added variance. Of linear relations they
restore the share r = (ℓ·PMτ)/(ℓ·ℓ), the less the larger w is. Dividing the scores by r is right for normal
values, and a fifth too much for slopes of log-normal ones at w = 0.1; without it those of normal ones are
16 % too small at w = 0.3. So scores are divided by √r, and draws divide by anything between 1 and r. For two
values every relation is linear: their scores are the values divided by λ.

*The rest.* What scores restore in another shape, ρ = rℓ - PMτ, is small for values that rise evenly, and 8 %
of the deviation where many records share a value and the next ones are far away (RAND HIE's expenditure).
Another attribute can follow just that shape, as that of the insurance does. So draws give it a correlation.

*Categories.* The indicator of a category is a function of the rank as well, whether or not the order of the
categories means anything: records with the same label have random ranks within it. So it has scores, a sum
over all labels. The equation is a linear one in as many unknowns as there are labels, and is solved exactly,
by singular values: with four terms, neighbouring labels were mixed, and intervals of narrow ones missed. What
masking leaves less than a tenth of is not restored. That is most of a category that is small beside w.

*The list.* It is noisy itself, and does not show how values lie within clusters. `drawn` draws what the list
of original values may have been (`common.analysis.originals`), and by how much its noise moves the scores: to
first order by the difference of the lists divided by λ. `scale_error` is the standard deviation of the
attribute's scale over the draws. Where tails may make the variance four times as large as the clusters show,
nothing is corrected: on Wine Quality and Census, intervals of such attributes missed the original estimates.

*Where it fails.* Owners whose values have different distributions, since differences between owners are not
attenuated; mechanisms with noise on every record, where the domain's ends distort the values, and those whose
noisy means need not ascend with the ranks, so that the list is not in the order of the ranks: no attenuation
is stated.

References:
    Fuller 1987, Measurement Error Models, section 1.1 (attenuation); the closed form for rank noise is ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from functools import cached_property
from typing import TypeAlias

import numpy as np

from common.analysis.originals import (
    N_DRAWS,
    WIDER_COUNTS,
    before_noise,
    from_counts,
    noisy_centroids,
    random_of,
    straight_lists,
    with_tails,
)
from common.arrays import Float64Array, Int64Array
from common.model.mechanisms import COUNTS, QUANTILES, PublicNumbers, has_no_order
from common.model.ranks import joint_ranks
from common.model.schema import Attribute
from common.model.tails import Tails
from common.model.task import PlannedAttribute

LARGEST_SCALE_ERROR = 0.5
"""Beyond it nothing is corrected: the noise of the values outweighs what is known about them."""
LARGEST_TAIL = 4.0
"""How much larger the tails may make the variance than clusters show it; beyond it nothing is corrected."""
HEAVY_TAIL = "too heavy a tail to correct: its clusters and their noise do not show how far it reaches"
SPIKE = "many records share a value, and clusters do not show how many"
NARROW = "too few of the records have it: the noise on ranks mixes it with other labels"
_LEAST_FACTOR = 1e-9
"""Least factor of the variance of a label, which noise makes 0."""
_LEAST_RESTORED = 0.98
"""Share of a label that scores restore; below it, intervals of Adult's races missed original estimates."""
_SPIKE, _SPIKE_CLUSTERS = 0.25, 2
"""Share of the records, and number of clusters, above which equal values are a spike. Intervals of Adult's
capital gains, nine tenths of which are 0, missed all original estimates."""
_DEVIATIONS = 7.84
"""Width of a 95 % interval of the logarithm of a variance, in standard deviations of that of the scale."""
_MOST_BINS = 512
_RANGES = 3
_TERMS = 4
"""Terms of Neumann's series."""
_COUNT_DRAWS, _FEWEST_DRAWS = 100, 25
"""Draws of all owners' counts, each of which takes milliseconds, and of one owner's; they are used several
times, combined at random."""
_FEW, _LEAST_LEFT = 128, 0.05
"""The most counted values whose scores are solved for; what masking leaves less of is not restored."""


@dataclass(frozen=True, slots=True)
class MaskingParams:
    """How one owner masked an attribute."""

    planned: PlannedAttribute
    n_records: int
    g: int
    """The most records that one person has."""

    @property
    def n_clusters(self) -> int:
        """Number of clusters; 1 where the mechanism makes none."""
        return max(self.n_records // (self.planned.k or self.n_records), 1)

    @property
    def cluster_ends(self) -> Float64Array:
        """Where clusters begin and end, as shares of the ranks, `(n_clusters + 1,)`."""
        size = (self.planned.k or self.n_records) / self.n_records
        ends: Float64Array = np.append(np.arange(self.n_clusters) * size, 1.0)
        return ends

    @property
    def summed_ends(self) -> Float64Array:
        """The same without the tails that centroids leave out."""
        ends, rules = self.cluster_ends, self.planned.rules
        if rules.carrier is QUANTILES and rules.by_values:
            tail = Tails.of(self.n_records, self.planned.k or self.n_records, self.g).trimmed / self.n_records
            ends[0], ends[-1] = tail, 1 - tail
        return ends

    @property
    def count_scale(self) -> float:
        """The Laplace scale of the noise of a count, in records."""
        return 2 * self.g / float(self.planned.epsilon)

    @property
    def rank_scale(self) -> float:
        """The scale of the noise on ranks as a share of all ranks, as it was drawn."""
        scale = (self.planned.rank_noise * self.n_records).to_integral_value(ROUND_CEILING)
        return float(scale) / self.n_records

    def noise_scale(self, attribute: Attribute, spread: float) -> float:
        """Return a cautious Laplace scale of the noise of a released value, in resolution units."""
        width = float(attribute.n_values)
        if self.planned.rules.by_values:
            width = min(width, max(_RANGES * spread, 1))
        return width * self.g / ((self.planned.k or 1) * float(self.planned.epsilon_list))


@dataclass(frozen=True, slots=True)
class Distortion:
    """How masking changed one attribute, as far as public numbers tell."""

    value_noise: float
    """Cautious standard deviation of the noise of a released value, in resolution units; for categories
    from noisy counts, of the number of records with a label."""
    assignment_noise: float | None
    """Root mean square of the move of a record along the list, in resolution units; for categories and
    booleans, the share of records that got another label; None where it is not known."""
    attenuation: float | None
    """λ; None where it cannot be derived."""
    scale_error: float | None
    """Cautious standard deviation of the relative error of the attribute's scale and of its correction; None
    with `attenuation`."""
    note: str
    """Why nothing can be corrected; empty if it can."""


@dataclass(frozen=True, slots=True)
class DrawnLists:
    """Draws for one owner: lists as they may have been, and as they would have been released."""

    straight: Float64Array
    """The released list, `(n_bins,)`."""
    masked: Float64Array
    """The same with noise once more, `(N_DRAWS, n_bins)`."""
    tails: Float64Array
    """`masked` with tails, `(N_DRAWS, n_bins)`."""
    within: Float64Array
    """Variance within clusters, `(N_DRAWS,)`."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Draws of what one attribute's original values may have been, against the released ones."""

    noise: Float64Array
    """Part that the noise takes from the score of a record, by bin, `(N_DRAWS, n_bins)`."""
    lists: Float64Array
    """The values in their order, `(N_DRAWS, n_bins)`."""
    means: Float64Array
    """Mean of the values, `(N_DRAWS,)`."""
    variances: Float64Array
    """Variance of the values, `(N_DRAWS,)`."""
    of_tails: Float64Array
    """The factor of the variance that comes from tails, `(N_DRAWS,)`."""
    within: Float64Array
    """Variance within clusters by number of clusters, and that of the rest ρ, `(N_DRAWS,)`."""
    restored: float
    """r, the share of linear relations that scores restore."""
    cluster: float = 0.0
    """Share of the records that a cluster has; 0 where values were counted."""

    def times(self, unit: float) -> "Drawn":
        """Return the same in other units than resolution units."""
        return Drawn(
            self.noise * unit,
            self.lists * unit,
            self.means * unit,
            self.variances * unit**2,
            self.of_tails,
            self.within * unit**2,
            self.restored,
            self.cluster,
        )


DrawnCounts: TypeAlias = tuple[Float64Array, Float64Array, Int64Array]
"""Likely counts of an owner, draws of what is released of them, and which of these each draw is."""


class MaskedValues:
    """The released values of one attribute, with how its owners masked it.

    The list is kept in bins of equally many records.

    Args:
        ways: How each of its owners masked it.
        units: The released values in resolution units, `(n_records,)`, at least one.
        labels: Codes of categories, whose indicator (1 or 0) takes the place of the values; or empty.
        ranks: Whether the mean ranks of equal values, as shares, take the place of the values.
        squares: Whether the squares of values less their mean take their place.
        drawn_counts: Draws of counts by owner, which other columns of the same attribute have drawn or draw.
    """

    def __init__(
        self,
        attribute: Attribute,
        ways: Sequence[MaskingParams],
        units: Int64Array,
        labels: Sequence[int] = (),
        *,
        ranks: bool = False,
        squares: bool = False,
        drawn_counts: dict[int, DrawnCounts] | None = None,
    ) -> None:
        self._drawn_counts = {} if drawn_counts is None else drawn_counts
        self._attribute, self._ways, self._labels = attribute, ways, labels
        sizes = np.array([way.n_records for way in ways], dtype=np.float64)
        self._shares: Float64Array = sizes / sizes.sum()
        # The list stays in the order in which the owners masked, which is that of the codes.
        codes, self._place, self._counts = np.unique(units, return_inverse=True, return_counts=True)
        self._codes = codes
        self._ends: Float64Array = np.append(0, np.cumsum(self._counts)) / units.size
        self._of_ranks = ranks
        self._center = float(np.average(codes, weights=self._counts)) if squares else None
        middles = (self._ends[:-1] + self._ends[1:]) / 2
        self._different: Float64Array = middles if ranks else self._shown(codes)
        ordered = np.repeat(self._different, self._counts)
        n_bins = min(ordered.size, _MOST_BINS)
        edges = np.arange(n_bins + 1) * ordered.size // n_bins
        self._mean, self._variance = float(ordered.mean()), float(ordered.var())
        self._range = float(ordered.max() - ordered.min())
        self._list: Float64Array = np.add.reduceat(ordered, edges[:-1]) / np.diff(edges) - self._mean
        self._values = ordered[(edges[:-1] + edges[1:]) // 2]
        self._grid: Float64Array = np.linspace(0, 1, n_bins + 1)

    def _shown(self, codes: Int64Array) -> Float64Array:
        """Return what takes the place of values in resolution units."""
        shown = (np.isin(codes, self._labels) if self._labels else codes).astype(np.float64)
        return shown if self._center is None else (shown - self._center) ** 2

    @cached_property
    def distortion(self) -> Distortion:
        """How masking changed the attribute."""
        noise = float(np.sqrt(self._average(self._noise_variance)))
        if note := self._obstacle():
            return Distortion(noise, None, None, None, note)
        attribute = self._attribute
        attenuation = self._attenuation
        moved = float(np.sqrt(2 * self._variance * max(1 - attenuation, 0)))
        if attribute.is_categorical and not self._labels:
            moved = self._share_relabelled()
        unordered = attribute.is_categorical and attribute.n_values > 2 and not attribute.ordered
        if unordered and not self._labels:
            return Distortion(noise, moved, None, None, "its labels have no order")
        if self._labels and self._restored < _LEAST_RESTORED:
            return Distortion(noise, moved, None, None, NARROW)
        low, high = np.log(np.quantile(self.drawn.variances, [0.025, 0.975]) / self._variance)
        scale_error = float(np.hypot((high - low) / _DEVIATIONS, np.log(self._restored) / 2))
        if scale_error > LARGEST_SCALE_ERROR:
            return Distortion(noise, moved, None, None, "the noise of its values is too large")
        if np.quantile(self.drawn.of_tails, 0.975) > LARGEST_TAIL:
            return Distortion(noise, moved, None, None, HEAVY_TAIL)
        return Distortion(noise, moved, attenuation, scale_error, "")

    @cached_property
    def scores(self) -> Float64Array:
        """Values whose covariances with those of others are as before masking.

        They are less their mean, `(n_records,)`, in resolution units.
        """
        own: Float64Array = self._different - self._mean
        if self._few:
            return (self._of_codes @ own)[self._place]
        moved = self._by_code(self._neumann(self._list) - self._list)
        scores: Float64Array = (own + moved)[self._place] / np.sqrt(self._restored)
        return scores

    @property
    def bins(self) -> Int64Array:
        """The bin of each record's released value, `(n_records,)`."""
        middles = (self._ends[:-1] + self._ends[1:]) / 2 * self._list.size
        bins: Int64Array = middles.astype(np.int64)[self._place]
        return bins

    @cached_property
    def drawn(self) -> Drawn:
        """Draws of what the list of original values may have been."""
        n_bins = self._list.size
        if self._of_ranks:
            # Ranks have no list of their own that could be noisy.
            lists, once = np.tile(self._list + self._mean, (N_DRAWS, 1)), np.ones(N_DRAWS)
            within = (self._within_clusters() + self._rest) * once
            return Drawn(
                0 * lists, lists, self._mean * once, self._variance * once, once, within, self._restored
            )
        straight, masked, tails = np.zeros(n_bins), np.zeros((N_DRAWS, n_bins)), np.zeros((N_DRAWS, n_bins))
        within = np.zeros(N_DRAWS)
        for number, (way, share) in enumerate(zip(self._ways, self._shares, strict=True)):
            # All owners' tails have the same shape; their noise is their own.
            shapes, noise = random_of(self._attribute.name), random_of(f"{self._attribute.name} {number}")
            owner_lists = self._of_owner(number, way, shapes, noise)
            straight += share * owner_lists.straight
            masked += share * owner_lists.masked
            tails += share * owner_lists.tails
            within += share * owner_lists.within
        lists = self._list + self._mean + (straight - masked) + (tails - masked)
        means = lists.mean(axis=1)
        if self._indicates:
            means = np.clip(means, 0, 1)
            # Nothing is divided by the variance of a draw in which nobody has the label.
            of_noise = np.maximum(means * (1 - means) / self._variance, _LEAST_FACTOR)
            of_tails = np.ones(N_DRAWS)
        else:
            least = straight.var() / 100
            of_noise = straight.var() / np.maximum(masked.var(axis=1), least)
            of_tails = np.maximum(tails.var(axis=1), least) / np.maximum(masked.var(axis=1), least)
            within = within * self._variance / np.maximum(masked.var(axis=1), least)
        differences = straight - masked
        differences -= differences.mean(axis=1, keepdims=True)
        return Drawn(
            noise=self._means_between(differences, self._ends) / self._attenuation,
            lists=lists,
            means=means,
            variances=self._variance * of_noise * of_tails,
            of_tails=of_tails,
            within=within + self._rest,
            restored=self._restored,
            cluster=self._cluster,
        )

    def shares(self) -> Float64Array:
        """Draw the shares of the records that labels have, `(N_DRAWS, n_values)`.

        Raises:
            ValueError: If the labels were not counted.
        """
        if not all(way.planned.rules.carrier is COUNTS for way in self._ways):
            raise ValueError("its categories were averaged or drawn, and not counted")
        counts = np.bincount(self._codes, self._counts, self._attribute.n_values)
        originals = np.zeros((N_DRAWS, counts.size))
        for number, (way, share) in enumerate(zip(self._ways, self._shares, strict=True)):
            noise = random_of(f"{self._attribute.name} {number}")
            originals += before_noise(counts * share, way.count_scale, noise)
        shares: Float64Array = np.clip(originals / counts.sum(), 0, 1)
        return shares

    def _of_owner(
        self, number: int, way: MaskingParams, shapes: np.random.Generator, noise: np.random.Generator
    ) -> DrawnLists:
        if way.planned.rules.carrier is COUNTS:
            likely, drawn, places = self._counts_of_owner(number, way, noise)
            lists = np.stack([self._list_of_counts(each) for each in drawn])[places]
            lists += (WIDER_COUNTS - 1) * (lists - lists.mean(axis=0))
            straight = self._list_of_counts(likely)
            return DrawnLists(straight, lists, lists, np.zeros(N_DRAWS))
        ends, summed = way.cluster_ends, way.summed_ends
        centroids = _between(summed, self._grid, _running(self._list))
        centroids = np.diff(centroids) / np.diff(summed) + self._mean
        noisy = noisy_centroids(centroids, way.noise_scale(self._attribute, self._range), noise)
        lower, upper, n_bins = self._attribute.lower, self._attribute.upper, self._list.size
        masked = np.clip(straight_lists(noisy, summed, n_bins), lower, upper)
        tails = np.clip(with_tails(masked, noisy, ends, summed, shapes), lower, upper)
        within, evenly = (
            lists.var(axis=1) - self._means_between(lists, ends).var(axis=1) for lists in (tails, masked)
        )
        # Values in two groups at the ends of a cluster vary three times as much as those that rise evenly.
        within = within + 2 * evenly
        straight = np.clip(straight_lists(centroids, summed, n_bins), lower, upper)
        return DrawnLists(straight, masked, tails, np.maximum(within, 0) / way.n_clusters)

    def _counts_of_owner(self, number: int, way: MaskingParams, noise: np.random.Generator) -> DrawnCounts:
        """Return draws of an owner's counts, which all columns of an attribute share."""
        if number not in self._drawn_counts:
            attribute, share = self._attribute, way.n_records / self._counts.sum()
            counts = np.bincount(self._codes - attribute.lower, self._counts * share, attribute.n_values)
            n_draws = max(_COUNT_DRAWS // len(self._ways), _FEWEST_DRAWS)
            ordered = not has_no_order(attribute)
            likely, drawn = from_counts(
                counts.astype(np.float64), way.count_scale, noise, ordered=ordered, n_draws=n_draws
            )
            self._drawn_counts[number] = likely, drawn, noise.permutation(N_DRAWS) % n_draws
        return self._drawn_counts[number]

    def _list_of_counts(self, counts: Float64Array) -> Float64Array:
        """Return the list that has some counts of all values, by bin."""
        values = self._shown(self._attribute.lower + np.arange(counts.size))
        ends, sums = (np.append(0, np.cumsum(each)) for each in (counts, counts * values))
        running = np.interp(self._grid, ends / ends[-1], sums / ends[-1])
        found: Float64Array = np.diff(running) * self._list.size
        return found

    @property
    def _cluster(self) -> float:
        """The share of the records that a cluster of the largest ones has; 0 if all values were counted."""
        return max(0.0 if way.planned.rules.carrier is COUNTS else 1 / way.n_clusters for way in self._ways)

    def _within_clusters(self) -> float:
        """Return the variance of ranks within clusters and equal values, by number of clusters."""
        if not self._cluster:
            return 0.0
        places = (np.arange(self._list.size) + 0.5) / self._list.size
        left = self._means_between(self._within(places), self._ends)
        return float(places.var() - left.var()) * self._cluster

    @property
    def _indicates(self) -> bool:
        """True if the values are 0 and 1."""
        attribute = self._attribute
        return bool(self._labels) or (attribute.n_values == 2 and attribute.lower == 0)

    def _neumann(self, lists: Float64Array) -> Float64Array:
        """Return the scores of lists, `(..., n_bins)`, before they are divided by √r."""
        if self._different.size == 2:
            found: Float64Array = self._means_between(self._within(lists), self._ends) / self._attenuation
            return found
        if self._few:
            return self._by_code(lists) @ self._of_codes.T @ self._indicators
        found = self._within(lists)
        for _ in range(_TERMS - 1):
            rest = lists - self._expected(self._within(found))
            found += self._means_between(self._within(rest), self._ends)
        return found

    @property
    def _few(self) -> bool:
        """True if few values were counted, so that their scores are solved for exactly."""
        counted = all(way.planned.rules.carrier is COUNTS for way in self._ways)
        return bool(self._labels) or (counted and self._codes.size <= _FEW)

    @cached_property
    def _of_codes(self) -> Float64Array:
        """Scores of values by what they are to be on average, `(n_codes, n_codes)`."""
        joint = self._by_code(self._expected(self._indicators)).T
        roots = np.sqrt(np.diff(self._ends))
        solved = np.linalg.pinv(joint * roots[:, None] / roots, _LEAST_LEFT)
        scores: Float64Array = np.asarray(solved * roots / roots[:, None], dtype=np.float64)
        return scores

    @cached_property
    def _indicators(self) -> Float64Array:
        """Which share of each bin has each code, `(n_codes, n_bins)`."""
        below = np.clip(self._ends[:, None], self._grid[:-1], self._grid[1:]) - self._grid[:-1]
        found: Float64Array = np.diff(below, axis=0) * self._list.size
        return found

    def _by_code(self, lists: Float64Array) -> Float64Array:
        """Return the means of lists, `(..., n_bins)`, over the ranks of each code, `(..., n_codes)`."""
        means: Float64Array = np.diff(_between(self._ends, self._grid, _running(lists))) / np.diff(self._ends)
        return means

    @cached_property
    def _attenuation(self) -> float:
        """λ of the list."""
        return float(self._list @ self._expected(self._within(self._list)) / (self._list @ self._list))

    @cached_property
    def _restored(self) -> float:
        """r, the share of linear relations that scores restore."""
        found = self._neumann(self._list)
        return float(self._list @ self._expected(self._within(found)) / (self._list @ self._list))

    @property
    def _rest(self) -> float:
        """Return the variance of ρ; 0 where scores are solved for: these leave no shape but the finest."""
        if self._few or self._different.size == 2:
            return 0.0
        restored = self._expected(self._within(self._neumann(self._list)))
        rest = self._by_code(self._restored * self._list - restored)
        return float(np.diff(self._ends) @ rest**2)

    def _average(self, of: Callable[[MaskingParams], float]) -> float:
        """Return the average over the records of a number of their owner."""
        return float(self._shares @ np.array([of(way) for way in self._ways]))

    def _obstacle(self) -> str:
        """Return why nothing can be derived about the assignment; empty if it can."""
        rules = [way.planned.rules for way in self._ways]
        if not all(rule.listed for rule in rules):
            return "every record has noise of its own, clamped to the domain"
        if self._attribute.unplaced:
            return f"it has {self._attribute.unplaced}, which have no place among the others"
        if (
            any(rule.declared_by for rule in rules)
            or self._attribute.taxonomy
            or self._attribute.by_frequency
        ):
            return "the order in which its categories were masked is not public"
        if not all(rule.monotone for rule in rules):
            return "its noisy values do not ascend with the ranks"
        if self._labels and not all(rule.carrier is COUNTS for rule in rules):
            return "its categories were averaged and not counted"
        if not self._variance:
            return "all released values are equal"
        largest = max(_SPIKE, _SPIKE_CLUSTERS * self._cluster)
        return SPIKE if self._cluster and np.diff(self._ends).max() > largest else ""

    def _noise_variance(self, way: MaskingParams) -> float:
        planned = way.planned
        if planned.rules.carrier is not COUNTS:
            return 2 * way.noise_scale(self._attribute, self._range) ** 2
        if self._attribute.is_categorical:
            return 2 * way.count_scale**2
        public = PublicNumbers(way.n_records, self._attribute.n_values, planned.epsilon, way.g)
        return float(planned.rules.list_error(1, public)) * self._attribute.n_values**2 / 12

    def _expected(self, values: Float64Array) -> Float64Array:
        """Return the expected value at the new rank, by original rank: P."""
        shares: dict[float, float] = {}
        for way, share in zip(self._ways, self._shares, strict=True):
            scale = way.rank_scale if way.planned.rank_noise else 0.0
            shares[scale] = shares.get(scale, 0.0) + float(share)
        found = np.zeros_like(values)
        for scale, share in shares.items():
            # Not by BLAS: for so small a product its threads wait longer than they compute.
            joint = joint_ranks(values.shape[-1], scale) if scale else None
            if joint is None:
                found += share * values
            else:
                found += share * (
                    np.einsum("ij,j->i", joint, values) if values.ndim == 1 else values @ joint.T
                )
        return found

    def _within(self, values: Float64Array) -> Float64Array:
        """Return the means within clusters where these hand out their entries at random: M."""
        found = np.zeros_like(values)
        for way, share in zip(self._ways, self._shares, strict=True):
            means = values
            if way.planned.rules.carrier is QUANTILES:
                means = self._means_between(values, way.cluster_ends)
            found += share * means
        return found

    def _means_between(self, values: Float64Array, ends: Float64Array) -> Float64Array:
        """Return the means between consecutive ends, by rank."""
        # The integral of the means is linear between ends.
        of_ends = _between(ends, self._grid, _running(values))
        means: Float64Array = np.diff(_between(self._grid, ends, of_ends)) * values.shape[-1]
        return means

    def _share_relabelled(self) -> float:
        """Return the share of the records that got another value."""
        same = self._values[:, None] == self._values

        def moved(way: MaskingParams) -> float:
            if not way.planned.rank_noise:
                return 0.0
            return float(1 - joint_ranks(self._list.size, way.rank_scale)[same].sum() / self._list.size)

        return self._average(moved)


def _running(values: Float64Array) -> Float64Array:
    """Return the integral of lists from 0 to the end of each of their bins, `(..., n_bins + 1)`."""
    running = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=running[..., 1:])
    running /= values.shape[-1]
    return running


def _between(at: Float64Array, places: Float64Array, values: Float64Array) -> Float64Array:
    """Return what `np.interp` returns, of each of several lists of values, `(..., at.size)`."""
    after = np.clip(np.searchsorted(places, at), 1, places.size - 1)
    part = np.clip((at - places[after - 1]) / (places[after] - places[after - 1]), 0, 1)
    found: Float64Array = values[..., after - 1] * (1 - part) + values[..., after] * part
    return found
