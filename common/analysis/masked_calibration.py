"""Models of masked records that have weights: logistic regressions, and interactions.

Released records get weights that give them the corrected covariances of all terms of different attributes,
and an ordinary fit follows (`common.analysis.calibration`). Corrected covariances have more noise of sampling
and assignment than those of as many original records: the weights move with that noise, too. Slopes are per
unit of the draw.

*Interactions.* Scores of three attributes have the mean product that the original values have, as those of
two: so weights restore the moments that an interaction has with other terms. All other relations of three are
as masking left them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from common.analysis.answers import with_open
from common.analysis.calibration import WIDER, Statistic, Targets, calibrated, logistic_fit
from common.analysis.masked_models import Term, covariances, influence_of, product_of, table_of
from common.analysis.originals import N_DRAWS, random_of
from common.arrays import BoolArray, Float64Array

if TYPE_CHECKING:
    import pandas as pd

_OF_THREE = 0.15
"""By which part of the correction log odds of several regressors, and models with several interactions, can
be off: weights restore few relations of three or four attributes. Measured on Adult."""
EVERY = 4
"""One draw in four moves the weights."""

Column: TypeAlias = tuple[Term, ...]
"""A column of a model: a term, or both of an interaction."""
Fit: TypeAlias = Callable[[Float64Array, Float64Array, Float64Array], Float64Array]
"""`linear_fit` or `logistic_fit`."""


def model(
    response: Term, columns: Sequence[Column], fit: Fit, confidence: float, samples: int = 1
) -> "pd.DataFrame":
    """Return a regression of records with weights, a line per column.

    The records get weights that give them the corrected covariances (`common.analysis.calibration`), and
    every draw of these moves the weights.

    Args:
        response: Of log odds 1 for the event, 0 for all other records.
        columns: Its regressors; both terms of an interaction are regressors, too.
        fit: Linear, or logistic.
        confidence: Of the intervals.
        samples: How often the sampling of the records counts: twice for a population.

    Returns:
        As `common.analysis.answers` says.

    Raises:
        UsageError: If the corrected covariances are those of few of the records.
    """
    import pandas as pd

    own = {term.name: _as_listed(term) for column in columns for term in column}
    listed = [tuple(own[term.name] for term in column) for column in columns]
    plain = _slopes(response, columns, fit)(np.ones(len(response.bins)))
    means = {term.name: np.array([term.mean]) for column in columns for term in column}
    released = _from_origin(plain[:, None], columns, means)[:, 0]
    crossed = crossed_of(listed)
    slope, moved = calibrated(
        targets([response, *own.values()], crossed, sampled=True), _slopes(response, listed, fit)
    )
    of_lists, of_sampling = np.split(moved.T, 2, axis=1)
    around = slope[:, None] + WIDER * (of_lists - of_lists.mean(axis=1, keepdims=True))
    scales = [np.prod([term.scales for term in column], axis=0) / response.scales for column in listed]
    # The design has indicators as released, and other values as drawn.
    means = {
        name: np.full(N_DRAWS, term.mean) if term.indicates else term.drawn.means
        for name, term in own.items()
    }
    draws = _from_origin(
        around * np.stack(scales)[:, ::EVERY], listed, {name: each[::EVERY] for name, each in means.items()}
    )
    of_sampling = of_sampling * np.sqrt(np.mean(np.square(scales), axis=1))[:, None]
    middles = {name: np.array([each.mean()]) for name, each in means.items()}
    sampling = WIDER**2 * _from_origin(of_sampling, listed, middles).var(axis=1)
    finite = np.isfinite(draws).all(axis=1) & np.isfinite(released) & np.isfinite(sampling)
    draws, sampling = np.where(finite[:, None], draws, 0), np.where(finite, sampling, 0)
    several = len({term.attribute for term in own.values()}) > 1 and fit is logistic_fit
    if several or len({(a.attribute, b.attribute) for a, b in crossed}) > 1:
        correction = np.median(draws, axis=1) - np.where(finite, released, 0)
        sampling = sampling + (_OF_THREE * correction) ** 2 / samples
    index = pd.Index([" × ".join(term.name for term in column) for column in columns], name=response.name)
    table = table_of(index, released, draws, samples * sampling, confidence)
    if fit is logistic_fit:
        table.loc[~finite | _may_separate(response, listed, confidence), "standard_error"] = np.inf
    return with_open(table)


def _as_listed(term: Term) -> Term:
    """Return a number's column with its likely values: those made of noisy counts have too long tails."""
    if term.indicates or term.drawn.cluster:
        return term
    values = term.drawn.lists.mean(axis=0)[term.bins]
    values -= values.mean()
    squared = term.squared and replace(term.squared, released=values**2 - values.var())
    return replace(term, released=values, squared=squared)


def _slopes(response: Term, columns: Sequence[Column], fit: Fit) -> Statistic:
    """Return what fits columns around their means to weighted records."""
    values = np.stack([product_of(column, "released") for column in columns], axis=1)
    design = np.column_stack([np.ones(len(values)), values])
    outcome = response.released + response.mean
    # Equal records are fitted as one.
    equal = np.column_stack([outcome, *(term.released for column in columns for term in column)])
    _, first, which = np.unique(equal, axis=0, return_index=True, return_inverse=True)
    return lambda weights: fit(design[first], outcome[first], np.bincount(which, weights).astype(np.float64))[
        1:
    ]


def _from_origin(
    slopes: Float64Array, columns: Sequence[Column], means: Mapping[str, Float64Array]
) -> Float64Array:
    """Return slopes of values from those of values less their means, `(n_columns, n_draws)`.

    Beside an interaction, the slope of a term is that where the other one is 0.

    Args:
        slopes: `(n_columns, n_draws)`.
        columns: What they belong to.
        means: Of each term, `(n_draws,)` or `(1,)`.
    """
    found = slopes.copy()
    places = {column[0].name: place for place, column in enumerate(columns) if len(column) == 1}
    for own, column in zip(slopes, columns, strict=True):
        for one, other in permutations(column, 2):
            found[places[one.name]] -= own * means[other.name]
    return found


def _may_separate(response: Term, columns: Sequence[Column], confidence: float) -> BoolArray:
    """Return which columns stand for a level that may have no record with the event, or without it.

    Masking moves records with the event into such a level, so that released odds are finite. A level against
    which others are compared counts for all of them. Numbers have no levels.
    """
    open_ended = np.zeros(len(columns), dtype=np.bool_)
    share = (1 - confidence) / 2
    single = {place: column[0] for place, column in enumerate(columns) if len(column) == 1}
    for attribute in dict.fromkeys(each.attribute for each in single.values()):
        places = [place for place, each in single.items() if each.attribute == attribute]
        terms = [single[place] for place in places]
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
    for first, second in dict.fromkeys((a.attribute, b.attribute) for a, b in crossed_of(columns)):
        levels = [[each for each in single.values() if each.attribute == name] for name in (first, second)]
        if not all(each.indicates for own in levels for each in own):
            continue
        empty, names = (
            _may_be_empty(response, levels[0], levels[1], share),
            [[each.name for each in own] for own in levels],
        )
        for place, column in enumerate(columns):
            if {each.attribute for each in column} <= {first, second}:
                # A line compares its levels with those that the others are compared with.
                compared = [
                    [*(own.index(each.name) for each in column if each.name in own), -1] for own in names
                ]
                open_ended[place] |= empty[np.ix_(*compared)].any()
    return open_ended


def crossed_of(columns: Sequence[Column]) -> list[Column]:
    """Return the interactions among the columns of a model."""
    return [column for column in columns if len(column) > 1]


def shares_of_cells(one: Sequence[Term], other: Sequence[Term]) -> Float64Array:
    """Return the shares of the records with every two levels of two factors, by draw.

    Args:
        one: Indicators of the levels but that which they are compared with.
        other: Those of another attribute.

    Returns:
        `(n_levels, n_levels, n_draws)`; the last of either is the level that others are compared with.
    """
    rows, columns = (np.stack([each.drawn.means for each in own]) for own in (one, other))
    both = np.stack([[covariances(a, b) for b in other] for a in one]) + rows[:, None] * columns
    return _with_reference(both, rows, columns, np.ones(rows.shape[1]))


def _with_reference(
    both: Float64Array, rows: Float64Array, columns: Float64Array, whole: Float64Array
) -> Float64Array:
    """Return a table with its last row and column, which follow from the sums of rows, columns and all."""
    rest = rows - both.sum(axis=1)
    last = np.concatenate(
        [columns - both.sum(axis=0), (whole - columns.sum(axis=0) - rest.sum(axis=0))[None]]
    )
    return np.concatenate([np.concatenate([both, rest[:, None]], axis=1), last[None]])


def _may_be_empty(response: Term, one: Sequence[Term], other: Sequence[Term], share: float) -> BoolArray:
    """Return which cells of two factors may lack records with the event, or without it."""
    records, y = shares_of_cells(one, other), response.drawn.means
    rows, columns = (
        np.stack([covariances(response, each) + y * each.drawn.means for each in own]) for own in (one, other)
    )
    both = np.stack(
        [
            [
                covariances(response, a, b)
                + y * records[i, j]
                + a.drawn.means * covariances(response, b)
                + b.drawn.means * covariances(response, a)
                for j, b in enumerate(other)
            ]
            for i, a in enumerate(one)
        ]
    )
    events = _with_reference(both, rows, columns, y)
    fewest = np.minimum(*(np.quantile(each, share, axis=2) for each in (events, records - events)))
    scores = [
        np.concatenate([found, 1 - found.sum(axis=0, keepdims=True)])
        for found in (np.stack([each.scores + each.mean for each in own]) for own in (one, other))
    ]
    squares = (scores[0] * (response.scores + response.mean)) ** 2 @ (scores[1] ** 2).T
    deviations = np.sqrt(squares) / len(response.scores)
    empty: BoolArray = fewest <= NormalDist().inv_cdf(1 - share) * deviations
    return empty


def targets(terms: Sequence[Term], crossed: Sequence[Column] = (), *, sampled: bool = False) -> Targets:
    """Return the products of terms that weights of the records are to give, by draw.

    Each is divided by the deviations of its draw: those of the released values are the list's own.

    Args:
        terms: Of the model.
        crossed: Those of interactions.
        sampled: Whether as many draws of the sampling of the records and of the noise on their assignment
            follow those of the lists.
    """
    products, moments, drawn, influences = [], [], [], []
    for related in _related(terms, crossed):
        deviations = np.sqrt(np.prod([term.drawn.variances for term in related], axis=0))
        released = np.prod([term.released.std() for term in related])
        correlations = covariances(*related) / deviations
        if len(related) == 2:
            correlations = np.clip(correlations, -1, 1)
        products.append(product_of(related, "released"))
        moments.append(float(np.median(correlations)) * released)
        drawn.append(correlations[::EVERY] * released)
        influences.append(influence_of(related) * released)
    for term in terms:
        shares = term.drawn.means[::EVERY] - term.mean if term.indicates else None
        # Masking keeps variances. Without this, weights that strengthen relations make them larger.
        for own in (term.released, term.released**2 - term.released.var())[: 1 if term.indicates else 2]:
            products.append(own)
            moments.append(0.0 if shares is None else float(np.median(shares)))
            drawn.append(np.zeros(len(drawn[0])) if shares is None else shares)
            influences.append(np.zeros(len(own)))
    middle, of_lists = np.array(moments), np.stack(drawn, axis=1)
    if sampled:
        noise = np.cov(np.stack(influences)) / len(influences[0])
        of_sampling = random_of("sampling").multivariate_normal(middle, noise, len(of_lists), method="eigh")
        of_lists = np.concatenate([of_lists, of_sampling])
    return Targets(np.stack(products, axis=1), middle, of_lists)


def moved_at_once(found: Targets) -> Targets:
    """Return sampled targets whose draws have the noise of lists, of sampling and of assignment together."""
    of_lists, of_sampling = np.split(found.drawn, 2)
    return replace(found, drawn=of_lists + of_sampling - found.moments)


def _related(terms: Sequence[Term], crossed: Sequence[Column]) -> Iterator[Column]:
    """Yield terms of different attributes whose product is a moment: all that least squares needs.

    An interaction has a moment with every other term, and with its own terms: that is of a square. That of
    two interactions is left out.
    """
    found: list[Column] = [*combinations(terms, 2)]
    for column in crossed:
        found += [(*column, term) for term in terms]
        squares = [term.squared for term in column if term.squared]
        found += [(square, term) for square in squares for term in terms]
        found += [*combinations(squares, 2)]
    different = {frozenset(term.name for term in each): each for each in found}
    yield from (each for each in different.values() if len({term.attribute for term in each}) == len(each))
