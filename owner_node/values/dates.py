"""Parses dates to days since 1970-01-01, strictly: only days of the calendar."""

import re
from datetime import date, datetime, time
from typing import Any

import numpy as np
import pyarrow.compute as pc

from common.arrays import Int64Array
from owner_node.values.numerals import BoolArray, bools, ints

_EPOCH = date(1970, 1, 1).toordinal()
# What `datetime.strptime` accepts for these directives, in its order of preference.
_DIRECTIVES = {
    "Y": "(?P<year>[0-9]{4})",
    "m": "(?P<month>1[0-2]|0[1-9]|[1-9])",
    "d": "(?P<day>3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9])",
}


def days(texts: Any, date_format: str) -> tuple[Int64Array, BoolArray]:
    """Read dates.

    Args:
        texts: Arrow string array without nulls, shape (n_records,).
        date_format: How they are written, in the directives of `datetime.strptime`.

    Returns:
        Days since 1970-01-01, 0 for texts that are no dates; and which texts are dates. A text with a time of
        day is no date.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    pattern = _pattern(date_format)
    return _by_name(trimmed, date_format) if pattern is None else _by_number(trimmed, pattern)


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
    first, following = (_first_day(each) for each in (months, months + 1))
    known = known & (year > 0) & (day <= following - first)
    return np.where(known, first + day - 1, 0), known


def _first_day(months: Int64Array) -> Int64Array:
    """Return the first day of each month, counted since January 1970."""
    start: Int64Array = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return start


def _by_name(texts: Any, date_format: str) -> tuple[Int64Array, BoolArray]:
    """Parse other formats, such as names of months, with the standard library; each different text once."""
    distinct = texts.dictionary_encode()
    read = [_day(text, date_format) for text in distinct.dictionary.to_pylist()]
    values = np.array([day or 0 for day in read], dtype=np.int64)
    known = np.array([day is not None for day in read], dtype=np.bool_)
    positions = ints(distinct.indices)
    return values[positions], known[positions]


def _day(text: str, date_format: str) -> int | None:
    try:
        moment = datetime.strptime(text, date_format)  # noqa: DTZ007 - a calendar day, not an instant
    except ValueError:
        return None
    return moment.toordinal() - _EPOCH if moment.time() == time.min else None
