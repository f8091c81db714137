"""Fragments, written with bounded memory (`common.wire.fragment_layout`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array, TokenArray
from common.errors import InternalError
from common.model.task import Assignment
from common.wire.fragment_layout import (
    BATCH_RECORDS,
    INDEX_TYPES,
    MOST_DISTINCT,
    TOKEN_BYTES,
    TOKEN_COLUMN,
    check_sorted,
    token_array,
)


def encode(
    stream: BinaryIO,
    assignment: Assignment,
    columns: Mapping[str, Int64Array],
    order: Int64Array,
    tokens: TokenArray | None = None,
) -> None:
    """Write a fragment of columns in memory. Needs memory for one batch and the distinct values.

    Args:
        assignment: What the owner masks; its attributes give the columns and their order.
        columns: Masked values in resolution units by attribute name, each of shape (n_records,).
        order: The order to write the records in, shape (n_records,): by token in layouts with several
            groups, else random.
        tokens: Tokens in the order of `columns`, shape (n_records, 16); only with several groups.
    """
    n_records = len(order)
    names = [attribute.name for attribute in assignment.attributes]
    if any(columns[name].shape != (n_records,) for name in names):
        raise InternalError("the columns of a fragment have different lengths")
    if tokens is not None and (tokens.shape != (n_records, TOKEN_BYTES) or tokens.dtype != np.uint8):
        raise InternalError("a fragment needs one token of 16 bytes for every record")

    def batches() -> Iterator[tuple[list[Int64Array], TokenArray | None]]:
        for start in range(0, n_records, BATCH_RECORDS):
            chosen = order[start : start + BATCH_RECORDS]
            yield [columns[name][chosen] for name in names], None if tokens is None else tokens[chosen]

    distinct = [_distinct(columns[name]) for name in names]
    encode_batches(stream, assignment, distinct, n_records, batches(), tokens=tokens is not None)


def encode_batches(
    stream: BinaryIO,
    assignment: Assignment,
    distinct: Sequence[Int64Array | None],
    n_records: int,
    batches: Iterable[tuple[Sequence[Int64Array], TokenArray | None]],
    *,
    tokens: bool,
) -> None:
    """Write a fragment whose records come in their final order.

    Args:
        distinct: The distinct values of each column, ascending; None where there are more than
            `MOST_DISTINCT`.
        batches: Masked values of the columns, and tokens or None; `BATCH_RECORDS` records at a time, the last
            ones fewer.
    """
    names = [attribute.name for attribute in assignment.attributes]
    dictionaries = [_dictionary(values, n_records) for values in distinct]
    fields = [_field(name, values) for name, values in zip(names, dictionaries, strict=True)]
    if tokens:
        fields.insert(0, pa.field(TOKEN_COLUMN, pa.binary(TOKEN_BYTES), nullable=False))
    schema = pa.schema(fields)
    previous: bytes | None = None
    with pa.ipc.new_stream(stream, schema) as writer:
        for columns, some_tokens in batches:
            arrays = list(map(_encode_column, columns, dictionaries))
            if some_tokens is not None:
                arrays.insert(0, token_array(some_tokens))
                previous = check_sorted(arrays[0], previous, InternalError("the order does not sort tokens"))
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _distinct(values: Int64Array) -> Int64Array | None:
    """Return the distinct values, ascending; None if there are more than `MOST_DISTINCT`."""
    distinct = pc.unique(pa.array(values)).to_numpy(zero_copy_only=False)
    return np.sort(distinct) if len(distinct) <= MOST_DISTINCT else None


def _dictionary(distinct: Int64Array | None, n_records: int) -> Int64Array | None:
    """Return the distinct values if indices into them and they themselves are smaller than int64."""
    if distinct is None:
        return None
    index_bytes = _index_type(len(distinct))[0].bit_width // 8
    return distinct if n_records * index_bytes + 8 * len(distinct) < 8 * n_records else None


def _index_type(n_distinct: int) -> tuple[Any, type[np.integer[Any]]]:
    for limit, arrow_type, numpy_type in INDEX_TYPES:
        if n_distinct <= limit:
            return arrow_type, numpy_type
    return pa.int64(), np.int64


def _field(name: str, dictionary: Int64Array | None) -> pa.Field:
    if dictionary is None:
        return pa.field(name, pa.int64(), nullable=False)
    return pa.field(name, pa.dictionary(_index_type(len(dictionary))[0], pa.int64()), nullable=False)


def _encode_column(values: Int64Array, dictionary: Int64Array | None) -> pa.Array:
    if dictionary is None:
        return pa.array(values, pa.int64())
    indices = np.searchsorted(dictionary, values).astype(_index_type(len(dictionary))[1])
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(dictionary, pa.int64()))
