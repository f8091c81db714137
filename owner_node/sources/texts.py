"""Converts Arrow columns of any type to text, the form that all values are parsed from.

A file's own types do not matter: a number written as a float, a decimal or text is the same number. Floats
become their shortest decimal text, which is what a person who wrote 0.1 meant.
"""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEVERAL_TYPES = pa.struct([("text", pa.string()), ("identifying", pa.string()), ("fault", pa.string())])
"""A column in which a database's driver returned values of several types: the text of each value, its text as
an identifier, and why it cannot be one (`owner_node.sources.person_texts`)."""
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
            SEVERAL_TYPES.equals,
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
    """Return a readable array as strings: shortest decimal text, ISO dates, true and false.

    The text of a value never depends on the values beside it.
    """
    array = plain(array)
    if array.type == SEVERAL_TYPES:
        return pc.struct_field(array, "text")
    if pa.types.is_float16(array.type):
        return _half_floats(array)
    if pa.types.is_timestamp(array.type):
        return _moments(array)
    return array.cast(pa.string())


def _half_floats(array: Any) -> Any:
    """Write 16-bit floats, for which Arrow writes the digits of a larger float; there are 65,536 of them."""
    distinct = array.dictionary_encode()
    shortest = partial(np.format_float_positional, trim="-")
    texts = map(shortest, distinct.dictionary.to_numpy(zero_copy_only=False))
    return pa.array(texts, pa.string()).take(distinct.indices)


def _moments(array: Any) -> Any:
    """Write timestamps as dates, and as dates with the time of day where there is one."""
    null = array.is_null().to_numpy(zero_copy_only=False)
    days, timed = whole_days(array)
    dates = pa.array(days, pa.int32(), mask=null).cast(pa.date32()).cast(pa.string())
    if not timed.any():
        return dates
    _, rest = _wall_clock(array)
    whole, fraction = np.divmod(rest, _DAY_UNITS[array.type.unit] // _DAY_UNITS["s"])
    clock = pa.array(whole, pa.int32()).cast(pa.time32("s")).cast(pa.string())
    if fraction.any():
        scaled = fraction * (_DAY_UNITS["ns"] // _DAY_UNITS[array.type.unit])
        digits = pc.utf8_lpad(pa.array(scaled).cast(pa.string()), 9, "0")
        digits = pc.utf8_rtrim(pc.binary_join_element_wise(".", digits, ""), "0")
        clock = pc.binary_join_element_wise(clock, pc.utf8_rtrim(digits, "."), "")
    return pc.if_else(pa.array(timed), pc.binary_join_element_wise(dates, clock, " "), dates)


def _wall_clock(array: Any) -> tuple[Any, Any]:
    """Return days since 1970-01-01 and ticks since midnight of timestamps, 0 for null, in their time zone."""
    local = pc.local_timestamp(array) if array.type.tz is not None else array
    ticks = pc.fill_null(local.cast(pa.int64()), 0).to_numpy()
    return np.divmod(ticks, _DAY_UNITS[array.type.unit])


def whole_days(array: Any) -> tuple[Any, Any]:
    """Convert dates and timestamps to days since 1970-01-01.

    Args:
        array: Arrow dates or timestamps; timestamps are read as local time of their own time zone.

    Returns:
        Days, shape (n_records,), 0 for null; and where there is a time of day, which a date would lose. A day
        without midnight, when clocks are put forward then, begins at its first instant.
    """
    if pa.types.is_date32(array.type):
        days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy().astype(np.int64)
        return days, np.zeros(len(array), dtype=np.bool_)
    if pa.types.is_date64(array.type):
        days, rest = np.divmod(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(), _DAY_UNITS["ms"])
        return days, rest != 0
    days, rest = _wall_clock(array)
    timed = rest != 0
    if array.type.tz is not None and timed.any():
        late = np.flatnonzero(timed)
        timed[late] = _after_first_instant(array.take(pa.array(late)))
    return days, timed


def _after_first_instant(array: Any) -> Any:
    """Return which timestamps with a time zone are later than the first instant of their day."""
    midnight = pc.floor_temporal(pc.local_timestamp(array), unit="day")
    begin = pc.assume_timezone(midnight, array.type.tz, ambiguous="earliest", nonexistent="latest")
    return pc.not_equal(array, begin).to_numpy(zero_copy_only=False)
