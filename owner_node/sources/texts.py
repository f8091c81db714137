"""Converts Arrow columns of any type to text, the form that all values are parsed from.

A file's own types do not matter: a number written as a float, a decimal or text is the same number. Floats
become their shortest decimal text, which is what a person who wrote 0.1 meant.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
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
_CONTROLS = r"\x00-\x08\x0e-\x1f"
"""Characters with which no text begins, inside a class of a regular expression."""
_DAY_UNITS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
# Writers of Parquet that do not mark texts as such, and some databases, deliver them as bytes.
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_READABLE = (
    *_TEXTS,
    *_BYTES,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_null,
    SEVERAL_TYPES.equals,
)
_ADVICE = {
    r"time$|time\d": "store times of day as numbers, such as minutes since midnight",
    r"pandas\.interval|^interval$|range": "store ranges as texts, such as 20-29, and declare a category",
    "duration|interval|delta": "store lengths of time as numbers, such as days",
    r"list|array|\[\]|tensor": "store one value in a column, such as the first or the number of values",
    r"\b(?:struct|map|jsonb?|bson|dict|record|row)\b": "store each field as a column of its own",
    "timestamp": "store timestamps without a time zone, or with one that this machine knows",
}
"""What to do about types that cannot be read, by a pattern for their names."""
_OTHER_ADVICE = "cast it to text, or to numbers, dates or booleans"
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
_UUID_DIGITS = np.array([place for place, char in enumerate(_UUID) if char == "x"])


def unreadable(n_records: int, kind: str) -> Any:
    """Return a column of a type that cannot be read, under the name that the source has for the type."""
    return pa.ExtensionArray.from_storage(pa.opaque(pa.null(), kind, "source"), pa.nulls(n_records))


def type_name(kind: Any) -> str:
    """Return the name of an Arrow type for an error, without its parameters."""
    if isinstance(kind, pa.OpaqueType):
        return str(kind.type_name)
    if isinstance(kind, pa.BaseExtensionType):
        return str(kind.extension_name)
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    return re.split(r"[^\w ]", str(kind), maxsplit=1)[0]


def advice(kind: Any) -> str:
    """Return what to do about a type that cannot be read."""
    name = type_name(kind).lower()
    return next((text for pattern, text in _ADVICE.items() if re.search(pattern, name)), _OTHER_ADVICE)


def plain(array: Any) -> Any:
    """Return a readable array without an encoding, and text of any layout as Arrow's plain string type.

    Bytes are texts: those that are not UTF-8 must have been left out.
    """
    array = decode(array)
    kind = array.type
    if isinstance(kind, pa.UuidType):
        return _uuids(array.storage)
    if isinstance(kind, pa.Bool8Type):
        return array.storage.cast(pa.bool_())
    if not pa.types.is_string(kind) and any(test(kind) for test in (*_TEXTS, *_BYTES)):
        return array.cast(pa.string())
    return array


def _is_of_bytes(kind: Any) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _is_of_bytes(kind.value_type)
    return any(test(kind) for test in _BYTES)


def decode(array: Any) -> Any:
    """Return an array without an encoding, and views as bytes; Arrow does not compute with all of them."""
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        array = decode(array.dictionary).take(array.indices)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array


def _uuids(storage: Any) -> Any:
    """Return the texts of UUIDs, 16 bytes each: lower-case hexadecimal digits with hyphens."""
    n_records = len(storage)
    filled = pc.fill_null(storage, bytes(16))
    written = np.frombuffer(filled.buffers()[1], np.uint8)[filled.offset * 16 :][: n_records * 16]
    digits = np.stack([written >> 4, written & 15], axis=1).reshape(n_records, 32)
    texts = np.tile(np.frombuffer(_UUID.encode(), np.uint8), (n_records, 1))
    texts[:, _UUID_DIGITS] = _HEX_DIGITS[digits]
    ends = np.arange(n_records + 1, dtype=np.int32) * len(_UUID)
    made = pa.StringArray.from_buffers(n_records, pa.py_buffer(ends), pa.py_buffer(texts))
    return pc.if_else(storage.is_valid(), made, None)


def undecodable(array: Any) -> Any | None:
    """Return which values of a column of texts or bytes are not UTF-8, `(n_records,)`; None if all are.

    Arrow reads Parquet files without looking, and every later use would fail.
    """
    if pa.types.is_run_end_encoded(array.type):
        array = decode(array)
    held = array.dictionary if pa.types.is_dictionary(array.type) else array
    if not any(test(held.type) for test in (*_TEXTS, *_BYTES)):
        return None
    try:
        if any(test(held.type) for test in _BYTES):
            held.cast(pa.large_string())
        held.validate(full=True)
    except pa.ArrowInvalid:
        return pc.invert(valid_utf8(decode(array).cast(pa.large_binary())))
    return None


def _matching(array: Any, pattern: str) -> Any | None:
    """Return which values of a column of texts or bytes match a regular expression; None if none does."""
    held = array.dictionary if pa.types.is_dictionary(array.type) else decode(array)
    if not any(test(held.type) for test in (*_TEXTS, *_BYTES)):
        return None
    if not pc.any(pc.match_substring_regex(decode(held), pattern), min_count=0).as_py():
        return None
    return pc.fill_null(pc.match_substring_regex(decode(array), pattern), False)


def faults(array: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield what makes texts useless: the problem, what to do, and which values have it, `(n_records,)`."""
    if (marked := undecodable(array)) is not None:
        hint = "write the source again, with texts in UTF-8; for a database, convert them in the query"
        yield "not in the encoding utf-8", hint, marked
    of_bytes = _is_of_bytes(array.type)
    if of_bytes and (marked := _matching(array, f"^[{_CONTROLS}]")) is not None:
        hint = "store bits and other binary values as numbers or texts; in a query, bits are NAME + 0"
        yield "bytes that are no text, such as bits", hint, marked
    nul = rf"(?s)^[^{_CONTROLS}].*\x00" if of_bytes else r"\x00"
    if (marked := _matching(array, nul)) is not None:
        hint = (
            "remove them, or set csv.encoding to the encoding of a CSV file, for example utf-16; a file that "
            "was not written to its end may have them, too"
        )
        yield "text with NUL characters", hint, marked


def filter_values(array: Any, good: Any) -> Any:
    """Return the values of an array of any type where `good`, of shape (n_records,)."""
    return decode(array).filter(good)


def valid_utf8(array: Any) -> Any:
    """Return which values of a binary column are UTF-8, missing ones included."""
    return pc.fill_null(pc.match_substring_regex(array, _UTF8), True)


def on_own_clocks(values: Sequence[Any]) -> Sequence[Any]:
    """Return Python's timestamps so that Arrow keeps each on its own wall clock.

    Arrow would move all to the time zone of the first.

    Args:
        values: Timestamps, None for a missing one; shape (n_records,).
    """
    if len(set(map(attrgetter("tzinfo"), filter(None, values)))) < 2:
        return values
    return [moment if moment is None else moment.replace(tzinfo=None) for moment in values]


def is_readable(kind: Any) -> bool:
    """Return whether values of an Arrow type have a text form."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return is_readable(kind.value_type)
    if pa.types.is_timestamp(kind):
        return kind.tz is None or _is_known_zone(kind)
    return isinstance(kind, pa.UuidType | pa.Bool8Type) or any(test(kind) for test in _READABLE)


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
