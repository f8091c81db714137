"""A published release for analysis: verified, as a pandas or Arrow table, with a codebook and corrections.

    import tessera

    release = tessera.read_release("releases/first", ca="ca.pem")
    release.frame, release.codebook

Correlations and slopes of the released values are weaker than those of the original ones
(`common.release.attenuation`). `correlations` and `regress` correct them as far as public numbers allow.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from common.arrays import Int64Array
from common.errors import UsageError
from common.model.plan import is_trial
from common.model.schema import Attribute, AttributeType
from common.release.attenuation import Distortion, MaskedValues, Way
from common.release.data_files import PARQUET_FILE, read_data
from common.release.table import (
    RECORD_COLUMN,
    describe_domain,
    describe_masking,
    from_units,
    release_schema,
    to_units,
)
from common.release.verification import Verified, verify_release

_NUMERIC = (AttributeType.INTEGER, AttributeType.NUMBER, AttributeType.DATE, AttributeType.BOOLEAN)


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
    return Release(verified, _table(place, verified))


def _table(folder: Path, verified: Verified) -> pa.Table:
    plan, n_records = verified.plan, verified.n_records
    if PARQUET_FILE in verified.files:
        return read_data(folder / PARQUET_FILE, plan, n_records)
    (name,) = (each for each in verified.files if each.startswith("data."))
    texts = read_data(folder / name, plan, n_records)
    units = {each: to_units(each, texts.column(each.name)).to_numpy() for each in plan.columns}
    numbers = pa.array(np.arange(1, n_records + 1, dtype=np.int64))
    columns = [numbers, *(from_units(each, values) for each, values in units.items())]
    return pa.table(columns, schema=release_schema(plan))


class Release:
    """A verified release."""

    def __init__(self, verified: Verified, table: pa.Table) -> None:
        self.verified = verified
        """What was found to hold: plan, linking, owners, signatures."""
        self.table = table
        """The data as an Arrow table: `record`, the owner where it was released, then the attributes."""

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
            f"<{kind} {plan.release}: {self.table.num_rows:,} records, {len(plan.attributes)} attributes, "
            f"{len(plan.owners)} owners, ε = {plan.epsilon:f}; verified, {checked}>"
        )

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The data as a DataFrame, indexed by `record`; see `to_frame` for its types."""
        index = pd.Index(self.table.column(RECORD_COLUMN).to_numpy(), name=RECORD_COLUMN)
        return to_frame(self.table, self.verified.plan.columns, index)

    @cached_property
    def codebook(self) -> pd.DataFrame:
        """What is known about each attribute, one line each.

        `type`, `domain`, `resolution`; `mechanism`, `epsilon`, `k`, `rank_noise`, as "least to most" where
        owners differ; and what masking did to it, as far as public numbers tell.

        `value_noise` is a cautious standard deviation of the noise of a released value, in the units of the
        attribute (dates: days), for counted categories of the number of records with a label.
        `assignment_noise` is how far records were moved along the list of values, root mean square, in
        the same units; for categories and booleans the share of records with another label. `attenuation`,
        `scale_error` and `note`: see `common.release.attenuation`.
        """
        return pd.DataFrame(
            [self._line(each) for each in self.verified.plan.attributes],
            index=pd.Index([each.name for each in self.verified.plan.attributes], name="attribute"),
        )

    def _line(self, attribute: Attribute) -> dict[str, Any]:
        found, masked = self.distortions[attribute.name], [way.planned for way in self._ways(attribute)]
        scale = 1 if attribute.is_categorical else 10.0**-attribute.decimals
        moved = found.assignment_noise
        return {
            **dict.fromkeys(("type", "domain", "resolution", "mechanism", "epsilon", "k", "rank_noise"), ""),
            **describe_domain(attribute),
            **describe_masking(masked),
            "value_noise": found.value_noise * scale,
            "assignment_noise": None if moved is None else moved * scale,
            "attenuation": found.attenuation,
            "scale_error": found.scale_error,
            "note": found.note,
        }

    @cached_property
    def distortions(self) -> Mapping[str, Distortion]:
        """How masking changed each attribute, in resolution units."""
        return {each.name: self._masked(each).distortion() for each in self.verified.plan.attributes}

    def _masked(self, attribute: Attribute) -> MaskedValues:
        return MaskedValues(attribute, self._ways(attribute), self._units(attribute))

    def _ways(self, attribute: Attribute) -> list[Way]:
        plan, records = self.verified.plan, self.verified.addendum.records
        return [
            Way(planned, records[task.owner], plan.max_records_per_person)
            for task in plan.tasks
            for planned in task.attributes
            if planned.name == attribute.name
        ]

    def _units(self, attribute: Attribute) -> Int64Array:
        units: Int64Array = to_units(attribute, self.table.column(attribute.name)).to_numpy()
        return units

    def correlations(self, names: str | Sequence[str] = ()) -> pd.DataFrame:
        """Return the corrected correlations of attributes.

        Args:
            names: Numbers, integers, dates or booleans; empty for all that can be corrected.

        Raises:
            UsageError: If one cannot be corrected, with the reason.
        """
        chosen = ([names] if isinstance(names, str) else list(names)) or [
            each.name
            for each in self.verified.plan.attributes
            if each.type in _NUMERIC and self.distortions[each.name].attenuation is not None
        ]
        if not chosen:
            raise UsageError("no attribute can be corrected", "the notes in `codebook` say why")
        centred, scores = self._correctable(chosen)
        deviations = centred.std(axis=0)
        found = scores.T @ scores / len(scores) / np.outer(deviations, deviations)
        np.fill_diagonal(found, 1)
        return pd.DataFrame(found, index=chosen, columns=chosen)

    def regress(self, response: str, on: str | Sequence[str], confidence: float = 0.95) -> pd.DataFrame:
        """Return a linear regression, as released and corrected.

        The standard error of a corrected slope counts the sampling of the records with the noise on their
        assignment (robust to unequal variances), and the noise of the lists of values.

        Args:
            response: A number, integer, date or boolean.
            on: The regressors, likewise.
            confidence: Of the intervals.

        Returns:
            A line per regressor: `released`, the slope of the released values; `corrected`,
            `standard_error`, `low`, `high`.

        Raises:
            UsageError: If an attribute cannot be corrected, or the corrected covariances contradict each
                other.
        """
        regressors = [on] if isinstance(on, str) else list(on)
        if not regressors:
            raise UsageError("there is no regressor", "name one or more: on=...")
        if not 0 < confidence < 1:
            raise UsageError(f"confidence = {confidence} is not between 0 and 1", "for example 0.95")
        centred, scores = self._correctable([response, *regressors])
        released, true = (each.T @ each / len(each) for each in (centred, scores))
        np.fill_diagonal(true, np.diag(released))
        if np.linalg.eigvalsh(true)[0] <= 0:
            raise UsageError(
                f"the corrected covariances of {response} and {', '.join(regressors)} contradict each other",
                "leave out a regressor that depends on the others, or one with a small attenuation",
            )
        slopes = np.linalg.solve(true[1:, 1:], true[1:, 0])
        # Each record's influence on the moments that the slopes solve: scores, but values on the diagonal.
        moments = scores[:, 1:] * (scores[:, :1] - scores[:, 1:] @ slopes[:, None])
        moments += (scores[:, 1:] ** 2 - centred[:, 1:] ** 2) * slopes
        influence = np.linalg.solve(true[1:, 1:], moments.T)
        sampling = (influence**2).mean(axis=1) / len(scores)
        of_scale = np.array([self.distortions[name].scale_error for name in [response, *regressors]], float)
        errors = np.sqrt(sampling + slopes**2 * (of_scale[0] ** 2 + of_scale[1:] ** 2))
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * errors
        return pd.DataFrame(
            {
                "released": np.linalg.solve(released[1:, 1:], released[1:, 0]),
                "corrected": slopes,
                "standard_error": errors,
                "low": slopes - reach,
                "high": slopes + reach,
            },
            index=pd.Index(regressors, name=response),
        )

    def _correctable(self, names: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return values and scores of attributes, less their means, `(n_records, n_attributes)` each."""
        for name in names:
            self._check_correctable(name)
        if len(set(names)) != len(names):
            raise UsageError("an attribute is named twice", "name every attribute once")
        attributes = [self.verified.plan.attribute(name) for name in names]
        scales = 10.0 ** -np.array([each.decimals for each in attributes])
        values = np.stack([self._units(each) * 1.0 for each in attributes], axis=1)
        scores = np.stack([self._masked(each).scores() for each in attributes], axis=1)
        return (values - values.mean(axis=0)) * scales, (scores - scores.mean(axis=0)) * scales

    def _check_correctable(self, name: str) -> None:
        declared = [each.name for each in self.verified.plan.attributes]
        if name not in declared:
            raise UsageError(f"no attribute {name!r}", f"attributes: {', '.join(declared)}")
        labels = self.verified.plan.attribute(name).type not in _NUMERIC
        why = "it is a category" if labels else self.distortions[name].note
        if why:
            raise UsageError(
                f"attribute {name!r} cannot be corrected: {why}",
                "leave it out, or analyse `frame` and state that it was not corrected",
            )


def to_frame(table: pa.Table, attributes: Sequence[Attribute], index: pd.Index) -> pd.DataFrame:
    """Return a table of release types as a DataFrame.

    Integers become int64, numbers doubles and dates datetime64[s]; booleans stay booleans; categories become
    a Categorical with all declared categories, ordered if they are. A number whose domain has too many digits
    for a double stays an exact decimal of Arrow.

    Args:
        table: The table.
        attributes: The attributes to take, in the order of the columns.
        index: The index of the DataFrame.
    """
    columns = {each.name: _column(each, table.column(each.name)) for each in attributes}
    return pd.DataFrame(columns, columns=list(columns), copy=False).set_axis(index)


def _column(attribute: Attribute, column: pa.ChunkedArray) -> pd.Series:
    match attribute.type:
        case AttributeType.NUMBER if pa.types.is_decimal(column.type):
            return pd.Series(pd.array(column.combine_chunks(), dtype=pd.ArrowDtype(column.type)))
        case AttributeType.DATE:
            days = to_units(attribute, column).to_numpy()
            return pd.Series(days.astype("datetime64[D]").astype("datetime64[s]"))
        case AttributeType.CATEGORY:
            labels = pd.CategoricalDtype(list(attribute.categories), ordered=attribute.ordered)
            units = to_units(attribute, column).to_numpy()
            return pd.Series(pd.Categorical.from_codes(units, dtype=labels))
        case _:
            return pd.Series(column.to_numpy())
