"""A fragment's file as a table, checked as if a stranger had made it."""

from pathlib import Path

import pyarrow as pa

from common.plan import Plan
from common.task import Assignment
from common.wire.arrow import decoded_schema, has_tokens, token_array, token_view
from common.wire.arrow_check import FragmentCheck
from common.wire.chunks import read_chunks

_READ_BYTES = 4 << 20


def decode(path: Path, plan: Plan, assignment: Assignment, n_records: int) -> pa.Table:
    """Read and check a fragment.

    Args:
        path: The file; it must not change meanwhile.
        plan: The plan; gives the domains.
        assignment: What its owner masks.
        n_records: How many records the owner stated.

    Returns:
        int64 columns in plan order, in resolution units, after the column `token` where there is one.

    Raises:
        IntegrityError: If the bytes are not exactly such a fragment. Nothing of the data is in the error.
    """
    schema = decoded_schema([attribute.name for attribute in assignment.attributes], tokens=has_tokens(plan))
    fragment, batches = FragmentCheck(plan, assignment, n_records, path.stat().st_size), []
    for piece in read_chunks(path, chunk_bytes=_READ_BYTES):
        batches += [
            pa.record_batch([_own(column) for column in columns], schema=schema)
            for columns in fragment.update(piece)
        ]
    fragment.finish()
    return pa.Table.from_batches(batches, schema=schema)


def _own(column: pa.Array) -> pa.Array:
    """Return a column as integers, or tokens, in memory of its own."""
    if isinstance(column, pa.FixedSizeBinaryArray):
        return token_array(token_view(column).copy())
    # In numpy's memory: Arrow's pool keeps more than it has been asked for.
    if isinstance(column, pa.DictionaryArray):
        return pa.array(column.dictionary.to_numpy()[column.indices.to_numpy()])
    return pa.array(column.to_numpy().copy())
