"""Estimates from a synthetic release, with intervals that contain the noise of its counts.

Single attributes are estimated from their one-way counts, tables from theirs. Models are fitted to the
synthetic records with weights that give them the relations of noisy tables (`common.analysis.calibration`):
the records alone have weaker ones. Within a bin, two attributes are taken to be related as between bins
(`common.analysis.noisy_counts.ungrouped`). Relations of three attributes were not counted, but those with
two that were counted together: hazards are of a time and its event (`common.analysis.hazards`), interactions
of two regressors. What else needs them is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from common.analysis.answers import (
    answer,
    is_date,
    is_numeric,
    names_of,
    numbers_of,
    parts_of_regressors,
    with_missing,
    with_open,
    within,
)
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
from common.analysis.hazards import (
    Leaving,
    cell_counts,
    cox_fit,
    kaplan_meier,
    log_rank,
    log_survival,
    plain_cox_fit,
)
from common.analysis.noisy_counts import NoisyCounts, ungrouped
from common.analysis.originals import random_of
from common.arrays import BoolArray, Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute
from common.model.together import Joint
from common.release.counts import bin_texts
from common.synthesis.histogram import GRAIN, Histogram, divided_histogram, histogram_of

if TYPE_CHECKING:
    import pandas as pd

_N_DRAWS = 60
MOST_GROUPS = 16
"""Most groups of survival."""
_SHAPE = (2, 3)
"""Powers of a regressor whose means are known among those who leave in a span of time."""
_CAPPED = 4
_OF_SEVERAL = 0.05
"""Standard error of log hazard ratios of several regressors that no noise explains, as a part of them.

Weights restore relations of time and event with each regressor, not with several at once."""
_LEAST_CAPPED, _MOST_CAPPED = 0.005, 0.05
"""Shares of the records at either end of a regressor of hazards that have the value before them."""
_MOST_SPANS = 8
"""Most spans of time in which regressors of those with an event, and of those without, are known."""
_FEWEST = 8
"""Deviations of a table's noise; a level of fewer records is combined with the next rarest."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a model."""

    name: str
    """The attribute, or "attribute: label"; of an interaction both, with × between them."""
    attribute: str
    place: int
    """The attribute's number."""
    centred: Float64Array
    """By record, less their mean; 0 where missing, `(n_records,)`."""
    mean: float
    is_logarithmic: bool = False
    """True if the attribute is counted in parts of equal ratio."""
    factors: tuple["_Column", ...] = ()
    """Both columns of an interaction: `centred` is the product of theirs, whose moments hardly depend on the
    moments of one of them."""

    @property
    def modelled(self) -> Float64Array:
        """Return the column of a model, less its mean: the product of values for an interaction."""
        if not self.factors:
            return self.centred
        one, other = (each.centred + each.mean for each in self.factors)
        return np.asarray(one * other - (one * other).mean(), dtype=np.float64)


class SyntheticEstimates(Estimates):
    """Estimates of the records that a synthetic release counted.

    Args:
        counts: Its noisy counts.
        codes: Codes of its records, `(n_records,)` by modelled attribute.
    """

    of_three = "was not counted"

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
        line = within(answer(_index([name]), middle, mean, np.array([error]), reach), attribute)
        return with_missing(line, 1 - float(present.mean()))

    def _shares(self, name: str, asked: Interval) -> "pd.DataFrame":
        found, n_records = self._counts.table(name, confidence=asked.confidence), self._design.n_records
        shares = np.clip(found["count"].to_numpy() / n_records, 0, 1)
        codes = self._own_codes(name)
        released = np.bincount(codes, minlength=len(found))[: len(found)] / n_records
        sampling = shares * (1 - shares) / n_records if asked.population else 0.0
        errors = np.sqrt((found["standard_error"].to_numpy() / n_records) ** 2 + sampling)
        reach = self._counts.reach(asked.confidence)
        return answer(_index(found.index, name), released, shares, errors, reach, (0, 1))

    def _quantiles(self, name: str, at: Float64Array, asked: Interval) -> "pd.DataFrame":
        attribute, unit = self.attribute(name), float(self.attribute(name).unit)
        first, *others = self._histograms_of(name)
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
        return with_missing(within(table, attribute), 1 - values.size / self._design.n_records)

    # --- two attributes ---------------------------------------------------------------------------------

    def _cells(self, first: str, second: str, asked: Interval) -> "pd.DataFrame":
        self._counts.check_apart(first, second)
        found, n_records = self._counts.table(first, second, asked.confidence), self._design.n_records
        shares = found["count"].to_numpy() / n_records
        places = sorted(self._counts.place_in_table(name) for name in (first, second))
        sizes = [self._measured.binnings[place].n_bins for place in places]
        cells = self._bins[places[0]] * sizes[1] + self._bins[places[1]]
        released = np.bincount(cells, minlength=sizes[0] * sizes[1]) / n_records
        if found.index.names[0] != self._design.attributes[places[0]].name:
            released = released.reshape(sizes).T.ravel()
        sampling = np.clip(shares * (1 - shares), 0, None) / n_records if asked.population else 0.0
        errors = np.sqrt((found["standard_error"].to_numpy() / n_records) ** 2 + sampling)
        return answer(found.index, released, shares, errors, self._counts.reach(asked.confidence), (0, 1))

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
        by: str = "",
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return the share that has had no event, by time (see `Estimates`).

        Where time and event were not counted together: within a bin of the time, the same share of those who
        leave has an event. An interval at a time within a bin holds whatever else the bin allows. Without
        times, those are the ends of the bins.
        """
        asked_for = Interval(confidence, population)
        self._check_survival(time, event)
        if (together := self._counts.together(time, event)) is not None:
            return self._survival_together(*together, at, by, asked_for)
        if by:
            raise self._refusal("survival by groups has", time, event, [by])
        reach, place, other = (
            self._counts.reach(confidence),
            self._counts.place(time),
            self._counts.place(event),
        )
        attribute = self.attribute(time)
        table, deviation = self._table(place, other)
        values, happened = self._values(time)[0], (self._codes[other] == 1).astype(np.float64)
        order = np.argsort(values, kind="stable")
        ascending, bins = values[order], self._bins[place][order]
        ends = np.unique(ascending[np.flatnonzero(np.diff(bins, append=-1))])
        times = _times(at, ends, attribute)

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

    def _check_survival(self, time: str, event: str) -> None:
        attribute = self.attribute(time)
        untimed = attribute.is_categorical or is_date(attribute) or attribute.unplaced
        if untimed or self.attribute(event).n_values != 2 or self.attribute(event).unplaced:
            raise UsageError(
                f"there is no survival by {time!r} and {event!r}",
                "name a duration without missing values, and an event of two values",
            )

    def _survival_together(
        self, place: int, joint: Joint, at: float | Sequence[float], by: str, asked: Interval
    ) -> "pd.DataFrame":
        """Return survival from the counts of a time and its event, and of both with groups."""
        binning = self._measured.binnings[place]
        time, leaving = joint.first, Leaving.of(joint, binning, 1)
        unit, edges = float(time.unit), leaving.edges
        ends = np.flatnonzero(np.diff(binning.bins(edges[:-1] + time.n_values), append=-1))
        times = _times(at, np.asarray((edges[ends + 1] - 1 + time.lower) * unit, dtype=np.float64), time)
        cells = np.stack([cell_counts(each, joint, edges) for each in self._redrawn(place)])
        groups, index = [np.ones(self._design.n_records, dtype=np.bool_)], _index(times, time.name)
        counts = cells[:, :, None]
        if by:
            other = self._counts.place_in_table(by)
            if other == place:
                raise UsageError(f"{by!r} makes no groups: it is the time or the event", "name another one")
            labels, groups = self._groups(by)
            index = _groups_index(labels, times, by, time.name)
            counts = self._counts_by_group(place, by, leaving, cells)
        running = log_survival(counts[:, 1], counts[:, 0])
        # A value that is a time has left at the end of its code.
        codes = np.rint(times / unit) - time.lower + 1
        cell = np.clip(np.searchsorted(edges, codes, side="left"), 1, edges.size - 1)
        part = (codes - edges[cell - 1]) / np.diff(edges)[cell - 1]
        before, after = np.exp(running[..., cell - 1]), np.exp(running[..., cell])
        shares = before ** (1 - part) * after**part
        happened = self._own_codes(joint.second.name) == 1
        values = self._values(time.name)[0]
        released = np.array([kaplan_meier(values[own], happened[own], times) for own in groups])
        errors = WIDER * shares[1:].std(axis=0)
        if asked.population:
            sizes = np.maximum(counts[0].sum(axis=(0, 2)), 1)[:, None]
            errors = np.hypot(errors, np.sqrt(shares[0] * (1 - shares[0]) / sizes))
        reach = self._counts.reach(asked.confidence)
        found = answer(index, released.ravel(), shares[0].ravel(), errors.ravel(), reach, (0, 1))
        # A part does not show when in it the events are.
        found["low"] = np.minimum(found["low"], np.clip((after[0] - reach * errors).ravel(), 0, 1))
        found["high"] = np.maximum(found["high"], np.clip((before[0] + reach * errors).ravel(), 0, 1))
        if by:
            found.attrs["log_rank"] = _log_rank_test(counts)
        return found

    def _groups(self, name: str) -> tuple[list[str], list[BoolArray]]:
        """Return the bins of an attribute that are groups, in words and by record.

        Raises:
            UsageError: If the attribute has no groups, or too many.
        """
        place = self._counts.place_in_table(name)
        texts = bin_texts(self._design.attributes[place], self._measured.binnings[place])
        if not 1 < len(texts) <= MOST_GROUPS:
            raise UsageError(
                f"{name!r} has {len(texts)} bins, and 2 to {MOST_GROUPS} can be groups",
                "ask owners to release groups as a category",
            )
        return texts, [self._bins[place] == number for number in range(len(texts))]

    def _counts_by_group(self, place: int, by: str, leaving: Leaving, cells: Float64Array) -> Float64Array:
        """Return who leaves when in each group, as estimated and with noise once more.

        Args:
            cells: By draw and block, of all groups together, `(n_draws, n_blocks, n_cells)`.

        Returns:
            `(n_draws, n_blocks, n_groups, n_cells)`.
        """
        table, deviation = self._table(place, self._counts.place_in_table(by))
        random = random_of(f"{self._design.attributes[place].name} {by}")
        noise = random.normal(0, deviation, (len(cells), *table.shape))
        noise[0] = 0
        held = table + noise
        # One-way counts have less noise than a sum of a table's cells.
        bins = leaving.shares > 0
        block = leaving.with_event.astype(np.int64)
        whole = np.stack(
            [(cells[:, block[each]] * bins[each]).sum(axis=1) for each in range(len(bins))], axis=1
        )
        held += ((whole - held.sum(axis=2)) / held.shape[2])[:, :, None]
        held = np.maximum(held, 0)
        return np.stack(
            [
                np.einsum("dkg,kc->dgc", held[:, block == each], leaving.shares[block == each])
                for each in (0, 1)
            ],
            axis=1,
        )

    def cox(
        self,
        time: str,
        event: str,
        on: str | Sequence[str],
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return log hazard ratios (see `Estimates`)."""
        asked = Interval(confidence, population)
        names = self._model(time, on)
        self._check_survival(time, event)
        together = self._counts.together(time, event)
        if together is None:
            raise self._refusal("hazard ratios have", time, event, names)
        if event in names:
            raise UsageError("regressors are other attributes than time and event", "name others: on=...")
        (place, joint), bins = together, self._bins[together[0]]
        leaving = Leaving.of(joint, self._measured.binnings[place], 1)
        regressors = [column for name in names for column in self._regressors(name)]
        attributes = parts_of_regressors(names)
        complete = np.logical_and.reduce([self._values(name)[1] for name in attributes])
        columns = np.stack([column.modelled for column in regressors], axis=1)
        capped = np.stack([self._capped(column) for column in regressors], axis=1)
        codes = np.stack([bins, *(self._own_codes(name) for name in attributes)], axis=1)
        _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)

        def fitted(
            weights: Float64Array, start: Float64Array | None = None
        ) -> tuple[Float64Array, Float64Array]:
            of_groups = np.bincount(which, weights * complete).astype(np.float64)
            return cox_fit(capped[first], bins[first], of_groups, leaving, start)

        spans = _time_columns(joint, place, bins, leaving)
        # The shape of a number among those who leave early or late, beside its mean.
        shapes = [
            self._power(column, power)
            for column in regressors
            for power in (() if _has_few_values(column) else _SHAPE)
        ]
        targets = self._targets([*spans, *regressors], list(product(spans, shapes)))
        near, information = fitted(np.ones(len(bins)))
        estimates, draws = calibrated(targets, lambda weights: fitted(weights, near)[0])
        happened = self._own_codes(event)[complete] == 1
        released = plain_cox_fit(columns[complete], self._values(time)[0][complete], happened)
        variances = WIDER**2 * draws.var(axis=0)
        if len(names) > 1:
            variances = variances + (_OF_SEVERAL * np.where(np.isfinite(estimates), estimates, 0)) ** 2
        if asked.population:
            variances = variances + np.diag(np.linalg.pinv(information))
        index = _index([each.name for each in regressors], f"hazard of {event}")
        reach = self._counts.reach(asked.confidence)
        return with_open(answer(index, released, estimates, np.sqrt(variances), reach))

    def _fitted(
        self,
        response: _Column,
        names: Sequence[str],
        asked: Interval,
        fit: Callable[[Float64Array, Float64Array, Float64Array], Float64Array],
    ) -> "pd.DataFrame":
        regressors = [column for name in names for column in self._regressors(name)]
        self._check_varies(response)
        attributes = parts_of_regressors([response.attribute, *names])
        complete = np.logical_and.reduce([self._values(name)[1] for name in attributes])
        design = np.stack([column.modelled for column in regressors], axis=1)
        design = np.column_stack([np.ones(len(design)), design])
        outcome = response.centred + response.mean
        # Equal records are fitted as one.
        codes = np.stack([self._own_codes(name) for name in attributes], axis=1)
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
        for chosen in resampled(self._targets(columns)):
            yield {name: self._own_codes(name)[chosen] + self.attribute(name).lower for name in names}

    def _targets(self, columns: Sequence[_Column], more: Sequence[tuple[_Column, _Column]] = ()) -> Targets:
        """Return the moments of columns: means and squares by one-way counts, products by tables.

        Args:
            more: Further pairs of which a product is a moment, too.
        """
        random = random_of(" ".join(column.name for column in columns))
        products, moments, drawn = [], [], []
        tables: dict[tuple[int, int], Float64Array] = {}
        for column in columns:
            powers = [column.centred] if _has_few_values(column) else [column.centred, column.centred**2]
            for own, moved in zip(powers, self._moved(column.place, powers), strict=True):
                products.append(own)
                moments.append(own.mean())
                drawn.append(own.mean() + moved)
        drawn_means = {
            column.name: self._drawn_bin_means(column) for each in (columns, *more) for column in each
        }
        for one, other in (*combinations(columns, 2), *more):
            if one.place == other.place:
                if one.attribute != other.attribute:
                    # Both were counted together, in one-way counts.
                    own = one.centred * other.centred
                    products.append(own)
                    moments.append(own.mean())
                    drawn.append(own.mean() + self._moved(one.place, [own])[0])
                continue
            means = [drawn_means[column.name] for column in (one, other)]
            spread = sqrt(one.centred.var() * other.centred.var())
            if not spread:
                continue
            of_bins = [own[0][self._bins[each.place]] for own, each in zip(means, (one, other), strict=True)]
            kept = float(of_bins[0].var() * of_bins[1].var() / spread**2)
            if not kept:
                raise UsageError(
                    f"bins hide how {one.name!r} and {other.name!r} are related", "leave one of them out"
                )
            # Columns of the same two attributes share the noise of their table.
            key = min(one.place, other.place), max(one.place, other.place)
            if key not in tables:
                table, deviation = self._table(*key)
                noise = random.normal(0, deviation, (_N_DRAWS, *table.shape))
                tables[key] = table + np.concatenate([np.zeros((1, *table.shape)), noise])
            first, second = means if one.place == key[0] else reversed(means)
            noisy = np.einsum("da,dab,db->d", first, tables[key], second) / self._design.n_records
            # Relations go on within bins by a part that is drawn; on a logarithmic scale they need not.
            middle = 0.5 if any(column.is_logarithmic for column in (one, other)) else 1.0
            parts = middle + random.uniform(-0.5, 0.5, _N_DRAWS)
            restored = [
                each + part * (ungrouped(each / spread, min(kept, 1.0))[0] * spread - each)
                for part, each in zip([middle, *parts], noisy.tolist(), strict=True)
            ]
            products.append(one.centred * other.centred)
            moments.append(restored[0])
            drawn.append(np.array(restored[1:]))
        levels = _levels(columns)
        return Targets(np.stack(products, axis=1), np.array(moments), np.stack(drawn, axis=1), levels)

    def _bin_means(self, column: _Column) -> Float64Array:
        """Return the mean of a column in each bin of its attribute, `(n_bins,)`."""
        bins, n_bins = self._bins[column.place], self._measured.binnings[column.place].n_bins
        sums = np.bincount(bins, column.centred, n_bins)
        return np.asarray(sums / np.maximum(np.bincount(bins, minlength=n_bins), 1), dtype=np.float64)

    def _drawn_bin_means(self, column: _Column) -> Float64Array:
        """Return the means of bins, then draws of them with noise once more, `(1 + _N_DRAWS, n_bins)`."""
        means = self._bin_means(column)
        drawn = np.tile(means, (1 + _N_DRAWS, 1))
        if _has_few_values(column) or column.factors:
            return drawn
        binning, place = self._measured.binnings[column.place], column.place
        found = []
        for counts, values, first in self._parts_of(place, column.centred):
            bins = binning.bins(first)
            held = np.bincount(bins, counts, means.size)
            found.append(np.bincount(bins, counts * values, means.size) / np.maximum(held, 1))
        drawn += np.array(found) - found[0]
        return drawn

    def _parts_of(
        self, place: int, column: Float64Array
    ) -> Iterator[tuple[Float64Array, Float64Array, Int64Array]]:
        """Yield counts, the mean of a column and the first code of every part, with noise once more."""
        codes, order = self._codes[place], np.argsort(self._codes[place], kind="stable")
        ascending, own = codes[order], column[order]
        running = np.append(0, np.cumsum(own))
        for histogram in self._redrawn(place):
            ends = np.searchsorted(ascending, histogram.edges)
            held = np.diff(ends)
            # A part that no record is in has the values of the nearest record.
            nearest = np.clip(ends[:-1], 0, len(ascending) - 1)
            values = np.where(held > 0, np.diff(running[ends]) / np.maximum(held, 1), own[nearest])
            yield histogram.counts / GRAIN, values, histogram.edges[:-1]

    def _capped(self, column: _Column) -> Float64Array:
        """Return a column without the tails that noise can have made: their relative hazards would dominate.

        Values in the outermost bins beyond a share of one standard deviation of the noise are the last ones
        before it.
        """
        if column.factors:
            one, other = (self._capped(each) + each.mean for each in column.factors)
            return np.asarray(one * other - (one * other).mean(), dtype=np.float64)
        if _has_few_values(column):
            return column.centred
        binning, n_records = self._measured.binnings[column.place], self._design.n_records
        present = column.centred[self._values(column.attribute)[1]]
        bins = self._bins[column.place]
        found = []
        for at in (column.centred.argmin(), column.centred.argmax()):
            n_parts = np.count_nonzero(binning.labels == bins[at])
            noise = sqrt(float(binning.histogram.variance.max()) * n_parts) / n_records
            found.append(min(max(_CAPPED * noise, _LEAST_CAPPED), _MOST_CAPPED))
        return np.clip(column.centred, *np.quantile(present, [found[0], 1 - found[1]]))

    def _power(self, column: _Column, power: int) -> _Column:
        """Return the column of the mean power in each bin: what tables say of it needs no restoring."""
        scaled = replace(column, centred=(column.centred / column.centred.std()) ** power)
        values = self._bin_means(scaled)[self._bins[column.place]]
        name = f"{column.name}^{power}"
        return replace(column, name=name, centred=values - values.mean(), mean=float(values.mean()))

    def _moved(self, place: int, columns: Sequence[Float64Array]) -> Float64Array:
        """Return by how much noise moves the means of columns of one attribute, `(n_columns, _N_DRAWS)`."""
        moments = np.array(
            [[counts @ values for counts, values, _ in self._parts_of(place, column)] for column in columns]
        )
        found: Float64Array = (moments[:, 1:] - moments[:, :1]) / self._design.n_records
        return found

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

    def _histograms_of(self, name: str) -> list[Histogram]:
        """Return the same for an attribute that may have been counted together with another one."""
        counted = self._design.attributes[self._counts.place(name)]
        found = self._redrawn(self._counts.place(name))
        if not isinstance(counted, Joint):
            return found
        size = counted.first.n_values
        edges = np.arange(counted.second.n_values + 1)
        if name == counted.first.name:
            edges = np.union1d(found[0].edges[:-1] % size, [size])
        whole, axis = np.union1d(found[0].edges[:-1] % size, [size]), int(name == counted.second.name)
        return [
            Histogram(edges, np.rint(GRAIN * counts).astype(np.int64), counts, np.ones(counts.size))
            for counts in (cell_counts(each, counted, whole).sum(axis=axis) for each in found)
        ]

    def _table(self, one: int, other: int) -> tuple[Float64Array, float]:
        """Return the noisy table of two attributes, `(n_bins, n_bins)`, and the deviation of its noise."""
        (first, _), counts, variance = self._counts.counted(one, other)
        return (counts if first == one else counts.T), sqrt(variance)

    # --- columns ----------------------------------------------------------------------------------------

    def released(self, name: str) -> Attribute:
        """Return an attribute that was counted with others (see `Estimates`)."""
        return self._counts.attribute(name)

    def attribute(self, name: str) -> Attribute:
        """Return the same: all that were counted have estimates."""
        return self.released(name)

    def numeric(self) -> list[str]:
        """Return the names of all numbers, dates, booleans and categories with two labels."""
        return [each.name for each in self._counts.attributes if is_numeric(each)]

    def _own_codes(self, name: str) -> Int64Array:
        """Return an attribute's codes, `(n_records,)`."""
        return self._counts.own_codes(name, self._codes[self._counts.place(name)])

    def _values(self, name: str) -> tuple[Float64Array, BoolArray]:
        """Return the released values, `(n_records,)`, and which are present."""
        attribute, codes = self.attribute(name), self._own_codes(name)
        present = codes <= attribute.upper - attribute.lower
        unit = float(attribute.unit) if not attribute.is_categorical else 1.0
        return ((codes + attribute.lower) * unit).astype(np.float64), present

    def _column(self, name: str, codes: Sequence[int] = (), against: str = "") -> _Column:
        """Return the column of an attribute, or of the indicator of some of its codes."""
        values, present = self._values(name)
        shown = name
        if codes:
            values = np.isin(self._own_codes(name), codes).astype(np.float64)
            labels = ", ".join(self.attribute(name).labels[code] for code in codes)
            shown = f"{name}: {labels}" + (f" (against {against})" if against else "")
        mean = float(values[present].mean()) if present.any() else 0.0
        centred, wide = np.where(present, values - mean, 0.0), self.attribute(name).is_logarithmic
        return _Column(shown, name, self._counts.place(name), centred, mean, is_logarithmic=wide)

    def _regressors(self, name: str) -> list[_Column]:
        """Return the columns of a regressor; a factor has one per level but its first."""
        if ":" in name:
            pairs = product(*map(self._regressors, name.split(":")))
            return [self._interaction(name, one, other) for one, other in pairs]
        attribute = self.attribute(name)
        if is_numeric(attribute) and not attribute.categories:
            column = self._column(name)
            self._check_varies(column)
            return [column]
        place = self._counts.place(name)
        bins, labels = self._bins[place], self._measured.binnings[place].labels
        edges = self._measured.binnings[place].histogram.edges[:-1]
        if isinstance(self._design.attributes[place], Joint):
            bins, edges = self._own_codes(name), np.arange(attribute.n_values)
            labels = edges
        present = attribute.upper - attribute.lower
        least = _FEWEST * sqrt(self._design.pair_variance)
        sizes = np.bincount(bins, minlength=int(labels.max()) + 1)
        levels: list[list[int]] = []
        combined: list[int] = []
        n_combined = 0
        # The rarest are one level, with the next rarest as far as that needs them.
        for each in np.argsort(sizes, kind="stable"):
            codes = [int(code) for code in edges[labels == each] if code <= present]
            if codes and (sizes[each] < least or (combined and n_combined < least)):
                combined, n_combined = sorted([*combined, *codes]), n_combined + int(sizes[each])
            elif codes:
                levels.append(codes)
        levels = sorted(each for each in (combined, *levels) if each)
        if len(levels) < 2:
            raise UsageError(f"nearly all records have the same {name!r}", "leave it out")
        against = ", ".join(attribute.labels[code] for code in levels[0])
        return [self._column(name, level, against) for level in levels[1:]]

    def _interaction(self, name: str, one: _Column, other: _Column) -> _Column:
        centred = one.centred * other.centred
        mean, wide = float(centred.mean()), one.is_logarithmic or other.is_logarithmic
        shown = f"{one.name} × {other.name}"
        column = _Column(shown, name, one.place, centred - mean, mean, wide, (one, other))
        self._check_varies(column)
        return column

    def _check_interaction(self, first: str, second: str) -> None:
        if self._counts.place(first) != self._counts.place(second):
            raise UsageError(
                f"the interaction of {first!r} and {second!r} has no true interval here: with the response "
                f"it is a relation of three attributes, which {self.of_three}",
                f"ask for a synthetic release that counts both together: --together {first}:{second}",
            )

    def _check_varies(self, column: _Column) -> None:
        """Raises UsageError if noise or the width of counted parts hides a column's variance."""
        if not column.factors and not self.attribute(column.attribute).unplaced:
            self._counts.check_varies(column.attribute)
        if column.centred.var() <= self._moved(column.place, [column.centred**2])[0].std():
            raise UsageError(
                f"noise hides how much the values of {column.attribute!r} differ", "leave it out"
            )


def _levels(columns: Sequence[_Column]) -> list[BoolArray]:
    """Return the records of each level that an estimate compares with others."""
    found: list[BoolArray] = []
    indicators = [column for column in columns if _has_few_values(column) and not column.factors]
    for attribute in dict.fromkeys(column.attribute for column in indicators):
        named = [column.centred > 0 for column in indicators if column.attribute == attribute]
        found += [*named, ~np.logical_or.reduce(named)]
    return found


def _index(names: Iterable[object], name: str | None = None) -> "pd.Index":
    import pandas as pd

    return pd.Index(list(names), name=name)


def _groups_index(labels: Sequence[str], times: Float64Array, by: str, time: str) -> "pd.MultiIndex":
    import pandas as pd

    return pd.MultiIndex.from_product([labels, times], names=[by, time])


def _log_rank_test(counts: Float64Array) -> dict[str, float]:
    """Return the test of equal hazards, allowing for noise as well as for chance.

    Args:
        counts: As `_counts_by_group` returns them.
    """
    from scipy.special import chdtrc

    tests = [log_rank(each[1], each[0]) for each in counts]
    noise = np.atleast_2d(np.cov(np.array([excess for excess, _ in tests[1:]]).T))
    excess, chance = tests[0]
    statistic = float(excess @ np.linalg.pinv(chance + noise) @ excess)
    return {"statistic": statistic, "degrees": excess.size, "p_value": float(chdtrc(excess.size, statistic))}


def _times(at: float | Sequence[float], ends: Float64Array, attribute: Attribute) -> Float64Array:
    """Return the times that are asked for, or else the ends of bins.

    Raises:
        UsageError: If one is not a time.
    """
    asked = numbers_of(at)
    times = asked if asked.size else ends
    if not ((times >= float(attribute.min)) & (times <= float(attribute.max))).all():
        raise UsageError(
            f"a time is outside of {attribute.name!r}", f"times are from {attribute.min} to {attribute.max}"
        )
    return times


def _has_few_values(column: _Column) -> bool:
    if column.factors:
        return all(map(_has_few_values, column.factors))
    return np.unique(column.centred).size <= 3


def _time_columns(joint: Joint, place: int, bins: Int64Array, leaving: Leaving) -> list[_Column]:
    """Return the columns of when records leave and how: indicators of some bins next to each other."""
    sets = []
    for block in (~leaving.with_event, leaving.with_event):
        own = np.flatnonzero(block)
        sets += np.array_split(own, min(own.size, _MOST_SPANS))
    found = []
    for number, each in enumerate(sets[1:], start=1):
        inside = np.isin(bins, each).astype(np.float64)
        mean = float(inside.mean())
        found.append(_Column(f"{joint.name} {number}", joint.name, place, inside - mean, mean))
    return found


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
