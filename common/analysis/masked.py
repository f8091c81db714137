"""Estimates from a masked release: what its values say about the original ones.

Correlations and slopes of the released values are weaker than those of the original ones
(`common.analysis.attenuation`). They are corrected where that can be done; what cannot be corrected is
refused, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from common.analysis import masked_calibration, masked_models
from common.analysis.answers import is_numeric, names_of, with_missing
from common.analysis.attenuation import HEAVY_TAIL, Distortion, DrawnCounts, MaskedValues, MaskingParams
from common.analysis.calibration import linear_fit, logistic_fit, resampled
from common.analysis.estimates import Estimates, Interval
from common.analysis.masked_calibration import EVERY
from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.mechanisms import COUNTS
from common.model.plan import Plan
from common.model.schema import Attribute
from common.release.values import to_units

if TYPE_CHECKING:
    import pandas as pd

_UNCORRECTED = (
    "leave it out; or ask the owners for a synthetic table, more epsilon or less rank noise; or fit `frame`, "
    "and state that the estimate was not corrected"
)

_LEAST_SHARE = 0.03
"""Smallest share of the records with a level or the event of a logistic regression, or a label of a table.
Intervals of rarer ones missed the originals too often."""

_MOST_NOISE = 0.05
"""Most records that positive noise of counts makes up, as a share."""


class MaskedEstimates(Estimates):
    """Estimates of the records that were masked.

    Args:
        plan: Of the release.
        records: How many records each owner released.
        table: The released values.
    """

    of_three = "masking weakens by an unknown amount"

    def __init__(self, plan: Plan, records: Mapping[str, int], table: pa.Table) -> None:
        self._plan, self._records, self._table = plan, records, table
        self._drawn_counts: dict[str, dict[int, DrawnCounts]] = {}
        self._masked_values: dict[tuple[str, tuple[int, ...], bool, bool], MaskedValues] = {}

    @cached_property
    def distortions(self) -> Mapping[str, Distortion]:
        """How masking changed each attribute, in resolution units."""
        return {attribute.name: self._values_of(attribute).distortion for attribute in self._plan.counted}

    def _values_of(
        self, attribute: Attribute, labels: Sequence[int] = (), *, ranks: bool = False, squares: bool = False
    ) -> MaskedValues:
        key = attribute.name, tuple(labels), ranks, squares
        if key not in self._masked_values:
            self._masked_values[key] = MaskedValues(
                attribute,
                self.ways(attribute),
                self._units(attribute),
                labels,
                ranks=ranks,
                squares=squares,
                drawn_counts=self._drawn_counts.setdefault(attribute.name, {}),
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

    def tables(self, names: Sequence[str]) -> Iterator[dict[str, Int64Array]]:
        """Yield tables with corrected relations (see `Estimates`)."""
        from scipy.stats import rankdata

        terms = []
        for attribute in map(self.attribute, names):
            numeric = is_numeric(attribute)
            terms += [self._term(attribute.name)] if numeric else self._regressors([attribute.name])
        units = {each.name: self._units(each) for each in map(self.attribute, names)}
        lists = {
            each.name: self._values_of(each).drawn.lists
            for each in map(self.attribute, names)
            if not each.is_categorical
        }
        moments = masked_calibration.targets(terms, sampled=True)
        for number, chosen in enumerate(resampled(masked_calibration.moved_at_once(moments))):
            found = {name: own[chosen] for name, own in units.items()}
            for name, of_draws in lists.items():
                attribute, own = self.attribute(name), found[name]
                # The first table has the middle of all lists, each of the others one.
                drawn = of_draws[(number - 1) * EVERY] if number else of_draws.mean(axis=0)
                places = (np.arange(drawn.size) + 0.5) / drawn.size
                values = np.interp((rankdata(units[name]) - 0.5) / len(own), places, drawn)
                exact = np.clip(np.rint(values), attribute.lower, attribute.highest).astype(np.int64)
                found[name] = exact[chosen]
            yield found

    def _units(self, attribute: Attribute) -> Int64Array:
        units: Int64Array = to_units(attribute, self._table.column(attribute.name)).to_numpy()
        return units

    def _mean(self, name: str, asked: Interval) -> "pd.DataFrame":
        term, missing = self._present(name)
        table = masked_models.means([term], asked.confidence, _samples(term, asked))
        return with_missing(table, missing)

    def _shares(self, name: str, asked: Interval) -> "pd.DataFrame":
        attribute = self.attribute(name)
        try:
            draws = self._values_of(attribute).shares()
        except ValueError as problem:
            raise UsageError(
                f"attribute {name!r} has no intervals: {problem}", "count its released labels, and say so"
            ) from None
        units = self._units(attribute)
        released = np.bincount(units, minlength=attribute.n_values) / units.size
        n_records = units.size if asked.population else np.inf
        return masked_models.shares(attribute.labels, released, draws, n_records, asked.confidence)

    def _quantiles(self, name: str, at: Float64Array, asked: Interval) -> "pd.DataFrame":
        # A tail does not matter inside of the outermost clusters and half of the next.
        cluster = 1.5 / min(way.n_clusters for way in self.ways(self.listed(name)))
        inside = bool(((at >= cluster) & (at <= 1 - cluster)).all())
        term, missing = self._present(name, allowed=HEAVY_TAIL if inside else "")
        table = masked_models.quantiles(
            term, at.tolist(), self.listed(name), asked.confidence, _samples(term, asked)
        )
        return with_missing(table, missing)

    def correlations(
        self,
        names: str | Sequence[str] = (),
        *,
        confidence: float = 0.95,
        population: bool = False,
        ranks: bool = False,
    ) -> "pd.DataFrame":
        """Return the correlations of all pairs of attributes, a line each (see `Estimates`).

        Args:
            ranks: Whether to correlate ranks instead of values (Spearman), for which tails do not matter.
        """
        asked = Interval(confidence, population)
        chosen = names_of(names) or self._corrected(ranks=ranks)
        for name in chosen:
            if not is_numeric(self.attribute(name)):
                raise UsageError(f"attribute {name!r} cannot be corrected: it is a category", "leave it out")
        terms = [self._term(name, ranks=ranks) for name in chosen]
        if len(terms) < 2:
            raise UsageError(
                "there is no pair of attributes that can be corrected",
                "name two or more; the notes in `codebook` say why one cannot be corrected",
            )
        return masked_models.correlations(terms, asked.confidence, 1 + asked.population)

    def _cells(self, first: str, second: str, asked: Interval) -> "pd.DataFrame":
        import pandas as pd

        for name in (first, second):
            if not self.attribute(name).is_categorical:
                raise UsageError(
                    f"a table of masked records is one of labels, and {name!r} is a number",
                    "use regress; or ask the owners for a synthetic release",
                )
        (rows, refused_rows), (columns, refused_columns) = map(self._indicators, (first, second))
        if not (rows and columns):
            raise UsageError(next(iter((refused_columns if rows else refused_rows).values())), _UNCORRECTED)
        samples = 1 + asked.population
        table = masked_models.cells(rows.values(), columns.values(), asked.confidence, samples)
        table.index = pd.MultiIndex.from_product([rows, columns], names=[first, second])
        labels = [self.attribute(name).labels for name in (first, second)]
        table = table.reindex(pd.MultiIndex.from_product(labels, names=[first, second]))
        notes = (refused_rows.get(one, "") or refused_columns.get(other, "") for one, other in table.index)
        return table.assign(note=list(notes))

    def _indicators(self, name: str) -> tuple[dict[str, masked_models.Term], dict[str, str]]:
        """Return the indicators of labels by label, and why those of others cannot be corrected."""
        terms, reasons = dict[str, masked_models.Term](), dict[str, str]()
        for code, label in enumerate(self.attribute(name).labels):
            try:
                terms[label] = self._frequent(name, code, self._term(name, [code]))
            except UsageError as problem:
                reasons[label] = str(problem)
        return terms, reasons

    def _frequent(self, name: str, code: int, indicator: masked_models.Term) -> masked_models.Term:
        """Return the indicator of a label; raises UsageError if too few records have it, or lack it."""
        if min(indicator.mean, 1 - indicator.mean) < _LEAST_SHARE:
            raise UsageError(
                f"category {self.attribute(name).labels[code]!r} of attribute {name!r} cannot be corrected: "
                f"less than {_LEAST_SHARE:.0%} of the records have it, or lack it",
                _UNCORRECTED,
            )
        return indicator

    def _linear(self, response: str, on: Sequence[str], asked: Interval) -> "pd.DataFrame":
        outcome, samples = self._term(response), 1 + asked.population
        if not any(":" in name for name in on):
            return masked_models.linear(outcome, self._regressors(on), asked.confidence, samples)
        columns = self._columns(on, _LEAST_SHARE)
        return masked_calibration.model(outcome, columns, linear_fit, asked.confidence, samples)

    def _logistic(self, response: str, code: int, on: Sequence[str], asked: Interval) -> "pd.DataFrame":
        as_released = not self.attribute(response).categories and code == 1
        happened = self._frequent(response, code, self._term(response, () if as_released else [code]))
        columns, samples = self._columns(on, _LEAST_SHARE), 1 + asked.population
        return masked_calibration.model(happened, columns, logistic_fit, asked.confidence, samples)

    def _columns(self, on: Sequence[str], least_share: float) -> list[masked_calibration.Column]:
        """Return the columns of a model: terms, and both of each interaction."""
        found: list[masked_calibration.Column] = []
        for name in on:
            if not set(name.split(":")) <= set(on):
                raise UsageError(
                    f"{name!r} needs both of its attributes beside it", f"on={[name.replace(':', '*')]!r}"
                )
            parts = [self._regressors([each], least_share) for each in name.split(":")]
            if len(parts) > 1:
                parts = [[self._with_square(term) for term in own] for own in parts]
                self._check_cells(*parts)
            found += product(*parts)
        return found

    def _check_cells(self, first: Sequence[masked_models.Term], second: Sequence[masked_models.Term]) -> None:
        """Raises UsageError if too few of the records have any two levels of an interaction."""
        if not all(term.indicates for term in (*first, *second)):
            return
        shares = np.median(masked_calibration.shares_of_cells(first, second), axis=2)
        if shares.min() < _LEAST_SHARE:
            names = f"{first[0].attribute!r} and {second[0].attribute!r}"
            raise UsageError(
                f"the interaction of {names} cannot be corrected: less than {_LEAST_SHARE:.0%} of the "
                "records have two of their levels together",
                "leave the interaction out; or ask the owners for a synthetic release",
            )

    def _with_square(self, term: masked_models.Term) -> masked_models.Term:
        """Return a term with the column of its squares, which its interactions depend on."""
        if np.unique(term.released).size == 2:
            # Squares of two values are linear in them.
            return term
        attribute = self._plan.counted_attribute(term.attribute)
        scale = float(attribute.unit) ** 2
        squares, what = self._values_of(attribute, squares=True), f"the square of {term.attribute!r}"
        name, values = f"{term.name}²", term.released**2
        return replace(term, squared=_corrected_term(name, term.attribute, values, squares, scale, what=what))

    def _check_interaction(self, first: str, second: str) -> None:
        for name in (first, second):
            if any(way.planned.rules.carrier is not COUNTS for way in self.ways(self.attribute(name))):
                raise UsageError(
                    f"the interaction of {first!r} and {second!r} has no true interval here: values of "
                    f"{name!r} were not counted, and clusters hide relations of three",
                    f"ask for a synthetic release that counts both together: --together {first}:{second}",
                )

    def numeric(self) -> list[str]:
        """Return the names of numeric attributes that can be corrected, or have missing values."""
        corrected = self._corrected()
        return [each.name for each in self._plan.counted if each.name in corrected or each.keeps_missing]

    def _corrected(self, *, ranks: bool = False) -> list[str]:
        return [
            attribute.name
            for attribute in self._plan.counted
            if is_numeric(attribute) and not self._values_of(attribute, ranks=ranks).distortion.note
        ]

    def released(self, name: str) -> Attribute:
        """Return an attribute of the release; raises UsageError if no attribute has the name."""
        for attribute in self._plan.released:
            if attribute.name == name:
                return attribute
        masked = (each.name for each in self._plan.counted)
        raise UsageError(f"no attribute {name!r}", f"attributes: {', '.join(masked)}")

    def attribute(self, name: str) -> Attribute:
        """Return an attribute that was masked by itself and has no missing values (see `Estimates`)."""
        attribute = self.listed(name)
        if unplaced := attribute.unplaced:
            raise UsageError(
                f"attribute {name!r} has {unplaced}, which relations with others do not allow for",
                "leave it out, or analyse the table, and state what becomes of missing values",
            )
        return attribute

    def listed(self, name: str) -> Attribute:
        """Return an attribute that was masked by itself (see `Estimates`)."""
        if base := self.released(name).base:
            raise UsageError(
                f"attribute {name!r} follows {base!r} and is not corrected by itself",
                f"estimate {base!r}, and apply the table of the plan",
            )
        return self._plan.counted_attribute(name)

    def _regressors(self, names: Sequence[str], least_share: float = 0.0) -> list[masked_models.Term]:
        terms: list[masked_models.Term] = []
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
    ) -> masked_models.Term:
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
        masked = self._values_of(attribute, labels, ranks=ranks)
        what = f"category {texts!r} of attribute {name!r}" if labels else f"attribute {name!r}"
        return _corrected_term(shown, name, values, masked, scale, what=what, allowed=allowed)

    def _present(self, name: str, allowed: str = "") -> tuple[masked_models.Term, float]:
        """Return the column of an attribute's present values, and the share that is missing.

        Missing values are counted as one more value. So the others are as if only they had been masked.
        """
        attribute = self._plan.counted_attribute(name)
        if not attribute.keeps_missing:
            return self._term(name, allowed=allowed), 0.0
        units = self._units(attribute)
        present = units[units <= attribute.upper]
        if not present.size:
            raise UsageError(f"all released values of {name!r} are missing", "leave it out")
        share, scale, ways = present.size / units.size, float(attribute.unit), self.ways(attribute)
        # Half of the noise is positive; what is negative was set to 0.
        noise = attribute.n_values * sum(way.count_scale for way in ways) / 2
        if noise > _MOST_NOISE * present.size:
            raise UsageError(
                f"attribute {name!r} cannot be corrected: each of its {attribute.n_values:,} values was "
                "counted, as missing ones were, and noise made up too many of the counts",
                _UNCORRECTED,
            )
        ways = [replace(way, n_records=max(round(way.n_records * share), 1)) for way in ways]
        masked = MaskedValues(replace(attribute, keeps_missing=False), ways, present)
        values = np.asarray(present * scale, dtype=np.float64)
        what = f"attribute {name!r}"
        return _corrected_term(name, name, values, masked, scale, what=what, allowed=allowed), 1 - share


def _samples(term: masked_models.Term, asked: Interval) -> int:
    """Return how often the sampling of records counts for the list of one attribute.

    The assignment does not matter to it, but clusters hide about as much.
    """
    return asked.population + bool(term.drawn.cluster)


def _corrected_term(
    name: str,
    attribute: str,
    values: Float64Array,
    masked: MaskedValues,
    scale: float,
    *,
    what: str,
    allowed: str = "",
) -> masked_models.Term:
    """Return a column with its correction; raises UsageError for a reason that is not allowed."""
    if (note := masked.distortion.note) and note != allowed:
        raise UsageError(f"{what} cannot be corrected: {note}", _UNCORRECTED)
    scores, mean = masked.scores * scale, float(values.mean())
    scores -= scores.mean()
    drawn = masked.drawn.times(scale)
    return masked_models.Term(name, attribute, mean, values - mean, scores, masked.bins, drawn)
