"""What masked records are worth: errors of values, variances, distributions and correlations.

References:
    Del Vasto-Terrientes et al. 2025, §5, equation 5 (mean SSE).
    Sánchez et al. 2016, §4.2 (relative error, variances, Jensen–Shannon divergence).
    Lin 1991, "Divergence measures based on the Shannon entropy".
"""

from collections.abc import Sequence

import numpy as np

from common.schema import Attribute
from owner_node.explore.scales import Scale
from owner_node.masking.arrays import Float64Array, Int64Array

SANITY = 0.01
"""The least that a value counts as in a relative error, as a share of the domain's width."""
MOST_BINS = 100
"""Bins of a histogram that distributions are compared by."""


def mean_sse(errors: Sequence[float | None]) -> float:
    """Return the mean over records of dist² = (1/l²) Σ_a d_a²/σ_a².

    The printed formula divides by σ_a² after squaring both; of the readings tried this one comes closest to
    the figures that the paper states.

    Args:
        errors: Σ d²/(n σ²) of each of the l attributes; None counts nothing, and is to be reported.

    References:
        Del Vasto-Terrientes et al. 2025, equation 5.
    """
    return sum(each for each in errors if each is not None) / len(errors) ** 2


def mean_sse_of_means(scales: Sequence[Scale]) -> float:
    """Return the mean SSE of a table with every value replaced by its attribute's mean, up to (n-1)/n.

    Args:
        scales: Of all l attributes.

    Returns:
        1/l where all of them vary; an attribute without variation is its mean already and counts nothing.
    """
    return sum(scale.spread > 0 for scale in scales) / len(scales) ** 2


def attribute_sse(scale: Scale, original: Int64Array, masked: Int64Array) -> float | None:
    """Return Σ d²/(n σ²) of one attribute; None if it has no variation and was changed."""
    return scale.sse(float(scale.squared(original, masked).sum()), original.size)


def relative_error(scale: Scale, original: Int64Array, masked: Int64Array) -> float:
    """Return the mean of |difference| / max(|original|, sanity bound), the bound a share of the domain.

    Dates are counted from the start of their domain. The error of a category is its semantic distance where
    there is a taxonomy, its difference in places over V - 1 where the order means something, else 0 or 1.

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
    """Return |variance after - before| / before; 0 if there is none before and after, None if only after.

    References:
        Sánchez et al. 2016, §4.2; Baeyens and Defays 1999.
    """
    before, after = (float(np.var(scale.places(values), ddof=1)) for values in (original, masked))
    if before > 0:
        return abs(after - before) / before
    return 0.0 if after == 0 else None


def histogram(attribute: Attribute, values: Int64Array) -> Int64Array:
    """Count values in bins of equal width over the declared domain: one per value where that makes up to 100.

    Args:
        attribute: The attribute.
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
        second: The same of the other one.
    """
    p, q = first / first.sum(), second / second.sum()
    middle = (p + q) / 2
    return max(0.0, (_surprise(p, middle) + _surprise(q, middle)) / 2)


def _surprise(p: Float64Array, q: Float64Array) -> float:
    """Return the Kullback–Leibler divergence, in bits."""
    some = p > 0
    return float((p[some] * np.log2(p[some] / q[some])).sum())


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
