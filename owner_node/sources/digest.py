"""The digest that pins a loaded data set: over its settings, values and identifiers."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
    opt_out: str = "",
) -> str:
    """Digest settings, values and identifiers in memory, independent of their encoding in the source.

    Args:
        attributes: The attributes, in declared order.
        columns: Their values by name, each of shape (n_records,).
        identifiers: One Arrow string array per identifier column, each of shape (n_records,).
        ordered: Whether the order of the records is part of the data. If not, records are sorted by their
            content, so that a database may return them in any order.
        opt_out: Digest of the identifiers of persons who opted out; empty without such a list.

    Returns:
        SHA-256, lower-case hexadecimal.
    """
    order = None if ordered else _sort_order(columns, identifiers)
    n_records = len(next(iter(columns.values()), ()))
    values = ([column if order is None else column[order]] for column in columns.values())
    texts = ([array if order is None else array.take(pa.array(order))] for array in identifiers)
    return digest_of(attributes, values, list(texts), n_records, ordered=ordered, opt_out=opt_out)


def digest_of(
    attributes: Sequence[Attribute],
    columns: Iterable[Iterable[Int64Array]],
    identifiers: Sequence[Iterable[Any]],
    n_records: int,
    *,
    ordered: bool,
    opt_out: str = "",
) -> str:
    """Digest settings, values and identifiers that come some records at a time.

    Args:
        identifiers: The Arrow string arrays of each identifier column, some records at a time; read twice.
        ordered: As in `source_digest`; if not, the records come sorted by their content, identifiers first.
    """
    head = {
        "version": DIGEST_VERSION,
        "attributes": [attribute.to_document() for attribute in attributes],
        "identifiers": len(identifiers),
        "records": n_records,
    } | ({} if ordered else {"order": "sorted"})
    if opt_out:
        head["opt_out"] = opt_out
    state = hashlib.sha256(canonical(head) + b"\n")
    for column in columns:
        for values in column:
            state.update(values.astype("<i8", copy=False).data)
    for identifier in identifiers:
        # Lengths first: without them the same bytes could be divided into other identifiers.
        for texts in identifier:
            state.update(pc.binary_length(texts).to_numpy().astype("<i8").data)
        for texts in identifier:
            _, offsets, data = texts.buffers()
            ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset :][: len(texts) + 1]
            if data is not None:
                state.update(memoryview(data)[ends[0] : ends[-1]])
    return state.hexdigest()


def _sort_order(columns: Mapping[str, Int64Array], identifiers: Sequence[Any]) -> Int64Array:
    """Return the order of the records by their whole content, identifiers first."""
    keys = [*identifiers, *map(pa.array, columns.values())]
    table = pa.table(keys, names=[str(number) for number in range(len(keys))])
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    positions: Int64Array = order.to_numpy().astype(np.int64, copy=False)
    return positions
