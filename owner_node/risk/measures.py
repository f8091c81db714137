"""Utility of masked records: errors of values, variances, distributions and correlations.

Values of one attribute are compared as places on a line, or by their distances in a taxonomy (`Scale`).

References:
    Del Vasto-Terrientes et al. 2025, §5, equation 5 (mean SSE), and §5.1.1 (categories by frequency).
    Sánchez et al. 2016, §3.4 (semantic distance) and §4.2 (relative error, variances, Jensen–Shannon
    divergence).
    Lin 1991, "Divergence measures based on the Shannon entropy".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from common.model.schema import Attribute, TaxonomyMethod
from owner_node.masking.arrays import Float64Array, Int64Array
from owner_node.masking.tasks import IndexOrder


@dataclass(frozen=True, slots=True)
class Scale:
    """Compares values of one attribute."""

    attribute: Attribute
    spread: float
    """σ², the sample variance of the original places; for categories drawn from a taxonomy, the mean squared
    distance from the best single category."""
    place_of: Int64Array | None
    """Place of each category, `(V,)`; None for the declared order."""
    distances: Float64Array | None
    """Semantic distances of categories by declared index, `(V, V)`; None without a taxonomy."""

    @property
    def is_drawn(self) -> bool:
        """Whether categories are drawn from a taxonomy, so that they have no places on a line."""
        return self.attribute.method is TaxonomyMethod.EXPONENTIAL

    @property
    def is_ordered(self) -> bool:
        """Whether the order of values means something."""
        return self.attribute.ordered or not self.attribute.is_categorical

    def places(self, values: Int64Array) -> Float64Array:
        """Return places on a line, `(n_records,)`, in resolution units above the domain's lower end."""
        if self.place_of is not None:
            return self.place_of[values].astype(np.float64)
        return (values - self.attribute.lower).astype(np.float64)

    def values(self, places: Float64Array) -> Float64Array:
        """Return the values, above the domain's lower end, that have some places; `(n,)`."""
        if self.place_of is None:
            return places
        return np.argsort(self.place_of)[places.astype(np.int64)].astype(np.float64)

    def squared_differences(self, original: Int64Array, masked: Int64Array) -> Float64Array:
        """Return squared differences, `(n_records,)`."""
        if self.is_drawn and self.distances is not None:
            return np.square(self.distances[original, masked])
        return np.square(self.places(masked) - self.places(original))

    def sse(self, squares: float, n_records: int) -> float | None:
        """Return Σ d²/(n σ²): 1 is as bad as the best single value, up to the factor (n-1)/n.

        Args:
            squares: Sum of the squared differences of all records.

        Returns:
            The error; 0 for an attribute without variation that is unchanged, None if it was changed.
        """
        if self.spread > 0:
            return squares / (n_records * self.spread)
        return 0.0 if squares == 0 else None


def scale_of(
    attribute: Attribute,
    original: Int64Array,
    order: IndexOrder | None = None,
    distances: Float64Array | None = None,
) -> Scale:
    """Return the scale of an attribute.

    Args:
        original: Original values of all records, `(n_records,)`, in resolution units.
        order: The order its categories are masked in, computed from the same values; None: as declared.
        distances: Semantic distances by declared index, `(V, V)`, if it has a taxonomy.
    """
    place_of = None if order is None else order.place_of
    scale = Scale(attribute, 0.0, place_of, distances)
    if scale.is_drawn and distances is not None:
        counts = np.bincount(original, minlength=attribute.n_values)
        spread = float((counts @ np.square(distances)).min()) / max(original.size - 1, 1)
    else:
        spread = float(np.var(scale.places(original), ddof=1)) if original.size > 1 else 0.0
    return Scale(attribute, spread, place_of, distances)


SANITY = 0.01
"""Least denominator of a relative error, as a share of the domain's width."""
MOST_BINS = 100
"""Most bins of the histograms that compare distributions."""


def mean_sse(errors: Sequence[float | None]) -> float:
    """Return the mean over records of dist² = (1/l²) Σ_a d_a²/σ_a².

    The printed formula divides by σ_a² after squaring both. Among the interpretations that were tried, this
    one is closest to the figures in the paper.

    Args:
        errors: Σ d²/(n σ²) of each of the l attributes; None counts as 0, and must be reported.

    References:
        Del Vasto-Terrientes et al. 2025, equation 5.
    """
    return sum(error for error in errors if error is not None) / len(errors) ** 2


def mean_sse_of_means(scales: Sequence[Scale]) -> float:
    """Return the mean SSE of a table with every value replaced by its attribute's mean, up to (n-1)/n.

    Returns:
        1/l if all of them vary; an attribute without variation equals its mean and counts as 0.
    """
    return sum(scale.spread > 0 for scale in scales) / len(scales) ** 2


def attribute_sse(scale: Scale, original: Int64Array, masked: Int64Array) -> float | None:
    """Return Σ d²/(n σ²) of one attribute; None if it has no variation and was changed."""
    return scale.sse(float(scale.squared_differences(original, masked).sum()), original.size)


def relative_error(scale: Scale, original: Int64Array, masked: Int64Array) -> float:
    """Return the mean of |difference| / max(|original|, sanity bound), the bound a share of the domain.

    Dates are counted from the start of their domain. The error of a category is its semantic distance if
    there is a taxonomy, its difference in places divided by V - 1 if categories are ordered, else 0 or 1.

    References:
        Sánchez et al. 2016, §4.2.
    """
    attribute = scale.attribute
    if scale.distances is not None:
        return float(scale.distances[original, masked].mean())
    if attribute.is_categorical and not attribute.ordered:
        return float(np.count_nonzero(original != masked)) / original.size
    difference = np.abs((masked - original).astype(np.float64))
    if attribute.is_categorical:
        return float(difference.mean()) / max(attribute.n_values - 1, 1)
    is_counted = attribute.type.value == "date"
    magnitude = np.abs((original - (attribute.lower if is_counted else 0)).astype(np.float64))
    bound = max(SANITY * (attribute.n_values - 1), 1.0)
    return float((difference / np.maximum(magnitude, bound)).mean())


def variance_change(scale: Scale, original: Int64Array, masked: Int64Array) -> float | None:
    """Return |variance after - before| / before; 0 if both variances are 0, None if only the one before is 0.

    References:
        Sánchez et al. 2016, §4.2; Baeyens and Defays 1999.
    """
    before, after = (float(np.var(scale.places(values), ddof=1)) for values in (original, masked))
    if before > 0:
        return abs(after - before) / before
    return 0.0 if after == 0 else None


def histogram(attribute: Attribute, values: Int64Array) -> Int64Array:
    """Count values in bins of equal width over the declared domain; one bin per value for up to 100 values.

    Args:
        values: In resolution units, `(n_records,)`.

    Returns:
        Numbers of records, `(n_bins,)`.
    """
    width = -(-attribute.n_values // MOST_BINS)
    n_bins = -(-attribute.n_values // width)
    return np.bincount((values - attribute.lower) // width, minlength=n_bins)


def divergence(first: Int64Array, second: Int64Array) -> float:
    """Return the Jensen–Shannon divergence of two histograms, in bits: 0 for equal ones, at most 1.

    Args:
        first: Numbers of records, `(n_bins,)`.
    """
    from scipy.special import rel_entr

    p, q = first / first.sum(), second / second.sum()
    middle = (p + q) / 2
    return max(0.0, float((rel_entr(p, middle) + rel_entr(q, middle)).sum()) / (2 * log(2)))


def correlations(places: Float64Array) -> Float64Array:
    """Return Pearson's correlations of all pairs of attributes; 0 with one that does not vary.

    Args:
        places: `(n_records, n_attributes)`.

    Returns:
        `(n_pairs,)`.
    """
    centred = places - places.mean(axis=0)
    lengths = np.sqrt(np.square(centred).sum(axis=0))
    units = np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0)
    pairs: Float64Array = (units.T @ units)[np.triu_indices(places.shape[1], 1)]
    return pairs


def correlation_error(original: Float64Array, masked: Float64Array) -> float | None:
    """Return the mean absolute difference of correlations, from `correlations`; None without a pair."""
    return float(np.abs(masked - original).mean()) if original.size else None


MOST_BARS = 40
OTHERS = "all others"


def distribution(attribute: Attribute, original: Int64Array, masked: Int64Array) -> Mapping[str, Any]:
    """Count original and masked values in the same bars.

    Numbers and dates: bars of equal width from the smallest to the largest value that occurs in either.
    Categories: one bar each in declared order; if there are too many, the rarest share a bar.

    Args:
        original: Values in resolution units, `(n_records,)`.
        masked: Masked values in resolution units, `(n_records,)`.

    Returns:
        `{name, bins, original, masked}`.
    """
    count = _count_categories if attribute.is_categorical else _count_numbers
    labels, counts = count(attribute, (original, masked))
    return {
        "name": attribute.name,
        "bins": labels,
        "original": counts[0].tolist(),
        "masked": counts[1].tolist(),
    }


def _count_categories(
    attribute: Attribute, both: tuple[Int64Array, Int64Array]
) -> tuple[list[str], list[Int64Array]]:
    labels = list(attribute.labels)
    counts = [np.bincount(values, minlength=len(labels)) for values in both]
    if len(labels) <= MOST_BARS:
        return labels, counts
    most = np.sort(np.argsort(-counts[0] - counts[1], kind="stable")[: MOST_BARS - 1])
    rest = [count.sum() - count[most].sum() for count in counts]
    return (
        [*(labels[index] for index in most), OTHERS],
        [np.append(count[most], other) for count, other in zip(counts, rest, strict=True)],
    )


def _count_numbers(
    attribute: Attribute, both: tuple[Int64Array, Int64Array]
) -> tuple[list[str], list[Int64Array]]:
    lowest, highest = min(int(values.min()) for values in both), max(int(values.max()) for values in both)
    width = -(-(highest - lowest + 1) // MOST_BARS)
    n_bars = -(-(highest - lowest + 1) // width)
    counts = [np.bincount((values - lowest) // width, minlength=n_bars) for values in both]
    starts = [lowest + number * width for number in range(n_bars)]
    ends = [min(start + width - 1, highest) for start in starts]
    labels = [
        attribute.text(start) if start == end else f"{attribute.text(start)} … {attribute.text(end)}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return labels, counts
