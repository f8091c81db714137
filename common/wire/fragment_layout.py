"""The layout of a fragment, an Arrow IPC stream that is read as untrusted input.

One int64 column per attribute that the owner masks, in plan order, in resolution units; a column is
dictionary-encoded where that is smaller, with the smallest index type that fits. In layouts with several
groups a first column `token` follows which the records are sorted. The columns are never null.
"""

import numpy as np
import pyarrow as pa

from common.arrays import TokenArray, sortable
from common.errors import IntegrityError, TesseraError
from common.model.plan import Plan
from common.model.task import Assignment

BATCH_RECORDS = 65_536
"""Most records of one batch."""
TOKEN_COLUMN = "token"
TOKEN_BYTES = 16
MOST_DISTINCT = 2**20
"""Most values of a dictionary, which writers and readers keep in memory."""
INDEX_TYPES = (
    (1 << 8, pa.uint8(), np.uint8),
    (1 << 16, pa.uint16(), np.uint16),
    (1 << 31, pa.int32(), np.int32),
)
_OVERHEAD_BYTES = 1 << 20
"""Most bytes of schema, padding and message headers, on top of 1 KiB per attribute and batch."""


def has_tokens(plan: Plan) -> bool:
    """Return whether the fragments of a plan carry tokens: where groups of attributes have to be aligned."""
    return plan.n_groups > 1


def size_limit(assignment: Assignment, n_records: int) -> int:
    """Return the most bytes that an honest fragment can have, by which an upload is refused early."""
    n_batches = n_records // BATCH_RECORDS + 1
    n_columns = len(assignment.attributes) + 1
    return n_columns * (TOKEN_BYTES * n_records + 1024 * n_batches) + _OVERHEAD_BYTES


def decoded_schema(names: list[str], *, tokens: bool) -> pa.Schema:
    """Return the schema of a decoded fragment."""
    fields = [pa.field(name, pa.int64(), nullable=False) for name in names]
    if tokens:
        fields.insert(0, pa.field(TOKEN_COLUMN, pa.binary(TOKEN_BYTES), nullable=False))
    return pa.schema(fields)


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
    allowed = {pa.dictionary(index, pa.int64()) for _, index, _ in INDEX_TYPES}
    if len(schema) != len(expected):
        raise IntegrityError(f"it has {len(schema)} columns, {len(expected)} were agreed")
    fields = [
        field.with_type(pa.int64()) if field.name in names and field.type in allowed else field
        for field in schema
    ]
    if not pa.schema(fields, metadata=schema.metadata).equals(expected, check_metadata=True):
        raise IntegrityError("its columns are not those of the plan")
