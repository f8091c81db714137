"""Arrow columns of any type as text, the one form that all values are parsed from.

A file's own types decide nothing: a number written as a float, a decimal or text is the same number. Floats
become their shortest decimal text, which is what the person who wrote 0.1 meant.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAY_UNITS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def plain(array: Any) -> Any:
    """Return an array without dictionary encoding, and text of any layout as Arrow's plain string type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def is_text(array: Any) -> bool:
    """Whether the source itself holds text, so that the declared ways of writing numbers and dates apply."""
    return bool(pa.types.is_string(array.type))


def is_readable(kind: Any) -> bool:
    """Whether values of an Arrow type have a text form at all."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
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


def as_text(array: Any) -> Any:
    """Return a readable array as strings: shortest decimal text, ISO dates, true and false."""
    array = plain(array)
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pa.types.is_timestamp(array.type):
        days, timed = whole_days(array)
        if not timed.any():
            array = pa.array(days, pa.int32(), mask=pc.is_null(array).to_numpy(zero_copy_only=False)).cast(
                pa.date32()
            )
    return array.cast(pa.string())


def whole_days(array: Any) -> tuple[Any, Any]:
    """Turn dates and timestamps into days since 1970-01-01.

    Args:
        array: Arrow dates or timestamps; a timestamp counts as written on the wall of its own time zone.

    Returns:
        Days, shape (n_records,), 0 where null; and where there is a time of day that a date cannot keep.
    """
    if pa.types.is_date(array.type):
        days = pc.fill_null(array.cast(pa.date32()).cast(pa.int32()), 0).to_numpy().astype(np.int64)
        return days, np.zeros(len(array), dtype=np.bool_)
    if array.type.tz is not None:
        array = pc.local_timestamp(array)
    ticks = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    days, rest = np.divmod(ticks, _DAY_UNITS[array.type.unit])
    return days, rest != 0
