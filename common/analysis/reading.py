"""A published release for analysis: verified, as a pandas or Arrow table, with a codebook and corrections.

    import tessera

    release = tessera.read_release("releases/first", ca="ca.pem")
    release.frame, release.codebook

Correlations and slopes of the released values are weaker than those of the original ones
(`common.analysis.attenuation`). `release.estimates` corrects them as far as public numbers allow.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from common.analysis.answers import names_of
from common.analysis.estimates import Estimates
from common.analysis.masked import MaskedEstimates
from common.analysis.noisy_counts import NoisyCounts
from common.analysis.replicates import COMBINING, N_REPLICATES, analysed, check_number
from common.analysis.synthetic import SyntheticEstimates
from common.arrays import Int64Array
from common.errors import UsageError
from common.model.events import EVENT_COLUMN
from common.model.plan import is_trial
from common.model.schema import Attribute
from common.model.together import parts_of, to_codes
from common.planning.synthetic import design_of
from common.release.companion_files import companion_files
from common.release.counts import measured_in
from common.release.data_files import DATA_FILES, read_data
from common.release.events import event_files, events_table, fold, read_events
from common.release.table import RECORD_COLUMN, describe_domain, describe_masking, release_table
from common.release.values import from_units, to_series, to_units
from common.release.verification import Verified, verify_release
from common.words.guarantee import words_of

if TYPE_CHECKING:
    import pandas as pd

_BEFORE = ("means", "shares", "quantiles", "correlations", "regress", "logistic")
"""Names of estimates of masked releases before `Release.estimates`; they stay for one version."""


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
    table = _table(place, verified)
    return Release(verified, table, _counts(place, verified), _events(place, verified, table))


def _counts(folder: Path, verified: Verified) -> NoisyCounts | None:
    """Return what synthetic records were made of, which was verified; None for masked ones."""
    counts = companion_files(verified.plan).counts(folder, verified.plan)
    if counts is None:
        return None
    design = design_of(verified.plan, verified.n_records)
    derived = tuple(each for each in verified.plan.released if each.base)
    return NoisyCounts(measured_in(design, counts), derived)


def _table(folder: Path, verified: Verified) -> pa.Table:
    """Return the values of a release under the plan's own types and descriptions, not those of the file."""
    plan, n_records = verified.plan, verified.n_records
    (name, *_) = (file_name for file_name in DATA_FILES if file_name in verified.files)
    table = read_data(folder / name, plan, n_records)
    units = {each.name: to_units(each, table.column(each.name)).to_numpy() for each in plan.columns}
    return release_table(plan, units, n_records)


def _events(folder: Path, verified: Verified, table: pa.Table) -> dict[str, Int64Array]:
    """Return the columns of the table of events in units, which was verified; nothing without one."""
    events = verified.plan.events
    if events is None:
        return {}
    (name, *_) = (each for each in event_files(events, DATA_FILES) if each in verified.files)
    number = table.column(events.attributes[events.number].name).to_numpy()
    return read_events(folder / name, events, number)


class Release:
    """A verified release."""

    def __init__(
        self,
        verified: Verified,
        table: pa.Table,
        counts: NoisyCounts | None = None,
        events: Mapping[str, Int64Array] = MappingProxyType({}),
    ) -> None:
        self.verified = verified
        """The checked parts: plan, linking, owners, signatures."""
        self.table = table
        """The data as an Arrow table: `record`, the owner where it was released, then the attributes."""
        self.counts = counts
        """The noisy counts that synthetic records were made of, and estimates from them; None for masked
        records."""
        self._event_units = events

    @property
    def id(self) -> str:
        """Release id."""
        return self.verified.plan.release

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Sentences that state what is promised."""
        return self.verified.guarantee

    @property
    def invariants(self) -> tuple[str, ...]:
        """Sentences that state what is not hidden."""
        return self.verified.invariants

    @property
    def caveats(self) -> tuple[str, ...]:
        """That it is a trial, what was not checked, then what records keep, weaken and lose."""
        return (*self.verified.caveats, words_of(self.verified.plan).keeps(self.verified.plan))

    def __repr__(self) -> str:
        plan = self.verified.plan
        checked = "identities checked" if self.verified.identities_checked else "identities not checked"
        kind = "trial of simulated records" if is_trial(plan.release) else "release"
        return (
            f"<{kind} {plan.release}: {self.table.num_rows:,} records, {len(plan.released)} attributes, "
            f"{len(plan.owners)} owners, ε = {plan.epsilon:f}; verified, {checked}>\n"
            f"{words_of(plan).keeps(plan)}"
        )

    @cached_property
    def estimates(self) -> Estimates:
        """Estimates of the original records with intervals: `means`, `shares`, `quantiles` and so on."""
        if self.counts is None:
            return self._masked
        attributes = self.counts.measured.design.attributes
        events, units = self.verified.plan.events, dict[str, Int64Array]()
        if events is not None:
            units = fold(events, self._event_units, self.table.num_rows)
        units |= {
            each.name: to_units(each, self.table.column(each.name)).to_numpy()
            for attribute in attributes
            for each in parts_of(attribute)
            if each.name not in units
        }
        return SyntheticEstimates(self.counts, to_codes(attributes, units))

    @cached_property
    def _masked(self) -> MaskedEstimates:
        return MaskedEstimates(self.verified.plan, self.verified.addendum.records, self.table)

    def supports(self, formula: str) -> str:
        """Return why a model such as "ill ~ age + ward" has no true intervals here; empty if it has them."""
        return self.estimates.supports(formula)

    def analyse(
        self,
        function: Callable[["pd.DataFrame"], Mapping[str, float]],
        attributes: str | Sequence[str],
        n_replicates: int = N_REPLICATES,
        *,
        confidence: float = 0.95,
        progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> "pd.DataFrame":
        """Run any analysis, with intervals that contain the noise; see `common.analysis.replicates`.

        Args:
            function: Returns numbers by name, of a frame with these attributes.
            attributes: Those that the analysis is of. Few have relations that can be estimated together.
            n_replicates: How many tables with noise once more it is run on.
            confidence: Of the intervals.
            progress: Called with the number of tables that are done, and of all.

        Returns:
            A line per number (`common.analysis.answers`).

        Raises:
            UsageError: If an attribute cannot be used, there are too few replicates, or names differ between
                tables.
        """
        check_number(n_replicates)
        chosen = self._chosen(attributes)
        tables = self._tables(chosen, n_replicates)
        return analysed(function, self.frame[chosen], tables, n_replicates, confidence, progress)

    def replicates(
        self, folder: str | Path, attributes: str | Sequence[str], n_replicates: int = N_REPLICATES
    ) -> list[Path]:
        """Write tables for other software: `released.csv`, `estimated.csv`, `noisy-1.csv` and so on.

        They have the attributes of the analysis (see `analyse`). How estimate and standard error are combined
        is said in `README.txt` there.

        Raises:
            UsageError: If an attribute cannot be used, there are too few replicates, or the folder has files.
        """
        check_number(n_replicates)
        place, chosen = Path(folder), self._chosen(attributes)
        if place.is_file() or (place.is_dir() and any(place.iterdir())):
            raise UsageError(f"{place} is not an empty folder", "name a new one")
        tables = self._tables(chosen, n_replicates)
        first = next(tables)
        place.mkdir(parents=True, exist_ok=True)
        (place / "README.txt").write_text(COMBINING, encoding="utf-8")
        written = [place / "released.csv", place / "estimated.csv"]
        written += [place / f"noisy-{number}.csv" for number in range(1, n_replicates + 1)]
        for path, table in zip(written, chain([self.frame[chosen], first], tables), strict=True):
            table.to_csv(path, mode="x")
        return written

    def _chosen(self, attributes: str | Sequence[str]) -> list[str]:
        chosen = names_of(attributes)
        if not chosen:
            raise UsageError("no attribute is named", 'name those of the analysis: ["age", "sex"]')
        for name in chosen:
            self.estimates.attribute(name)
        return chosen

    def _tables(self, names: Sequence[str], n_replicates: int) -> Iterator["pd.DataFrame"]:
        attributes = [self.estimates.attribute(name) for name in names]
        for made in islice(self.estimates.tables(names), n_replicates + 1):
            table = pa.table([from_units(each, made[each.name]) for each in attributes], names=list(names))
            yield to_frame(table, attributes, self.frame.index[: table.num_rows])

    def __getattr__(self, name: str) -> Callable[..., "pd.DataFrame"]:
        if name not in _BEFORE or self.__dict__.get("counts") is not None:
            raise AttributeError(f"a release has no {name!r}")
        warnings.warn(f"release.{name} is release.estimates.{name} now", DeprecationWarning, stacklevel=2)

        def found(*asked: Any, **options: Any) -> "pd.DataFrame":
            table: pd.DataFrame = getattr(self.estimates, name)(*asked, **options)
            return table.rename(columns={"estimate": "corrected"}).drop(columns="note", errors="ignore")

        return found

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The data as a DataFrame, indexed by `record`; see `to_frame` for its types, `attrs` for caveats."""
        import pandas as pd

        index = pd.Index(self.table.column(RECORD_COLUMN).to_numpy(), name=RECORD_COLUMN)
        frame = to_frame(self.table, self.verified.plan.columns, index)
        frame.attrs["caveats"] = list(self.caveats)
        return frame

    @cached_property
    def events(self) -> "pd.DataFrame":
        """The events of persons, indexed by `record` of the person and number of the `event`.

        Raises:
            UsageError: If the release has no table of events.
        """
        import pandas as pd

        events, units = self.verified.plan.events, self._event_units
        if events is None:
            raise UsageError(
                "the release has no table of events", "its attributes are those of persons: frame"
            )
        keys = [units[name] for name in (RECORD_COLUMN, EVENT_COLUMN)]
        index = pd.MultiIndex.from_arrays(keys, names=[RECORD_COLUMN, EVENT_COLUMN])
        return to_frame(events_table(events, units), events.columns, index)

    @cached_property
    def codebook(self) -> "pd.DataFrame":
        """All that is known about each attribute, one line each.

        `type`, `domain`, `resolution`; `mechanism`, `epsilon`, `k`, `rank_noise`, as "least to most" where
        owners differ; and what masking did to it, as far as public numbers tell.

        `value_noise` is a cautious standard deviation of the noise of a released value, in the units of the
        attribute (dates: days), for counted categories of the number of records with a label.
        `assignment_noise` is how far records were moved along the list of values, root mean square, in
        the same units; for categories and booleans the share of records with another label. `attenuation`,
        `scale_error` and `note`: see `common.analysis.attenuation`.

        Of synthetic records it has the first three: nothing was masked. With a table of events `table` says
        in which of both the attribute is.
        """
        import pandas as pd

        released, events = self.verified.plan.released, self.verified.plan.events
        lines = [self._line(each) for each in released]
        of_events = () if events is None else events.columns
        if of_events:
            lines = [{"table": "persons", **line} for line in lines]
            lines += [{"table": "events", **self._line(each)} for each in of_events]
        names = [each.name for each in (*released, *of_events)]
        return pd.DataFrame(lines, index=pd.Index(names, name="attribute"))

    def _line(self, attribute: Attribute) -> dict[str, Any]:
        if self.counts is not None:
            return {"resolution": "", **describe_domain(attribute)}
        if attribute.base:
            empty = dict.fromkeys(("mechanism", "epsilon", "k", "rank_noise"), "")
            note = f"it follows {attribute.base}: correct that attribute"
            return {"resolution": "", **describe_domain(attribute), **empty, "note": note}
        estimates = self._masked
        distortion = estimates.distortions[attribute.name]
        masked = [way.planned for way in estimates.ways(attribute)]
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


def to_frame(table: pa.Table, attributes: Sequence[Attribute], index: "pd.Index") -> "pd.DataFrame":
    """Return a table of release types as a DataFrame.

    Integers become int64, numbers doubles and dates datetime64[s]; booleans stay booleans; categories become
    a Categorical with all declared categories, ordered if they are. A number whose domain has too many digits
    for a double stays an exact decimal of Arrow. Missing values become NaN, NaT or NA; such integers Int64.
    """
    import pandas as pd

    columns = {attribute.name: to_series(attribute, table.column(attribute.name)) for attribute in attributes}
    return pd.DataFrame(columns, columns=list(columns), copy=False).set_axis(index)
