"""Read an opened source into columns of integers: batch by batch, so that no text outlives its batch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.errors import DataError, did_you_mean
from common.model.schema import MISSING_CATEGORY, Attribute, AttributeType
from owner_node.config import DatasetConfig
from owner_node.sources import texts
from owner_node.sources.digest import source_digest
from owner_node.sources.findings import Findings
from owner_node.sources.loaded import LoadCounts, LoadedData, Source
from owner_node.sources.persons import find_repeated
from owner_node.sources.values import parse
from owner_node.values.normal_forms import ISO_DATE, NormalForm, normalise


@dataclass(slots=True)
class _Batch:
    """Some records, after missing values were dropped or filled."""

    values: list[Any]
    """One Arrow array per attribute, without nulls."""
    identifiers: list[Any]
    """One Arrow string array per identifier column, without nulls."""
    n_records: int
    """Number of kept records."""
    dropped: int
    """Number of records dropped for a missing value."""
    others: dict[str, Any]
    """Arrow arrays, as read, of the columns that only serve to recognise the data."""


@dataclass(slots=True)
class _Progress:
    """The data read so far."""

    chunks: list[list[Int64Array]]
    identifiers: list[list[Any]]
    others: dict[str, list[Int64Array]]
    n_records: int = 0
    dropped: int = 0
    rounded: dict[str, int] = field(default_factory=dict)
    clamped: dict[str, int] = field(default_factory=dict)


def read(
    dataset: DatasetConfig,
    attributes: Sequence[Attribute],
    source: Source,
    findings: Findings,
    others: Sequence[Attribute] = (),
) -> LoadedData:
    """Load attributes and identifiers of a data set.

    Args:
        dataset: Its settings.
        attributes: Attributes to load, in declared order, the category of missing values included.
        source: The opened source.
        findings: Collects every problem.
        others: Attributes that only serve to recognise the data; they are read if they can be.

    Returns:
        The data; not valid if there are findings.
    """
    also = {each.name: each for each in others if source.names.count(each.name) == 1}
    progress = _Progress(
        [[] for _ in attributes], [[] for _ in dataset.identifier], {name: [] for name in also}
    )
    names, ids = present(dataset, attributes, source, findings)
    for batch in _batches(dataset, attributes, source, findings, names, ids, tuple(also)):
        progress.n_records += batch.n_records
        progress.dropped += batch.dropped
        _keep(progress, dataset, attributes, batch, findings)
        _keep_others(progress, dataset, also, batch)
    identifiers = tuple(pa.concat_arrays(chunks) for chunks in progress.identifiers if chunks)
    if identifiers and all(len(column) == progress.n_records for column in identifiers):
        find_repeated(dataset, identifiers, findings)
    if findings:
        return LoadedData({}, (), progress.n_records, LoadCounts(), "")
    columns = {
        attribute.name: _joined(chunks) for attribute, chunks in zip(attributes, progress.chunks, strict=True)
    }
    counts = LoadCounts(progress.rounded, progress.clamped, progress.dropped)
    digest = source_digest(attributes, columns, identifiers, ordered=source.ordered)
    pa.default_memory_pool().release_unused()
    rest = {name: _joined(chunks) for name, chunks in progress.others.items()}
    return LoadedData(columns, identifiers, progress.n_records, counts, digest, rest)


def count(dataset: DatasetConfig, attributes: Sequence[Attribute], source: Source, findings: Findings) -> int:
    """Count the records that `read` would load, without parsing any value.

    A database counts by itself. It also counts records whose identifiers only become blank by a normalisation
    step; these are detected when they are read.
    """
    names, identifiers = present(dataset, attributes, source, findings)
    tally = source.tally(names, identifiers, dataset.dropping, findings) if names or identifiers else None
    if tally is None:
        batches = _batches(dataset, attributes, source, findings, names, identifiers)
        return sum(batch.n_records for batch in batches)
    for name in identifiers:
        _find_missing_identifiers(name, tally.missing[name], findings)
    for attribute in attributes:
        if attribute.name in names and not dataset.fills(attribute):
            _find_missing_values(attribute, tally.missing[attribute.name], findings)
    _find_emptiness(tally.n_records, tally.n_kept, findings)
    return tally.n_kept


def _batches(
    dataset: DatasetConfig,
    attributes: Sequence[Attribute],
    source: Source,
    findings: Findings,
    names: Sequence[str],
    identifiers: Sequence[str],
    others: Sequence[str] = (),
) -> Iterator[_Batch]:
    """Read the existing columns."""
    wanted = [*names, *identifiers]
    columns = [*wanted, *(name for name in others if name not in wanted)]
    n_records = n_seen = 0
    for arrays in source.batches(columns, findings) if wanted else ():
        n_seen += len(arrays[0])
        came = dict(zip(columns, arrays, strict=True))
        batch = _cleaned(dataset, attributes, {name: came[name] for name in wanted}, findings)
        batch.others.update({name: came[name] for name in others})
        n_records += batch.n_records
        yield batch
    _find_emptiness(n_seen, n_records, findings)


def present(
    dataset: DatasetConfig, attributes: Sequence[Attribute], source: Source, findings: Findings
) -> tuple[list[str], list[str]]:
    """Return the attributes and identifiers that the source has exactly once, and report the others.

    Args:
        dataset: The settings of the data set.
        attributes: The requested attributes.
        source: The opened source.
        findings: Collects every column that is absent, or occurs more than once.

    Returns:
        Names of attributes, and names of identifiers.
    """
    names = [each.name for each in attributes if _occurs_once(each.name, source, findings)]
    return names, [name for name in dataset.identifier if _occurs_once(name, source, findings)]


def _find_emptiness(n_seen: int, n_records: int, findings: Findings) -> None:
    if n_seen and not n_records:
        hint = 'fill the missing values, or set missing to "error" to see in which columns they are'
        findings.add(None, "no record without a missing value", n_seen, hint)
    elif not n_seen and not findings:
        findings.add(None, "there are no records", 1, "export the data again, or widen the query", counted="")


def _occurs_once(name: str, source: Source, findings: Findings) -> bool:
    times = source.names.count(name)
    if times == 0:
        hint = "declare columns by their names, letter by letter; for a CSV file, check csv.delimiter"
        close = did_you_mean(name, source.names)
        findings.add(name, "not in the source", 1, hint, "", lambda: filter(None, [close]))
    elif times > 1:
        findings.add(name, "occurs more than once", times, "give every column its own name", "columns")
    return times == 1


def _cleaned(
    dataset: DatasetConfig, attributes: Sequence[Attribute], found: dict[str, Any], findings: Findings
) -> _Batch:
    """Report, drop or fill missing values; unusable columns become empty."""
    n_records = len(next(iter(found.values())))
    for name in [name for name, array in found.items() if not texts.is_readable(array.type)]:
        hint = "store numbers, texts, dates, booleans or dictionaries of them, one kind in a column"
        findings.add(name, "values of a type that cannot be read", n_records, hint)
        del found[name]
    found = {name: texts.plain(array) for name, array in found.items()}
    for name, form in zip(dataset.identifier, dataset.normal_forms, strict=True):
        if name in found:
            found[name] = identified(name, texts.as_text(found[name]), form, findings)
    needed = [array for name, array in found.items() if name in dataset.dropping]
    if needed:
        complete = _complete(needed, n_records)
        found = {name: array.filter(pa.array(complete)) for name, array in found.items()}
        kept = int(np.count_nonzero(complete))
    else:
        kept = n_records
    _fill(dataset, attributes, found, findings)
    nothing = pa.array([], pa.string())
    return _Batch(
        [found.get(attribute.name, nothing) for attribute in attributes],
        [found.get(name, nothing) for name in dataset.identifier],
        kept,
        n_records - kept,
        {},
    )


def identified(name: str, written: Any, form: NormalForm, findings: Findings) -> Any:
    """Return identifiers as written; null if their normal form is blank and thus identifies nobody."""
    try:
        (normal,) = normalise([written], [form])
    except DataError as error:
        kind = "an ISO date" if form.date_format == ISO_DATE else f"a date written {form.date_format}"
        findings.add(name, f"not {kind}, which normalise asks for", error.details["count"], error.hint)
        normal = written
    present = pc.not_equal(pc.utf8_trim_whitespace(normal), "")
    return pc.if_else(pc.fill_null(present, False), written, pa.scalar(None, pa.string()))


def _complete(needed: Sequence[Any], n_records: int) -> Any:
    complete = np.ones(n_records, dtype=np.bool_)
    for array in needed:
        if array.null_count:
            complete &= array.is_valid().to_numpy(zero_copy_only=False)
    return complete


def _fill(
    dataset: DatasetConfig, attributes: Sequence[Attribute], found: dict[str, Any], findings: Findings
) -> None:
    """Replace missing categories by their own category; every other missing value is a problem."""
    for name in filter(found.__contains__, dataset.identifier):
        _find_missing_identifiers(name, found[name].null_count, findings)
        found[name] = found[name].drop_null()
    for attribute in attributes:
        array = found.get(attribute.name)
        if array is None or not array.null_count:
            continue
        if dataset.fills(attribute):
            found[attribute.name] = pc.fill_null(texts.as_text(array), MISSING_CATEGORY)
            continue
        _find_missing_values(attribute, array.null_count, findings)
        found[attribute.name] = array.drop_null()


def _find_missing_identifiers(name: str, n_missing: int, findings: Findings) -> None:
    hint = 'every record needs its identifier; complete them, or set missing = "drop"'
    findings.add(name, "missing identifier", n_missing, hint)


def _find_missing_values(attribute: Attribute, n_missing: int, findings: Findings) -> None:
    hint = 'complete them, or set missing = "drop"'
    if attribute.type is AttributeType.CATEGORY:
        hint += ' or missing = "category"'
    findings.add(attribute.name, "missing value", n_missing, hint)


def _keep(
    progress: _Progress,
    dataset: DatasetConfig,
    attributes: Sequence[Attribute],
    batch: _Batch,
    findings: Findings,
) -> None:
    for attribute, array, chunks in zip(attributes, batch.values, progress.chunks, strict=True):
        parsed = parse(attribute, array, dataset.csv, findings)
        chunks.append(parsed.units)
        for counts, changed in ((progress.rounded, parsed.rounded), (progress.clamped, parsed.clamped)):
            if changed:
                counts[attribute.name] = counts.get(attribute.name, 0) + changed
    for array, chunks in zip(batch.identifiers, progress.identifiers, strict=True):
        chunks.append(array)


def _keep_others(
    progress: _Progress, dataset: DatasetConfig, also: Mapping[str, Attribute], batch: _Batch
) -> None:
    """Parse columns that serve to recognise the data; one that is not as declared is dropped."""
    for name, array in batch.others.items():
        if name not in progress.others:
            continue
        if not texts.is_readable(array.type):
            del progress.others[name]
            continue
        column, problems = texts.plain(array), Findings()
        if column.null_count and dataset.fills(also[name]):
            column = pc.fill_null(texts.as_text(column), MISSING_CATEGORY)
        parsed = parse(also[name], column.drop_null(), dataset.csv, problems)
        if problems:
            del progress.others[name]
        else:
            progress.others[name].append(parsed.units)


def _joined(chunks: list[Int64Array]) -> Int64Array:
    """Join the chunks of one attribute and free them, so that only one column at a time exists twice."""
    column = np.concatenate(chunks)
    chunks.clear()
    column.setflags(write=False)
    return column
