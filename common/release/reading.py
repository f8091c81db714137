"""A published release for analysis: verified, as a pandas or Arrow table, with a codebook and corrections.

    import tessera

    release = tessera.read_release("releases/first", ca="ca.pem")
    release.frame, release.codebook

Correlations and slopes of the released values are weaker than those of the original ones
(`common.release.attenuation`). `correlations` and `regress` correct them as far as public numbers allow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from common.arrays import Int64Array
from common.errors import UsageError
from common.model.plan import is_trial
from common.model.schema import Attribute
from common.planning.synthetic import design_of
from common.release import estimates
from common.release.attenuation import Distortion, MaskedValues, MaskingParams
from common.release.beside import beside
from common.release.count_estimates import NoisyCounts
from common.release.counts import measured_in
from common.release.data_files import DATA_FILES, read_data
from common.release.table import (
    RECORD_COLUMN,
    describe_domain,
    describe_masking,
    release_table,
    to_series,
    to_units,
)
from common.release.verification import Verified, verify_release

if TYPE_CHECKING:
    import pandas as pd

_AS_RELEASED = ["released", "standard_error"]
_UNCORRECTED = (
    "leave it out; or ask the owners for a synthetic table, more epsilon or less rank noise; or take the "
    "released estimate (corrected=False) and state that it was not corrected"
)


def read_release(
    folder: str | Path, *, ca: str | Path | None = None, owners: Mapping[str, str] | None = None
) -> "Release":
    """Verify a release folder as `aggregator verify` does, and read it.

    Args:
        folder: The release folder.
        ca: PEM file of the CA that all identities must lead to. Without it, the names of aggregator and
            owners are only claims (`Release.caveats`).
        owners: Fingerprints that owners' keys must have, by owner id.

    Raises:
        IntegrityError: Naming the first thing that does not hold.
        UsageError: If there is no such folder.
        ConfigurationError: If the CA file cannot be used.
    """
    place = Path(folder)
    verified = verify_release(place, None if ca is None else Path(ca), owners)
    return Release(verified, _table(place, verified), _counts(place, verified))


def _counts(folder: Path, verified: Verified) -> NoisyCounts | None:
    """Return what synthetic records were made of, which was verified; None for masked ones."""
    counts = beside(verified.plan).counts(folder, verified.plan)
    if counts is None:
        return None
    design = design_of(verified.plan, verified.n_records)
    derived = tuple(each for each in verified.plan.released if each.base)
    return NoisyCounts(measured_in(design, counts), derived)


def _table(folder: Path, verified: Verified) -> pa.Table:
    """Return the values of a release under the plan's own types and descriptions, whoever wrote the file."""
    plan, n_records = verified.plan, verified.n_records
    (name, *_) = (file_name for file_name in DATA_FILES if file_name in verified.files)
    table = read_data(folder / name, plan, n_records)
    units = {each.name: to_units(each, table.column(each.name)).to_numpy() for each in plan.columns}
    return release_table(plan, units, n_records)


class Release:
    """A verified release."""

    def __init__(self, verified: Verified, table: pa.Table, counts: NoisyCounts | None = None) -> None:
        self.verified = verified
        """What was found to hold: plan, linking, owners, signatures."""
        self.table = table
        """The data as an Arrow table: `record`, the owner where it was released, then the attributes."""
        self.counts = counts
        """The noisy counts that synthetic records were made of, and estimates from them; None for masked
        records."""
        self._masked_values: dict[tuple[str, tuple[int, ...], bool], MaskedValues] = {}

    @property
    def id(self) -> str:
        """Release id."""
        return self.verified.plan.release

    @property
    def guarantee(self) -> tuple[str, ...]:
        """What is promised."""
        return self.verified.guarantee

    @property
    def invariants(self) -> tuple[str, ...]:
        """What is not hidden."""
        return self.verified.invariants

    @property
    def caveats(self) -> tuple[str, ...]:
        """That it is a trial, then what was not checked."""
        return self.verified.caveats

    def __repr__(self) -> str:
        plan = self.verified.plan
        checked = "identities checked" if self.verified.identities_checked else "identities not checked"
        kind = "trial of simulated records" if is_trial(plan.release) else "release"
        return (
            f"<{kind} {plan.release}: {self.table.num_rows:,} records, {len(plan.released)} attributes, "
            f"{len(plan.owners)} owners, ε = {plan.epsilon:f}; verified, {checked}>"
        )

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The data as a DataFrame, indexed by `record`; see `to_frame` for its types."""
        import pandas as pd

        index = pd.Index(self.table.column(RECORD_COLUMN).to_numpy(), name=RECORD_COLUMN)
        return to_frame(self.table, self.verified.plan.columns, index)

    @cached_property
    def codebook(self) -> "pd.DataFrame":
        """What is known about each attribute, one line each.

        `type`, `domain`, `resolution`; `mechanism`, `epsilon`, `k`, `rank_noise`, as "least to most" where
        owners differ; and what masking did to it, as far as public numbers tell.

        `value_noise` is a cautious standard deviation of the noise of a released value, in the units of the
        attribute (dates: days), for counted categories of the number of records with a label.
        `assignment_noise` is how far records were moved along the list of values, root mean square, in
        the same units; for categories and booleans the share of records with another label. `attenuation`,
        `scale_error` and `note`: see `common.release.attenuation`.

        Of synthetic records it has the first three: nothing was masked.
        """
        import pandas as pd

        return pd.DataFrame(
            [self._line(each) for each in self.verified.plan.released],
            index=pd.Index([each.name for each in self.verified.plan.released], name="attribute"),
        )

    def _line(self, attribute: Attribute) -> dict[str, Any]:
        if self.counts is not None:
            return {"resolution": "", **describe_domain(attribute)}
        if attribute.base:
            empty = dict.fromkeys(("mechanism", "epsilon", "k", "rank_noise"), "")
            note = f"it follows {attribute.base}: correct that attribute"
            return {"resolution": "", **describe_domain(attribute), **empty, "note": note}
        distortion, masked = self.distortions[attribute.name], [way.planned for way in self._ways(attribute)]
        scale = 1 if attribute.is_categorical else float(attribute.unit)
        moved = distortion.assignment_noise
        return {
            **dict.fromkeys(("type", "domain", "resolution", "mechanism", "epsilon", "k", "rank_noise"), ""),
            **describe_domain(attribute),
            **describe_masking(masked),
            "value_noise": distortion.value_noise * scale,
            "assignment_noise": None if moved is None else moved * scale,
            "attenuation": distortion.attenuation,
            "scale_error": distortion.scale_error,
            "note": distortion.note,
        }

    @cached_property
    def distortions(self) -> Mapping[str, Distortion]:
        """How masking changed each attribute, in resolution units.

        Raises:
            UsageError: If the records are synthetic.
        """
        self._check_masked()
        return {
            attribute.name: self._values_of(attribute).distortion for attribute in self.verified.plan.counted
        }

    def _values_of(
        self, attribute: Attribute, labels: Sequence[int] = (), *, ranks: bool = False
    ) -> MaskedValues:
        key = attribute.name, tuple(labels), ranks
        if key not in self._masked_values:
            self._masked_values[key] = MaskedValues(
                attribute, self._ways(attribute), self._units(attribute), labels, ranks=ranks
            )
        return self._masked_values[key]

    def _ways(self, attribute: Attribute) -> list[MaskingParams]:
        plan, records = self.verified.plan, self.verified.addendum.records
        return [
            MaskingParams(planned, records[task.owner], plan.max_records_per_person)
            for task in plan.tasks
            for planned in task.attributes
            if planned.name == attribute.name
        ]

    def _units(self, attribute: Attribute) -> Int64Array:
        units: Int64Array = to_units(attribute, self.table.column(attribute.name)).to_numpy()
        return units

    def means(self, names: str | Sequence[str] = (), confidence: float = 0.95) -> "pd.DataFrame":
        """Return the means of attributes, as released and corrected; of booleans the shares that are true.

        Args:
            names: As for `correlations`.
            confidence: Of the intervals.

        Returns:
            A line per attribute, with the columns of `correlations`.

        Raises:
            UsageError: If there is no interval for one, with the reason.
        """
        chosen = self._numeric(names, confidence)
        return estimates.means([self._term(name, corrected=True) for name in chosen], confidence)

    def shares(self, name: str, confidence: float = 0.95) -> "pd.DataFrame":
        """Return the share of the records that each declared label of a category has.

        Args:
            name: The category, one whose mechanism counts (`dp-hist`).
            confidence: Of the intervals.

        Returns:
            A line per label, with the columns of `correlations`.

        Raises:
            UsageError: If there is no interval, with the reason.
        """
        _check_confidence(confidence)
        (name,) = self._different([name])
        attribute = self.verified.plan.counted_attribute(name)
        if not attribute.categories:
            raise UsageError(f"attribute {name!r} is no category", "use means, or quantiles")
        try:
            draws = self._values_of(attribute).shares()
        except ValueError as problem:
            raise UsageError(
                f"attribute {name!r} has no intervals: {problem}", "count its released labels, and say so"
            ) from None
        units = self._units(attribute)
        released = np.bincount(units, minlength=attribute.n_values) / units.size
        return estimates.shares(attribute.categories, released, draws, units.size, confidence)

    def quantiles(
        self, name: str, at: Sequence[float] = (0.25, 0.5, 0.75), confidence: float = 0.95
    ) -> "pd.DataFrame":
        """Return quantiles of an attribute, as released and corrected.

        Args:
            name: A number, integer or date (in days since 1970-01-01).
            at: Shares of the records below them, between 0 and 1.
            confidence: Of the intervals.

        Returns:
            A line per quantile, with the columns of `correlations`.

        Raises:
            UsageError: If there is no interval, with the reason.
        """
        _check_confidence(confidence)
        (name,) = self._different([name])
        if self.verified.plan.counted_attribute(name).is_categorical:
            raise UsageError(f"attribute {name!r} has no quantiles: it is a category", "use shares")
        if not at or not all(0 < share < 1 for share in at):
            raise UsageError("a quantile is asked for that is none", "name shares between 0 and 1")
        return estimates.quantiles(self._term(name, corrected=True), at, confidence)

    def correlations(
        self, names: str | Sequence[str] = (), confidence: float = 0.95, *, ranks: bool = False
    ) -> "pd.DataFrame":
        """Return the correlations of pairs of attributes, as released and corrected.

        Args:
            names: Numbers, integers, dates, booleans, or categories with two labels, of which the second
                counts as 1; empty for all that can be corrected.
            confidence: Of the intervals.
            ranks: Whether to correlate ranks instead of values (Spearman), for which tails do not matter.

        Returns:
            A line per pair, indexed by `first` and `second`: `released`; `corrected`, `standard_error`,
            `low`, `high`.

        Raises:
            UsageError: If one cannot be corrected, with the reason.
        """
        chosen = self._numeric(names, confidence, ranks=ranks)
        terms = [self._term(name, corrected=True, ranks=ranks) for name in chosen]
        if len(terms) < 2:
            raise UsageError(
                "there is no pair of attributes that can be corrected",
                "name two or more; the notes in `codebook` say why one cannot be corrected",
            )
        return estimates.correlations(terms, confidence)

    def regress(
        self, response: str, on: str | Sequence[str], confidence: float = 0.95, *, corrected: bool = True
    ) -> "pd.DataFrame":
        """Return a linear regression, as released and corrected.

        A category among the regressors is a factor: a line per label that occurs, against the first of them
        in the declared order. Labels too rare to be corrected are combined into one level, with the next
        rarest as far as that needs them; its line names them all.

        Args:
            response: As for `correlations`.
            on: The regressors: these, or other categories.
            confidence: Of the intervals.
            corrected: False for the slopes as released, which are attenuated. There is no interval then,
                since none is known to hold the original slope.

        Returns:
            A line per regressor: `released`, the slope of the released values; `corrected`,
            `standard_error`, `low`, `high`. Without correction `released` and its `standard_error` alone.

        Raises:
            UsageError: If an attribute cannot be corrected, or the corrected covariances contradict each
                other.
        """
        chosen = self._model(response, on, confidence)
        if not _is_numeric(self.verified.plan.counted_attribute(response)):
            raise UsageError(f"the response {response!r} is a category", "use logistic, with event=...")
        terms = self._regressors(chosen, corrected=corrected)
        table = estimates.linear(self._term(response, corrected=corrected), terms, confidence)
        return table if corrected else table[_AS_RELEASED]

    def logistic(
        self,
        response: str,
        on: str | Sequence[str],
        event: str | None = None,
        confidence: float = 0.95,
        *,
        corrected: bool = True,
    ) -> "pd.DataFrame":
        """Return a logistic regression, as released and corrected.

        Args:
            response: A boolean or a category.
            on: The regressors, as for `regress`; one attribute that is not a factor, unless `corrected` is
                False.
            event: The label whose odds are regressed; the second one if there are two.
            confidence: Of the intervals.
            corrected: As for `regress`.

        Returns:
            Log odds, in the columns of `regress`.

        Raises:
            UsageError: If the response has no event, an attribute cannot be corrected, or no finite estimate
                exists.
        """
        chosen = self._model(response, on, confidence)
        if corrected and (
            len(chosen) > 1 or not _is_numeric(self.verified.plan.counted_attribute(chosen[0]))
        ):
            raise UsageError(
                "logistic regressions on several attributes, or on a factor of more than two labels, cannot "
                "be corrected well enough",
                "name one number, boolean or category of two labels; or pass corrected=False, and state that "
                "the estimates are attenuated",
            )
        happened = self._term(response, self._event(response, event), corrected=corrected)
        table = estimates.logistic(happened, self._regressors(chosen, corrected=corrected), confidence)
        return table if corrected else table[_AS_RELEASED]

    def _numeric(self, names: str | Sequence[str], confidence: float, *, ranks: bool = False) -> list[str]:
        """Return names of numeric attributes; without any, of all that can be corrected."""
        self._check_masked()
        _check_confidence(confidence)
        chosen = ([names] if isinstance(names, str) else list(names)) or [
            attribute.name
            for attribute in self.verified.plan.counted
            if _is_numeric(attribute) and not self._values_of(attribute, ranks=ranks).distortion.note
        ]
        for name in self._different(chosen):
            if not _is_numeric(self.verified.plan.counted_attribute(name)):
                raise UsageError(f"attribute {name!r} cannot be corrected: it is a category", "leave it out")
        return chosen

    def _model(self, response: str, on: str | Sequence[str], confidence: float) -> list[str]:
        """Return the names of the regressors, all different from each other and from the response."""
        _check_confidence(confidence)
        regressors = [on] if isinstance(on, str) else list(on)
        if not regressors:
            raise UsageError("there is no regressor", "name one or more: on=...")
        return self._different([response, *regressors])[1:]

    def _check_masked(self) -> None:
        if self.counts is not None:
            raise UsageError(
                "synthetic records are not masked: there is nothing to correct",
                "`counts` has tables, means and correlations with intervals; those from `frame` have none",
            )

    def _different(self, names: list[str]) -> list[str]:
        self._check_masked()
        released = {attribute.name: attribute for attribute in self.verified.plan.released}
        for name in names:
            if name not in released:
                masked = (each.name for each in self.verified.plan.counted)
                raise UsageError(f"no attribute {name!r}", f"attributes: {', '.join(masked)}")
            if base := released[name].base:
                raise UsageError(
                    f"attribute {name!r} follows {base!r} and is not corrected by itself",
                    f"estimate {base!r}, and apply the table of the plan",
                )
            if unplaced := released[name].unplaced:
                raise UsageError(
                    f"attribute {name!r} has {unplaced}, which no estimate here allows for",
                    "leave it out, or analyse the table, and state what becomes of missing values",
                )
        if len(set(names)) != len(names):
            raise UsageError("an attribute is named twice", "name every attribute once")
        return names

    def _event(self, response: str, event: str | None) -> list[int]:
        """Return the code of the category whose odds are regressed; none for a boolean, which is 1 or 0."""
        attribute = self.verified.plan.counted_attribute(response)
        if not attribute.is_categorical:
            raise UsageError(f"the response {response!r} is neither boolean nor category", "use regress")
        if event is None and len(attribute.categories) in {0, 2}:
            return [1] if attribute.categories else []
        if event not in attribute.categories:
            what = "needs an event" if event is None else f"has no category {event!r}"
            labels = ", ".join(attribute.categories)
            hint = f"event is one of: {labels}" if labels else "leave event out: it is true"
            raise UsageError(f"the response {response!r} {what}", hint)
        return [attribute.categories.index(event)]

    def _regressors(self, names: Sequence[str], *, corrected: bool) -> list[estimates.Term]:
        terms: list[estimates.Term] = []
        for name in names:
            attribute = self.verified.plan.counted_attribute(name)
            if not attribute.categories:
                terms.append(self._term(name, corrected=corrected))
            elif corrected:
                terms += [self._term(name, labels, corrected=True) for labels in self._levels(attribute)[1:]]
            else:
                codes = np.unique(self._units(attribute))[1:]
                terms += [self._term(name, [code], corrected=False) for code in codes.tolist()]
            if not any(term.attribute == name and term.released.any() for term in terms):
                raise UsageError(f"all records have the same {name!r}", "leave it out")
        return terms

    def _levels(self, attribute: Attribute) -> list[list[int]]:
        """Return the levels of a factor: codes of categories, as few of the rarest as needed combined.

        Raises:
            UsageError: If fewer than two levels can be corrected.
        """
        units = self._units(attribute)
        codes, records = np.unique(units, return_counts=True)
        alone = codes[np.argsort(-records, kind="stable")].tolist()
        combined: list[int] = []
        while alone:
            levels = [[code] for code in alone] + ([combined] if combined else [])
            # The rarest decides first.
            if len(levels) > 1 and all(
                not self._values_of(attribute, labels).distortion.note for labels in reversed(levels)
            ):
                return sorted(levels)
            combined = sorted([*combined, alone.pop()])
        self._term(attribute.name, codes[:1].tolist(), corrected=True)
        raise UsageError(f"the categories of {attribute.name!r} cannot be corrected", _UNCORRECTED)

    def _term(
        self, name: str, labels: Sequence[int] = (), *, corrected: bool, ranks: bool = False
    ) -> estimates.Term:
        """Return the column of a model of an attribute, or of the indicator of some of its categories."""
        attribute = self.verified.plan.counted_attribute(name)
        units = self._units(attribute)
        scale = float(attribute.unit)
        texts = ", ".join(attribute.categories[code] for code in labels)
        shown = f"{name}: {texts}" if labels else name
        values = (np.isin(units, labels) if labels else units * scale).astype(np.float64)
        if ranks:
            _, place, counts = np.unique(units, return_inverse=True, return_counts=True)
            scale, values = 1.0, ((np.cumsum(counts) - counts / 2) / units.size)[place]
        as_released = estimates.Term.as_released(shown, name, values)
        if not corrected:
            return as_released
        masked = self._values_of(attribute, labels, ranks=ranks)
        if note := masked.distortion.note:
            what = f"category {texts!r} of attribute {name!r}" if labels else f"attribute {name!r}"
            raise UsageError(f"{what} cannot be corrected: {note}", _UNCORRECTED)
        scores = masked.scores * scale
        scores -= scores.mean()
        return replace(as_released, scores=scores, bins=masked.bins, drawn=masked.drawn.times(scale))


def _is_numeric(attribute: Attribute) -> bool:
    """Return whether the values of an attribute are numbers, or 0 and 1."""
    return not attribute.is_categorical or attribute.n_values == 2


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence} is not between 0 and 1", "for example 0.95")


def to_frame(table: pa.Table, attributes: Sequence[Attribute], index: "pd.Index") -> "pd.DataFrame":
    """Return a table of release types as a DataFrame.

    Integers become int64, numbers doubles and dates datetime64[s]; booleans stay booleans; categories become
    a Categorical with all declared categories, ordered if they are. A number whose domain has too many digits
    for a double stays an exact decimal of Arrow. Missing values become NaN, NaT or NA; such integers Int64.
    """
    import pandas as pd

    columns = {attribute.name: to_series(attribute, table.column(attribute.name)) for attribute in attributes}
    return pd.DataFrame(columns, columns=list(columns), copy=False).set_axis(index)
