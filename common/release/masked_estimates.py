"""Estimates from a masked release: what its values say about the original ones.

Correlations and slopes of the released values are weaker than those of the original ones
(`common.release.attenuation`). They are corrected where that can be done; what cannot be corrected is
refused, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from common.arrays import Int64Array
from common.errors import UsageError
from common.model.plan import Plan
from common.model.schema import Attribute
from common.release import estimates
from common.release.answers import (
    check_confidence,
    event_code,
    is_date,
    is_numeric,
    joined,
    names_of,
    quantile_shares,
    refused,
    with_dates,
)
from common.release.attenuation import HEAVY_TAIL, Distortion, MaskedValues, MaskingParams
from common.release.calibration import check_size, resampled
from common.release.table import to_units

if TYPE_CHECKING:
    import pandas as pd

_UNCORRECTED = (
    "leave it out; or ask the owners for a synthetic table, more epsilon or less rank noise; or fit `frame`, "
    "and state that the estimate was not corrected"
)

_LEAST_SHARE = 0.03
"""Smallest share of the records in a level of a logistic regression. Intervals of rarer marital states of
Adult held the original log odds in half of the releases."""


class MaskedEstimates:
    """Estimates of the records that were masked.

    Args:
        plan: Of the release.
        records: How many records each owner released.
        table: The released values.
    """

    def __init__(self, plan: Plan, records: Mapping[str, int], table: pa.Table) -> None:
        self._plan, self._records, self._table = plan, records, table
        self._masked_values: dict[tuple[str, tuple[int, ...], bool], MaskedValues] = {}

    @cached_property
    def distortions(self) -> Mapping[str, Distortion]:
        """How masking changed each attribute, in resolution units."""
        return {attribute.name: self._values_of(attribute).distortion for attribute in self._plan.counted}

    def _values_of(
        self, attribute: Attribute, labels: Sequence[int] = (), *, ranks: bool = False
    ) -> MaskedValues:
        key = attribute.name, tuple(labels), ranks
        if key not in self._masked_values:
            self._masked_values[key] = MaskedValues(
                attribute, self.ways(attribute), self._units(attribute), labels, ranks=ranks
            )
        return self._masked_values[key]

    def ways(self, attribute: Attribute) -> list[MaskingParams]:
        """Return how each owner of an attribute masked it."""
        plan, records = self._plan, self._records
        return [
            MaskingParams(planned, records[task.owner], plan.max_records_per_person)
            for task in plan.tasks
            for planned in task.attributes
            if planned.name == attribute.name
        ]

    def tables(self, names: Sequence[str] = ()) -> Iterator[dict[str, Int64Array]]:
        """Yield tables with corrected relations: as estimated, then with noise once more.

        Each has values in units by attribute, `(n_records,)`. Attributes that cannot be corrected are as they
        were released.

        Args:
            names: Of the attributes whose relations are corrected; empty for all that can be.

        Raises:
            UsageError: If they do not fit into memory.
        """
        from scipy.stats import rankdata

        chosen_names = names_of(names) or [each.name for each in self._plan.counted]
        terms = [self._term(name) for name in self._numeric() if name in chosen_names]
        for attribute in map(self._attribute if names else self._plan.counted_attribute, chosen_names):
            if attribute.categories and not is_numeric(attribute):
                with suppress(UsageError):
                    terms += self._regressors([attribute.name])
        columns = (*self._plan.owner_columns.values(), *self._plan.counted)
        units = {each.name: self._units(each) for each in columns}
        if len({term.attribute for term in terms}) < 2:
            raise UsageError("no relation of these attributes can be corrected", _UNCORRECTED)
        check_size(self._table.num_rows, len(terms))
        lists = {
            each.name: self._values_of(each).drawn.lists
            for each in self._plan.counted
            if not each.is_categorical and not self._values_of(each).distortion.note
        }
        for number, chosen in enumerate(resampled(estimates.targets(terms))):
            found = {name: own[chosen] for name, own in units.items()}
            for name, of_draws in lists.items():
                attribute, own = self._plan.counted_attribute(name), found[name]
                # The first table has the middle of all lists, each of the others one.
                drawn = of_draws.mean(axis=0) if not number else of_draws[number % len(of_draws)]
                places = (np.arange(drawn.size) + 0.5) / drawn.size
                values = np.interp((rankdata(units[name]) - 0.5) / len(own), places, drawn)
                exact = np.clip(np.rint(values), attribute.lower, attribute.highest).astype(np.int64)
                found[name] = exact[chosen]
            yield found

    def _units(self, attribute: Attribute) -> Int64Array:
        units: Int64Array = to_units(attribute, self._table.column(attribute.name)).to_numpy()
        return units

    def means(
        self, names: str | Sequence[str] = (), *, confidence: float = 0.95, population: bool = False
    ) -> "pd.DataFrame":
        """Return the means of attributes, as released and corrected; of booleans the shares that are true.

        Args:
            names: As for `correlations`.
            confidence: Of the intervals.
            population: Whether intervals are for whom the records are a sample of.

        Returns:
            A line per attribute, with the columns of `correlations`.

        Raises:
            UsageError: If there is no such attribute.
        """
        check_confidence(confidence)
        lines, dates = [], []
        for name in names_of(names) or self._numeric():
            dates.append(is_date(self._released(name)))
            try:
                attribute = self._attribute(name)
                if not is_numeric(attribute):
                    raise UsageError("it is a category: use shares", "")
                lines.append(estimates.means([self._term(name)], confidence, 1 + population))
            except UsageError as problem:
                lines.append(refused(name, str(problem)))
        return with_dates(joined(lines, "attribute"), dates)

    def shares(self, name: str, *, confidence: float = 0.95, population: bool = False) -> "pd.DataFrame":
        """Return the share of the records that each declared label of a category has.

        Args:
            name: The category, one whose mechanism counts (`dp-hist`).
            confidence: Of the intervals.
            population: Whether intervals are for whom the records are a sample of.

        Returns:
            A line per label, with the columns of `correlations`.

        Raises:
            UsageError: If there is no interval, with the reason.
        """
        check_confidence(confidence)
        attribute = self._attribute(name)
        if not attribute.is_categorical:
            raise UsageError(f"attribute {name!r} is not a category", "use means, or quantiles")
        try:
            draws = self._values_of(attribute).shares()
        except ValueError as problem:
            raise UsageError(
                f"attribute {name!r} has no intervals: {problem}", "count its released labels, and say so"
            ) from None
        units = self._units(attribute)
        released = np.bincount(units, minlength=attribute.n_values) / units.size
        n_records = units.size // (1 + population)
        return estimates.shares(attribute.labels, released, draws, n_records, confidence)

    def quantiles(
        self,
        name: str,
        at: Sequence[float] = (0.25, 0.5, 0.75),
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return quantiles of an attribute, as released and corrected.

        Args:
            name: A number, integer or date (in days since 1970-01-01).
            at: Shares of the records below them, between 0 and 1.
            confidence: Of the intervals.
            population: Whether intervals are for whom the records are a sample of.

        Returns:
            A line per quantile, with the columns of `correlations`.

        Raises:
            UsageError: If there is no interval, with the reason.
        """
        check_confidence(confidence)
        attribute = self._attribute(name)
        if attribute.is_categorical:
            raise UsageError(f"attribute {name!r} has no quantiles: it is a category", "use shares")
        shares = quantile_shares(at).tolist()
        # A tail does not matter inside of the outermost clusters and half of the next.
        cluster = 1.5 / min(way.n_clusters for way in self.ways(attribute))
        inside = all(cluster <= share <= 1 - cluster for share in shares)
        term = self._term(name, allowed=HEAVY_TAIL if inside else "")
        table = estimates.quantiles(term, shares, confidence, 1 + population)
        return with_dates(table, [is_date(attribute)] * len(shares))

    def correlations(
        self,
        names: str | Sequence[str] = (),
        *,
        confidence: float = 0.95,
        population: bool = False,
        ranks: bool = False,
    ) -> "pd.DataFrame":
        """Return the correlations of pairs of attributes, as released and corrected.

        Args:
            names: Numbers, integers, dates, booleans, or categories with two labels, of which the second
                counts as 1; empty for all that can be corrected.
            confidence: Of the intervals.
            population: Whether intervals are for whom the records are a sample of.
            ranks: Whether to correlate ranks instead of values (Spearman), for which tails do not matter.

        Returns:
            A line per pair, indexed by `first` and `second`: the columns of `common.release.answers`.

        Raises:
            UsageError: If one cannot be corrected, with the reason.
        """
        check_confidence(confidence)
        chosen = names_of(names) or self._numeric(ranks=ranks)
        for name in chosen:
            if not is_numeric(self._attribute(name)):
                raise UsageError(f"attribute {name!r} cannot be corrected: it is a category", "leave it out")
        terms = [self._term(name, ranks=ranks) for name in chosen]
        if len(terms) < 2:
            raise UsageError(
                "there is no pair of attributes that can be corrected",
                "name two or more; the notes in `codebook` say why one cannot be corrected",
            )
        return estimates.correlations(terms, confidence, 1 + population)

    def regress(
        self,
        response: str,
        on: str | Sequence[str],
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return a linear regression, as released and corrected.

        A category among the regressors is a factor: a line per label that occurs, against the first of them
        in the declared order. Labels too rare to be corrected are combined into one level, with the next
        rarest as far as that needs them; its line names them all.

        Args:
            response: As for `correlations`.
            on: The regressors: these, or other categories.
            confidence: Of the intervals.
            population: Whether intervals are for whom the records are a sample of.

        Returns:
            A line per regressor (`common.release.answers`).

        Raises:
            UsageError: If an attribute cannot be corrected, or the corrected covariances contradict each
                other.
        """
        chosen = self._model(response, on, confidence)
        if not is_numeric(self._attribute(response)):
            raise UsageError(f"the response {response!r} is a category", "use logistic, with event=...")
        terms = self._regressors(chosen)
        return estimates.linear(self._term(response), terms, confidence, 1 + population)

    def logistic(
        self,
        response: str,
        on: str | Sequence[str],
        event: str | bool | None = None,  # noqa: FBT001
        *,
        confidence: float = 0.95,
        population: bool = False,
    ) -> "pd.DataFrame":
        """Return a logistic regression, as released and corrected.

        Args:
            response: A boolean or a category.
            on: The regressors, as for `regress`; a relation with three attributes is as masking left it.
            event: The label whose odds are regressed; the second one if there are two.
            confidence: Of the intervals.
            population: Whether intervals are for whom the records are a sample of.

        Returns:
            Log odds, in the columns of `regress`.

        Raises:
            UsageError: If the response has no event, an attribute cannot be corrected, or no finite estimate
                exists.
        """
        chosen = self._model(response, on, confidence)
        attribute = self._attribute(response)
        code = event_code(attribute, event)
        as_released = not attribute.categories and code == 1
        happened = self._term(response, () if as_released else [code])
        return estimates.logistic(
            happened, self._regressors(chosen, _LEAST_SHARE), confidence, 1 + population
        )

    def crosstab(self, first: str, second: str, **_options: Any) -> "pd.DataFrame":
        """Refuse a table of two attributes: relations of labels are given by `regress` and `logistic`.

        Raises:
            UsageError: Always, with what to do.
        """
        for name in (first, second):
            self._attribute(name)
        raise UsageError(
            "the cells of masked tables have no true intervals",
            "regress, or use logistic, on the groups; or ask the owners for a synthetic release",
        )

    def survival(self, time: str, event: str, *_at: Sequence[float], **_options: Any) -> "pd.DataFrame":
        """Refuse survival; see `cox`."""
        return self.cox(time, event, ())

    def cox(self, time: str, event: str, on: str | Sequence[str], **_options: Any) -> "pd.DataFrame":
        """Refuse what depends on time, event and regressor together.

        Raises:
            UsageError: Always, with what to do.
        """
        for name in (time, event, *names_of(on)):
            self._attribute(name)
        raise UsageError(
            "survival and hazard ratios of masked records have no true intervals: rank noise moves times "
            "and events apart, by more than anything public corrects for three attributes",
            "regress the event with logistic; or ask the owners for a synthetic release",
        )

    def _numeric(self, *, ranks: bool = False) -> list[str]:
        """Return the names of all numeric attributes that can be corrected."""
        return [
            attribute.name
            for attribute in self._plan.counted
            if is_numeric(attribute) and not self._values_of(attribute, ranks=ranks).distortion.note
        ]

    def _model(self, response: str, on: str | Sequence[str], confidence: float) -> list[str]:
        """Return the names of the regressors, all different from each other and from the response."""
        check_confidence(confidence)
        regressors = names_of(on)
        if not regressors or response in regressors:
            raise UsageError("regressors are other attributes than the response", "name one or more: on=...")
        for name in (response, *regressors):
            self._attribute(name)
        return regressors

    def _released(self, name: str) -> Attribute:
        """Return an attribute of the release; raises UsageError if there is none."""
        for attribute in self._plan.released:
            if attribute.name == name:
                return attribute
        masked = (each.name for each in self._plan.counted)
        raise UsageError(f"no attribute {name!r}", f"attributes: {', '.join(masked)}")

    def _attribute(self, name: str) -> Attribute:
        """Return an attribute that was masked by itself.

        Raises:
            UsageError: If there is none.
        """
        released = self._released(name)
        if base := released.base:
            raise UsageError(
                f"attribute {name!r} follows {base!r} and is not corrected by itself",
                f"estimate {base!r}, and apply the table of the plan",
            )
        if unplaced := released.unplaced:
            raise UsageError(
                f"attribute {name!r} has {unplaced}, which no estimate here allows for",
                "leave it out, or analyse the table, and state what becomes of missing values",
            )
        return self._plan.counted_attribute(name)

    def _regressors(self, names: Sequence[str], least_share: float = 0.0) -> list[estimates.Term]:
        terms: list[estimates.Term] = []
        for name in names:
            attribute = self._plan.counted_attribute(name)
            if not attribute.categories:
                terms.append(self._term(name))
            else:
                first, *levels = self._levels(attribute, least_share)
                against = f" (against {', '.join(attribute.categories[code] for code in first)})"
                terms += [self._term(name, level, against=against) for level in levels]
            if not any(term.attribute == name and term.released.any() for term in terms):
                raise UsageError(f"all records have the same {name!r}", "leave it out")
        return terms

    def _levels(self, attribute: Attribute, least_share: float) -> list[list[int]]:
        """Return the levels of a factor: codes of categories, as few of the rarest as needed combined.

        Args:
            least_share: Of the records that a level has at least.

        Raises:
            UsageError: If fewer than two levels can be corrected.
        """
        units = self._units(attribute)
        codes, records = np.unique(units, return_counts=True)
        alone = codes[np.argsort(-records, kind="stable")].tolist()
        combined: list[int] = []
        while alone:
            levels = [[code] for code in alone] + ([combined] if combined else [])
            held = [np.isin(units, labels).mean() for labels in levels]
            # The rarest decides first.
            if (
                len(levels) > 1
                and min(held) >= least_share
                and all(not self._values_of(attribute, labels).distortion.note for labels in reversed(levels))
            ):
                return sorted(levels)
            combined = sorted([*combined, alone.pop()])
        self._term(attribute.name, codes[:1].tolist())
        raise UsageError(f"the categories of {attribute.name!r} cannot be corrected", _UNCORRECTED)

    def _term(
        self,
        name: str,
        labels: Sequence[int] = (),
        *,
        ranks: bool = False,
        allowed: str = "",
        against: str = "",
    ) -> estimates.Term:
        """Return the column of a model of an attribute, or of the indicator of some of its categories."""
        attribute = self._plan.counted_attribute(name)
        units = self._units(attribute)
        scale = float(attribute.unit)
        texts = ", ".join(attribute.labels[code] for code in labels)
        shown = f"{name}: {texts}{against}" if labels else name
        values = (np.isin(units, labels) if labels else units * scale).astype(np.float64)
        if ranks:
            _, place, counts = np.unique(units, return_inverse=True, return_counts=True)
            scale, values = 1.0, ((np.cumsum(counts) - counts / 2) / units.size)[place]
        as_released = estimates.Term.as_released(shown, name, values)
        masked = self._values_of(attribute, labels, ranks=ranks)
        if (note := masked.distortion.note) and note != allowed:
            what = f"category {texts!r} of attribute {name!r}" if labels else f"attribute {name!r}"
            raise UsageError(f"{what} cannot be corrected: {note}", _UNCORRECTED)
        scores = masked.scores * scale
        scores -= scores.mean()
        return replace(as_released, scores=scores, bins=masked.bins, drawn=masked.drawn.times(scale))
