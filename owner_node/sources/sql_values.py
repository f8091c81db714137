"""Converts values of database drivers to Arrow columns that are read like those of files.

A driver returns Python objects, sometimes of several types in one column (SQLite stores any value anywhere).
Numbers that no 64-bit integer or binary float represents exactly become decimal text, so none is rounded
here. Beside that text stands their text as identifiers, where the two differ. Values without a text form
become a column of a type that loading refuses.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import compress, repeat
from operator import is_
from types import NoneType
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from owner_node.sources.person_texts import person_texts, whole_numerals
from owner_node.sources.texts import SEVERAL_TYPES, as_text, on_own_clocks, unreadable

_AS_THEY_ARE = frozenset({bool, int, float, str, bytes, date, datetime})
_BITS: dict[object, object] = {b"\0": b"0", b"\1": b"1"}
"""One bit, as drivers of MySQL and MariaDB return it."""
_AS_TEXT = frozenset({int, float, str, Decimal, UUID})


def arrow(values: Sequence[object], kind: str = "") -> Any:
    """Return one column of some records as an Arrow array.

    Args:
        values: Values of the driver, None for NULL; shape (n_records,). Bytes that are no UTF-8 in a text are
            lone surrogates.
        kind: The database's name of the column's type, if it has one.

    Returns:
        Arrow array of shape (n_records,); of a type that is not readable if the values cannot be read.
    """
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values))
    if kinds in ({date, str}, {datetime, str}):
        # Dates that Python does not have came as text; the text of the others does not depend on these.
        moments = [value if isinstance(value, date) else None for value in values]
        others = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
        return pc.coalesce(
            as_text(pa.array(on_own_clocks(moments) if datetime in kinds else moments)), others
        )
    if kinds == {bytes}:
        values = [_BITS.get(value, value) for value in values]
    try:
        if kinds == {datetime}:
            return pa.array(on_own_clocks(values))
        if len(kinds) == 1 and kinds <= _AS_THEY_ARE:
            return pa.array(values)
    except UnicodeEncodeError:
        pass
    except (pa.ArrowException, OverflowError, ValueError):
        # Integers beyond 64 bits become text; anything else that Arrow cannot represent is refused below.
        kinds = kinds if kinds <= {int} else {object}
    if not kinds <= _AS_TEXT:
        return unreadable(len(values), kind or " and ".join(sorted(cls.__name__ for cls in kinds)))
    try:
        if kinds & {float, Decimal}:
            return _of_several_types(values)
        return pa.array(list(map(str, values)), pa.string(), mask=_mark(is_, values, None))
    except UnicodeEncodeError:
        # The bytes as they were, to be counted where texts are read.
        written = [str(value).encode(errors="surrogateescape") for value in values]
        return pa.array(written, pa.binary(), mask=_mark(is_, values, None))


def _of_several_types(values: Sequence[object]) -> Any:
    """Return values, floats or decimals among them, as a column of `SEVERAL_TYPES`."""
    types = list(map(type, values))
    missing, floats, decimals = (_mark(is_, types, kind) for kind in (NoneType, float, Decimal))
    written = np.array(list(map(str, values)), dtype=object)
    exact = compress(values, decimals)
    written[decimals] = list(map("{:f}".format, exact))
    text = pa.array(written, pa.string(), mask=missing)
    identifying, fault = text, pa.nulls(len(text), pa.string())
    for marked, column in (
        (floats, person_texts(pa.array(list(compress(values, floats)), pa.float64()))),
        (decimals, whole_numerals(pa.array(written[decimals], pa.string()))),
    ):
        mask = pa.array(marked)
        identifying = pc.replace_with_mask(identifying, mask, column.texts)
        fault = pc.replace_with_mask(fault, mask, column.faults)
    arrays = [text, identifying, fault]
    return pa.StructArray.from_arrays(arrays, fields=list(SEVERAL_TYPES), mask=pa.array(missing))


def _mark(test: Callable[[Any, Any], bool], values: Sequence[object], other: object) -> NDArray[np.bool_]:
    return np.fromiter(map(test, values, repeat(other)), np.bool_, len(values))
