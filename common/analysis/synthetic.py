"""Estimates from a synthetic release, with intervals that contain the noise of its counts.

Single attributes are estimated from their one-way counts, tables from theirs. Models are fitted to the
synthetic records with weights that give them the relations of noisy tables (`common.analysis.calibration`):
the records alone have weaker ones. Within a bin, two attributes are taken to be related as between bins
(`common.analysis.noisy_counts.ungrouped`). Relations of three attributes were not counted. What needs them,
hazards and interactions, is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from common.analysis.answers import answer, is_date, is_numeric, names_of, numbers_of, with_open, within
from common.analysis.calibration import (
    WIDER,
    Targets,
    calibrated,
    linear_fit,
    logistic_fit,
    resampled,
    sampling_variances,
)
from common.analysis.estimates import Estimates, Interval
from common.analysis.noisy_counts import NoisyCounts, ungrouped
from common.analysis.originals import random_of
from common.arrays import BoolArray, Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute
from common.synthesis.histogram import GRAIN, Histogram, divided_histogram, histogram_of

if TYPE_CHECKING:
    import pandas as pd

_N_DRAWS = 60
_FEWEST = 4
"""Deviations of a table's noise; a level of fewer records is left out."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a model."""

    name: str
    """The attribute, or "attribute: label"."""
    attribute: str
    place: int
    """The attribute's number."""
    centred: Float64Array
    """By record, less their mean; 0 where missing, `(n_records,)`."""
    mean: float


class SyntheticEstimates(Estimates):
    """Estimates of the records that a synthetic release counted.

    Args:
        counts: Its noisy counts.
        codes: Codes of its records, `(n_records,)` by modelled attribute.
    """

    of_three = "relations of three attributes, time, event and regressor, were not counted"

    def __init__(self, counts: NoisyCounts, codes: Sequence[Int64Array]) -> None:
        self._measured = counts.measured
        self._counts, self._codes, self._design = counts, codes, counts.measured.design
        self._bins = [
            binning.bins(column) for binning, column in zip(self._measured.binnings, codes, strict=True)
        ]
        self._histograms: dict[int, list[Histogram]] = {}

    # --- single attributes ------------------------------------------------------------------------------

    def _mean(self, name: str, asked: Interval) -> "pd.DataFrame":
        attribute, reach = self.attribute(name), self._counts.reach(asked.confidence)
        found = self._counts.means(name, asked.confidence).loc[name]
        values, present = self._values(name)
        sampling = values[present].var() / max(present.sum(), 1) if asked.population else 0.0
        error = float(np.sqrt(found["standard_error"] ** 2 + sampling))
        middle, mean = np.array([values[present].mean()]), np.array([found["mean"]])
        line = answer(_index([name]), middle, mean, np.array([error]), reach)
        # Where parts are wider than a value, all may be at their ends.
        for side, sign in (("low", -1), ("high", 1)):
            line[side] = found[side] + sign * reach * (error - found["standard_error"])
        return within(line, attribute)

    def _shares(self, name: str, asked: Interval) -> "pd.DataFrame":
        found, n_records = self._counts.table(name, confidence=asked.confidence), self._design.n_records
        shares = np.clip(found["count"].to_numpy() / n_records, 0, 1)
        codes = self._codes[self._counts.place(name)]
        released = np.bincount(codes, minlength=len(found))[: len(found)] / n_records
        sampling = shares * (1 - shares) / n_records if asked.population else 0.0
        errors = np.sqrt((found["standard_error"].to_numpy() / n_records) ** 2 + sampling)
        reach = self._counts.reach(asked.confidence)
        return answer(_index(found.index, name), released, shares, errors, reach, (0, 1))

    def _quantiles(self, name: str, at: Float64Array, asked: Interval) -> "pd.DataFrame":
        attribute, unit = self.attribute(name), float(self.attribute(name).unit)
        first, *others = self._redrawn(self._counts.place(name))
        estimates = np.stack([_quantiles(each, at, attribute) for each in (first, *others)])
        ends = _part_widths(first, at, attribute) / 2
        errors = np.sqrt(estimates[1:].var(axis=0) + (ends * unit) ** 2 / 3)
        values, present = self._values(name)
        if not present.any():
            raise UsageError(f"all released values of {name!r} are missing", "leave it out")
        values = values[present]
        if asked.population:
            # By how much a sample of the same size moves a quantile.
            moved = np.sqrt(at * (1 - at) / values.size)
            sides = [_quantiles(first, at + sign * moved, attribute) for sign in (-1, 1)]
            errors = np.hypot(errors, (sides[1] - sides[0]) / 2)
        released = np.quantile(values, at, method="inverted_cdf")
        reach = self._counts.reach(asked.confidence)
        table = answer(_index(at.tolist(), name), released, estimates[0], errors, reach)
        # The middles of values stand for them: half a unit more to either side.
        table["low"] -= unit / 2
        table["high"] += unit / 2
        return within(table, attribute)

    # --- two attributes ---------------------------------------------------------------------------------

    def crosstab(
        self, first: str, second: str, *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return the share of the records in every cell of two attributes' bins (see `Estimates`)."""
        asked = Interval(confidence, population)
        found, n_records = self._counts.table(first, second, confidence), self._design.n_records
        shares = found["count"].to_numpy() / n_records
        places = sorted((self._counts.place(first), self._counts.place(second)))
        sizes = [self._measured.binnings[place].n_bins for place in places]
        cells = self._bins[places[0]] * sizes[1] + self._bins[places[1]]
        released = np.bincount(cells, minlength=sizes[0] * sizes[1]) / n_records
        if found.index.names[0] != self._design.attributes[places[0]].name:
            released = released.reshape(sizes).T.ravel()
        sampling = np.clip(shares * (1 - shares), 0, None) / n_records if asked.population else 0.0
        errors = np.sqrt((found["standard_error"].to_numpy() / n_records) ** 2 + sampling)
        return answer(found.index, released, shares, errors, self._counts.reach(confidence), (0, 1))

    def correlations(
        self, names: str | Sequence[str] = (), *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return the correlations of all counted pairs of attributes (see `Estimates`)."""
        asked = Interval(confidence, population)
        found = self._counts.correlations(names_of(names), confidence)
        columns = {
            name: self._values(name)[0]
            for name in dict.fromkeys(each for pair in found.index for each in pair)
        }
        released = np.array([np.corrcoef(columns[one], columns[other])[0, 1] for one, other in found.index])
        estimates, errors = found["correlation"].to_numpy(), found["standard_error"].to_numpy()
        if asked.population:
            errors = np.hypot(errors, (1 - estimates**2) / sqrt(self._design.n_records))
        return answer(found.index, released, estimates, errors, self._counts.reach(confidence), (-1, 1))

    # --- models -----------------------------------------------------------------------------------------

    def _linear(self, response: str, on: Sequence[str], asked: Interval) -> "pd.DataFrame":
        return self._fitted(self._column(response), on, asked, linear_fit)

    def _logistic(self, response: str, code: int, on: Sequence[str], asked: Interval) -> "pd.DataFrame":
        return self._fitted(self._column(response, [code]), on, asked, logistic_fit)

    def survival(
        self,
        time: str,
        event: str,
        at: float | Sequence[float] = (),
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return the share that has had no event, by time (see `Estimates`).

        Within a bin of the time, the same share of those who leave has an event. An interval at a time
        within a bin holds whatever else the bin allows. Without times, those are the ends of the bins.
        """
        asked_for = Interval(confidence, population)
        reach, place, other = (
            self._counts.reach(confidence),
            self._counts.place(time),
            self._counts.place(event),
        )
        attribute = self.attribute(time)
        untimed = attribute.is_categorical or is_date(attribute) or attribute.unplaced
        if untimed or self.attribute(event).n_values != 2 or self.attribute(event).unplaced:
            raise UsageError(
                f"there is no survival by {time!r} and {event!r}",
                "name a duration without missing values, and an event of two values",
            )
        table, deviation = self._table(place, other)
        values, happened = self._values(time)[0], (self._codes[other] == 1).astype(np.float64)
        order = np.argsort(values, kind="stable")
        ascending, bins = values[order], self._bins[place][order]
        ends = np.unique(ascending[np.flatnonzero(np.diff(bins, append=-1))])
        asked = numbers_of(at)
        times = asked if asked.size else ends
        if not ((times >= float(attribute.min)) & (times <= float(attribute.max))).all():
            raise UsageError(
                f"a time is outside of {time!r}", f"times are from {attribute.min} to {attribute.max}"
            )

        def shares(events: Float64Array) -> Float64Array:
            """Return the share at times, of each record's share of an event, and around their bins."""
            staying = len(order) - np.searchsorted(ascending, ascending)
            running = np.append(0, np.cumsum(np.minimum(events[order] / staying, 50)))
            before = np.append(-np.inf, ends)[np.searchsorted(ends, times)]
            after = np.append(ends, ascending[-1])[np.searchsorted(ends, times)]
            places = (np.searchsorted(ascending, each, side="right") for each in (times, before, after))
            return np.stack([np.exp(-running[each]) for each in places])

        random = random_of(f"{time} {event}")
        noises = [np.zeros(table.shape), *random.normal(0, deviation, (_N_DRAWS, *table.shape))]
        draws = []
        for noise in noises:
            leaving = np.maximum(table + noise, 0)
            draws.append(shares((leaving[:, 1] / np.maximum(leaving.sum(axis=1), 1))[self._bins[place]]))
        (estimates, above, below), errors = draws[0], np.std(draws[1:], axis=0)
        if asked_for.population:
            errors = np.hypot(errors, np.sqrt(draws[0] * (1 - draws[0]) / self._design.n_records))
        found = answer(_index(times, time), shares(happened)[0], estimates, errors[0], reach, (0, 1))
        # A bin does not show when in it the events are.
        found["low"] = np.clip(np.minimum(found["low"], below - reach * errors[2]), 0, 1)
        found["high"] = np.clip(np.maximum(found["high"], above + reach * errors[1]), 0, 1)
        return found

    def _fitted(
        self,
        response: _Column,
        names: Sequence[str],
        asked: Interval,
        fit: Callable[[Float64Array, Float64Array, Float64Array], Float64Array],
    ) -> "pd.DataFrame":
        regressors = [column for name in names for column in self._regressors(name)]
        self._check_varies(response)
        complete = np.logical_and.reduce([self._values(name)[1] for name in (response.attribute, *names)])
        design = np.stack([column.centred for column in regressors], axis=1)
        design = np.column_stack([np.ones(len(design)), design])
        outcome = response.centred + response.mean
        # Equal records are fitted as one.
        codes = np.stack([self._codes[each.place] for each in (response, *regressors)], axis=1)
        _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)

        def slopes(weights: Float64Array) -> Float64Array:
            return fit(
                design[first], outcome[first], np.bincount(which, weights * complete).astype(np.float64)
            )[1:]

        estimates, draws = calibrated(self._targets([response, *regressors]), slopes)
        variances = WIDER**2 * draws.var(axis=0)
        if asked.population:
            finite = np.where(np.isfinite(estimates), estimates, 0)
            variances = variances + _sampling(design, outcome, finite, complete, fit)
        released, errors = slopes(np.ones(len(design))), np.sqrt(variances)
        index, reach = (
            _index([each.name for each in regressors], response.name),
            self._counts.reach(asked.confidence),
        )
        return with_open(answer(index, released, estimates, errors, reach))

    def tables(self, names: Sequence[str]) -> Iterator[dict[str, Int64Array]]:
        """Yield tables with the relations of the noisy tables (see `Estimates`)."""
        columns = [column for name in names for column in self._regressors(name)]
        places = {name: self._counts.place(name) for name in names}
        for chosen in resampled(self._targets(columns)):
            yield {
                name: self._codes[place][chosen] + self._design.attributes[place].lower
                for name, place in places.items()
            }

    def _targets(self, columns: Sequence[_Column]) -> Targets:
        """Return the moments of columns: means and squares by one-way counts, products by tables."""
        random = random_of(" ".join(column.name for column in columns))
        products, moments, drawn = [], [], []
        for column in columns:
            own = self._moved(column)
            for power in (1, 2) if np.unique(column.centred).size > 3 else (1,):
                powers = column.centred**power
                products.append(powers)
                moments.append(powers.mean())
                drawn.append(powers.mean() + own[power - 1])
        for one, other in combinations(columns, 2):
            if one.place == other.place:
                continue
            table, deviation = self._table(one.place, other.place)
            means = [self._bin_means(column) for column in (one, other)]
            spread = sqrt(one.centred.var() * other.centred.var())
            if not spread:
                continue
            of_bins = [mean[self._bins[each.place]] for mean, each in zip(means, (one, other), strict=True)]
            kept = float(of_bins[0].var() * of_bins[1].var() / spread**2)
            if not kept:
                raise UsageError(
                    f"bins hide how {one.name!r} and {other.name!r} are related", "leave one of them out"
                )
            noisy = [
                float(means[0] @ (table + noise) @ means[1]) / self._design.n_records
                for noise in [0.0, *random.normal(0, deviation, (_N_DRAWS, *table.shape))]
            ]
            # On a logarithmic scale relations need not go on within wide bins: by a part that is drawn.
            wide = any(self._design.attributes[column.place].is_logarithmic for column in (one, other))
            parts = random.uniform(0, 1, _N_DRAWS) if wide else np.ones(_N_DRAWS)
            restored = [
                each + part * (ungrouped(each / spread, min(kept, 1.0))[0] * spread - each)
                for part, each in zip([0.5 if wide else 1.0, *parts], noisy, strict=True)
            ]
            products.append(one.centred * other.centred)
            moments.append(restored[0])
            drawn.append(np.array(restored[1:]))
        return Targets(np.stack(products, axis=1), np.array(moments), np.stack(drawn, axis=1))

    def _bin_means(self, column: _Column) -> Float64Array:
        """Return the mean of a column in each bin of its attribute, `(n_bins,)`."""
        bins, n_bins = self._bins[column.place], self._measured.binnings[column.place].n_bins
        sums = np.bincount(bins, column.centred, n_bins)
        return np.asarray(sums / np.maximum(np.bincount(bins, minlength=n_bins), 1), dtype=np.float64)

    def _moved(self, column: _Column) -> Float64Array:
        """Return by how much noise moves the first two moments of a column, `(2, _N_DRAWS)`."""
        codes, order = self._codes[column.place], np.argsort(self._codes[column.place], kind="stable")
        ascending, values = codes[order], column.centred[order]
        found = []
        for histogram in self._redrawn(column.place):
            ends = np.searchsorted(ascending, histogram.edges)
            held = np.diff(ends)
            counts = histogram.counts / GRAIN
            sums = [np.append(0, np.cumsum(values**power))[ends] for power in (1, 2)]
            # A part that no record is in has the values of the nearest record.
            near = values[np.clip(ends[:-1], 0, len(values) - 1)]
            found.append(
                [
                    float(counts @ np.where(held > 0, np.diff(each) / np.maximum(held, 1), near**power))
                    / self._design.n_records
                    for power, each in enumerate(sums, start=1)
                ]
            )
        moments = np.array(found)
        return np.asarray((moments[1:] - moments[0]).T, dtype=np.float64)

    def _redrawn(self, place: int) -> list[Histogram]:
        """Return the one-way counts of an attribute, then draws of them with noise once more."""
        if place not in self._histograms:
            attribute, n_records = self._design.attributes[place], self._design.n_records
            random, levels = random_of(attribute.name), self._counts.levels[place]
            found = []
            for draw in range(_N_DRAWS + 1):
                histograms: list[Histogram] = []
                for edges, counts, variance in levels:
                    noise = random.normal(0, sqrt(variance), counts.size) if draw else np.zeros(counts.size)
                    noisy = counts + np.rint(noise).astype(np.int64)
                    histograms.append(
                        divided_histogram(histograms[-1], edges, noisy, variance)
                        if histograms
                        else histogram_of(attribute, edges, noisy, n_records, variance)
                    )
                found.append(histograms[-1])
            self._histograms[place] = found
        return self._histograms[place]

    def _table(self, one: int, other: int) -> tuple[Float64Array, float]:
        """Return the noisy table of two attributes, `(n_bins, n_bins)`, and the deviation of its noise."""
        (first, _), counts, variance = self._counts.counted(one, other)
        return (counts if first == one else counts.T), sqrt(variance)

    # --- columns ----------------------------------------------------------------------------------------

    def released(self, name: str) -> Attribute:
        """Return an attribute that was counted with others (see `Estimates`)."""
        return self._design.attributes[self._counts.place(name)]

    def attribute(self, name: str) -> Attribute:
        """Return the same: all that were counted have estimates."""
        return self.released(name)

    def numeric(self) -> list[str]:
        """Return the names of all numbers, dates, booleans and categories with two labels."""
        return [each.name for each in self._design.attributes if is_numeric(each)]

    def _values(self, name: str) -> tuple[Float64Array, BoolArray]:
        """Return the released values, `(n_records,)`, and which are present."""
        attribute, codes = self.attribute(name), self._codes[self._counts.place(name)]
        present = codes <= attribute.upper - attribute.lower
        unit = float(attribute.unit) if not attribute.is_categorical else 1.0
        return ((codes + attribute.lower) * unit).astype(np.float64), present

    def _column(self, name: str, codes: Sequence[int] = (), against: str = "") -> _Column:
        """Return the column of an attribute, or of the indicator of some of its codes."""
        values, present = self._values(name)
        shown = name
        if codes:
            values = np.isin(self._codes[self._counts.place(name)], codes).astype(np.float64)
            labels = ", ".join(self.attribute(name).labels[code] for code in codes)
            shown = f"{name}: {labels}" + (f" (against {against})" if against else "")
        mean = float(values[present].mean()) if present.any() else 0.0
        return _Column(shown, name, self._counts.place(name), np.where(present, values - mean, 0.0), mean)

    def _regressors(self, name: str) -> list[_Column]:
        """Return the columns of a regressor; a factor has one per level but its first."""
        attribute = self.attribute(name)
        if is_numeric(attribute) and not attribute.categories:
            column = self._column(name)
            self._check_varies(column)
            return [column]
        bins = self._bins[self._counts.place(name)]
        binning = self._measured.binnings[self._counts.place(name)]
        edges = binning.histogram.edges[:-1]
        present = attribute.upper - attribute.lower
        least = _FEWEST * sqrt(self._design.pair_variance)
        sizes = np.bincount(bins, minlength=binning.n_bins)
        levels: list[list[int]] = []
        combined: list[int] = []
        n_combined = 0
        # The rarest are one level, with the next rarest as far as that needs them.
        for each in np.argsort(sizes, kind="stable"):
            codes = [int(code) for code in edges[binning.labels == each] if code <= present]
            if codes and (sizes[each] < least or (combined and n_combined < least)):
                combined, n_combined = sorted([*combined, *codes]), n_combined + int(sizes[each])
            elif codes:
                levels.append(codes)
        levels = sorted(each for each in (combined, *levels) if each)
        if len(levels) < 2:
            raise UsageError(f"nearly all records have the same {name!r}", "leave it out")
        against = ", ".join(attribute.labels[code] for code in levels[0])
        return [self._column(name, level, against) for level in levels[1:]]

    def _check_varies(self, column: _Column) -> None:
        """Raises UsageError if the noise of a column's variance is larger than the variance."""
        if column.centred.var() <= self._moved(column)[1].std():
            raise UsageError(
                f"noise hides how much the values of {column.attribute!r} differ", "leave it out"
            )


def _index(names: Iterable[object], name: str | None = None) -> "pd.Index":
    import pandas as pd

    return pd.Index(list(names), name=name)


def _present(histogram: Histogram, attribute: Attribute) -> tuple[Float64Array, Int64Array]:
    """Return the counts of values that are present, and the edges of their parts."""
    last = attribute.upper - attribute.lower + 1
    kept = histogram.edges[:-1] < last
    return histogram.counts[kept] / GRAIN, np.append(histogram.edges[:-1][kept], last)


def _quantiles(histogram: Histogram, at: Float64Array, attribute: Attribute) -> Float64Array:
    """Return quantiles in the attribute's unit, values spread evenly over half a unit to either side."""
    counts, edges = _present(histogram, attribute)
    running = np.append(0, np.cumsum(counts)) / max(counts.sum(), 1e-9)
    found = np.interp(at, running, edges - 0.5)
    return np.asarray((found + attribute.lower) * float(attribute.unit), dtype=np.float64)


def _part_widths(histogram: Histogram, at: Float64Array, attribute: Attribute) -> Float64Array:
    """Return the widths of the parts that quantiles lie in, in codes."""
    counts, edges = _present(histogram, attribute)
    running = np.cumsum(counts) / max(counts.sum(), 1e-9)
    return np.diff(edges)[np.clip(np.searchsorted(running, at), 0, counts.size - 1)].astype(np.float64)


def _sampling(
    design: Float64Array,
    outcome: Float64Array,
    slopes: Float64Array,
    complete: BoolArray,
    fit: Callable[..., Float64Array],
) -> Float64Array:
    """Return the variances of coefficients from sampling the records."""
    weights = complete.astype(np.float64)
    linear = design[:, 1:] @ slopes
    intercept = outcome.mean() - linear.mean()
    if fit is linear_fit:
        expected, derivative = linear + intercept, np.ones(len(outcome))
    else:
        odds = np.clip(linear + np.log(outcome.mean() / (1 - outcome.mean())) - linear.mean(), -30, 30)
        expected = 1 / (1 + np.exp(-odds))
        derivative = expected * (1 - expected)
    return sampling_variances(design, outcome - expected, derivative, weights)[1:]
