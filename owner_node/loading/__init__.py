"""Load a data set once: from any source to integer columns, identifiers and a digest.

Only `owner_node.sources` and this package read original data. Heavy libraries are imported when something is
loaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from common.errors import ConfigurationError, UsageError
from common.model.schema import (
    MATCH_VERSION,
    MISSING_CATEGORY,
    TEXTS_VERSION,
    Attribute,
    IdentifierRules,
    Limits,
    Schema,
    derivable,
    excesses,
    round_to_leading_digit,
)
from common.model.structural_zeros import rules_of
from common.progress import Progress
from owner_node.config import DatasetConfig
from owner_node.sources.findings import Findings

if TYPE_CHECKING:
    from common.arrays import Int64Array
    from owner_node.loading.reading import Reading
    from owner_node.sources.source import Reader


@dataclass(frozen=True, slots=True)
class PersonCounts:
    """Counts of the events that a person table was made of."""

    events: int
    persons: int
    most: int
    """Most events of one person."""
    without: int
    """Events without an identifier, which were left out."""
    means: Mapping[str, tuple[float, float]]
    """Means before and after clamping, by attribute; attributes without a clamped value are absent."""
    unordered: int = 0
    """Events without a value of `order`, which are in no table of events."""
    incomplete: int = 0
    """Events with a missing value in a column of the table of events, which are not in it."""
    shortened: int = 0
    """Persons with more events than the table of events has of one."""
    beyond: int = 0
    """Events of these persons that were left out at random."""


EVENTS_LEFT_OUT = ("without", "unordered", "incomplete", "beyond")
"""Counts of events that are in no table, by their names."""


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """Counts of values and records that loading changed or dropped, but not which ones."""

    rounded: Mapping[str, int] = field(default_factory=dict)
    """Values rounded to the declared grid, by attribute; attributes without any are absent."""
    clamped: Mapping[str, int] = field(default_factory=dict)
    """Values moved to the nearest end of the domain, by attribute; attributes without any are absent."""
    dropped: int = 0
    """Records left out for a missing value."""
    numerals: Mapping[str, int] = field(default_factory=dict)
    """Texts such as 17.0 and 1.5E+10 in columns that persons are recognised by; columns without any are
    absent."""
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Missing values that dropped records, by column and by reason: "empty", or "na_values" for those that
    the attribute declares. A record with several is counted in each column; others are absent."""
    listed: int | None = None
    """Persons in the list of those who opted out; None without a list."""
    opted_out: int = 0
    """Persons who opted out and were left out."""
    persons: PersonCounts | None = None
    """Counts of the events of a person table; None for other data."""

    @property
    def left_out(self) -> dict[str, Any]:
        """Counts of records that were left out, by column and reason, as a document that only the owner sees.

        `advice.left_out_lines` words it. Empty if nothing was, and nobody is listed as opted out.
        """
        document: dict[str, Any] = {}
        if self.persons is not None:
            left_out = {name: getattr(self.persons, name) for name in EVENTS_LEFT_OUT}
            document |= {f"events_{name}": number for name, number in left_out.items() if number}
        if self.listed is not None:
            document |= {"opted_out": self.opted_out, "opt_out_listed": self.listed}
        if self.dropped:
            document |= {"dropped": self.dropped, "dropped_by": {**self.reasons}}
        return document


@dataclass(frozen=True, slots=True)
class LoadedData:
    """A loaded data set: the only form in which original data live in this program."""

    columns: Mapping[str, "Int64Array"]
    """Values by attribute, in declared order; shape (n_records,), in units of `common.model.schema`."""
    identifiers: tuple[Any, ...]
    """One Arrow string array per column of `DatasetConfig.person_columns`, as in the source; shape
    (n_records,). Missing values are errors in an identifier, and empty in a column of match keys."""
    n_records: int
    counts: LoadCounts
    """Values that loading rounded, clamped and dropped."""
    digest: str
    """SHA-256 over attributes and identifiers, the same for any encoding of the same data; in record order,
    or independent of it if the source has none. It must not be stored: values could be guessed and tested
    against it."""

    others: Mapping[str, "Int64Array"] = field(default_factory=dict)
    """Declared attributes that were not requested (or all, if records may be dropped), if all of their values
    can be read; without missing values, in resolution units; shape (n_present,) each. Only to recognise the
    data, never to be masked."""

    def __repr__(self) -> str:
        """Show counts only, so that no log or debugger line can show a value."""
        return f"LoadedData(attributes={len(self.columns)}, n_records={self.n_records})"


def load(
    dataset: DatasetConfig,
    attributes: Sequence[str] | None = None,
    *,
    others: bool = False,
    examples: bool = False,
    progress: Progress | None = None,
) -> LoadedData:
    """Load a data set.

    Args:
        attributes: Names of the attributes to load; None for all declared ones.
        others: Whether the other declared attributes are read as well, to recognise the data. Problems of
            their values are no errors. Columns that are not declared are never read.
        examples: Whether an error names wrong labels, columns and files, as in `Findings`.

    Returns:
        Columns in declared order, whatever the order of `attributes`.

    Raises:
        DataError: With all problems of the source, by column and count, never a value.
        UsageError: If an attribute is not declared.
        SourceUnreachableError: If a database, or Spark, cannot be used now.
        ConfigurationError: If a database does not let the owner node in, or Spark cannot be started.
    """
    from owner_node.loading.reading import gather

    with open_reading(dataset, attributes, others=others, examples=examples, progress=progress) as reading:
        return gather(reading, progress)


@contextmanager
def open_reading(
    dataset: DatasetConfig,
    attributes: Sequence[str] | None = None,
    *,
    others: bool = False,
    examples: bool = False,
    progress: Progress | None = None,
) -> Iterator["Reading"]:
    """Open a source to be read some records at a time; arguments and errors are those of `load`.

    Yields:
        The reading. Problems that it found are raised at the end of the block.
    """
    chosen, findings = _chosen(dataset, attributes), Findings(examples=examples)
    read_from = dataset.origin.shown
    from owner_node.loading.reading import Reading

    reader: Reader | None
    if dataset.simulated is not None:
        from owner_node.loading.simulated import SimulatedReader

        reader = SimulatedReader(dataset)
    else:
        reader = dataset.origin.open(findings, progress or Progress())
    if reader is None:
        raise findings.error(dataset.name, read_from)
    with closing(reader):
        if dataset.simulated is None:
            reader, dataset = _of_persons(dataset, reader, findings)
        yield Reading(dataset, chosen, reader, findings, _known_by(dataset, chosen) if others else ())
    findings.check(dataset.name, read_from)


def _of_persons(
    dataset: DatasetConfig, reader: "Reader", findings: Findings
) -> tuple["Reader", DatasetConfig]:
    """Return a source without persons who opted out, as a person table where rules are declared."""
    from owner_node.loading.reading import report_unless_once

    if dataset.person is None and dataset.opt_out is None:
        return reader, dataset
    named = dataset.person.read_columns if dataset.person is not None else dataset.told_apart_by
    once = [report_unless_once(name, reader.names, findings) for name in named]
    if not all(once):
        raise findings.error(dataset.name, dataset.origin.shown)
    if dataset.opt_out is not None:
        from owner_node.loading.opt_out import OptOutReader

        reader = OptOutReader(dataset, reader)
    if dataset.person is not None:
        from owner_node.loading.persons import PersonReader

        # Codes of missing values are those of events: a sum of 999 is a value.
        reader, dataset = PersonReader(dataset, reader), replace(dataset, na_values={})
    return reader, dataset


def count_records(
    dataset: DatasetConfig, attributes: Sequence[str] | None = None, progress: Progress | None = None
) -> int:
    """Count the records that `load` would load, without those that `missing = "drop"` drops.

    Values are not parsed, so values of a wrong type are not detected. Raises as `load` does.
    """
    progress = progress or Progress()
    progress.begin("counting records")
    with open_reading(dataset, attributes, progress=progress) as reading:
        return reading.count(progress)


def probe(dataset: DatasetConfig, *, examples: bool = False) -> None:
    """Check that a source has the declared columns, without reading a record; raise as `load` does."""
    with open_reading(dataset, examples=examples) as reading:
        reading.present()


def column_names(dataset: DatasetConfig) -> tuple[str, ...]:
    """Return the names of all columns of a source, without reading a record; raise as `load` does."""
    with open_reading(dataset, examples=True) as reading:
        return tuple(reading.names)


class UnsendableSchemaError(ConfigurationError):
    """No message holds this schema; this may be reported to others, so that they know the reason."""


def check_sendable(dataset: str, schema: Schema) -> None:
    """Check that an aggregator accepts the schema of a data set.

    Raises:
        UnsendableSchemaError: With everything that keeps it from being sent.
    """
    faults = list(excesses(schema))
    if faults:
        raise UnsendableSchemaError(
            f"data set {dataset!r} cannot take part in releases",
            [fault for fault, _ in faults],
            "; ".join(dict.fromkeys(hint for _, hint in faults)),
        )


def schema_of(
    dataset: DatasetConfig, allowed: Sequence[str] | None, n_records: int, limits: Limits | None = None
) -> Schema:
    """Return the schema that an owner sends when it is invited.

    Args:
        allowed: Attributes that the owner's policy allows; None or empty for all.
        n_records: Exact number of records; the schema holds it rounded.
        limits: What the owner's policy states; None for the widest.
    """
    declared = _with_missing_values(dataset)
    sent = [each.name for each in declared if not allowed or each.name in allowed]
    return Schema(
        tuple(attribute for attribute in declared if attribute.name in sent),
        _identifier_rules(dataset),
        dataset.max_records_per_person,
        round_to_leading_digit(n_records),
        limits or Limits(),
        dataset.rank_noise,
        rules_of(dataset.structural_zeros, allowed or [attribute.name for attribute in declared]),
        derivable(dataset.following, sent, allowed),
    )


def _identifier_rules(dataset: DatasetConfig) -> IdentifierRules | None:
    if dataset.match:
        return IdentifierRules(0, version=MATCH_VERSION, passes=dataset.passes, texts=TEXTS_VERSION)
    if not dataset.identifier:
        return None
    also = tuple(dataset.normalise_also.get(name, ()) for name in dataset.identifier)
    return IdentifierRules(
        len(dataset.identifier),
        tuple(dataset.normalise),
        also=also if any(also) else (),
        texts=TEXTS_VERSION,
    )


def _chosen(dataset: DatasetConfig, names: Sequence[str] | None) -> tuple[Attribute, ...]:
    declared = _with_missing_values(dataset)
    if names is None:
        return declared
    derived = {each.name for each in dataset.following if each.base in names}
    unknown = sorted(set(names) - {attribute.name for attribute in declared} - derived)
    if unknown:
        known = ", ".join(attribute.name for attribute in declared)
        raise UsageError(
            f"data set {dataset.name!r} has no attribute {', '.join(map(repr, unknown))}",
            f"declared attributes: {known}",
        )
    return tuple(attribute for attribute in declared if attribute.name in names)


def others_of(dataset: DatasetConfig, chosen: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """Return the declared attributes that were not chosen."""
    names = {attribute.name for attribute in chosen}
    return tuple(attribute for attribute in _with_missing_values(dataset) if attribute.name not in names)


def _known_by(dataset: DatasetConfig, chosen: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """Return the attributes that are read beside the chosen ones, to recognise the data.

    The chosen attributes determine which records are dropped. If records can be dropped, the data are
    recognised by all values of all columns, so that another choice of attributes does not hide a copy.
    """
    return _with_missing_values(dataset) if dataset.dropping else others_of(dataset, chosen)


def _with_missing_values(dataset: DatasetConfig) -> tuple[Attribute, ...]:
    """Return the declared attributes, with the value for missing ones even if none is."""
    return tuple(
        replace(attribute, categories=(*attribute.categories, MISSING_CATEGORY), upper=attribute.upper + 1)
        if attribute.categories and attribute.slot <= 0 and dataset.fills(attribute)
        else attribute
        for attribute in dataset.attributes
    )
