"""Converts values of database drivers to Arrow columns that are read like those of files.

A driver returns Python objects, sometimes of several types in one column (SQLite stores any value anywhere).
Numbers that no 64-bit integer or binary float represents exactly become decimal text, so none is rounded
here. Values without a text form become a column of a type that loading refuses.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import repeat
from operator import is_
from types import NoneType
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

_AS_THEY_ARE = frozenset({bool, int, float, str, date, datetime})
_AS_TEXT = frozenset({int, float, str, Decimal, UUID})


def arrow(values: Sequence[object]) -> Any:
    """Return one column of some records as an Arrow array.

    Args:
        values: Values of the driver, None for NULL; shape (n_records,).

    Returns:
        Arrow array of shape (n_records,); of a binary type if the values cannot be read.
    """
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values))
    try:
        if len(kinds) == 1 and kinds <= _AS_THEY_ARE:
            return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError):
        # Integers beyond 64 bits become text; anything else that Arrow cannot represent is refused below.
        kinds = kinds if kinds <= {int} else {object}
    if not kinds <= _AS_TEXT:
        return pa.nulls(len(values), pa.binary())
    missing = np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))
    return pa.array(list(map(str, values)), pa.string(), mask=missing)
