"""Correlations, linear and logistic regressions of released values, with corrections and standard errors.

A `Term` is one column of a model: an attribute, or the indicator of one of its categories. Moments of two
attributes come from scores (`common.analysis.attenuation`); those within one attribute (variances, shares of
categories) come from the released values, which are the list itself.

*Intervals* count the sampling of the records with the noise on their assignment, from each record's influence
on the estimate (robust to unequal variances), and what the lists do not show: an estimate is computed from
every draw of the lists, and its interval holds the middle of all draws with the noise of sampling.

*Covariances by draw.* The noise of a list moves them by what it moves the scores. What clusters do not show
changes them by an unknown amount, since a released value says nothing about the place within a cluster:
if the relation goes on within the outermost clusters, a variance that is larger by a factor f makes the
covariance larger by f, and if it ends there, by nothing. So the factor is f^h, h from 0 to 1. Besides, within
each cluster the two attributes may have a correlation of their own, of mean 0 and deviation `LOCAL`.

*Logistic regression.* The released records get weights that give them the corrected covariances of all terms
of different attributes, and an ordinary fit follows (`common.analysis.calibration`). Relations of three
attributes are as masking left them. Corrected covariances have more noise of sampling and assignment than
those of as many original records: the weights move with that noise, too. Slopes are per unit of the draw.

References:
    White 1980, A heteroskedasticity-consistent covariance matrix estimator (the sandwich of influences).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from statistics import NormalDist
from typing import TYPE_CHECKING, Self

import numpy as np

from common.analysis.answers import bounded, with_open
from common.analysis.attenuation import Drawn
from common.analysis.calibration import WIDER, Targets, calibrated, logistic_fit, sampling_variances
from common.analysis.originals import random_of
from common.arrays import BoolArray, Float64Array, Int64Array
from common.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

LOCAL = 0.35
"""Standard deviation of the correlation within a cluster, which released values do not show. With 0.3,
intervals of Wine Quality missed more often."""
_OF_THREE = 0.15
"""By which part of the correction log odds of several regressors can be off: weights restore relations of two
attributes, and masking weakens those of three, too. Measured on Adult."""
_EVERY = 4
"""One draw in four is a logistic regression."""
_NORMALS = 41
"""Places of the normal distribution that stand for the sampling of the records."""


@dataclass(frozen=True, slots=True)
class Term:
    """One column of a model."""

    name: str
    """The attribute, or "attribute: category"."""
    attribute: str
    mean: float
    """Mean of the released values."""
    released: Float64Array
    """The released values less their mean, `(n_records,)`."""
    scores: Float64Array
    """The scores less their mean, `(n_records,)`; the values where nothing is corrected."""
    bins: Int64Array
    """The bin of each record's released value, `(n_records,)`."""
    drawn: Drawn
    """Draws of what the original values may have been; one draw where nothing is corrected."""

    @property
    def indicates(self) -> bool:
        """True if the values are 0 and 1."""
        return bool(np.isin(self.released, (-self.mean, 1 - self.mean)).all())

    @property
    def scales(self) -> Float64Array:
        """How many times as large a slope per unit is as released values of its correlation say, by draw."""
        found = self.released.std() / np.sqrt(self.drawn.variances)
        return np.ones_like(found) if self.indicates else found

    @classmethod
    def as_released(cls, name: str, attribute: str, values: Float64Array) -> Self:
        """Return the column of values that are not corrected, `(n_records,)`."""
        mean, variance = values.mean(), values.var()
        zero, bins = np.zeros((1, 1)), np.zeros(values.size, dtype=np.int64)
        drawn = Drawn(zero, zero + mean, zero[0] + mean, zero[0] + variance, zero[0] + 1, zero[0], 1.0)
        return cls(name, attribute, float(mean), values - mean, values - mean, bins, drawn)


def covariances(a: Term, b: Term) -> Float64Array:
    """Return the covariance of two terms by draw, `(n_draws,)`."""
    if a is b:
        return a.drawn.variances
    if a.attribute == b.attribute:
        # Two labels of one category: no record has both.
        return -a.drawn.means * b.drawn.means
    found = np.full(a.drawn.means.size, (a.scores * b.scores).mean())
    for one, other in ((a, b), (b, a)):
        random, n_draws = random_of(f"{one.name} {other.name}"), one.drawn.means.size
        found *= one.drawn.of_tails ** random.uniform(0, 1, n_draws)
        found *= one.drawn.restored ** random.uniform(-0.5, 0.5, n_draws)
        of_bins = np.bincount(one.bins, other.scores, one.drawn.noise.shape[1])
        found += one.drawn.noise @ of_bins / len(other.scores)
        found += random.normal(0, LOCAL, n_draws) * np.sqrt(one.drawn.within * other.released.var())
    return found


def means(terms: Sequence[Term], confidence: float, samples: int = 1) -> "pd.DataFrame":
    """Return the means of terms, a line each."""
    import pandas as pd

    draws = np.stack([term.drawn.means for term in terms])
    sampling = np.array([term.released.var() / len(term.released) for term in terms])
    index = pd.Index([term.name for term in terms], name="attribute")
    return _table(index, np.array([term.mean for term in terms]), draws, samples * sampling, confidence)


def shares(
    labels: Sequence[str], released: Float64Array, draws: Float64Array, n_records: int, confidence: float
) -> "pd.DataFrame":
    """Return the shares of labels, a line each; `draws` is `(n_draws, n_labels)`."""
    import pandas as pd

    middle = draws.mean(axis=0)
    table = _table(pd.Index(labels), released, draws.T, middle * (1 - middle) / n_records, confidence)
    return table.assign(low=table["low"].clip(lower=0), high=table["high"].clip(upper=1))


def quantiles(
    term: Term, at: Sequence[float], unit: float, confidence: float, samples: int = 1
) -> "pd.DataFrame":
    """Return quantiles of a term, whose values are multiples of a unit, a line each."""
    import pandas as pd

    lists, n_records = np.sort(term.drawn.lists, axis=1), len(term.released)
    random, places = random_of(f"{term.name} places"), (np.arange(lists.shape[1]) + 0.5) / lists.shape[1]
    draws = np.empty((len(at), len(lists)))
    # A cluster does not show where in it a value is.
    reach = term.drawn.cluster / 4
    for line, share in enumerate(at):
        moved = share + random.normal(0, (samples * share * (1 - share) / n_records) ** 0.5, len(lists))
        moved += random.uniform(-reach, reach, len(lists))
        draws[line] = [np.interp(place, places, each) for place, each in zip(moved, lists, strict=True)]
    released = np.quantile(term.released + term.mean, at, method="inverted_cdf")
    table = _table(pd.Index(at, name=term.name), released, draws, np.zeros(len(at)), confidence)
    ends = ["estimate", "low", "high"]
    table[ends] = np.rint(table[ends] / unit) * unit
    return table


def cells(
    first: Collection[Term], second: Collection[Term], confidence: float, samples: int = 1
) -> "pd.DataFrame":
    """Return the share of the records that have both of two labels, a line for each pair of indicators."""
    import pandas as pd

    released, draws, sampling = [], [], []
    for a, b in product(first, second):
        released.append(((a.released > 0) & (b.released > 0)).mean())
        draws.append(covariances(a, b) + a.drawn.means * b.drawn.means)
        influence = a.scores * b.scores + a.mean * b.released + b.mean * a.released
        sampling.append(influence.var() / len(influence))
    index = pd.MultiIndex.from_product([[term.name for term in each] for each in (first, second)])
    table = _table(index, np.array(released), np.stack(draws), samples * np.array(sampling), confidence)
    return bounded(table, 0, 1)


def correlations(terms: Sequence[Term], confidence: float, samples: int = 1) -> "pd.DataFrame":
    """Return the correlations of all pairs of terms of different attributes, a line each."""
    import pandas as pd

    names, as_released, draws, sampling = [], [], [], []
    for a, b in combinations(terms, 2):
        deviations = a.released.std() * b.released.std()
        influence = _influence(a, b)
        names.append((a.name, b.name))
        as_released.append((a.released * b.released).mean() / deviations)
        deviations_drawn = np.sqrt(a.drawn.variances * b.drawn.variances)
        draws.append(np.clip(covariances(a, b) / deviations_drawn, -1, 1))
        sampling.append(influence.var() / len(influence))
    index = pd.MultiIndex.from_tuples(names, names=["first", "second"])
    table = _table(index, np.array(as_released), np.stack(draws), samples * np.array(sampling), confidence)
    return table.assign(low=table["low"].clip(lower=-1), high=table["high"].clip(upper=1))


def _influence(a: Term, b: Term) -> Float64Array:
    """Return each record's influence on the correlation of two terms, `(n_records,)`."""
    influence: Float64Array = a.scores * b.scores / (a.released.std() * b.released.std())
    corrected = influence.mean()
    for each in (a, b):
        influence = influence - corrected / 2 * each.released**2 / each.released.var()
    return influence


def linear(response: Term, regressors: Sequence[Term], confidence: float, samples: int = 1) -> "pd.DataFrame":
    """Return a linear regression, a line per regressor.

    Raises:
        UsageError: If the corrected covariances contradict each other.
    """
    import pandas as pd

    values, scores, same = _columns(regressors)
    released = values.T @ values / len(values)
    true = np.where(same, released, scores.T @ scores / len(scores))
    with_response = scores.T @ response.scores / len(scores)
    whole = np.block([[response.released.var(), with_response], [with_response[:, None], true]])
    names = ", ".join(dict.fromkeys(regressor.attribute for regressor in regressors))
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
    among = np.stack([[covariances(a, b) for b in regressors] for a in regressors])
    beside = np.stack([covariances(regressor, response) for regressor in regressors])
    draws = np.linalg.solve(among.transpose(2, 0, 1), beside.T[:, :, None])[:, :, 0].T.astype(np.float64)
    index = pd.Index([regressor.name for regressor in regressors], name=response.name)
    return _table(index, as_released, draws, samples * sampling, confidence)


def logistic(
    response: Term, regressors: Sequence[Term], confidence: float, samples: int = 1
) -> "pd.DataFrame":
    """Return a logistic regression, a line of log odds per regressor.

    The records get weights that give them the corrected covariances (`common.analysis.calibration`), and
    every draw of these moves the weights.

    Args:
        response: 1 for the event, 0 for all other records.
        regressors: Its regressors.
        confidence: Of the intervals.
        samples: How often the sampling of the records counts: twice for whom they are a sample of.
    """
    import pandas as pd

    terms = [response, *map(_as_listed, regressors)]
    values = np.stack([term.released for term in terms[1:]], axis=1)
    design, happened = np.column_stack([np.ones(len(values)), values]), response.released + response.mean
    # Equal records are fitted as one.
    _, first, which = np.unique(
        np.column_stack([happened, values]), axis=0, return_index=True, return_inverse=True
    )

    def slopes(weights: Float64Array) -> Float64Array:
        return logistic_fit(design[first], happened[first], np.bincount(which, weights).astype(np.float64))[
            1:
        ]

    released = slopes(np.ones(len(values)))
    index = pd.Index([regressor.name for regressor in regressors], name=response.name)
    if response.drawn.means.size == 1:
        slope, draws, ones = released, released[:, None], np.ones(len(values))
        odds = values @ np.where(np.isfinite(released), released, 0)
        expected = 1 / (1 + np.exp(odds.mean() - odds - np.log(response.mean / (1 - response.mean))))
        sampling = sampling_variances(design, happened - expected, expected * (1 - expected), ones)[1:]
    else:
        slope, moved = calibrated(targets(terms, sampled=True), slopes)
        of_lists, of_sampling = np.split(moved.T, 2, axis=1)
        scales = np.stack([each.scales[::_EVERY] for each in terms[1:]])
        draws = (slope[:, None] + WIDER * (of_lists - of_lists.mean(axis=1, keepdims=True))) * scales
        sampling = WIDER**2 * of_sampling.var(axis=1) * (scales**2).mean(axis=1)
    finite = np.isfinite(draws).all(axis=1) & np.isfinite(released) & np.isfinite(sampling)
    slope, draws = np.where(finite, slope, 0), np.where(finite[:, None], draws, 0)
    sampling = np.where(finite, sampling, 0)
    several = len({regressor.attribute for regressor in regressors}) > 1
    unseen = (_OF_THREE * (slope - np.where(finite, released, 0))) ** 2 if several else 0.0
    table = _table(index, released, draws, samples * sampling + unseen, confidence)
    table.loc[~finite | _may_separate(response, regressors, confidence), "standard_error"] = np.inf
    return with_open(table)


def _as_listed(term: Term) -> Term:
    """Return a number's column with its likely values: those made of noisy counts have too long tails."""
    if term.indicates or term.drawn.cluster or term.drawn.means.size == 1:
        return term
    values = term.drawn.lists.mean(axis=0)[term.bins]
    return replace(term, released=values - values.mean())


def _may_separate(response: Term, regressors: Sequence[Term], confidence: float) -> BoolArray:
    """Return which regressors stand for a level that may have no record with the event, or without it.

    Masking moves records with the event into such a level, so that released odds are finite. A level against
    which others are compared counts for all of them. Numbers have no levels.
    """
    open_ended = np.zeros(len(regressors), dtype=np.bool_)
    if response.drawn.means.size == 1:
        return open_ended
    share = (1 - confidence) / 2
    for attribute in dict.fromkeys(each.attribute for each in regressors):
        places = [place for place, each in enumerate(regressors) if each.attribute == attribute]
        terms = [regressors[place] for place in places]
        if not all(each.indicates for each in terms):
            continue
        records = np.stack([each.drawn.means for each in terms])
        events = np.stack([covariances(each, response) for each in terms]) + records * response.drawn.means
        scores = np.stack([each.scores for each in terms])
        # The level that the others are compared with is the last.
        records = np.vstack([records, 1 - records.sum(axis=0)])
        events = np.vstack([events, response.drawn.means - events.sum(axis=0)])
        scores = np.vstack([scores, -scores.sum(axis=0)])
        fewest = np.minimum(*(np.quantile(each, share, axis=1) for each in (events, records - events)))
        deviations = (scores * response.scores).std(axis=1) / scores.shape[1] ** 0.5
        fewest = fewest - NormalDist().inv_cdf(1 - share) * deviations
        open_ended[places] = (fewest[:-1] <= 0) | (fewest[-1] <= 0)
    return open_ended


def targets(terms: Sequence[Term], *, sampled: bool = False) -> Targets:
    """Return the products of terms that weights of the records are to give, by draw.

    Each is divided by the deviations of its draw: those of the released values are the list's own.

    Args:
        terms: The columns of a model.
        sampled: Whether as many draws of the sampling of the records and of the noise on their assignment
            follow those of the lists.
    """
    products, moments, drawn, influences = [], [], [], []
    for one, other in combinations(terms, 2):
        if one.attribute == other.attribute:
            continue
        deviations = np.sqrt(one.drawn.variances * other.drawn.variances)
        released = one.released.std() * other.released.std()
        products.append(one.released * other.released)
        correlations_drawn = np.clip(covariances(one, other) / deviations, -1, 1)
        moments.append(float(np.median(correlations_drawn)) * released)
        drawn.append(correlations_drawn[::_EVERY] * released)
        influences.append(_influence(one, other) * released)
    for term in terms:
        # Masking keeps variances. Without this, weights that strengthen relations make them larger.
        for own in (term.released, term.released**2 - term.released.var())[: 1 if term.indicates else 2]:
            products.append(own)
            moments.append(0.0)
            drawn.append(np.zeros(term.drawn.means[::_EVERY].size))
            influences.append(np.zeros(len(own)))
    middle, of_lists = np.array(moments), np.stack(drawn, axis=1)
    if sampled:
        noise = np.cov(np.stack(influences)) / len(influences[0])
        of_sampling = random_of("sampling").multivariate_normal(middle, noise, len(of_lists), method="eigh")
        of_lists = np.concatenate([of_lists, of_sampling])
    return Targets(np.stack(products, axis=1), middle, of_lists)


def _columns(terms: Sequence[Term]) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return values and scores as columns, and which pairs of columns are of one attribute."""
    of = np.array([term.attribute for term in terms])
    return (
        np.stack([term.released for term in terms], axis=1),
        np.stack([term.scores for term in terms], axis=1),
        of[:, None] == of,
    )


def _sampling(derivatives: Float64Array, moments: Float64Array) -> Float64Array:
    """Return the variances of estimates from each record's part of the equations that they solve."""
    influence = np.linalg.solve(derivatives, moments.T)
    variances: Float64Array = (influence**2).mean(axis=1) / len(moments)
    return variances


def _table(
    index: "pd.Index",
    released: Float64Array,
    draws: Float64Array,
    sampling: Float64Array,
    confidence: float,
) -> "pd.DataFrame":
    """Return a line per estimate.

    Args:
        index: Their names.
        released: As released, `(n_estimates,)`.
        draws: By draw of the lists, `(n_estimates, n_draws)`.
        sampling: Variance from sampling and assignment, `(n_estimates,)`.
        confidence: Of the intervals.
    """
    import pandas as pd

    normal = [NormalDist().inv_cdf((place + 0.5) / _NORMALS) for place in range(_NORMALS)]
    spread = draws[:, :, None] + np.sqrt(sampling)[:, None, None] * np.array(normal)
    spread = spread.reshape(len(draws), -1)
    low, high = np.quantile(spread, [(1 - confidence) / 2, (1 + confidence) / 2], axis=1)
    return pd.DataFrame(
        {
            "released": released,
            "estimate": np.median(draws, axis=1),
            "standard_error": spread.std(axis=1),
            "low": low,
            "high": high,
            "note": "",
        },
        index=index,
    )
