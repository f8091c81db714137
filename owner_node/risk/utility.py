"""Measures of utility over several draws, as estimates with a confidence interval.

References:
    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    Student 1908, "The probable error of a mean".
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import inf, isfinite, sqrt
from statistics import NormalDist, fmean
from typing import TypeAlias

import numpy as np

from common.canonical import Document
from owner_node.masking.arrays import BitSource, Float64Array, Int64Array
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import places_of
from owner_node.risk.draws import SortedAttribute
from owner_node.risk.measures import (
    correlation_error,
    correlations,
    divergence,
    histogram,
    mean_sse,
    relative_error,
    variance_change,
)

CONFIDENCE = 0.95
_NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class Estimate(Document):
    """A mean over draws of noise or over chosen records, with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float], most: float = inf) -> Estimate | None:
    """Estimate the mean over repetitions, with Student's distribution.

    Args:
        values: One number per repetition, none below 0.

    Returns:
        The estimate; for one repetition, the number itself. None without numbers, or if one is not finite.
    """
    if not values or not all(map(isfinite, values)):
        return None
    mean = float(np.mean(values))
    margin = _margin(values)
    return Estimate(mean, max(0.0, mean - margin), min(most, mean + margin))


def share(rates: Sequence[float], n_targets: int) -> Estimate:
    """Estimate a share of records, such as the success of an attack.

    Both the choice of records and the noise are uncertain. So the interval is the wider of Wilson's, for the
    records of one repetition, and Student's, for the repetitions.

    Args:
        rates: One share per repetition, from 0 to 1.

    Returns:
        The estimate, within 0 and 1.
    """
    mean = float(np.mean(rates))
    spread = _NORMAL**2 / n_targets
    centre = (mean + spread / 2) / (1 + spread)
    reach = _NORMAL / (1 + spread) * sqrt(mean * (1 - mean) / n_targets + spread / (4 * n_targets))
    margin = _margin(rates)
    return Estimate(
        mean,
        max(0.0, min(mean, centre - reach, mean - margin)),
        min(1.0, max(mean, centre + reach, mean + margin)),
    )


def _margin(values: Sequence[float]) -> float:
    """Return half the width of the interval of a mean; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    from scipy.special import stdtrit

    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return quantile * float(np.std(values, ddof=1)) / sqrt(n)


RELATIVE_ERROR, VARIANCE, DIVERGENCE, CORRELATION = (
    "relative-error",
    "variance",
    "divergence",
    "correlation",
)
MEASURES = (RELATIVE_ERROR, VARIANCE, DIVERGENCE, CORRELATION)
"""Measures beside the mean SSE."""
SSE, UNCHANGED = "sse", "unchanged"
_Errors: TypeAlias = list[list[float | None]]
"""Of one attribute, by setting and draw."""


@dataclass(frozen=True, slots=True)
class OriginalRecords:
    """Original records, sorted once, with everything that is computed before masking."""

    attributes: tuple[SortedAttribute, ...]
    places: Float64Array
    """`(n_records, n_attributes)`."""
    correlations: Float64Array
    """Of all pairs of attributes, `(n_pairs,)`."""
    histograms: tuple[Int64Array, ...]
    """Of each attribute, `(n_bins,)`."""
    plain_errors: dict[tuple[int, int], float | None] = field(default_factory=dict)
    """Cached errors of plain individual ranking, by number of the attribute and k."""

    @classmethod
    def of(cls, attributes: Sequence[SortedAttribute]) -> "OriginalRecords":
        """Compute the reference of all settings."""
        places = places_of(
            [attribute.scale for attribute in attributes], [attribute.original for attribute in attributes]
        )
        return cls(
            tuple(attributes),
            places,
            correlations(places),
            tuple(histogram(attribute.scale.attribute, attribute.original) for attribute in attributes),
        )

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self.places)

    def masked(self, tasks: Sequence[AttributeTask], bits: BitSource) -> tuple[Int64Array, ...]:
        """Mask all records once; `(n_records,)` by attribute, in resolution units."""
        return tuple(
            attribute.by_record(attribute.draw(task, bits))
            for attribute, task in zip(self.attributes, tasks, strict=True)
        )

    def plain_error(self, number: int, k: int) -> float | None:
        """Return Σ d²/(n σ²) of clusters of k without noise, computed once for all settings with that k."""
        if (number, k) not in self.plain_errors:
            self.plain_errors[number, k] = self.attributes[number].without_noise(k)
        return self.plain_errors[number, k]

    def places_of(self, columns: Sequence[Int64Array]) -> Float64Array:
        """Return values by attribute as places, `(n_records, n_attributes)`."""
        return places_of([attribute.scale for attribute in self.attributes], columns)


@dataclass(frozen=True, slots=True)
class Utility:
    """Results: by measure and draw, a number per attribute, None if it is not defined.

    `CORRELATION` has a single number per draw.
    """

    draws: dict[str, list[list[float | None]]]

    def mean_sse(self) -> Estimate | None:
        """Estimate the mean SSE."""
        return estimate([mean_sse(errors) for errors in self.draws.get(SSE, [])])

    def overall(self, measure: str) -> Estimate | None:
        """Estimate the mean of a measure over the attributes that it is defined for."""
        means = [
            _mean([value for value in draw if value is not None]) for draw in self.draws.get(measure, [])
        ]
        present = [mean for mean in means if mean is not None]
        return estimate(present) if len(present) == len(means) else None

    def of_attribute(self, measure: str, number: int) -> float | None:
        """Return the mean of a measure of one attribute over the draws, None if it is undefined in any."""
        return _mean([draw[number] for draw in self.draws.get(measure, [])])


def measure(
    whole: OriginalRecords,
    tasks: Sequence[AttributeTask],
    repetitions: int,
    measures: Collection[str],
    bits: BitSource,
) -> Utility:
    """Mask several times and measure.

    Args:
        measures: Of `MEASURES`.
    """
    if measures_errors_alone(measures):
        return next(measure_errors(whole, [[tasks]], repetitions, bits))[0]
    draws: dict[str, list[list[float | None]]] = defaultdict(list)
    several = [
        attribute.draws(task, bits, repetitions)
        for attribute, task in zip(whole.attributes, tasks, strict=True)
    ]
    for drawn in zip(*several, strict=True):
        pairs = list(zip(whole.attributes, drawn, strict=True))
        draws[SSE].append([attribute.error(draw) for attribute, draw in pairs])
        masked = [attribute.by_record(draw) for attribute, draw in pairs]
        for name, values in _measure_records(whole, masked, set(measures)):
            draws[name].append(values)
    return Utility(draws)


def measures_errors_alone(measures: Collection[str]) -> bool:
    """Return whether no measure needs masked records, so that sums of clusters suffice."""
    return not set(measures) & set(MEASURES)


def measure_errors(
    whole: OriginalRecords,
    rows: Sequence[Sequence[Sequence[AttributeTask]]],
    repetitions: int,
    bits: BitSource,
    in_turn: Callable[..., Iterable[_Errors]] = map,
) -> Iterator[list[Utility]]:
    """Mask several times with each of many settings, and measure the mean SSE alone.

    Args:
        rows: Settings in rows, those of a row drawn together: the task of each attribute in each setting.
        in_turn: `map`, or the `map` of an executor with threads.

    Yields:
        The results of the settings of each row in turn.
    """

    def errors(row: Sequence[Sequence[AttributeTask]], number: int) -> _Errors:
        return whole.attributes[number].errors([setting[number] for setting in row], bits, repetitions)

    pairs = list(product(rows, range(len(whole.attributes))))
    every = iter(in_turn(errors, *zip(*pairs, strict=True))) if pairs else iter(())
    for _ in rows:
        by_setting = zip(*islice(every, len(whole.attributes)), strict=True)
        yield [
            Utility({SSE: [list(draw) for draw in zip(*by_attribute, strict=True)]})
            for by_attribute in by_setting
        ]


def _measure_records(
    whole: OriginalRecords, masked: Sequence[Int64Array], asked: Collection[str]
) -> Iterator[tuple[str, list[float | None]]]:
    """Measure one draw, `masked` by attribute: unchanged values, and the requested measures."""
    pairs = [
        (attribute.scale, attribute.original, column)
        for attribute, column in zip(whole.attributes, masked, strict=True)
    ]
    yield UNCHANGED, [float((before == after).mean()) for _, before, after in pairs]
    if RELATIVE_ERROR in asked:
        yield RELATIVE_ERROR, [relative_error(*pair) for pair in pairs]
    if VARIANCE in asked:
        yield VARIANCE, [variance_change(*pair) for pair in pairs]
    if DIVERGENCE in asked:
        after = [histogram(scale.attribute, column) for scale, _, column in pairs]
        yield DIVERGENCE, [divergence(*pair) for pair in zip(whole.histograms, after, strict=True)]
    if CORRELATION in asked:
        yield CORRELATION, [correlation_error(whole.correlations, correlations(whole.places_of(masked)))]


def without_noise(whole: OriginalRecords, tasks: Sequence[AttributeTask]) -> float | None:
    """Return the mean SSE of the same clusters without noise; None without clusters."""
    if all(task.k is None for task in tasks):
        return None
    # Without noise, attributes without clusters would be released unchanged.
    return mean_sse(
        [0.0 if task.k is None else whole.plain_error(number, task.k) for number, task in enumerate(tasks)]
    )


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return fmean(present) if present and len(present) == len(values) else None
