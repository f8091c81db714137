"""A release as CSV: UTF-8, RFC 4180, every value exactly as the release means it.

Arrow's own CSV writer ends lines with a single line feed and writes small decimals with an exponent, so the
lines are put together here, a batch at a time and without a loop over records.
"""

from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

_BATCH_RECORDS = 65_536
_NEEDS_QUOTES = '[",\r\n]'


def write_csv(stream: BinaryIO, table: pa.Table) -> None:
    """Write a table of release types, with a header line.

    Args:
        stream: A binary file open for writing.
        table: The release (`common.release_table.release_schema`), without missing values.
    """
    header = _quoted(pa.array(table.column_names, pa.string())).to_pylist()
    stream.write((",".join(header) + "\r\n").encode())
    for batch in table.to_batches(max_chunksize=_BATCH_RECORDS):
        columns = [_text(column) for column in batch.columns]
        columns[-1] = pc.binary_join_element_wise(columns[-1], "\r\n", "")
        lines = pc.binary_join_element_wise(*columns, ",")
        stream.write(_content(lines))


def _content(texts: pa.Array) -> memoryview:
    """Return the bytes of all elements of a string array, one after another, without copying them."""
    offsets = texts.buffers()[1]
    ends = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, offsets], offset=texts.offset)
    first, last = ends[0].as_py(), ends[len(texts)].as_py()
    return memoryview(texts.buffers()[2])[first:last]


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        labels = _quoted(column.dictionary)
        return labels.take(column.indices)
    if pa.types.is_decimal(kind):
        return _decimal_text(column, kind)
    return pc.cast(column, pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    """Quote what RFC 4180 says must be quoted."""
    doubled = pc.replace_substring(texts, pattern='"', replacement='""')
    wrapped = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, pattern=_NEEDS_QUOTES), wrapped, texts)


def _decimal_text(column: pa.Array, kind: Any) -> pa.Array:
    """Write a decimal with all its places and never with an exponent."""
    whole = pa.decimal128(38, 0)
    units = pa.Array.from_buffers(whole, len(column), column.buffers(), offset=column.offset)
    # Not the absolute value as text: the lowest 64-bit integer has none.
    digits = pc.utf8_ltrim(pc.cast(pc.cast(units, pa.int64()), pa.string()), characters="-")
    if kind.scale:
        padded = pc.utf8_lpad(digits, width=kind.scale + 1, padding="0")
        before = pc.utf8_slice_codeunits(padded, start=0, stop=-kind.scale)
        after = pc.utf8_slice_codeunits(padded, start=-kind.scale)
        digits = pc.binary_join_element_wise(before, after, ".")
    sign = pc.if_else(pc.less(units, pa.scalar(0, whole)), "-", "")
    return pc.binary_join_element_wise(sign, digits, "")
