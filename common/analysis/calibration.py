"""Weights of released records that give them the moments of the original ones.

Noise, masking and the making of synthetic records weaken every relation in the records. Moments of two
attributes are known better: from noisy tables, or from scores of masked values, without bias and with known
noise. Calibration changes the weights of the records as little as possible, in the sense of Kullback and
Leibler, until their moments are these: the weight of a record is exp(θ·x), x its products of columns. So any
weighted analysis has relations of two attributes as in the originals, other ones as in the records.

*Noise.* An estimate is computed again from moments that are moved by noise once more, by a part of it
(`_STEP`), and the answer is scaled up: all of it could lead to where no weights of records are.

References:
    Deville and Särndal 1992, Calibration estimators in survey sampling (raking ratio).
    Kish 1965, Survey Sampling (effective sample size).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from common.arrays import BoolArray, Float64Array, Int64Array
from common.errors import UsageError

_RIDGE = 0.02
"""How much the records' own moments weigh, in records: moments that no weights give get an answer."""
_STEP = 0.25
_MOST_STEPS, _SHORTEST = 60, 1e-3
_MOST_TILTED = 2.0
"""By which power of e a record's weight changes at most by noise: a few records would be the whole table."""
_LEAST_LEFT = 0.25
"""Least size of a simple sample that is as precise as the weights, (Σw)²/Σw², as a share of the records."""
_MOST_OF_LEVEL = 20
"""Most records of a level that this share is of. Where fewer than five stand for a level, their values hardly
vary, and its interval has hardly any width."""
WIDER = 1.2
"""How much wider intervals of models are than their noise: bins, weights and relations of three leave errors
that no draw shows. With it, nine in ten intervals of a cohort and of Adult held (`tests.papers`)."""
_ENOUGH = 1e-5
"""Largest difference of a moment, in standard deviations of a record's product."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Moments that weights are to give."""

    products: Float64Array
    """Products of columns of the released records, `(n_records, n_moments)`."""
    moments: Float64Array
    """Means that they are to have, `(n_moments,)`."""
    drawn: Float64Array
    """The same with noise once more, `(n_draws, n_moments)`."""
    levels: Sequence[BoolArray] = ()
    """Records of each level that an estimate compares with others, `(n_records,)`."""


Statistic = Callable[[Float64Array], Float64Array]
"""Returns estimates, `(n_estimates,)`, from the records' weights, `(n_records,)`."""


def calibrated(targets: Targets, statistic: Statistic) -> tuple[Float64Array, Float64Array]:
    """Return estimates from calibrated records, and draws of them with noise once more.

    Returns:
        `(n_estimates,)` and `(n_draws, n_estimates)`.
    """
    weights = _weights(targets, _STEP)
    estimate = statistic(next(weights))
    with np.errstate(invalid="ignore"):
        return estimate, np.stack([estimate + (statistic(each) - estimate) / _STEP for each in weights])


def resampled(targets: Targets) -> Iterator[Int64Array]:
    """Yield which records calibrated tables have, `(n_records,)`: first as estimated, then noise once more.

    A record is in a table as often as its weight says, rounded at random (systematic sampling).
    """
    for number, weights in enumerate(_weights(targets, 1.0)):
        start = np.random.default_rng(number).random()
        places = np.floor(np.cumsum(weights) + start)
        yield np.repeat(np.arange(len(weights)), np.diff(places, prepend=np.floor(start)).astype(np.int64))


def _weights(targets: Targets, part: float) -> Iterator[Float64Array]:
    """Yield the weights, of mean 1, for the moments, and for them with a part of the noise once more.

    Raises:
        UsageError: If few records have nearly all of the weight, or that of a level.
    """
    means, deviations = targets.products.mean(axis=0), targets.products.std(axis=0)
    kept = deviations > 0
    scaled = (targets.products[:, kept] - means[kept]) / deviations[kept]
    wanted = (targets.moments - means)[kept] / deviations[kept]
    moved = (targets.drawn - targets.moments)[:, kept] / deviations[kept]
    weights, curvature = _solve(scaled, wanted, _RIDGE * moved.var(axis=0))
    if _is_of_few(weights) or any(_is_of_few(weights[each], _MOST_OF_LEVEL) for each in targets.levels):
        raise UsageError(
            "the relations that are known of these attributes are those of few of the released records",
            "leave out an attribute that another one determines, or rare labels",
        )
    yield weights
    # To first order, θ moves by the moments' noise over the curvature.
    for theta in np.linalg.lstsq(curvature, part * moved.T)[0].T:
        tilted = weights * np.exp(np.clip(scaled @ theta, -_MOST_TILTED, _MOST_TILTED))
        yield tilted * (len(tilted) / tilted.sum())


def _is_of_few(weights: Float64Array, most: float = np.inf) -> bool:
    least = _LEAST_LEFT * min(weights.size, most)
    return bool(weights.sum() ** 2 < least * (weights**2).sum())


def _solve(
    columns: Float64Array, wanted: Float64Array, ridge: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return the weights, of mean 1, that give columns the wanted means, and their curvature.

    By Newton's method, whose steps are halved until they lead downwards.
    """

    def loss(at: Float64Array) -> tuple[float, Float64Array]:
        exponents = columns @ at
        largest = exponents.max()
        weights = np.exp(exponents - largest)
        total = weights.sum()
        return float(np.log(total) + largest - wanted @ at + (ridge * at**2).sum() / 2), weights / total

    theta, curvature = np.zeros(columns.shape[1]), np.eye(columns.shape[1])
    value, weights = loss(theta)
    for _ in range(_MOST_STEPS):
        means = weights @ columns
        curvature = (columns * weights[:, None]).T @ columns - np.outer(means, means)
        slope = means - wanted + ridge * theta
        if np.abs(slope).max() < _ENOUGH:
            break
        step = np.linalg.lstsq(curvature + np.diag(ridge + 1e-9), slope)[0]
        length = 1.0
        tried, tried_weights = loss(theta - step)
        while tried > value - 1e-4 * length * float(slope @ step) and length > _SHORTEST:
            length /= 2
            tried, tried_weights = loss(theta - length * step)
        if tried >= value:
            break
        theta, value, weights = theta - length * step, tried, tried_weights
    return weights * len(columns), curvature


# --- weighted fits --------------------------------------------------------------------------------------


def linear_fit(design: Float64Array, response: Float64Array, weights: Float64Array) -> Float64Array:
    """Return the coefficients of a weighted linear regression, `(n_columns,)`."""
    weighted = design * weights[:, None]
    return np.asarray(np.linalg.lstsq(weighted.T @ design, weighted.T @ response)[0], dtype=np.float64)


def logistic_fit(design: Float64Array, response: Float64Array, weights: Float64Array) -> Float64Array:
    """Return the coefficients of a weighted logistic regression; infinite ones if the design separates.

    Args:
        design: `(n_records, n_columns)`, an intercept among them.
        response: 0 or 1, `(n_records,)`.
        weights: `(n_records,)`, not negative.
    """
    at: Float64Array = np.zeros(design.shape[1])
    step = at
    for _ in range(_MOST_STEPS):
        odds = design @ at
        if np.abs(odds).max() > MOST_LOG_ODDS:
            # No finite coefficients: what still grows tells apart the records with the event.
            return np.where(np.abs(step) * design.max(axis=0) > 0.1, np.copysign(np.inf, at), at)
        expected = 1 / (1 + np.exp(-odds))
        slope = design.T @ (weights * (response - expected))
        curvature = (design * (weights * expected * (1 - expected))[:, None]).T @ design
        step = np.asarray(np.linalg.lstsq(curvature, slope)[0], dtype=np.float64)
        moved = float(np.abs(design @ step).max())
        at = at + step * min(1.0, _LONGEST / moved) if moved else at
        if moved < _CLOSE:
            break
    return np.asarray(at, dtype=np.float64)


_CLOSE = 1e-6
"""Log odds that a last step changes."""
_LONGEST = 4.0
"""How much log odds change in one step: Newton's method from afar can be led astray."""
MOST_LOG_ODDS = 15.0
"""Beyond it a column of the design tells apart the records with the event."""


def sampling_variances(
    design: Float64Array, residuals: Float64Array, slopes: Float64Array, weights: Float64Array
) -> Float64Array:
    """Return the sandwich variances of coefficients, `(n_columns,)`: that of sampling the records.

    Args:
        residuals: The response less what is expected, `(n_records,)`.
        slopes: Derivative of what is expected by the linear predictor, `(n_records,)`; 1 in linear models.

    References:
        White 1980, A heteroskedasticity-consistent covariance matrix estimator.
    """
    bread = np.linalg.pinv((design * (weights * slopes)[:, None]).T @ design)
    parts = design * (weights * residuals)[:, None]
    return np.asarray(np.einsum("ij,jk,ik->i", bread, parts.T @ parts, bread), dtype=np.float64)
