"""Guesses types of a file's columns, for a person to correct. No domain is taken from the data.

The guesses (types, decimals, formats of dates and numbers) disclose nothing about a person. The ends of
numbers and the labels of categories would; they appear rounded, in comments that no program reads. So do
values that a fifth of the records has.
"""

import codecs
import csv
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import BoolArray, Int64Array
from common.model.schema import MISSING_CATEGORY, MOST_DECIMALS, RESERVED_NAMES, fault_of_cell
from common.progress import Progress
from owner_node.sources.csv_files import CsvText, csv_rows, csv_text, marked_encoding
from owner_node.sources.dependencies import MOST_VALUES, Dependencies
from owner_node.sources.file_source import FileSource
from owner_node.sources.files import StoredFile
from owner_node.sources.findings import Findings
from owner_node.sources.objects import ObjectSource, StoredObject
from owner_node.sources.options import CsvOptions, DecimalMark, SourceOptions, Thousands
from owner_node.sources.source import Reader, Source
from owner_node.sources.texts import advice, as_text, faults, is_readable, type_name
from owner_node.values.dates import days
from owner_node.values.numerals import bools, ints, scale_numerals, ungroup

MOST_LABELS = MOST_VALUES
"""A column with more different texts is not a category."""
LARGE_SHARE = 5
"""A value that one in so many records has may be a spike, in a column of more than `MOST_LABELS` values."""
_SKEWED, _FAR = 8, 10
"""Values are clearly right-skewed if q99 - q50 is so many times q50 - q01, and the largest so many times the
median. Exponential values have 5.7, lognormal ones 8.1 from σ = 0.9 on. Measured with lognormal values and
noise of 10 and 40 records a count: from there on, parts of equal ratio are as near or nearer."""
_PER_OCTAVE = 8
"""Quantiles of positive numbers are known to a factor of 2^(1/8)."""
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLED_LINES = 50
_SAMPLED_BYTES = 2**12
_MEASURED_DIGITS = 12
"""A number with more significant digits is the result of binary arithmetic, such as 9.533333333333333."""
_RANGE_DIGITS = 6
"""Digits that divide a range finely enough where no number shows its own decimals."""
_NUMERAL = r"^[+-]?0*(?P<whole>[0-9]*?)(?:\.(?P<places>[0-9]*?)0*)?(?:[eE](?P<exponent>[+-]?[0-9]+))?$"
_MISSING = ("", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "?", "-", ".")
_DAYS = (
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%d%b%Y",
    "%d-%b-%Y",
    "%Y%m%d",
)
_TIMES = ("", " %H:%M:%S", "T%H:%M:%S", "T%H:%M:%SZ", ":%H:%M:%S", " %H:%M:%S.%f", " %H:%M")
_DIRECTIVES = {
    "%Y": "[0-9]{4}", "%m": " ?[0-9]{1,2}", "%d": " ?[0-9]{1,2}", "%b": "[^0-9 ]+", "%H": "[0-9]{1,2}",
    "%M": "[0-9]{2}", "%S": "[0-9]{2}", "%f": "[0-9]+", ".": "[.]",
}  # fmt: skip
_PACKED = "%Y%m%d"
_DATES: Mapping[str, str] = {
    day + time: re.sub(r"%.|\.", lambda part: _DIRECTIVES[part[0]], f"^{day}{time}$")
    for time in _TIMES
    for day in _DAYS
    if day != _PACKED or not time
} | {_PACKED: "^(?:19|20)[0-9]{6}$"}
"""Formats of dates, those without a time of day first, with what their texts look like."""
_WORDS = ("true", "false", "t", "f", "yes", "no", "y", "n")
_TRUE = ("true", "t", "yes", "y", "1")
_PATTERNS: Mapping[str, str] = {
    "integer": r"^[+-]?(?:0|[1-9][0-9]*)$",
    "dated": "^[0-9].{7}",
    "moment": "[0-9][ T:][0-9]{1,2}:[0-9]{2}(?:$|[^0-9])",
    **_DATES,
}
"""Patterns of texts: whole numbers, what may be a date, days with a time of day, and dates."""
_KINDS = frozenset(("boolean", *_PATTERNS))
_NUMBER = {
    # Digits after a leading zero are a code, such as a postal code, not a number.
    ".": r"^[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$",
    ",": r"^[+-]?(?:0|[1-9][0-9]*)(?:,[0-9]+)?$",
}

_PERSON = (
    "patient|person|customer|client|subject|member|employee|insured|user|student|pupil|donor|case|account"
)
_PERSON_IN_GERMAN = (
    "patient(en)?|person(en)?|personal|kunden?|fall|mitglieds?|mitarbeiter|versicherten|konto|aufnahme"
)
_RECORD = "record|participant|encounter|medical record|hospital|study|enrolle?e|beneficiary|pat"
_IDENTIFYING = re.compile(
    r"(full|first|last|middle|given|family|maiden|birth)? ?names?|surnames?|forenames?|"
    rf"({_PERSON}|{_RECORD}) ?(names?|ids?|nos?|nrs?|nums?|numbers?|codes?|keys?)|"
    r"(.* )?(ids?|identifiers?|uuid|guid)|u?subj(ect)?ids?|pid|mrn|ssn|nhs( number)?|"
    r"iban|passport( no| number)?|"
    r"(social security|insurance|national|tax) (id|no|number)|"
    r"(.+ )?((e ?mails?|telephones?|phones?|mobiles?|fax)( (no|nr|num|number|address))?)|tel|"
    r"(home |postal )?address|streets?|"
    r"(vor|nach|geburts|familien)?namen?|strasse|straße|anschrift|adresse|telefon(nummer)?|"
    rf"({_PERSON_IN_GERMAN}) ?(namen?|ids?|nr|nummern?|kennung|schl(ü|ue)ssel)",
    re.IGNORECASE,
)
"""Names of columns that tell a person's name, number or address, or refer to records elsewhere."""
_KEY = "(ids?|nos?|nrs?|nums?|numbers?|identifiers?|codes?|keys?|nummern?|kennung|schl(ü|ue)ssel)"
_KEYS_OF_PERSONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        (
            rf"(.+ )?((patient(en)?|person(en)?|pat|participant|subject|member|versicherten) ?{_KEY}|mrn)|"
            r"u?subj(ect)?ids?|ssn|nhs( number)?|pid"
        ),
        rf"(record|study|medical record|beneficiary|enrolle?e|{_PERSON}|{_PERSON_IN_GERMAN}) ?{_KEY}|ids?",
    )
)
"""Names of columns that tell persons apart, the most certain first."""
_CODES = re.compile(
    r".+ concept ids?|(.+ )?(codes?|cd|plz|postleitzahl|zip|zip ?code|postal|postcode|postal ?code)|"
    r"(.+ )?(icd ?(9|10|11)?( ?(cm|pcs|gm))?|atc|loinc|snomed( ct)?|drg|cpt|hcpcs)",
    re.IGNORECASE,
)
"""Names of columns whose numbers are codes, such as the concepts of OMOP."""
_CONCEPT = re.compile(r".+ concept ids?", re.IGNORECASE)
_REMARKS = re.compile(
    r"(free ?texts?|remarks?|comments?|notes?|descriptions?|narratives?|freitexte?|bemerkung(en)?|notiz(en)?|"
    r"kommentare?|beschreibung(en)?)",
    re.IGNORECASE,
)
"""Names of columns that people write into."""
_ADDRESS = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
_SMALLEST_CODE, _CODE_DISTANCE, _RECORDS_OF_CODE, _YEARS = 100, 3, 5, (1900, 2100)
"""Whole numbers are codes if they have this size, average distance and number of records each, at least, and
are neither years nor round."""
_VALUES_AT_ONCE = 2**20
"""Values of several columns that are looked at together."""
_BYTES_AT_ONCE = 2**28
"""Their size; one array of texts has less than 2 GiB."""
_MOST_PERSONS = 2_000_000
"""With more persons, nobody's records are counted."""
_SENTENCE = r"\S+\s+\S+\s+\S+\s+\S+"
"""Four words or more."""

NumberForm = tuple[DecimalMark, Thousands]
"""Decimal mark and thousands separator; the separator is empty for none."""
_POINT: NumberForm = (".", "")
_FORMS: tuple[NumberForm, ...] = (
    _POINT,
    (",", ""),
    (".", ","),
    (".", " "),
    (".", "'"),
    (",", "."),
    (",", " "),
    (",", "'"),
)
"""All that are tried; if several fit equally well, the first is taken."""


@dataclass(slots=True)
class _NumberSummary:
    """What is known of the numbers of a column, read in one form."""

    most_decimals: int = 0
    """Most decimal places."""
    measured_decimals: int | None = None
    """The same of numbers with up to `_MEASURED_DIGITS` significant digits; None if there are none."""
    ends: tuple[float, float] | None = None
    """Smallest and largest number; None without numbers."""
    grouped: bool = False
    """Whether a number has a thousands separator."""
    magnitudes: Counter[int] = field(default_factory=Counter)
    """How many positive numbers there are, by the eighths of octaves of their logarithm."""

    def update(self, other: "_NumberSummary") -> None:
        self.most_decimals = max(self.most_decimals, other.most_decimals)
        if other.measured_decimals is not None:
            self.measured_decimals = max(self.measured_decimals or 0, other.measured_decimals)
        if other.ends is not None:
            low, high = self.ends or other.ends
            self.ends = min(low, other.ends[0]), max(high, other.ends[1])
        self.grouped = self.grouped or other.grouped
        self.magnitudes.update(other.magnitudes)


@dataclass(slots=True)
class ColumnGuess:
    """The guess about one column."""

    name: str
    still: frozenset[str] = _KINDS
    """Types and formats that fit all values so far, besides numbers."""
    forms: dict[NumberForm, _NumberSummary] = field(
        default_factory=lambda: {form: _NumberSummary() for form in _FORMS}
    )
    """The forms in which all values so far are numbers."""
    form: NumberForm = _POINT
    """How the file writes numbers, once all of it was read."""
    labels: set[str] | None = field(default_factory=set)
    """Different texts of the column; None if there are more than `MOST_LABELS`."""
    frequent: Counter[str] = field(default_factory=Counter)
    """How many records have a text, at least; those that are rare in a batch are not counted there."""
    missing: set[str] = field(default_factory=set)
    """Texts that probably mean a missing value."""
    n_missing: int = 0
    n_values: int = 0
    """Number of values that are not missing."""
    distinct: bool = True
    """Whether no text occurred twice so far."""
    fault: str = ""
    """Why no attribute can have its name, as the end of a sentence about it; empty if one can."""
    description: str = ""
    """Description in the file; empty without one."""
    codebook: tuple[str, ...] = ()
    """Labels that the file declares, in the order of their values; they disclose no record."""
    n_sentences: int = 0
    """Number of values with four words or more."""
    n_addresses: int = 0
    """Number of values that are addresses of e-mail."""
    unreadable: str = ""
    """What to do if its values are of a type that cannot be read; empty if they can."""
    determined_by: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Columns each value of which has one value of this one, in all records, with these values as `declared`
    writes them."""
    meaning: str = ""
    """Meaning of its name: "key", "codes" or "remarks"; empty if nothing."""

    def __post_init__(self) -> None:
        words = _words(self.name)
        if _CONCEPT.fullmatch(words):
            self.meaning = "codes"
        elif any(pattern.fullmatch(words) for pattern in (_IDENTIFYING, *_KEYS_OF_PERSONS)):
            self.meaning = "key"
        elif _CODES.fullmatch(words):
            self.meaning = "codes"
        elif _REMARKS.fullmatch(words):
            self.meaning = "remarks"

    @property
    def type(self) -> str:
        """The type of attribute that fits best; empty if none does."""
        if not self.n_values or self.fault or self.personal:
            return ""
        return self._fitting

    @property
    def personal(self) -> str:
        """What of a person it seems to hold, "a direct identifier" or "free text"; empty for neither."""
        if self._fitting == "boolean":
            return ""
        if self.meaning == "key" or 2 * self.n_addresses > self.n_values:
            return "a direct identifier"
        repeats = self.labels is not None and 3 * len(self.labels) <= self.n_values
        if self.meaning == "remarks" or (2 * self.n_sentences > self.n_values and not repeats):
            return "free text"
        return ""

    @property
    def _fitting(self) -> str:
        """The type that fits its values best, whatever they mean; empty if none does."""
        if "boolean" in self.still or (self.labels is not None and self.labels == {"0", "1"}):
            return "boolean"
        if _PACKED in self.still and self.meaning != "codes":
            return "date"
        if self.codes:
            return "category" if self.labels is not None else ""
        if "integer" in self.still:
            return "" if self.distinct and self.n_values > 1 and self.labels is None else "integer"
        if self.form in self.forms:
            whole = self._numbers.grouped and not self.most_decimals
            return "integer" if whole else "number"
        if self.date_formats:
            return "date"
        if "moment" in self.still:
            return ""
        all_different = self.distinct and self.n_values > 2
        return "category" if self.labels is not None and not self.forms and not all_different else ""

    @property
    def codes(self) -> str:
        """Why its numbers are codes, as a sentence; empty if they are not, or it has none."""
        if not self.forms:
            return ""
        if self.meaning == "codes":
            return "its name says that its numbers are codes"
        if self.labels is None or "integer" not in self.still:
            return ""
        numbers = [number for number in map(int, self.labels) if number]
        if len(numbers) < 2 or self.n_values < _RECORDS_OF_CODE * len(numbers):
            return ""
        low, high = min(numbers), max(numbers)
        are_near = low < _SMALLEST_CODE or high - low < _CODE_DISTANCE * len(numbers)
        are_years = low >= _YEARS[0] and high <= _YEARS[1]
        is_round = math.gcd(*numbers) % 5 == 0
        return "" if are_near or are_years or is_round else "few whole numbers far apart, as codes are"

    @property
    def why(self) -> str:
        """Why it has its type; empty if it has none."""
        match self.type:
            case "boolean" if self.labels == {"0", "1"}:
                return "0 and 1 alone; declare a category if they are codes"
            case "boolean":
                return "words for yes and no alone"
            case "category":
                return self.codes or f"no more than {MOST_LABELS} different texts, which repeat"
            case "date":
                return f"all values are days written {self.date_formats[0]}"
            case "integer":
                return "whole numbers; declare a category if they are codes"
            case "number":
                return "numbers with decimal places"
        return ""

    @property
    def reason(self) -> str:
        """Why it is no attribute, as the end of a sentence about it; empty if it is one."""
        if self.type or self.fault:
            return ""
        if self.personal and self.n_values and self._fitting:
            return f"it looks like {self.personal}; declare it by hand if it is not"
        if self.unreadable or not self.n_values:
            return self.unreadable or "it has no values"
        if self.codes:
            return f"{self.codes}, and it has more than {MOST_LABELS}; as a category it needs all of them"
        if "moment" in self.still:
            return "its values have times of day; export the day alone, such as 2024-01-31"
        if self.forms and "integer" not in self.still:
            return "its numbers are written in another way than most of the file's"
        if self.distinct:
            return "all of its values are different, as identifiers and free text are"
        return f"it has more than {MOST_LABELS} different texts, and they are no numbers or dates"

    @property
    def most_decimals(self) -> int:
        """Most decimal places of its numbers."""
        return self._numbers.most_decimals

    @property
    def decimals(self) -> int:
        """The decimal places that its numbers need, without those that binary arithmetic adds."""
        if self._numbers.measured_decimals is not None:
            return min(self._numbers.measured_decimals, MOST_DECIMALS)
        low, high = self._numbers.ends or (0.0, 0.0)
        width = Decimal(repr(high)) - Decimal(repr(low))
        return min(
            max(_RANGE_DIGITS - 1 - (width.adjusted() if width else 0), 0), self.most_decimals, MOST_DECIMALS
        )

    @property
    def _numbers(self) -> _NumberSummary:
        return self.forms.get(self.form) or _NumberSummary()

    @property
    def date_formats(self) -> list[str]:
        """The formats that fit all of its dates."""
        return [form for form in _DATES if form in self.still]

    def declared(self, text: str) -> str:
        """Return a value as settings write it: a date as in 2024-01-31, a number with a decimal point.

        Texts of the same value become the same, such as yes, Yes and 1; those that are missing do, too.
        """
        text = MISSING_CATEGORY if text in _MISSING else text
        kind = "" if text == MISSING_CATEGORY else self.type
        if kind == "boolean":
            return "true" if text.lower() in _TRUE else "false"
        if kind == "date":
            (day,), _ = days(pa.array([text]), self.date_formats[0])
            return str(np.datetime64(int(day), "D"))
        if kind in ("integer", "number"):
            numeral: str = ungroup(pa.array([text]), *self.form)[0].as_py()
            number = format(Decimal(numeral.replace(self.form[0], ".")) or Decimal(0), "f")
            return number.rstrip("0").rstrip(".") if "." in number else number
        return text

    def spikes(self, decimals: int) -> list[Decimal]:
        """Return the numbers that a large share of the records has, ascending; none if it has few values."""
        if self.labels is not None or self._numbers.ends is None or not self.frequent:
            return []
        scaled = scale_numerals(pa.array(self.frequent), decimals, *self.form)
        numbers = Counter[int]()
        for unit, count in zip(scaled.units.tolist(), self.frequent.values(), strict=True):
            numbers[unit] += count
        large = (unit for unit, count in numbers.items() if count * LARGE_SHARE >= self.n_values)
        return [Decimal(unit).scaleb(-decimals) for unit in sorted(large)]

    @property
    def is_skewed(self) -> bool:
        """Whether its numbers, not negative and many, are clearly right-skewed; zeros are left out."""
        numbers = self._numbers
        if self.labels is not None or numbers.ends is None or numbers.ends[0] < 0 or not numbers.magnitudes:
            return False
        places = np.array(sorted(numbers.magnitudes))
        up_to = np.cumsum([numbers.magnitudes[place] for place in places.tolist()])
        low, median, high = (
            2.0 ** ((int(places[np.searchsorted(up_to, share * up_to[-1])]) + 0.5) / _PER_OCTAVE)
            for share in (0.01, 0.5, 0.99)
        )
        is_far: bool = numbers.ends[1] >= _FAR * median
        return is_far and high - median >= _SKEWED * (median - low)

    def rounded_ends(self) -> tuple[Decimal, Decimal] | None:
        """Return ends that enclose the values, rounded outwards to one digit."""
        if self._numbers.ends is None:
            return None
        low, high = (Decimal(repr(end)) for end in self._numbers.ends)
        return _outwards(low, ROUND_FLOOR), _outwards(high, ROUND_CEILING)


def _outwards(value: Decimal, rounding: str) -> Decimal:
    if not value:
        return Decimal(0)
    return value.quantize(Decimal(1).scaleb(value.adjusted()), rounding)


def _words(name: str) -> str:
    """Return the words of a column's name, which capitals and other characters separate."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_]+", " ", name).strip()


@dataclass(frozen=True, slots=True)
class FileGuess:
    """The guess about a file."""

    form: CsvOptions
    """Format, if it is a CSV file."""
    is_csv: bool
    columns: tuple[ColumnGuess, ...]
    n_records: int
    doubts: tuple[str, ...] = ()
    """What fits another form as well, which would make other values of it."""
    identifier: str = ""
    """The column that tells persons apart, by its name; empty if there is none."""
    most_records: int = 1
    """Most records of one person, rounded up to one digit; 1 if that is not known."""
    never: Mapping[tuple[str, str], Sequence[tuple[str, str]]] = field(default_factory=dict)
    """Values of two columns that are frequent and never occur together, as `declared` writes them."""


def source_path(place: Path | str) -> PurePath:
    """Return the path of a file, or of an object without the options of its address."""
    return place if isinstance(place, Path) else PurePosixPath(place.partition("?")[0])


def guess(place: Path | str) -> FileGuess:
    """Guess the format and the columns of a file.

    Args:
        place: Its path, or the address of an object in a store.

    Raises:
        DataError: If it cannot be read; with columns and counts, never a value.
        SourceUnreachableError, ConfigurationError: As `Source.open` says.
    """
    findings, kind = Findings(examples=True), FileSource if isinstance(place, Path) else ObjectSource
    source: Source = kind(source_path(place).stem, str(place), SourceOptions())
    file: object = place if isinstance(place, Path) and place.is_file() else None
    if isinstance(source, ObjectSource):
        file = source.objects(Findings())
    form = _form(file) if isinstance(file, Path | StoredObject) else CsvOptions()
    source.options = SourceOptions(csv=form)
    reader = source.open(findings, Progress())
    if reader is None or findings:
        raise findings.error(source.dataset, source.shown)
    times, is_csv = Counter(reader.names), reader.is_text
    columns = [
        ColumnGuess(
            name, fault=_fault_of_name(name, times[name]), description=reader.descriptions.get(name, ""),
            codebook=tuple(reader.labels.get(name, ())),
        )
        for name in reader.names
    ]  # fmt: skip
    identifier = _identifier(columns)
    records = _RecordsOfPersons(identifier)
    n_records, dependencies, labels = _read(reader, columns, findings, records)
    reader.close()
    findings.check(source.dataset, source.shown)
    decimal, thousands = written = _number_form(columns, form.delimiter) if is_csv else _POINT
    for column in columns:
        column.form = written
    compared = [each for each in columns if each.name in dependencies.names]
    values = {each.name: tuple(map(each.declared, labels[each.name])) for each in compared}
    _relate(compared, dependencies, values)
    listed = {each.name: values[each.name] for each in compared if each.type in ("category", "boolean")}
    never = {
        columns_of: present
        for columns_of, pairs in dependencies.never(listed).items()
        if (present := [pair for pair in pairs if MISSING_CATEGORY not in pair])
    }
    missing = {text for column in columns if column.type for text in column.missing}
    doubts = list(_doubts_of_numbers(columns, written, form.delimiter)) if is_csv else []
    if dates := _common_date_formats(columns):
        form = replace(form, date_format=dates[0])
        both = any({*dates[:2]} <= {*column.date_formats} for column in columns if column.type == "date")
        if is_csv and both and len(dates) > 1:
            doubts.append(f"its dates fit {dates[1]} as well as {dates[0]}")
    missing_texts = ("", *sorted(missing - {""}))
    form = replace(form, decimal=decimal, thousands=thousands, na_values=missing_texts)
    return FileGuess(
        form, is_csv, tuple(columns), n_records, tuple(doubts), identifier, records.most_rounded, never
    )


def _identifier(columns: Iterable[ColumnGuess]) -> str:
    """Return the first of the columns that most certainly tell persons apart, by their names."""
    possible = {column.name: _words(column.name) for column in columns if not column.fault}
    for pattern in _KEYS_OF_PERSONS:
        for name, words in possible.items():
            if pattern.fullmatch(words):
                return name
    return ""


class _RecordsOfPersons:
    """How many records the persons of a file have, up to `_MOST_PERSONS` persons."""

    def __init__(self, identifier: str) -> None:
        self._identifier = identifier
        self._counts = Counter[str]()

    def update(self, texts: Mapping[str, Any]) -> None:
        if self._identifier not in texts:
            return
        values = pc.utf8_trim_whitespace(texts[self._identifier]).drop_null()
        counted = pc.value_counts(values)
        self._counts.update(
            dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
        )
        if len(self._counts) > _MOST_PERSONS:
            self._identifier = ""
            self._counts.clear()

    @property
    def most_rounded(self) -> int:
        """Most records of one person, rounded up to one digit; 1 if that is not known."""
        most = max((n for text, n in self._counts.items() if text not in _MISSING), default=1)
        return int(_outwards(Decimal(most), ROUND_CEILING))


def _relate(
    columns: Sequence[ColumnGuess], dependencies: Dependencies, values: Mapping[str, Sequence[str]]
) -> None:
    """Add to guesses which columns determine them.

    Args:
        values: Values by column and code, as `ColumnGuess.declared` writes them.
    """
    determining = dependencies.found()
    for column in columns:
        tables = {
            name: dict.fromkeys(
                (values[name][code], values[column.name][value])
                for code, value in dependencies.values(name, column.name).items()
            )
            for name in determining.get(column.name, ())
        }
        # Texts of one value, such as yes and Yes, may go with different values.
        column.determined_by = {
            name: dict(pairs.keys())
            for name, pairs in tables.items()
            if len(dict(pairs.keys())) == len(pairs)
        }


def _read(
    reader: Reader, columns: Sequence[ColumnGuess], findings: Findings, records: "_RecordsOfPersons"
) -> tuple[int, Dependencies, Mapping[str, Mapping[str, int]]]:
    """Update guesses with all records.

    Returns:
        Number of records, which values occur together, and the numbers of texts by column.
    """
    n_records = 0
    dependencies = Dependencies(column.name for column in columns if not column.fault)
    labels: dict[str, dict[str, int]] = {name: {} for name in dependencies.names}
    for batch in reader.batches(reader.names, findings):
        n_in_batch = len(batch[0]) if batch else 0
        n_records += n_in_batch
        readable: list[tuple[ColumnGuess, Any]] = []
        texts = [array for array in batch if array.type == pa.string()]
        sound = next(faults(pa.chunked_array(texts, pa.string())), None) is None
        for column, array in zip(columns, batch, strict=True):
            kind, unreadable = array.type, ""
            if not is_readable(kind):
                unreadable = f"values of type {type_name(kind)} cannot be read; {advice(kind)}"
            elif not (sound and kind == pa.string()) and (fault := next(faults(array), None)) is not None:
                unreadable = f"it has values that cannot be read: {fault[0]}"
            if unreadable:
                column.unreadable = unreadable
                column.still, column.forms, column.labels = frozenset(), {}, None
                column.n_values += len(array)
            else:
                readable.append((column, as_text(array)))
        for part in _parts(readable):
            _update([column for column, _ in part], [array for _, array in part])
        by_name = {column.name: array for column, array in readable}
        records.update(by_name)
        dependencies.update(dict(_codes(by_name, labels, dependencies.names)))
    return n_records, dependencies, labels


def _parts(readable: Iterable[tuple[ColumnGuess, Any]]) -> Iterator[list[tuple[ColumnGuess, Any]]]:
    """Split columns into parts that are looked at together."""
    part: list[tuple[ColumnGuess, Any]] = []
    n_values = n_bytes = 0
    for column, array in readable:
        n_values, n_bytes = n_values + len(array), n_bytes + array.nbytes
        if part and (n_values > _VALUES_AT_ONCE or n_bytes > _BYTES_AT_ONCE):
            yield part
            part, n_values, n_bytes = [], len(array), array.nbytes
        part.append((column, array))
    if part:
        yield part


def _fault_of_name(name: str, times: int) -> str:
    """Say why no attribute can have the name of a column that occurs so many times; empty if one can."""
    if not name:
        return "no name"
    if name in RESERVED_NAMES:
        return "releases use this name"
    if times > 1:
        return "several columns have this name"
    fault = fault_of_cell(name)
    return f"its name {fault}" if fault else ""


def _update(columns: Sequence[ColumnGuess], texts: Sequence[Any]) -> None:
    """Update the guesses about columns with their next values, those of all columns at once."""
    n_records = len(texts[0]) if texts else 0
    if not n_records:
        return
    encoded = pc.utf8_trim_whitespace(pa.chunked_array(texts).combine_chunks()).dictionary_encode()
    different = encoded.dictionary
    codes = ints(pc.fill_null(encoded.indices, len(different)))
    column_of = np.repeat(np.arange(len(columns)), n_records)
    pairs, n_times = np.unique(column_of * (len(different) + 1) + codes, return_counts=True)
    of, code = np.divmod(pairs, len(different) + 1)
    is_absent = np.append(bools(pc.is_in(different, pa.array(_MISSING))), True)[code]
    words = different.to_pylist()
    for column, place, count in zip(of[is_absent], code[is_absent], n_times[is_absent], strict=True):
        columns[column].n_missing += int(count)
        if place < len(words):
            columns[column].missing.add(words[place])
    values = _Values(different, of[~is_absent], code[~is_absent], n_times[~is_absent])
    if not values.of.size:
        return
    _count(columns, values, words)
    _exclude(columns, values)
    _measure(columns, values)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of columns that are not missing, each different text of a column once."""

    texts: Any
    """The different texts of all columns, an Arrow array."""
    of: Int64Array
    """Place of the column, ascending, `(n_values,)`."""
    code: Int64Array
    """Place of the text, `(n_values,)`."""
    n_times: Int64Array
    """How many records have it, `(n_values,)`."""

    def of_columns(self, selected: BoolArray) -> "_Values":
        """Return those of some columns, `(n_columns,)`, with the texts that these have."""
        kept = selected[self.of]
        is_used = np.zeros(len(self.texts), dtype=np.bool_)
        is_used[self.code[kept]] = True
        code = (np.cumsum(is_used) - 1)[self.code[kept]]
        return _Values(self.texts.filter(pa.array(is_used)), self.of[kept], code, self.n_times[kept])


def _count(columns: Sequence[ColumnGuess], values: _Values, words: Sequence[str]) -> None:
    """Update the counts and the labels of columns."""
    present, begins = np.unique(values.of, return_index=True)
    ends = np.append(begins[1:], values.of.size)
    n_values = np.add.reduceat(values.n_times, begins)
    n_sentences, n_addresses = (
        np.add.reduceat(values.n_times * _matches(values.texts, pattern)[values.code], begins)
        for pattern in (_SENTENCE, _ADDRESS)
    )
    for place, begin, end, n, sentences, addresses in zip(
        *(each.tolist() for each in (present, begins, ends, n_values, n_sentences, n_addresses)), strict=True
    ):
        column = columns[place]
        column.n_values += n
        column.n_sentences += sentences
        column.n_addresses += addresses
        column.distinct = column.distinct and end - begin == n
        if column.labels is not None:
            before = len(column.labels)
            if end - begin <= MOST_LABELS:
                column.labels.update(words[code] for code in values.code[begin:end])
                column.distinct = column.distinct and len(column.labels) == before + end - begin
            if end - begin > MOST_LABELS or len(column.labels) > MOST_LABELS:
                column.labels = None
    in_column = np.repeat(n_values, ends - begins)
    for each in np.flatnonzero(values.n_times * 2 * LARGE_SHARE >= in_column).tolist():
        columns[values.of[each]].frequent[words[values.code[each]]] += int(values.n_times[each])


def _exclude(columns: Sequence[ColumnGuess], values: _Values) -> None:
    """Exclude the types and formats that do not fit all values of a column."""
    for kinds in ({"dated", "moment", *_DATES}, {"integer"}, {"boolean"}):
        for kind in sorted(kinds, key=lambda kind: kind != "dated"):
            possible = np.array([kind in column.still for column in columns])
            of_kind = values.of_columns(possible)
            if not of_kind.of.size:
                continue
            wrong = ~_fits(kind, of_kind.texts)[of_kind.code]
            for place in np.unique(of_kind.of[wrong]).tolist():
                columns[place].still -= kinds if kind == "dated" else {kind}


def _codes(
    texts: Mapping[str, Any], labels: dict[str, dict[str, int]], names: Collection[str]
) -> Iterator[tuple[str, Int64Array]]:
    """Number the texts of columns, each text as in the batches before; a missing one is the empty text.

    Args:
        labels: Numbers of texts by column, to which those that are new are added.
        names: The columns that are needed.
    """
    for name in texts.keys() & names:
        encoded = pc.fill_null(pc.utf8_trim_whitespace(texts[name]), "").dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        known = labels[name]
        if len(encoded.dictionary) > MOST_LABELS:
            continue
        numbers = [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()]
        if len(known) <= MOST_LABELS:
            yield name, np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


def _number_form(columns: Iterable[ColumnGuess], delimiter: str) -> NumberForm:
    """Return the form in which most columns are numbers."""
    numbers = _forms_of_numbers(columns)
    possible = (form for form in _FORMS if form[0] != delimiter)
    return max(possible, key=lambda form: sum(form in forms for forms in numbers))


def _forms_of_numbers(columns: Iterable[ColumnGuess]) -> list[dict[NumberForm, _NumberSummary]]:
    """Return the forms of every column with numbers that are not integers in any form."""
    return [column.forms for column in columns if column.n_values and "integer" not in column.still]


def _doubts_of_numbers(columns: Iterable[ColumnGuess], written: NumberForm, delimiter: str) -> Iterator[str]:
    """Say which other form fits as many columns, and reads other numbers: "1.234" is one or a thousand."""
    numbers = _forms_of_numbers(columns)
    fitting = sum(written in forms for forms in numbers)
    for form in _FORMS:
        if form == written or form[0] == delimiter or sum(form in forms for forms in numbers) < fitting:
            continue
        known = (forms for forms in numbers if form in forms and written in forms)
        if any(forms[form].ends != forms[written].ends for forms in known):
            yield f"its numbers fit {_form_text(form)} as well as {_form_text(written)}"
            return


def _form_text(form: NumberForm) -> str:
    decimal, thousands = form
    return f'decimal = "{decimal}"' + (f' with thousands = "{thousands}"' if thousands else "")


def _common_date_formats(columns: Iterable[ColumnGuess]) -> list[str]:
    """Return the formats that fit the most columns of dates."""
    fitting = Counter(form for column in columns if column.type == "date" for form in column.date_formats)
    return [form for form in _DATES if fitting and fitting[form] == max(fitting.values())]


def _fits(kind: str, texts: Any) -> BoolArray:
    """Return which texts are of a type, or dates of a format, `(n_texts,)`."""
    if kind == "boolean":
        return bools(pc.is_in(pc.utf8_lower(texts), pa.array(_WORDS)))
    fits = _matches(texts, _PATTERNS[kind])
    if kind in _DATES and fits.any():
        fits[fits] = days(texts.filter(pa.array(fits)), kind)[1]
    return fits


def _matches(texts: Any, pattern: str) -> BoolArray:
    return bools(pc.match_substring_regex(texts, pattern))


def _measure(columns: Sequence[ColumnGuess], values: _Values) -> None:
    """Update the numbers of columns in every form that still fits, and exclude the others."""
    for mark in (".", ","):
        plain: dict[int, _NumberSummary] = {}
        is_known = np.zeros(len(columns), dtype=np.bool_)
        for form in (form for form in _FORMS if form[0] == mark):
            possible = np.array([form in column.forms for column in columns])
            of_form = values.of_columns(possible)
            if not of_form.of.size:
                continue
            numerals = ungroup(of_form.texts, *form)
            fits = _matches(numerals, _NUMBER[mark])[of_form.code]
            possible[of_form.of[~fits]] = False
            for place in np.unique(of_form.of[~fits]).tolist():
                del columns[place].forms[form]
            grouped = np.zeros_like(possible)
            if numerals is not of_form.texts:
                grouped[of_form.of[bools(pc.not_equal(numerals, of_form.texts))[of_form.code]]] = True
            unknown = replace(of_form, texts=numerals).of_columns(possible & (grouped | ~is_known))
            for place, summary in _summaries(unknown, mark).items():
                if grouped[place]:
                    columns[place].forms[form].update(replace(summary, grouped=True))
                else:
                    plain[place] = summary
                    is_known[place] = True
            for place in np.unique(of_form.of[(possible & ~grouped)[of_form.of]]).tolist():
                columns[place].forms[form].update(plain[place])


def _summaries(values: _Values, mark: str) -> dict[int, _NumberSummary]:
    """Measure the numerals of columns, by their places, with a decimal mark and no thousands separators."""
    if not values.of.size:
        return {}
    numerals = values.texts if mark == "." else pc.replace_substring(values.texts, mark, ".")
    numbers = numerals.cast(pa.float64()).to_numpy(zero_copy_only=False)
    parts = pc.extract_regex(numerals, _NUMERAL)
    exponents = pc.if_else(pc.equal(parts.field("exponent"), ""), "0", parts.field("exponent"))
    places = ints(pc.subtract(pc.utf8_length(parts.field("places")), exponents.cast(pa.int32())))
    digits = ints(
        pc.utf8_length(
            pc.utf8_ltrim(pc.binary_join_element_wise(parts.field("whole"), parts.field("places"), ""), "0")
        )
    )
    unknown = np.iinfo(np.int64).min
    columns, begins = np.unique(values.of, return_index=True)
    most, measured, low, high = (
        function.reduceat(each[values.code], begins).tolist()
        for function, each in (
            (np.maximum, places),
            (np.maximum, np.where(digits <= _MEASURED_DIGITS, places, unknown)),
            (np.minimum, numbers),
            (np.maximum, numbers),
        )
    )
    found = {
        place: _NumberSummary(
            max(most[n], 0), None if measured[n] == unknown else measured[n], (low[n], high[n])
        )
        for n, place in enumerate(columns.tolist())
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        octaves = np.floor(_PER_OCTAVE * np.log2(numbers))[values.code]
    positive = np.isfinite(octaves)
    rows = np.stack([values.of[positive], octaves[positive].astype(np.int64)], axis=1)
    magnitudes, of_row = np.unique(rows, axis=0, return_inverse=True)
    totals = np.bincount(of_row.reshape(-1), values.n_times[positive], len(magnitudes)).astype(np.int64)
    for (place, octave), total in zip(magnitudes.tolist(), totals.tolist(), strict=True):
        found[place].magnitudes[octave] = total
    return found


def _form(path: StoredFile) -> CsvOptions:
    """Guess the encoding and the delimiter of a CSV file."""
    encoding = _encoding(path)
    try:
        text = csv_text(path, encoding)
    except OSError:
        return CsvOptions()
    counts: dict[str, int] = {}
    for delimiter in _DELIMITERS:
        widths = {len(row) for row in _sample(text, delimiter)}
        counts[delimiter] = max(widths) if len(widths) == 1 else 0
    best = max(_DELIMITERS, key=lambda delimiter: counts[delimiter])
    return CsvOptions(text.delimiter or (best if counts[best] > 1 else ","), encoding=encoding)


def _sample(text: CsvText, delimiter: str) -> Iterator[list[str]]:
    try:
        with text.lines() as lines:
            for number, row in enumerate(csv_rows(lines, delimiter)):
                if number == _SAMPLED_LINES:
                    return
                if row:
                    yield row
    except (OSError, csv.Error):
        return


def _encoding(path: StoredFile) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            head = file.read(_SAMPLED_BYTES)
            _, (_, marked) = marked_encoding(head)
            if marked or b"\0" in head:
                return marked.removesuffix("-sig") or _without_mark(head)
            file.seek(0)
            while data := file.read(1 << 20):
                decoder.decode(data)
            decoder.decode(b"", final=True)
    except OSError:
        return "utf-8"
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _without_mark(head: bytes) -> str:
    """Return which UTF-16 a text with NUL bytes is in: most characters of data have one byte that is 0."""
    low, high = head[::2].count(0), head[1::2].count(0)
    if max(low, high) * 4 < len(head):
        return "utf-8"
    return "utf-16-le" if high > low else "utf-16-be"
