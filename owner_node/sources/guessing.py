"""Guesses types of a file's columns, for a person to correct. No domain is taken from the data.

The guesses (types, decimals, formats of dates and numbers) disclose nothing about a person. The ends of
numbers and the labels of categories would; they appear rounded, in comments that no program reads.
"""

import codecs
import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from common.model.schema import MOST_DECIMALS, RESERVED_NAMES
from owner_node.config import CsvOptions
from owner_node.sources.files import csv_rows, open_file
from owner_node.sources.findings import Findings
from owner_node.sources.texts import as_text, is_readable, plain
from owner_node.values.dates import days

MOST_LABELS = 50
"""A column with more different texts is not a category."""
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLED_LINES = 50
_MEASURED_DIGITS = 12
"""A number with more significant digits is the result of binary arithmetic, such as 9.533333333333333."""
_RANGE_DIGITS = 6
"""Digits that divide a range finely enough where no number shows its own decimals."""
_NUMERAL = r"^[+-]?0*(?P<whole>[0-9]*?)(?:\.(?P<places>[0-9]*?)0*)?(?:[eE](?P<exponent>[+-]?[0-9]+))?$"
_MISSING = ("", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "?", "-", ".")
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_WORDS = ("true", "false", "t", "f", "yes", "no", "y", "n")
_INTEGER = r"^[+-]?(?:0|[1-9][0-9]*)$"
_NUMBER = {
    # Digits after a leading zero are a code, such as a postal code, not a number.
    "point": r"^[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$",
    "comma": r"^[+-]?(?:0|[1-9][0-9]*)(?:,[0-9]+)?$",
}


@dataclass(slots=True)
class ColumnGuess:
    """The guess about one column."""

    name: str
    still: set[str] = field(default_factory=lambda: {"integer", "point", "comma", "boolean", *_DATES})
    """Types and formats that fit all values so far."""
    labels: set[str] | None = field(default_factory=set)
    """Different texts of the column; None if there are more than `MOST_LABELS`."""
    missing: set[str] = field(default_factory=set)
    """Texts that probably mean a missing value."""
    n_missing: int = 0
    n_values: int = 0
    """Number of values that are not missing."""
    most_decimals: int = 0
    """Most decimal places of its numbers."""
    measured_decimals: int | None = None
    """The same of its numbers with up to `_MEASURED_DIGITS` significant digits; None if there are none."""
    ends: tuple[float, float] | None = None
    """Smallest and largest number; None without numbers."""
    distinct: bool = True
    """Whether no text occurred twice so far."""
    can_be_declared: bool = True
    """Whether an attribute can have this name: it is unique, and not reserved for columns of a release."""

    @property
    def type(self) -> str:
        """The type of attribute that fits best; empty if none does."""
        if not self.n_values or not self.can_be_declared:
            return ""
        if "boolean" in self.still or (self.labels is not None and self.labels == {"0", "1"}):
            return "boolean"
        if "integer" in self.still:
            return "" if self.distinct and self.n_values > 1 and self.labels is None else "integer"
        if "point" in self.still or "comma" in self.still:
            return "number"
        if self.date_format:
            return "date"
        return "category" if self.labels is not None and not self._all_different else ""

    @property
    def decimals(self) -> int:
        """The decimal places that its numbers need, without those that binary arithmetic adds."""
        if self.measured_decimals is not None:
            return min(self.measured_decimals, MOST_DECIMALS)
        low, high = self.ends or (0.0, 0.0)
        width = Decimal(repr(high)) - Decimal(repr(low))
        return min(
            max(_RANGE_DIGITS - 1 - (width.adjusted() if width else 0), 0), self.most_decimals, MOST_DECIMALS
        )

    @property
    def _all_different(self) -> bool:
        return self.distinct and self.n_values > 2

    @property
    def date_format(self) -> str:
        """Format of its dates; empty without dates."""
        return next((form for form in _DATES if form in self.still), "")

    def rounded_ends(self) -> tuple[Decimal, Decimal] | None:
        """Return ends that enclose the values, rounded outwards to one digit."""
        if self.ends is None:
            return None
        low, high = (Decimal(repr(end)) for end in self.ends)
        return _outwards(low, ROUND_FLOOR), _outwards(high, ROUND_CEILING)


def _outwards(value: Decimal, rounding: str) -> Decimal:
    if not value:
        return Decimal(0)
    return value.quantize(Decimal(1).scaleb(value.adjusted()), rounding)


@dataclass(frozen=True, slots=True)
class FileGuess:
    """The guess about a file."""

    form: CsvOptions
    """Format, if it is a CSV file."""
    is_csv: bool
    columns: tuple[ColumnGuess, ...]
    n_records: int


def guess(path: Path) -> FileGuess:
    """Guess the format and the columns of a file.

    Raises:
        DataError: If it cannot be read; with columns and counts, never a value.
    """
    findings = Findings(examples=True)
    form = _form(path)
    source = open_file(path, form, findings)
    findings.check(path.stem, str(path))
    if source is None:
        raise findings.error(path.stem, str(path))
    taken = {"", *RESERVED_NAMES, *(name for name, times in Counter(source.names).items() if times > 1)}
    columns = [ColumnGuess(name, can_be_declared=name not in taken) for name in source.names]
    n_records = 0
    for batch in source.batches(source.names, findings):
        n_records += len(batch[0]) if batch else 0
        for column, array in zip(columns, batch, strict=True):
            if is_readable(plain(array).type):
                _update(column, as_text(array))
            else:
                column.still, column.labels, column.n_values = set(), None, column.n_values + len(array)
    source.close()
    findings.check(path.stem, str(path))
    missing = {text for column in columns if column.type for text in column.missing}
    comma = any("comma" in each.still and "point" not in each.still for each in columns if each.n_values)
    dates = [each.date_format for each in columns if each.type == "date"]
    form = replace(
        form,
        decimal="," if comma and form.delimiter != "," else ".",
        date_format=dates[0] if dates else form.date_format,
        na_values=("", *sorted(missing - {""})),
    )
    is_csv = type(source).__name__ == "CsvSource"
    return FileGuess(form, is_csv, tuple(columns), n_records)


def _update(column: ColumnGuess, texts: Any) -> None:
    """Update the guess about a column with its next values."""
    values = pc.utf8_trim_whitespace(texts)
    absent = pc.or_(pc.is_null(values), pc.fill_null(pc.is_in(values, pa.array(_MISSING)), True))
    column.missing |= set(pc.unique(values.filter(absent).drop_null()).to_pylist())
    column.n_missing += int(pc.sum(absent).as_py() or 0)
    values = values.filter(pc.invert(absent))
    if not len(values):
        return
    column.n_values += len(values)
    _narrow(column, values)
    different = pc.unique(values)
    column.distinct = column.distinct and len(different) == len(values)
    if column.labels is not None:
        if len(different) <= MOST_LABELS:
            before = len(column.labels)
            column.labels.update(different.to_pylist())
            column.distinct = column.distinct and len(column.labels) == before + len(different)
        if len(different) > MOST_LABELS or len(column.labels) > MOST_LABELS:
            column.labels = None
    if "point" in column.still or "comma" in column.still:
        _measure(column, values)


def _narrow(column: ColumnGuess, values: Any) -> None:
    """Exclude types and formats that do not fit every value."""
    tests = {"integer": _INTEGER, **_NUMBER}
    column.still = {kind for kind in column.still if _fits(kind, tests, values)}


def _fits(kind: str, patterns: dict[str, str], values: Any) -> bool:
    if kind in patterns:
        return bool(pc.all(pc.match_substring_regex(values, patterns[kind])).as_py())
    if kind == "boolean":
        return bool(pc.all(pc.is_in(pc.utf8_lower(values), pa.array(_WORDS))).as_py())
    return bool(days(values, kind)[1].all())


def _measure(column: ColumnGuess, values: Any) -> None:
    numerals = values if "point" in column.still else pc.replace_substring(values, ",", ".")
    found = pc.min_max(numerals.cast(pa.float64())).as_py()
    low, high = column.ends or (found["min"], found["max"])
    column.ends = min(low, found["min"]), max(high, found["max"])
    parts = pc.extract_regex(numerals, _NUMERAL)
    exponents = pc.if_else(pc.equal(parts.field("exponent"), ""), "0", parts.field("exponent"))
    places = pc.subtract(pc.utf8_length(parts.field("places")), exponents.cast(pa.int32()))
    digits = pc.utf8_length(
        pc.utf8_ltrim(pc.binary_join_element_wise(parts.field("whole"), parts.field("places"), ""), "0")
    )
    column.most_decimals = max(column.most_decimals, pc.max(places).as_py())
    measured = pc.max(places.filter(pc.less_equal(digits, _MEASURED_DIGITS))).as_py()
    if measured is not None:
        column.measured_decimals = max(column.measured_decimals or 0, measured)


def _form(path: Path) -> CsvOptions:
    """Guess the encoding and the delimiter of a CSV file."""
    encoding = "utf-8" if _is_utf8(path) else "cp1252"
    counts: dict[str, int] = {}
    for delimiter in _DELIMITERS:
        widths = {len(row) for row in _sample(path, encoding, delimiter)}
        counts[delimiter] = max(widths) if len(widths) == 1 else 0
    best = max(_DELIMITERS, key=lambda delimiter: counts[delimiter])
    return CsvOptions(delimiter=best if counts[best] > 1 else ",", encoding=encoding)


def _sample(path: Path, encoding: str, delimiter: str) -> Iterator[list[str]]:
    try:
        with path.open(encoding=encoding, errors="replace", newline="") as file:
            for number, row in enumerate(csv_rows(file, delimiter)):
                if number == _SAMPLED_LINES:
                    return
                if row:
                    yield row
    except (OSError, csv.Error):
        return


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                decoder.decode(data)
            decoder.decode(b"", final=True)
    except OSError:
        return True
    except UnicodeDecodeError:
        return False
    return True
