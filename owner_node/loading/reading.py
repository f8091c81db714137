"""Read an opened source into columns of integers: batch by batch, so that no text outlives its batch."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.errors import DataError, did_you_mean
from common.model.schema import Attribute
from common.progress import Progress
from common.words.numbers import count_text
from owner_node.config import DatasetConfig
from owner_node.loading import LoadCounts, LoadedData
from owner_node.sources import texts
from owner_node.sources.digest import source_digest
from owner_node.sources.findings import Findings
from owner_node.sources.person_texts import count_numerals, identifier_texts, match_key_texts
from owner_node.sources.source import Reader
from owner_node.sources.values import parse, without_codes
from owner_node.values.normal_forms import normalise


@dataclass(slots=True)
class _Batch:
    """Some records, after missing values were dropped or filled."""

    values: list[Any]
    """One Arrow array per attribute; with nulls only where missing values are kept."""
    identifiers: list[Any]
    """One Arrow string array per identifier column, without nulls."""
    n_records: int
    """Number of kept records."""
    dropped: int
    """Number of records dropped for a missing value."""
    reasons: Mapping[str, Mapping[str, int]]
    """Missing values by column that drops records and by reason: "empty", or "na_values"."""
    others: dict[str, Any]
    """Arrow arrays, as read, of the columns that only serve to recognise the data."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Some records as they were read; not valid if there are findings."""

    columns: tuple[Int64Array, ...]
    """Values of each attribute in resolution units, `(n_records,)` each."""
    identifiers: tuple[Any, ...]
    """One Arrow string array per identifier column, `(n_records,)` each."""
    others: Mapping[str, Int64Array]
    """Values by attribute of the columns that only serve to recognise the data, without missing ones."""
    n_records: int


class Reading:
    """Reads an opened source, some records at a time.

    Args:
        attributes: Attributes to load, in declared order, the category of missing values included.
        others: Attributes that only serve to recognise the data; they are read if they can be.
    """

    def __init__(
        self,
        dataset: DatasetConfig,
        attributes: Sequence[Attribute],
        reader: Reader,
        findings: Findings,
        others: Sequence[Attribute] = (),
    ) -> None:
        self.dataset, self.attributes, self.findings = dataset, tuple(attributes), findings
        self.names, self.ordered, self.opt_out = reader.names, reader.ordered, reader.opt_out
        self._reader = reader
        by_name = {each.name: each for each in attributes}
        # An attribute that follows another one need not be there; where it is, it is checked.
        self._following = [
            (each, by_name[each.base], np.array(each.derived_units(by_name[each.base]), dtype=np.int64))
            for each in dataset.following
            if each.base in by_name and self.names.count(each.name) == 1
        ]
        self._others = {each.name: each for each in others if self.names.count(each.name) == 1}
        self._rounded: dict[str, int] = {}
        self._clamped: dict[str, int] = {}
        self._numerals: dict[str, int] = {}
        self._dropped = 0
        self._reasons: dict[str, Counter[str]] = {}
        self.n_records = 0
        """Number of records so far."""

    @property
    def expected(self) -> int | None:
        """About how many records there are; None if that is not known before they are read."""
        return self._reader.expected()

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the further attributes all of whose values could be read so far."""
        return tuple(self._others)

    @property
    def counts(self) -> LoadCounts:
        """Values that were rounded, clamped and dropped so far."""
        reasons = {name: dict(counts) for name, counts in self._reasons.items()}
        of_persons = self._reader.listed, self._reader.left_out, self._reader.persons
        return LoadCounts(self._rounded, self._clamped, self._dropped, self._numerals, reasons, *of_persons)

    def present(self) -> tuple[list[str], list[str]]:
        """Return the attributes and identifiers that the source has exactly once, and report the others.

        Returns:
            Names of attributes, and names of identifiers.
        """
        asked = [attribute.name for attribute in self.attributes]
        names = [name for name in asked if report_unless_once(name, self.names, self.findings)]
        # A column of match keys may be an attribute, too; then it is reported once.
        others = [name for name in self.dataset.person_columns if name not in asked]
        there = {*names, *(name for name in others if report_unless_once(name, self.names, self.findings))}
        return names, [name for name in self.dataset.person_columns if name in there]

    def count(self, progress: Progress) -> int:
        """Count the records that `batches` would yield, without parsing any value.

        A database counts by itself. It also counts records whose identifiers only become blank by a
        normalisation step; these are detected when they are read.
        """
        dataset, findings = self.dataset, self.findings
        names, ids = self.present()
        tally = None
        if (names or ids) and not dataset.na_values:
            tally = self._reader.tally(names, ids, dataset.dropping, findings)
        if tally is None:
            progress.expect(self.expected or 0)
            n_records = 0
            for batch in self._batches(self.attributes, names, ids):
                n_records += batch.n_records
                progress.advance(batch.n_records)
            return n_records
        for name in filter(dataset.identifier.__contains__, ids):
            self._report_missing_identifiers(name, tally.missing[name])
        for attribute in self.attributes:
            if attribute.name in names and not dataset.fills(attribute):
                self._report_missing_values(attribute, tally.missing[attribute.name])
        self._report_emptiness(tally.n_records, tally.n_kept)
        return tally.n_kept

    def batches(self) -> Iterator[ReadBatch]:
        """Read all records."""
        names, ids = self.present()
        also = self.others
        every = (*self.attributes, *(each for each, _, _ in self._following))
        names += [each.name for each, _, _ in self._following]
        for batch in self._batches(every, names, ids, also):
            self.n_records += batch.n_records
            self._dropped += batch.dropped
            for name, counts in batch.reasons.items():
                self._reasons[name] = self._reasons.get(name, Counter()) + Counter(counts)
            for name, written in zip(self.dataset.person_columns, batch.identifiers, strict=True):
                if n_numerals := count_numerals(written):
                    self._numerals[name] = self._numerals.get(name, 0) + n_numerals
            columns = tuple(map(self._parse, self.attributes, batch.values))
            self._check_following(columns, batch.values[len(columns) :])
            others = {name: self._other(name, batch.others[name]) for name in self.others}
            self._others = {name: self._others[name] for name, units in others.items() if units is not None}
            there = {name: units for name, units in others.items() if units is not None}
            yield ReadBatch(columns, tuple(batch.identifiers), there, batch.n_records)

    def _batches(
        self,
        attributes: Sequence[Attribute],
        names: Sequence[str],
        identifiers: Sequence[str],
        others: Sequence[str] = (),
    ) -> Iterator[_Batch]:
        """Read the existing columns."""
        wanted = list(dict.fromkeys([*names, *identifiers]))
        columns = [*wanted, *(name for name in others if name not in wanted)]
        n_records = n_seen = 0
        for arrays in self._reader.batches(columns, self.findings) if wanted else ():
            came = decodable(dict(zip(columns, arrays, strict=True)), self.findings)
            n_seen += len(came[columns[0]])
            batch = self._clean(attributes, {name: came[name] for name in wanted})
            batch.others.update({name: came[name] for name in others})
            n_records += batch.n_records
            yield batch
        self._report_emptiness(n_seen, n_records)

    def _clean(self, attributes: Sequence[Attribute], columns: dict[str, Any]) -> _Batch:
        """Report, drop or fill missing values; unusable columns become empty."""
        dataset, findings = self.dataset, self.findings
        n_records = len(next(iter(columns.values())))
        for name in [name for name, array in columns.items() if not texts.is_readable(array.type)]:
            kind = columns.pop(name).type
            problem = f"values of type {texts.type_name(kind)} cannot be read"
            findings.add(name, problem, n_records, texts.advice(kind))
        columns = {name: texts.plain(array) for name, array in columns.items()}
        empty = {name: array.null_count for name, array in columns.items()}
        columns = {name: self._without_codes(name, array) for name, array in columns.items()}
        coded = {name: array.null_count - empty[name] for name, array in columns.items()}
        matched = filter(columns.__contains__, dict.fromkeys(dataset.match_sources.values()))
        keys = {
            name: match_key_texts(name, columns[name], findings, dataset.texts_version) for name in matched
        }
        for name, form in zip(dataset.identifier, dataset.normal_forms, strict=True):
            if name in columns:
                columns[name] = identifier_texts(name, columns[name], form, findings, dataset.texts_version)
        needed = {name: array for name, array in columns.items() if name in dataset.dropping}
        reasons = {
            name: {"na_values": coded[name], "empty": array.null_count - coded[name]}
            for name, array in needed.items()
            if array.null_count
        }
        if needed:
            complete = np.ones(n_records, dtype=np.bool_)
            for array in filter(attrgetter("null_count"), needed.values()):
                complete &= array.is_valid().to_numpy(zero_copy_only=False)
            columns = {name: array.filter(pa.array(complete)) for name, array in columns.items()}
            keys = {name: array.filter(pa.array(complete)) for name, array in keys.items()}
            kept = int(np.count_nonzero(complete))
        else:
            kept = n_records
        self._fill(attributes, columns)
        nothing = pa.array([], pa.string())
        return _Batch(
            [columns.get(attribute.name, nothing) for attribute in attributes],
            [(keys or columns).get(name, nothing) for name in dataset.person_columns],
            kept,
            n_records - kept,
            reasons,
            {},
        )

    def _without_codes(self, name: str, array: Any) -> Any:
        codes = self.dataset.na_values.get(name)
        return without_codes(array, codes, self.dataset.csv) if codes else array

    def _fill(self, attributes: Sequence[Attribute], columns: dict[str, Any]) -> None:
        """Replace missing categories by their own category; a missing value that is not kept is a problem."""
        for name in filter(columns.__contains__, self.dataset.identifier):
            self._report_missing_identifiers(name, columns[name].null_count)
            columns[name] = columns[name].drop_null()
        for attribute in attributes:
            array = columns.get(attribute.name)
            if array is None or not array.null_count or attribute.name in self.dataset.optional:
                continue
            if self.dataset.fills(attribute):
                columns[attribute.name] = _fill_missing(attribute, array)
                continue
            self._report_missing_values(attribute, array.null_count)
            columns[attribute.name] = array.drop_null()

    def _report_missing_identifiers(self, name: str, n_missing: int) -> None:
        hint = 'every record needs its identifier; complete them, or set missing = "drop"'
        self.findings.add(name, "missing identifier", n_missing, hint)

    def _report_missing_values(self, attribute: Attribute, n_missing: int) -> None:
        hint = 'complete them, or set missing = "drop"'
        if attribute.categories:
            hint += ' or missing = "category"'
        elif not attribute.is_categorical:
            hint += f', or missing = "category" at {attribute.name!r} itself'
        else:
            hint += (
                ", or declare a category with the texts of the source, such as "
                'categories = ["False", "True"], and missing = "category"'
            )
        self.findings.add(attribute.name, "missing value", n_missing, hint)

    def _report_emptiness(self, n_seen: int, n_records: int) -> None:
        if n_seen and not n_records:
            hint = 'fill the missing values, or set missing to "error" to see in which columns they are'
            self.findings.add(None, "no record without a missing value", n_seen, hint)
        elif not n_seen and not self.findings:
            self.findings.fail("there are no records", "export the data again, or widen the query")

    def _parse(self, attribute: Attribute, array: Any) -> Int64Array:
        parsed = parse(attribute, array, self.dataset.csv, self.findings)
        for counts, changed in ((self._rounded, parsed.rounded), (self._clamped, parsed.clamped)):
            if changed:
                counts[attribute.name] = counts.get(attribute.name, 0) + changed
        return parsed.units

    def _check_following(self, columns: Sequence[Int64Array], arrays: Sequence[Any]) -> None:
        """Find values that are not those that follow from the other attribute."""
        own = dict(zip((each.name for each in self.attributes), columns, strict=True))
        for (following, followed, table), array in zip(self._following, arrays, strict=True):
            values, written = own[followed.name], array
            if following.name in self.dataset.optional and len(array) == values.size:
                values = values[array.is_valid().to_numpy(zero_copy_only=False)]
                written = array.drop_null()
            stated = parse(following, written, self.dataset.csv, self.findings).units
            # With other problems there are other numbers of values; those are found already.
            if self.findings or stated.size != values.size:
                continue
            wrong = int(np.count_nonzero(stated != table[values - followed.lower]))
            if wrong:
                hint = f"correct the source, or the values that follow from {followed.name}"
                self.findings.add(following.name, f"not what follows from {followed.name}", wrong, hint)

    def _other(self, name: str, array: Any) -> Int64Array | None:
        """Parse a column that serves to recognise the data; None if it is not as declared."""
        attribute = self._others[name]
        if not texts.is_readable(array.type):
            return None
        column, problems = self._without_codes(name, texts.plain(array)), Findings()
        column = _fill_missing(attribute, column) if self.dataset.fills(attribute) else column.drop_null()
        parsed = parse(attribute, column, self.dataset.csv, problems)
        return None if problems else parsed.units


class Gathered:
    """Records in memory, as they are read."""

    def __init__(self, reading: Reading) -> None:
        """Start without records."""
        self._reading = reading
        self.columns: list[list[Int64Array]] = [[] for _ in reading.attributes]
        """The batches of each attribute."""
        self.identifiers: list[list[Any]] = [[] for _ in reading.dataset.person_columns]
        """The batches of each identifier column."""
        self.others: dict[str, list[Int64Array]] = {name: [] for name in reading.others}
        """The batches of each further attribute."""
        self.n_bytes = 0
        """Size of all of them."""

    def add(self, batch: ReadBatch) -> None:
        """Add some records."""
        for chunks, values in zip(self.columns, batch.columns, strict=True):
            chunks.append(values)
        for chunks, array in zip(self.identifiers, batch.identifiers, strict=True):
            chunks.append(array)
        for name in self.others.keys() - batch.others.keys():
            del self.others[name]
        for name, values in batch.others.items():
            self.others[name].append(values)
        self.n_bytes += sum(array.nbytes for array in (*batch.columns, *batch.identifiers))
        self.n_bytes += sum(units.nbytes for units in batch.others.values())

    def taken(self) -> Iterator[ReadBatch]:
        """Return the records again, batch by batch, and forget them."""
        n_batches = max(map(len, (*self.columns, *self.identifiers)), default=0)
        for _ in range(n_batches):
            columns = tuple(chunks.pop(0) for chunks in self.columns)
            identifiers = tuple(chunks.pop(0) for chunks in self.identifiers)
            others = {name: self.others[name].pop(0) for name in self._reading.others}
            yield ReadBatch(columns, identifiers, others, max(map(len, (*columns, *identifiers))))

    def loaded(self) -> LoadedData:
        """Return the data; not valid if there are findings."""
        reading, findings = self._reading, self._reading.findings
        identifiers = tuple(pa.concat_arrays(chunks) for chunks in self.identifiers if chunks)
        # There is no column at all where no batch was read.
        whole = len(identifiers) > 0 and all(len(column) == reading.n_records for column in identifiers)
        if reading.dataset.identifier and whole:
            with suppress(DataError):  # reported already, batch by batch
                normal = normalise(identifiers, reading.dataset.normal_forms)
                repeated = count_repeated(normal, reading.dataset.max_records_per_person)
                report_repeated(reading.dataset, *repeated, findings)
        if findings:
            return LoadedData({}, (), reading.n_records, LoadCounts(), "")
        columns = {
            attribute.name: _join_chunks(chunks)
            for attribute, chunks in zip(reading.attributes, self.columns, strict=True)
        }
        digest = source_digest(
            reading.attributes, columns, identifiers, ordered=reading.ordered, opt_out=reading.opt_out
        )
        pa.default_memory_pool().release_unused()
        rest = {name: _join_chunks(self.others[name]) for name in reading.others}
        return LoadedData(columns, identifiers, reading.n_records, reading.counts, digest, rest)


def gather(reading: Reading, progress: Progress | None = None) -> LoadedData:
    """Read all records into memory; not valid if there are findings. `progress` shows how far that is."""
    gathered, progress = Gathered(reading), progress or Progress()
    progress.begin("loading", reading.expected or 0)
    for batch in reading.batches():
        gathered.add(batch)
        progress.advance(batch.n_records)
    return gathered.loaded()


def decodable(came: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Count texts that nobody can have meant, and leave out their records."""
    bad = None
    for name, array in came.items():
        for problem, hint, marked in texts.faults(array):
            findings.add(name, problem, pc.sum(marked).as_py(), hint)
            bad = marked if bad is None else pc.or_(bad, marked)
    if bad is None:
        return dict(came)
    good = pc.invert(bad)
    return {name: texts.filter_values(array, good) for name, array in came.items()}


def report_unless_once(name: str, names: Sequence[str], findings: Findings) -> bool:
    """Return whether a source has a column exactly once, and report it otherwise."""
    times = names.count(name)
    if times == 0:
        hint = "declare columns by their names, letter by letter; for a CSV file, check csv.delimiter"
        close = did_you_mean(name, names)
        findings.add(name, "not in the source", 1, hint, "", lambda: filter(None, [close]))
    elif times > 1:
        findings.add(name, "occurs more than once", times, "give every column its own name", "columns")
    return times == 1


def _fill_missing(attribute: Attribute, array: Any) -> Any:
    """Return values with the missing ones as they are kept: as a label, or as nulls."""
    if attribute.keeps_missing or not array.null_count:
        return array
    return pc.fill_null(texts.as_text(array), attribute.labels[-1])


def _join_chunks(chunks: list[Int64Array]) -> Int64Array:
    """Join the chunks of one attribute and free them, so that only one column at a time exists twice."""
    column = np.concatenate(chunks)
    chunks.clear()
    column.setflags(write=False)
    return column


def count_repeated(identifiers: Sequence[Any], limit: int) -> tuple[int, int, int]:
    """Count persons with more than `limit` records, and their records.

    Args:
        identifiers: One Arrow string array per identifier column, normalised, no nulls; shape (n_records,).

    Returns:
        Number of persons, number of their records, and most records of one of them.
    """
    persons = np.zeros(len(identifiers[0]), dtype=np.int64)
    for column in identifiers:
        codes = column.dictionary_encode().indices.to_numpy().astype(np.int64)
        # Renumbered after every column, so that the product never exceeds n_records squared.
        pairs = persons * (int(codes.max(initial=0)) + 1) + codes
        persons = np.unique(pairs, return_inverse=True)[1]
    sizes = np.bincount(persons)
    above = sizes[sizes > limit]
    return len(above), int(above.sum()), int(above.max(initial=0))


def report_repeated(
    dataset: DatasetConfig, persons: int, records: int, most: int, findings: Findings
) -> None:
    """Report persons who have too many records."""
    hint = (
        f"leave {count_text(dataset.max_records_per_person, 'record')} of each person in the source, or name "
        "one more column in identifier if this does not distinguish persons, or declare "
        f"max_records_per_person = {most}, with which noise and the smallest k grow; in vertical releases it "
        "has to be 1; if the records are events, [dataset.person] makes one record of each person"
    )
    limit = f"more than {count_text(dataset.max_records_per_person, 'record')}"
    problem = f"{count_text(persons, 'person')} {'has' if persons == 1 else 'have'} {limit}"
    findings.add(", ".join(dataset.identifier), problem, records, hint)
