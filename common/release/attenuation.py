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

With the list in the place of the original values, λ = Cov(ℓ(q), ℓ(u))/Var(ℓ): a sum over the joint
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
16 % too small at w = 0.3. So scores are divided by √r, and |ln r|/2 counts as an error of the scale. For a
boolean every relation is linear, and r is nearly 1.

*Categories.* The indicator of a category is a function of the rank as well, whether or not the order of the
categories means anything: records with the same label have random ranks within it. So it has scores, a sum
over all labels, as a boolean has. The smaller a category is beside w, the less four terms restore of it.

*Scale of the list.* The list is noisy itself. To first order this changes the scale of an attribute by a
factor 1 + e: that of its slopes as a response, and, inversely, as a regressor; correlations stay.
`scale_error` is a cautious standard deviation of e. With K clusters of k records, whose means have Laplace
noise of scale b,

    e = Σ_C noise_C·F_C/(K·Var),    sd(e) = √(2/K)·b/sd,    b = width·g/(k·ε).

The width is that of the domain. Where noise is calibrated to the values, its scale is not public, but follows
their range: three times the range of the list was enough on Wine Quality, Census and Adult. The values within
the outermost clusters are interpolated, which adds half the variance that one more step of the list would
have there, and all of it where the tails are left out of the means. For noisy counts
e = Σ_v noise_v·(v - mean)²/(2·n·Var).

*Where it fails.* Relations that are not linear; owners whose values have different distributions, since
differences between owners are not attenuated; heavy tails, of which the outermost clusters lose a part;
mechanisms with noise on every record, where the domain's ends distort the values, and those whose noisy means
need not ascend with the ranks, so that the list is not in the order of the ranks: no attenuation is stated.

References:
    Fuller 1987, Measurement Error Models, section 1.1 (attenuation); the closed form for rank noise is ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING

import numpy as np

from common.arrays import Float64Array, Int64Array
from common.model.mechanisms import COUNTS, QUANTILES, PublicNumbers
from common.model.ranks import joint_ranks
from common.model.schema import Attribute
from common.model.task import PlannedAttribute

LARGEST_SCALE_ERROR = 0.5
"""Beyond it nothing is corrected: the noise of the values outweighs what is known about them."""
_MOST_BINS = 1024
_RANGES = 3
_TERMS = 4
"""Of Neumann's series."""


@dataclass(frozen=True, slots=True)
class Way:
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
    def count_scale(self) -> float:
        """The Laplace scale of the noise of a count, in records."""
        return 2 * self.g / float(self.planned.epsilon)

    @property
    def rank_scale(self) -> float:
        """The scale of the noise on ranks as a share of all ranks, as it was drawn."""
        scale = (self.planned.rank_noise * self.n_records).to_integral_value(ROUND_CEILING)
        return float(scale) / self.n_records

    def noise_scale(self, attribute: Attribute, spread: float) -> float:
        """Return a cautious Laplace scale of the noise of a released value, in resolution units.

        Args:
            spread: Range of the released values.
        """
        rules = self.planned.rules
        width = min(float(attribute.n_values), _RANGES * spread) if rules.by_values else attribute.n_values
        return width * self.g / ((self.planned.k or 1) * float(self.planned.epsilon))


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


class MaskedValues:
    """The released values of one attribute, with how its owners masked it.

    The list is kept in bins of equally many records.

    Args:
        ways: How each of its owners masked it.
        units: The released values in resolution units, `(n_records,)`, at least one.
        labels: Codes of categories, whose indicator (1 or 0) takes the place of the values; or empty.
    """

    def __init__(
        self, attribute: Attribute, ways: Sequence[Way], units: Int64Array, labels: Sequence[int] = ()
    ) -> None:
        self._attribute, self._ways, self._labels = attribute, ways, labels
        sizes = np.array([way.n_records for way in ways], dtype=np.float64)
        self._shares: Float64Array = sizes / sizes.sum()
        # The list stays in the order in which the owners masked, which is that of the codes.
        codes, self._place, self._counts = np.unique(units, return_inverse=True, return_counts=True)
        shown = np.isin(codes, labels) if labels else codes
        self._different: Float64Array = shown.astype(np.float64)
        self._ends: Float64Array = np.append(0, np.cumsum(self._counts)) / units.size
        ordered = np.repeat(self._different, self._counts)
        n_bins = min(ordered.size, _MOST_BINS)
        edges = np.arange(n_bins + 1) * ordered.size // n_bins
        self._mean, self._variance = float(ordered.mean()), float(ordered.var())
        self._range = float(ordered.max() - ordered.min())
        self._list: Float64Array = np.add.reduceat(ordered, edges[:-1]) / np.diff(edges) - self._mean
        self._values = ordered[(edges[:-1] + edges[1:]) // 2]
        self._grid: Float64Array = np.linspace(0, 1, n_bins + 1)

    def distortion(self) -> Distortion:
        """Derive how masking changed the attribute."""
        noise = float(np.sqrt(self._average(self._noise_variance)))
        if note := self._obstacle():
            return Distortion(noise, None, None, None, note)
        attribute = self._attribute
        attenuation = float(self._list @ self._expected(self._within(self._list)) / (self._list @ self._list))
        moved = float(np.sqrt(2 * self._variance * max(1 - attenuation, 0)))
        if attribute.is_categorical and not self._labels:
            moved = self._relabelled()
        unordered = attribute.is_categorical and attribute.n_values > 2 and not attribute.ordered
        if unordered and not self._labels:
            return Distortion(noise, moved, None, None, "its labels have no order")
        of_noise = self._shares**2 @ np.array([self._scale_variance(way) for way in self._ways])
        _, restored = self._neumann()
        scale_error = float(
            np.sqrt(of_noise + (self._average(self._tails) / 2) ** 2 + (np.log(restored) / 2) ** 2)
        )
        if scale_error > LARGEST_SCALE_ERROR:
            return Distortion(noise, moved, None, None, "the noise of its values is too large")
        return Distortion(noise, moved, attenuation, scale_error, "")

    def scores(self) -> Float64Array:
        """Return values whose covariances with those of other attributes are as before masking.

        Returns:
            Scores less their mean, `(n_records,)`, in resolution units.
        """
        found, restored = self._neumann()
        moved = np.diff(np.interp(self._ends, self._grid, _running(found - self._list))) / np.diff(self._ends)
        scores: Float64Array = (self._different - self._mean + moved)[self._place] / np.sqrt(restored)
        return scores

    def _neumann(self) -> tuple[Float64Array, float]:
        """Return the scores of the list, and the share of linear relations that they restore."""
        found = self._within(self._list)
        for _ in range(_TERMS - 1):
            rest = self._list - self._expected(self._within(found))
            found += self._averaged(self._within(rest), self._ends)
        restored = self._list @ self._expected(self._within(found)) / (self._list @ self._list)
        return found, float(restored)

    def _average(self, of: Callable[[Way], float]) -> float:
        """Return the average over the records of a number of their owner."""
        return float(self._shares @ np.array([of(way) for way in self._ways]))

    def _obstacle(self) -> str:
        """Return why nothing can be derived about the assignment; empty if it can."""
        rules = [way.planned.rules for way in self._ways]
        if not all(each.listed for each in rules):
            return "every record has noise of its own, clamped to the domain"
        if self._attribute.keeps_missing:
            return "it has missing values, which have no place among the others"
        if (
            any(each.declared_by for each in rules)
            or self._attribute.taxonomy
            or self._attribute.by_frequency
        ):
            return "the order in which its categories were masked is not public"
        if not all(each.monotone for each in rules):
            return "its noisy values do not ascend with the ranks"
        if self._labels and not all(each.carrier is COUNTS for each in rules):
            return "its categories were averaged and not counted"
        return "" if self._variance else "all released values are equal"

    def _noise_variance(self, way: Way) -> float:
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
            moved = np.einsum("ij,j->i", joint_ranks(values.size, scale), values) if scale else values
            found += share * moved
        return found

    def _within(self, values: Float64Array) -> Float64Array:
        """Return the means within clusters where these hand out their entries at random: M."""
        found = np.zeros_like(values)
        for way, share in zip(self._ways, self._shares, strict=True):
            means = values
            if way.planned.rules.carrier is QUANTILES:
                means = self._averaged(values, way.cluster_ends)
            found += share * means
        return found

    def _averaged(self, values: Float64Array, ends: Float64Array) -> Float64Array:
        """Return the means between consecutive ends, by rank."""
        # The integral of the means is linear between ends.
        of_ends = np.interp(ends, self._grid, _running(values))
        means: Float64Array = np.diff(np.interp(self._grid, ends, of_ends)) * values.size
        return means

    def _relabelled(self) -> float:
        """Return the share of the records that got another value."""
        same = self._values[:, None] == self._values

        def moved(way: Way) -> float:
            if not way.planned.rank_noise:
                return 0.0
            return float(1 - joint_ranks(self._list.size, way.rank_scale)[same].sum() / self._list.size)

        return self._average(moved)

    def _scale_variance(self, way: Way) -> float:
        """Return the variance of the relative error of the list's scale from the noise of its values."""
        if way.planned.rules.carrier is COUNTS:
            fourth = ((np.unique(self._different) - self._mean) ** 4).sum()
            return float(2 * way.count_scale**2 * fourth / (2 * way.n_records * self._variance) ** 2)
        noise = 2 * way.noise_scale(self._attribute, self._range) ** 2
        return noise / way.n_clusters / self._variance

    def _tails(self, way: Way) -> float:
        """Return the share of the variance that one more step of the list at its ends would have."""
        if way.planned.k is None:
            return 0.0
        if way.n_clusters == 1:
            return 1.0
        ends = way.cluster_ends
        means = np.diff(np.interp(ends, self._grid, _running(self._list))) / np.diff(ends)
        steps = (means[1] - means[0]) ** 2 + (means[-1] - means[-2]) ** 2
        rules = way.planned.rules
        lost = 2 if rules.by_values and rules.carrier is QUANTILES else 1
        return float(lost * steps / way.n_clusters / self._variance)


def _running(values: Float64Array) -> Float64Array:
    """Return the integral of a list from 0 to the end of each of its bins, `(n_bins + 1,)`."""
    running: Float64Array = np.append(0, np.cumsum(values)) / values.size
    return running
