"""The digest that pins a loaded data set: over its settings, values and identifiers."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.canonical import canonical
from common.model.schema import Attribute

DIGEST_VERSION = 1


def source_digest(
    attributes: Sequence[Attribute],
    columns: Mapping[str, Int64Array],
    identifiers: Sequence[Any],
    *,
    ordered: bool,
) -> str:
    """Digest settings, values and identifiers, independent of their encoding in the source.

    Args:
        attributes: The attributes, in declared order.
        columns: Their values by name, each of shape (n_records,).
        identifiers: One Arrow string array per identifier column, each of shape (n_records,).
        ordered: Whether the order of the records is part of the data. If not, records are sorted by their
            content, so that a database may return them in any order.

    Returns:
        SHA-256, lower-case hexadecimal.
    """
    head = {
        "version": DIGEST_VERSION,
        "attributes": [attribute.to_document() for attribute in attributes],
        "identifiers": len(identifiers),
        "records": len(next(iter(columns.values()), ())),
    } | ({} if ordered else {"order": "sorted"})
    state = hashlib.sha256(canonical(head) + b"\n")
    order = None if ordered else _sorted(columns, identifiers)
    for column in columns.values():
        state.update((column if order is None else column[order]).astype("<i8", copy=False).data)
    for found in identifiers:
        identifier = found if order is None else found.take(pa.array(order))
        # Lengths first: without them the same bytes could be divided into other identifiers.
        lengths = pc.binary_length(identifier).to_numpy().astype("<i8")
        state.update(lengths.data)
        _, offsets, data = identifier.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[identifier.offset :][: len(identifier) + 1]
        if data is not None:
            state.update(memoryview(data)[ends[0] : ends[-1]])
    return state.hexdigest()


def _sorted(columns: Mapping[str, Int64Array], identifiers: Sequence[Any]) -> Int64Array:
    """Return the order of the records by their whole content, identifiers first."""
    keys = [*identifiers, *map(pa.array, columns.values())]
    table = pa.table(keys, names=[str(number) for number in range(len(keys))])
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    positions: Int64Array = order.to_numpy().astype(np.int64, copy=False)
    return positions
