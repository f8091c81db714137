"""Correlations and linear regressions of released values, with corrections and standard errors.

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

References:
    White 1980, A heteroskedasticity-consistent covariance matrix estimator (the sandwich of influences).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from common.analysis.answers import bounded
from common.analysis.attenuation import Drawn
from common.analysis.originals import random_of
from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute

if TYPE_CHECKING:
    import pandas as pd

LOCAL = 0.35
"""Standard deviation of the correlation within a cluster, which released values do not show. With 0.3,
intervals of Wine Quality missed more often."""
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
    """The scores less their mean, `(n_records,)`."""
    bins: Int64Array
    """The bin of each record's released value, `(n_records,)`."""
    drawn: Drawn
    """Draws of what the original values may have been."""
    squared: "Term | None" = None
    """The squares of `released`, where they are needed: for numbers with an interaction."""

    @property
    def indicates(self) -> bool:
        """True if the values are 0 and 1."""
        return bool(np.isin(self.released, (-self.mean, 1 - self.mean)).all())

    @property
    def scales(self) -> Float64Array:
        """How many times as large a slope per unit is as released values of its correlation say, by draw."""
        found = self.released.std() / np.sqrt(self.drawn.variances)
        return np.ones_like(found) if self.indicates else found


def covariances(*terms: Term) -> Float64Array:
    """Return the covariance of two terms by draw, or the mean product of three, `(n_draws,)`."""
    a, b = terms[0], terms[-1]
    if a is b:
        return a.drawn.variances
    if a.attribute == b.attribute:
        # Two labels of one category: no record has both.
        return -a.drawn.means * b.drawn.means
    found = np.full(a.drawn.means.size, product_of(terms, "scores").mean())
    noise = np.zeros(found.size)
    ordered = sorted(terms, key=lambda term: term.name)
    for place, one in enumerate(ordered):
        others = [*ordered[:place], *ordered[place + 1 :]]
        random = random_of(" ".join(each.name for each in (one, *others)))
        found *= one.drawn.of_tails ** random.uniform(0, 1, found.size)
        found *= one.drawn.restored ** random.uniform(-0.5, 0.5, found.size)
        scores = product_of(others, "scores")
        noise += one.drawn.noise @ np.bincount(one.bins, scores, one.drawn.noise.shape[1]) / scores.size
        variance = product_of(others, "released").var()
        noise += random.normal(0, LOCAL, found.size) * np.sqrt(one.drawn.within * variance)
    return found + noise


def product_of(terms: Sequence[Term], of: str) -> Float64Array:
    """Return the products of the terms' values, `(n_records,)`."""
    found: Float64Array = np.prod([getattr(term, of) for term in terms], axis=0)
    return found


def means(terms: Sequence[Term], confidence: float, samples: int = 1) -> "pd.DataFrame":
    """Return the means of terms, a line each."""
    import pandas as pd

    draws = np.stack([term.drawn.means for term in terms])
    sampling = np.array([term.released.var() / len(term.released) for term in terms])
    index = pd.Index([term.name for term in terms], name="attribute")
    return table_of(index, np.array([term.mean for term in terms]), draws, samples * sampling, confidence)


def shares(
    labels: Sequence[str], released: Float64Array, draws: Float64Array, n_records: float, confidence: float
) -> "pd.DataFrame":
    """Return the shares of labels, a line each; `draws` is `(n_draws, n_labels)`."""
    import pandas as pd

    middle = draws.mean(axis=0)
    table = table_of(pd.Index(labels), released, draws.T, middle * (1 - middle) / n_records, confidence)
    return table.assign(low=table["low"].clip(lower=0), high=table["high"].clip(upper=1))


def quantiles(
    term: Term, at: Sequence[float], attribute: Attribute, confidence: float, samples: int = 1
) -> "pd.DataFrame":
    """Return quantiles of a term, which are values of its attribute's domain, a line each."""
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
    table = table_of(pd.Index(at, name=term.name), released, draws, np.zeros(len(at)), confidence)
    ends = ["estimate", "low", "high"]
    codes = np.clip(np.rint(table[ends] / float(attribute.unit)), attribute.lower, attribute.upper)
    table[ends] = np.round(codes * float(attribute.unit), attribute.decimals)
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
    table = table_of(index, np.array(released), np.stack(draws), samples * np.array(sampling), confidence)
    return bounded(table, 0, 1)


def correlations(terms: Sequence[Term], confidence: float, samples: int = 1) -> "pd.DataFrame":
    """Return the correlations of all pairs of terms of different attributes, a line each."""
    import pandas as pd

    names, as_released, draws, sampling = [], [], [], []
    for a, b in combinations(terms, 2):
        deviations = a.released.std() * b.released.std()
        influence = influence_of([a, b])
        names.append((a.name, b.name))
        as_released.append((a.released * b.released).mean() / deviations)
        deviations_drawn = np.sqrt(a.drawn.variances * b.drawn.variances)
        draws.append(np.clip(covariances(a, b) / deviations_drawn, -1, 1))
        sampling.append(influence.var() / len(influence))
    index = pd.MultiIndex.from_tuples(names, names=["first", "second"])
    table = table_of(index, np.array(as_released), np.stack(draws), samples * np.array(sampling), confidence)
    return table.assign(low=table["low"].clip(lower=-1), high=table["high"].clip(upper=1))


def influence_of(terms: Sequence[Term]) -> Float64Array:
    """Return each record's influence on the correlation of terms, or their mean product, `(n_records,)`."""
    deviations = np.prod([term.released.std() for term in terms])
    influence: Float64Array = product_of(terms, "scores") / deviations
    corrected = influence.mean()
    for each in terms:
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
    return table_of(index, as_released, draws, samples * sampling, confidence)


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


def table_of(
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
