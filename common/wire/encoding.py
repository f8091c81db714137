"""A fragment as an Arrow IPC stream: written with bounded memory, read as untrusted input.

One int64 column per attribute that the owner masks, in plan order, in resolution units; a column is
dictionary-encoded where that is smaller, with the smallest index type that fits. In layouts with several
groups a first column `token` follows which the records are sorted. The columns are never null.

Reading (`common.wire.decoding`) goes from the outside in, and no step trusts the one after it: size and
kind of every message, the schema, then batch by batch Arrow's full validation, then domains, the order of
tokens and the number of records. A false length cannot make the reader allocate.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array, TokenArray, sortable
from common.errors import IntegrityError, InternalError, TesseraError
from common.model.plan import Plan
from common.model.task import Assignment

BATCH_RECORDS = 65_536
"""Most records of one batch."""
TOKEN_COLUMN = "token"
TOKEN_BYTES = 16
MOST_DISTINCT = 2**20
"""Most values of a dictionary, which writers and readers keep in memory."""
_INDEX_TYPES = (
    (1 << 8, pa.uint8(), np.uint8),
    (1 << 16, pa.uint16(), np.uint16),
    (1 << 31, pa.int32(), np.int32),
)
_OVERHEAD_BYTES = 1 << 20
"""What schema, padding and message headers may add to a fragment, on top of 1 KiB per attribute and batch."""


def has_tokens(plan: Plan) -> bool:
    """Whether the fragments of a plan carry tokens: where groups of attributes have to be aligned."""
    return plan.n_groups > 1


def size_limit(assignment: Assignment, n_records: int) -> int:
    """Return the most bytes that an honest fragment can have, by which an upload is refused early."""
    n_batches = n_records // BATCH_RECORDS + 1
    n_columns = len(assignment.attributes) + 1
    return n_columns * (TOKEN_BYTES * n_records + 1024 * n_batches) + _OVERHEAD_BYTES


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


def decoded_schema(names: list[str], *, tokens: bool) -> pa.Schema:
    """Return the schema of a decoded fragment."""
    fields = [pa.field(name, pa.int64(), nullable=False) for name in names]
    if tokens:
        fields.insert(0, pa.field(TOKEN_COLUMN, pa.binary(TOKEN_BYTES), nullable=False))
    return pa.schema(fields)


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
    for limit, arrow_type, numpy_type in _INDEX_TYPES:
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


def token_array(tokens: TokenArray) -> pa.Array:
    """Return tokens, `(n_records, 16)`, as an array of Arrow's, without copying them."""
    buffer = pa.py_buffer(np.ascontiguousarray(tokens))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(TOKEN_BYTES), len(tokens), [None, buffer])


def token_view(tokens: pa.Array) -> TokenArray:
    """Return the bytes of a token array without copying them; shape (n_records, 16)."""
    buffer = tokens.buffers()[1]
    flat = np.frombuffer(
        buffer, dtype=np.uint8, count=len(tokens) * TOKEN_BYTES, offset=tokens.offset * TOKEN_BYTES
    )
    return flat.reshape(len(tokens), TOKEN_BYTES)


def check_sorted(tokens: pa.Array, previous: bytes | None, error: TesseraError) -> bytes | None:
    """Check that tokens rise strictly, also from the batch before; returns the last one."""
    if not len(tokens):
        return previous
    view = sortable(token_view(tokens))
    first: bytes = token_view(tokens)[0].tobytes()
    last: bytes = token_view(tokens)[-1].tobytes()
    if bool(np.any(view[1:] <= view[:-1])) or (previous is not None and first <= previous):
        raise error
    return last


def check_schema(schema: pa.Schema, names: list[str], *, tokens: bool) -> None:
    """Compare the schema exactly; the only choice that an owner has is how to encode a column."""
    expected = decoded_schema(names, tokens=tokens)
    allowed = {pa.dictionary(index, pa.int64()) for _, index, _ in _INDEX_TYPES}
    if len(schema) != len(expected):
        raise IntegrityError(f"it has {len(schema)} columns, {len(expected)} were agreed")
    fields = [
        field.with_type(pa.int64()) if field.name in names and field.type in allowed else field
        for field in schema
    ]
    if not pa.schema(fields, metadata=schema.metadata).equals(expected, check_metadata=True):
        raise IntegrityError("its columns are not those of the plan")
