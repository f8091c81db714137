"""Converts Arrow columns of any type to text, the form that all values are parsed from.

A file's own types do not matter: a number written as a float, a decimal or text is the same number. Floats
become their shortest decimal text, which is what a person who wrote 0.1 meant.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FAR = 2_932_897
"""Days from 1970-01-01 to the year 10000, the first without ISO dates."""
# Well-formed UTF-8 (Unicode 15, table 3-7), for a regular expression over bytes.
_UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
_DAY_UNITS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def plain(array: Any) -> Any:
    """Return an array without dictionary encoding, and text of any layout as Arrow's plain string type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def undecodable(array: Any) -> Any | None:
    """Return which bytes of a text column are not UTF-8, `(n_records,)`; None if all are.

    Arrow reads Parquet files without looking, and every later use would fail.
    """
    held = array.dictionary if pa.types.is_dictionary(array.type) else array
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not any(test(held.type) for test in kinds):
        return None
    try:
        held.validate(full=True)
    except pa.ArrowInvalid:
        decoded = array.dictionary_decode() if held is not array else array
        return pc.invert(valid_utf8(decoded.cast(pa.large_binary())))
    return None


def valid_utf8(array: Any) -> Any:
    """Return which values of a binary column are UTF-8, missing ones included."""
    return pc.fill_null(pc.match_substring_regex(array, _UTF8), True)


def is_text(array: Any) -> bool:
    """Return whether the source contains text, so that the declared formats of numbers and dates apply."""
    return bool(pa.types.is_string(array.type))


def is_readable(kind: Any) -> bool:
    """Return whether values of an Arrow type have a text form."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _is_known_zone(kind)
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_boolean,
            pa.types.is_date,
            pa.types.is_timestamp,
            pa.types.is_null,
        )
    )


def _is_known_zone(kind: Any) -> bool:
    """Return whether this machine knows the time zone, which the date of a timestamp needs."""
    try:
        pc.local_timestamp(pa.array([0], kind))
    except pa.ArrowException:
        return False
    return True


def as_text(array: Any) -> Any:
    """Return a readable array as strings: shortest decimal text, ISO dates, true and false."""
    array = plain(array)
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pa.types.is_timestamp(array.type):
        days, timed = whole_days(array)
        if not timed.any() and abs(days).max(initial=0) < _FAR:
            null = array.is_null().to_numpy(zero_copy_only=False)
            array = pa.array(days, pa.int32(), mask=null).cast(pa.date32())
    return array.cast(pa.string())


def whole_days(array: Any) -> tuple[Any, Any]:
    """Convert dates and timestamps to days since 1970-01-01.

    Args:
        array: Arrow dates or timestamps; timestamps are read as local time of their own time zone.

    Returns:
        Days, shape (n_records,), 0 for null; and where there is a time of day, which a date would lose.
    """
    if pa.types.is_date32(array.type):
        days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy().astype(np.int64)
        return days, np.zeros(len(array), dtype=np.bool_)
    unit = "ms" if pa.types.is_date64(array.type) else array.type.unit
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    ticks = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    days, rest = np.divmod(ticks, _DAY_UNITS[unit])
    return days, rest != 0
