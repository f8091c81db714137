"""Moments of an attribute from noisy counts, most of which are of values that nobody has.

The linear estimate adds up the noise of all counts, each multiplied by how far away its values are: in a
domain that is ten times too wide it is noise. So values are put into shells around the median, each twice as
wide as the one before. Shells up to the last one that stands out of the noise are summed as they are. What
the ones beyond it have is fitted: not less than nothing, and at most the part `_FALL` of the one before, as
in a generalised Pareto tail of shape 0.6, the heaviest that masked releases allow for
(`common.analysis.originals`). A fitted count is taken to be in the geometric middle of its shell, and that is
combined with the shell's own noisy sum by the precision of both.

The error is by draws of the counts with noise once more, each with its own shells that stand out. Where some
of them show shells far away, intervals are wide. Records that are far from all others and too few to stand
out are missed (`tests.papers.wide_domains`).

References:
    Hosking and Wallis 1987, Parameter and quantile estimation for the generalized Pareto distribution.
    Barlow, Bartholomew, Bremner, Brunk 1972, Statistical inference under order restrictions (isotonic
    regression).
"""

from dataclasses import dataclass

import numpy as np

from common.arrays import BoolArray, Float64Array, Int64Array

_FALL = 2 ** (-1 / 0.6)
_STANDS_OUT = 3.0
"""Deviations of a shell's noise."""
_N_DRAWS = 200
_LEAST_VARIANCE = 1 / 12
"""Least variance of values that are spread within one unit."""


@dataclass(frozen=True, slots=True)
class Shells:
    """Values of an attribute by their distance from the median."""

    centre: float
    """The median, in codes."""
    numbers: Int64Array
    """The shell of each part: 0 around the centre, negative below, `(n_parts,)`."""
    sides: tuple[Int64Array, Int64Array]
    """Rows of the shells of either side, from the centre outwards."""
    sums: Float64Array
    """Count of each shell, then sums of its distances from the centre with their signs, and of their squares,
    `(3 * n_shells,)`."""
    covariance: Float64Array
    """Covariance of their noise."""
    places: Float64Array
    """Geometric middle of each shell, less the centre, `(n_shells,)`."""
    widths: Float64Array
    """`(n_shells,)`."""

    @classmethod
    def of(
        cls, counts: Float64Array, covariance: Float64Array, middles: Float64Array, halves: Float64Array
    ) -> "Shells":
        """Put parts into shells.

        Args:
            counts: Unbiased counts of parts, `(n_parts,)`.
            covariance: Of their noise.
            middles: The value of each part, in codes.
            halves: Half the width of each part.
        """
        order = np.argsort(middles, kind="stable")
        running = np.maximum.accumulate(np.cumsum(counts[order]))
        quartiles = np.searchsorted(running, counts.sum() * np.array([0.25, 0.5, 0.75]))
        quartiles = order[np.minimum(quartiles, counts.size - 1)]
        low, centre, high = middles[quartiles]
        away = middles - centre
        spread = max((high - low) / 2, 2 * halves[quartiles[1]], 1.0)
        doublings = 1 + np.floor(np.log2(np.maximum(np.abs(away) / spread, 0.5)))
        numbers = (np.sign(away) * doublings).astype(np.int64)
        own = np.unique(numbers)
        inside = np.equal.outer(own, numbers)
        powers = np.concatenate([inside, inside * away, inside * away**2])
        nearest = np.where(inside, np.abs(away) - halves, np.inf).min(axis=1)
        farthest = np.where(inside, np.abs(away) + halves, 0).max(axis=1)
        return cls(
            float(centre),
            numbers,
            (np.flatnonzero(own <= 0)[::-1], np.flatnonzero(own >= 0)),
            powers @ counts,
            powers @ covariance @ powers.T,
            np.sign(own) * np.sqrt(np.maximum(nearest, 0.5) * farthest),
            farthest - np.maximum(nearest, 0),
        )

    @property
    def _deviations(self) -> Float64Array:
        n_shells = self.places.size
        return np.sqrt(np.maximum(self.covariance.diagonal()[:n_shells], 1e-9))

    def kept(self, sums: Float64Array) -> BoolArray:
        """Return which shells are summed as they are: up to the last that stands out, `(n_shells,)`."""
        stands_out = sums[: self.places.size] > _STANDS_OUT * self._deviations
        found = np.zeros(self.places.size, dtype=np.bool_)
        for side in self.sides:
            last = max(np.flatnonzero(stands_out[side]), default=0)
            found[side[: last + 1]] = True
        return found

    def fitted(self, sums: Float64Array) -> tuple[BoolArray, Float64Array]:
        """Return which shells are summed as they are, and the count of each, fitted in others."""
        from scipy.optimize import isotonic_regression

        kept, counts = self.kept(sums), sums[: self.places.size].copy()
        for side in self.sides:
            chain = side[np.count_nonzero(kept[side]) - 1 :]
            falling = _FALL ** np.arange(chain.size)
            weights = (falling / self._deviations[chain]) ** 2
            fit = isotonic_regression(counts[chain] / falling, weights=weights, increasing=False).x
            counts[chain[1:]] = (np.maximum(fit, 0) * falling)[1:]
        return kept, counts

    def moment(self, sums: Float64Array, power: int) -> tuple[float, float]:
        """Return a moment about the centre, and its variance by where in shells fitted records are.

        Args:
            sums: As `sums`, or a draw of them.
            power: 1 for the mean, 2 for that of the squares.
        """
        n_shells, (kept, counts) = self.places.size, self.fitted(sums)
        own = slice(power * n_shells, (power + 1) * n_shells)
        scale = np.abs(self.places) ** (power - 1)
        of_place = np.where(kept, np.inf, (counts * power * scale * self.widths) ** 2 / 12)
        of_noise = np.maximum(self.covariance.diagonal()[own], 1e-9)
        part = np.where(kept, 0.0, of_noise / (of_place + of_noise))
        total = (1 - part) * sums[own] + part * counts * self.places**power
        n_records = max(float(sums[:n_shells].sum()), 1.0)
        variance = float((part[~kept] ** 2 * of_place[~kept]).sum())
        return float(total.sum()) / n_records, variance / n_records**2

    def draws(self, random: np.random.Generator) -> Float64Array:
        """Return sums with noise once more, `(n_draws, 3 * n_shells)`."""
        # Squares of distances are larger than counts by many orders of magnitude: all are scaled.
        scale = np.sqrt(np.maximum(self.covariance.diagonal(), 1e-300))
        values, vectors = np.linalg.eigh(self.covariance / np.outer(scale, scale))
        root = scale[:, None] * vectors * np.sqrt(np.maximum(values, 0))
        return np.asarray(self.sums + random.normal(size=(_N_DRAWS, values.size)) @ root.T, dtype=np.float64)

    def relative_error(self, random: np.random.Generator) -> float:
        """Return the standard error of the logarithm of the variance, by the middle of its draws."""
        draws = np.array([[self.moment(each, power)[0] for power in (1, 2)] for each in self.draws(random)])
        variances = draws[:, 1] - draws[:, 0] ** 2
        low, high = np.quantile(np.log(np.maximum(variances, _LEAST_VARIANCE)), [0.16, 0.84])
        return float(high - low) / 2

    def spread(self, counts: Float64Array, halves: Float64Array) -> tuple[Float64Array, BoolArray]:
        """Return the counts of parts, those fitted spread evenly over their shells, and which are not fitted.

        Args:
            counts: Of the parts, `(n_parts,)`.
            halves: Half the width of each part.
        """
        kept, fitted = self.fitted(self.sums)
        row = np.searchsorted(np.unique(self.numbers), self.numbers)
        widths = 2 * halves + 1
        spread = fitted[row] * widths / np.bincount(row, widths)[row]
        found = np.where(kept[row], counts, spread)
        return found * (counts.sum() / found.sum()), kept[row]


def mean_by_shells(
    counts: Float64Array,
    covariance: Float64Array,
    middles: Float64Array,
    halves: Float64Array,
    random: np.random.Generator,
) -> tuple[float, float]:
    """Return a mean in codes, and its standard error; arguments as in `Shells.of`."""
    shells, n_records = Shells.of(counts, covariance, middles, halves), max(float(counts.sum()), 1.0)
    (mean, variance), kept = shells.moment(shells.sums, 1), shells.kept(shells.sums)
    if kept.all():
        influence = np.repeat([-mean, 1.0, 0.0], kept.size) / n_records
        variance = float(influence @ shells.covariance @ influence)
    else:
        variance += float(np.var([shells.moment(each, 1)[0] for each in shells.draws(random)]))
    # All values of a part can be at one of its ends, in each independently of the others.
    seen = np.isin(shells.numbers, np.unique(shells.numbers)[kept])
    held = np.where(seen, np.maximum(counts, 0), 0) / n_records
    variance += float(((held * halves) ** 2).sum())
    return shells.centre + mean, float(np.sqrt(variance))
