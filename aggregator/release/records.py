"""Records of a fixed size: fragments and joined records between decoding and publication.

A record is an element of a structured array with one field per column, after its token where there is one. A
field has as many bytes as the domain of its attribute needs, and counts from the lower end of the domain, so
that a record takes a fraction of what its columns take as 64-bit integers. It can be moved, and written to a
scratch file, as a whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from common.arrays import Int64Array, sortable
from common.model.plan import Plan
from common.model.schema import Attribute
from common.model.task import Assignment
from common.release.table import in_pieces, release_table
from common.runs import Records
from common.wire.fragment_layout import TOKEN_BYTES, TOKEN_COLUMN, has_tokens, token_view

_PIECE_RECORDS = 1 << 20
_BLOCK_RECORDS = 1 << 13
_VALUE_BYTES = 48
"""Of one value while it is published: as a 64-bit integer, in its release type, and encoded."""


def record_type(attributes: Sequence[Attribute], *, tokens: bool) -> np.dtype[Any]:
    """Return the type of records with some attributes."""
    fields: list[tuple[str, Any]] = [(TOKEN_COLUMN, f"S{TOKEN_BYTES}")] if tokens else []
    return np.dtype(fields + [(attribute.name, _field_type(attribute)) for attribute in attributes])


def _field_type(attribute: Attribute) -> type[np.integer[Any]]:
    span = attribute.highest - attribute.lower
    narrow = (kind for kind in (np.uint8, np.uint16, np.uint32) if span <= np.iinfo(kind).max)
    return next(narrow, np.int64)


def joined_type(plan: Plan) -> np.dtype[Any]:
    """Return the type of the joined records of a release."""
    return record_type(plan.joined, tokens=False)


def fragment_type(plan: Plan, assignment: Assignment) -> np.dtype[Any]:
    """Return the type of the records of a fragment."""
    attributes = [plan.attribute(planned.name) for planned in assignment.attributes]
    return record_type(attributes, tokens=has_tokens(plan))


def pack(
    plan: Plan, assignment: Assignment, batches: Iterable[pa.RecordBatch], whole: Records | None = None
) -> Iterator[Records]:
    """Turn the batches of a fragment into records.

    Args:
        batches: Its batches (`common.wire.decoding.decode_batches`).
        whole: Takes all its records, one batch after the other; None: every batch gets its own memory.

    Yields:
        The records of each batch, of `fragment_type`.
    """
    dtype = fragment_type(plan, assignment)
    attributes = [plan.attribute(planned.name) for planned in assignment.attributes]
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        records = np.empty(batch.num_rows, dtype=dtype) if whole is None else whole[start:stop]
        start = stop
        if has_tokens(plan):
            records[TOKEN_COLUMN] = sortable(token_view(batch.column(TOKEN_COLUMN)))
        for attribute in attributes:
            units = batch.column(attribute.name).to_numpy()
            records[attribute.name] = units if dtype[attribute.name] == np.int64 else units - attribute.lower
        yield records


def _units(attributes: Sequence[Attribute], records: Records) -> list[Int64Array]:
    """Return columns of some records in resolution units, each of shape (n_records,)."""
    # One array for all: numpy asks for large pages from 4 MB on, and each page takes time to get.
    columns = list(np.empty((len(attributes), len(records)), dtype=np.int64))
    # A record is read once, although its columns are read one after another: a block stays in the cache.
    for start in range(0, len(records), _BLOCK_RECORDS):
        block = records[start : start + _BLOCK_RECORDS]
        for attribute, column in zip(attributes, columns, strict=True):
            column[start : start + len(block)] = block[attribute.name]
    for attribute, column in zip(attributes, columns, strict=True):
        if records.dtype[attribute.name] != np.int64:
            np.add(column, attribute.lower, out=column)
    return columns


def to_release(plan: Plan, records: Iterable[Records], memory: int) -> Iterator[pa.Table]:
    """Turn joined records into the released table.

    Args:
        records: Of `joined_type`, in the order in which they are released.
        memory: Bytes that a piece may take while it is published.

    Yields:
        Pieces in release types, numbered from 1 in the column `record`.
    """
    size = min(max(memory // (_VALUE_BYTES * (len(plan.columns) + 1)), 1), _PIECE_RECORDS)
    yield from in_pieces(_tables(plan, records, size), size)


def _tables(plan: Plan, records: Iterable[Records], size: int) -> Iterator[pa.Table]:
    first = 1
    for array in records:
        for start in range(0, len(array), size):
            piece = array[start : start + size]
            units = dict(zip((each.name for each in plan.joined), _units(plan.joined, piece), strict=True))
            yield release_table(plan, units, len(piece), first)
            first += len(piece)
