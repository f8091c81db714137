"""Correlations, linear and logistic regressions of released values, with corrections and standard errors.

A `Term` is one column of a model: an attribute, or the indicator of one of its categories. Moments of two
attributes come from scores (`common.release.attenuation`); those within one attribute (variances, shares of
categories) come from the released values, which are the list itself.

*Standard errors* count the sampling of the records with the noise on their assignment, from each record's
influence on the estimate (robust to unequal variances), and the noise of the lists (`scale_error`).

*Logistic regression.* Its estimate solves

    E[p(x)] = E[y],    E[x·p(x)] = E[x·y],    p(x) = 1/(1 + exp(-α - β·x)).

The left sides depend on the distribution of x alone. With one regressor that is the list, which is not
attenuated, and E[x·y] is a moment of two attributes, which scores restore. With regressors of several
attributes the left sides need their joint distribution, which masking weakens and nothing here restores. On
the labels of a factor small errors of the moments become large ones of log odds, which no interval here
covers. So neither is given corrected.

References:
    White 1980, A heteroskedasticity-consistent covariance matrix estimator (the sandwich of influences).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from common.arrays import Float64Array
from common.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

_MOST_LOG_ODDS = 30.0
"""Per standard deviation of a regressor; beyond it, a regressor separates the records with the event."""
_LARGEST_GRADIENT = 1e-6


@dataclass(frozen=True, slots=True)
class Term:
    """One column of a model."""

    name: str
    """The attribute, or "attribute: category"."""
    attribute: str
    mean: float
    """Of the released values."""
    released: Float64Array
    """The released values less their mean, `(n_records,)`."""
    scores: Float64Array
    """The scores less their mean, `(n_records,)`; the values where nothing is corrected."""
    scale_error: float
    """Cautious standard deviation of the relative error of the scale; 0 where nothing is corrected."""


def correlations(terms: Sequence[Term], confidence: float) -> "pd.DataFrame":
    """Return the correlations of all pairs of terms of different attributes, a line each."""
    import pandas as pd

    lines = {}
    for a, b in combinations(terms, 2):
        deviations = a.released.std() * b.released.std()
        corrected = (a.scores * b.scores).mean() / deviations
        influence = a.scores * b.scores / deviations
        for each in (a, b):
            influence = influence - corrected / 2 * each.released**2 / each.released.var()
        sampling = influence.var() / len(influence)
        error = np.sqrt(sampling + corrected**2 * (a.scale_error**2 + b.scale_error**2))
        lines[a.name, b.name] = ((a.released * b.released).mean() / deviations, corrected, error)
    released, found, errors = np.array(list(lines.values())).T
    index = pd.MultiIndex.from_tuples(list(lines), names=["first", "second"])
    table = _table(index, released, found, errors, confidence)
    return table.assign(low=table["low"].clip(lower=-1), high=table["high"].clip(upper=1))


def linear(response: Term, regressors: Sequence[Term], confidence: float) -> "pd.DataFrame":
    """Return a linear regression, a line per regressor.

    Raises:
        UsageError: If the corrected covariances contradict each other.
    """
    values, scores, same = _columns(regressors)
    released = values.T @ values / len(values)
    true = np.where(same, released, scores.T @ scores / len(scores))
    with_response = scores.T @ response.scores / len(scores)
    whole = np.block([[response.released.var(), with_response], [with_response[:, None], true]])
    names = ", ".join(dict.fromkeys(each.attribute for each in regressors))
    if np.linalg.eigvalsh(whole / np.sqrt(np.outer(whole.diagonal(), whole.diagonal())))[0] <= 1e-12:
        raise UsageError(
            f"the corrected covariances of {response.attribute} and {names} contradict each other",
            "leave out a regressor that depends on the others, or one with a small attenuation",
        )
    slopes = np.linalg.solve(true, with_response).astype(np.float64)
    moments = scores * (response.scores - scores @ slopes)[:, None]
    # Moments within an attribute are those of the values.
    moments += scores * (scores @ (same * slopes).T) - values * (values @ (same * slopes).T)
    sampling = _sampling(true, moments)
    as_released = np.linalg.solve(released, values.T @ response.released / len(values)).astype(np.float64)
    return _slopes(response, regressors, as_released, slopes, sampling, confidence)


def logistic(response: Term, regressors: Sequence[Term], confidence: float) -> "pd.DataFrame":
    """Return a logistic regression, a line of log odds per regressor.

    Args:
        response: 1 for the event, 0 for all other records.
        regressors: One, unless nothing is corrected.
        confidence: Of the intervals.

    Raises:
        UsageError: If no finite estimate exists.
    """
    values, scores, _ = _columns(regressors)
    as_released, _, _ = _fitted(response, values, values.T @ response.released / len(values))
    slopes, curvature, expected = _fitted(response, values, scores.T @ response.scores / len(values))
    moments = np.column_stack(
        [
            response.released + response.mean - expected,
            scores * response.scores[:, None] - values * (expected - response.mean)[:, None],
        ]
    )
    sampling = _sampling(curvature, moments)[1:]
    return _slopes(response, regressors, as_released, slopes, sampling, confidence)


def _fitted(
    response: Term, values: Float64Array, with_response: Float64Array
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Solve the equations of logistic regression.

    Args:
        response: The response.
        values: The regressors less their means, `(n_records, n_regressors)`.
        with_response: Their covariances with the response.

    Returns:
        The slopes; the matrix of second derivatives, intercept first; the probability of each record.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    deviations = np.append(1, values.std(axis=0))
    design = np.column_stack([np.ones(len(values)), values]) / deviations
    target = np.append(response.mean, with_response) / deviations

    def loss(at: Float64Array) -> float:
        return float(np.logaddexp(0, design @ at).mean() - target @ at)

    def gradient(at: Float64Array) -> Float64Array:
        return np.asarray(design.T @ expit(design @ at) / len(design) - target, dtype=np.float64)

    def curvature(at: Float64Array) -> Float64Array:
        expected = expit(design @ at)
        return np.asarray((design.T * (expected * (1 - expected))) @ design / len(design), dtype=np.float64)

    start = np.zeros(len(target))
    found = minimize(loss, start, jac=gradient, hess=curvature, method="trust-exact", options={"gtol": 1e-9})
    at: Float64Array = found.x
    if np.abs(gradient(at)).max() > _LARGEST_GRADIENT or np.abs(at).max() > _MOST_LOG_ODDS:
        raise UsageError(
            f"the logistic regression of {response.name} has no finite estimate: a regressor, or its "
            "corrected covariance, tells apart all records with the event",
            "leave out a regressor with few records, or use regress",
        )
    return at[1:] / deviations[1:], curvature(at) * np.outer(deviations, deviations), expit(design @ at)


def _columns(terms: Sequence[Term]) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return values and scores as columns, and which pairs of columns are of one attribute."""
    of = np.array([each.attribute for each in terms])
    return (
        np.stack([each.released for each in terms], axis=1),
        np.stack([each.scores for each in terms], axis=1),
        of[:, None] == of,
    )


def _sampling(derivatives: Float64Array, moments: Float64Array) -> Float64Array:
    """Return the variances of estimates from each record's part of the equations that they solve."""
    influence = np.linalg.solve(derivatives, moments.T)
    variances: Float64Array = (influence**2).mean(axis=1) / len(moments)
    return variances


def _slopes(
    response: Term,
    regressors: Sequence[Term],
    released: Float64Array,
    corrected: Float64Array,
    sampling: Float64Array,
    confidence: float,
) -> "pd.DataFrame":
    import pandas as pd

    of_scale = np.array([each.scale_error for each in regressors])
    errors = np.sqrt(sampling + corrected**2 * (response.scale_error**2 + of_scale**2))
    index = pd.Index([each.name for each in regressors], name=response.name)
    return _table(index, released, corrected, errors, confidence)


def _table(
    index: "pd.Index",
    released: Float64Array,
    corrected: Float64Array,
    errors: Float64Array,
    confidence: float,
) -> "pd.DataFrame":
    import pandas as pd

    reach = NormalDist().inv_cdf((1 + confidence) / 2) * errors
    return pd.DataFrame(
        {
            "released": released,
            "corrected": corrected,
            "standard_error": errors,
            "low": corrected - reach,
            "high": corrected + reach,
        },
        index=index,
    )
