"""Parses dates to days since 1970-01-01, strictly: only days of the calendar."""

import re
from datetime import date, datetime, time
from typing import Any

import numpy as np
import pyarrow.compute as pc

from common.arrays import BoolArray, Int64Array
from owner_node.values.date_formats import is_without_century
from owner_node.values.numerals import bools, ints

_EPOCH = date(1970, 1, 1).toordinal()
# What `datetime.strptime` accepts for these directives, in its order of preference.
_DIRECTIVES = {
    "Y": "(?P<year>[0-9]{4})",
    "m": "(?P<month>1[0-2]|0[1-9]|[1-9])",
    "d": "(?P<day>3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9])",
}


def days(
    texts: Any, date_format: str, first: int | None = None, *, whole: bool = True
) -> tuple[Int64Array, BoolArray]:
    """Read dates.

    Args:
        texts: Arrow string array without nulls, shape (n_records,).
        date_format: How they are written, in directives that `check_format` accepts.
        first: The first day that a date can be, in days since 1970-01-01: two digits of a year are the year
            of the 100 years from then on. Without it, such texts are no dates.
        whole: Whether a text with a time of day is no date; otherwise the time is cut off.

    Returns:
        Days since 1970-01-01, 0 for texts that are no dates; and which texts are dates.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    pattern = _pattern(date_format)
    if pattern is not None:
        return _by_number(trimmed, pattern)
    values, known = _by_name(trimmed, date_format, whole=whole)
    return _from(first, values, known) if is_without_century(date_format) else (values, known)


def _from(first: int | None, values: Int64Array, known: BoolArray) -> tuple[Int64Array, BoolArray]:
    """Move dates by whole centuries into the 100 years from a day on; 29 February needs a leap year."""
    if first is None:
        return np.zeros_like(values), np.zeros_like(known)
    months = values.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    day_of_month = values - _first_day(months)
    begin = date.fromordinal(first + _EPOCH).year
    years, month_of_year = np.divmod(months, 12)
    moved, placed = np.zeros_like(values), np.zeros_like(known)
    for century in (0, 100):
        year = begin + (years + 1970 - begin) % 100 + century
        month = (year - 1970) * 12 + month_of_year
        day = _first_day(month) + day_of_month
        fits = known & ~placed & (day < _first_day(month + 1)) & (day >= first)
        moved, placed = np.where(fits, day, moved), placed | fits
    return moved, placed


def _pattern(date_format: str) -> str | None:
    """Return the regular expression of a format of year, month and day as numbers, None for any other."""
    parts = re.split("%(.)", date_format)
    literals, directives = parts[::2], parts[1::2]
    if sorted(directives) != sorted(_DIRECTIVES) or re.search(r"[\s%]", "".join(literals)):
        return None
    pieces = [re.escape(literals[0])]
    for directive, literal in zip(directives, literals[1:], strict=True):
        pieces += [_DIRECTIVES[directive], re.escape(literal)]
    return f"(?i)^{''.join(pieces)}$"


def _by_number(texts: Any, pattern: str) -> tuple[Int64Array, BoolArray]:
    """Parse year, month and day of whole columns, and check them against the calendar."""
    parts = pc.extract_regex(texts, pattern)
    known = ~bools(parts.is_null())
    year, month, day = (
        ints(pc.fill_null(pc.utf8_trim_whitespace(pc.struct_field(parts, name)), "1"))
        for name in ("year", "month", "day")
    )
    months = (year - 1970) * 12 + month - 1
    first, following = (_first_day(month) for month in (months, months + 1))
    known = known & (year > 0) & (day <= following - first)
    return np.where(known, first + day - 1, 0), known


def _first_day(months: Int64Array) -> Int64Array:
    """Return the first day of each month, counted since January 1970."""
    start: Int64Array = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return start


def _by_name(texts: Any, date_format: str, *, whole: bool) -> tuple[Int64Array, BoolArray]:
    """Parse other formats, such as names of months, with the standard library; each different text once."""
    distinct = texts.dictionary_encode()
    read = [_day(text, date_format, whole=whole) for text in distinct.dictionary.to_pylist()]
    values = np.array([day or 0 for day in read], dtype=np.int64)
    known = np.array([day is not None for day in read], dtype=np.bool_)
    positions = ints(distinct.indices)
    return values[positions], known[positions]


def _day(text: str, date_format: str, *, whole: bool) -> int | None:
    try:
        moment = datetime.strptime(text, date_format)  # noqa: DTZ007 - a calendar day, not an instant
        if (confirmed := _confirming(moment, date_format)) != date_format:
            datetime.strptime(text, confirmed)  # noqa: DTZ007 - only whether it fits
    except ValueError:
        return None
    return moment.toordinal() - _EPOCH if not whole or moment.time() == time.min else None


def _confirming(moment: datetime, date_format: str) -> str:
    """Return the format with what `strptime` does not check as literal text of a date that it read.

    It ignores the weekday beside a date, and counts days and weeks of a year into the next one.
    """
    if "%V" in date_format:
        # An ISO week is not accepted without its year; the pattern of other weeks is the same.
        literal, date_format = "G", date_format.replace("%V", "%W")
    else:
        literal = "aAwuY" if "%j" in date_format else "aAwu"

    def written(directive: re.Match[str]) -> str:
        return f"{moment:{directive[0]}}" if directive[1] in literal else directive[0]

    return re.sub("%(.)", written, date_format)
