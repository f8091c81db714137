"""The table of a release: its columns, its values in resolution units and in release types, and its CSV form.

The columns are `record` (int64 from 1), then the attributes in plan order as int64, decimal128, date32,
dictionary<string> or bool.

CSV is UTF-8 and RFC 4180, with every value exactly as the release means it. Arrow's own CSV writer ends lines
with a single line feed and writes small decimals with an exponent. Therefore the lines are assembled here,
one batch at a time and without a loop over records.
"""

from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType

RECORD_COLUMN = "record"
"""Number of the released record, from 1; says nothing about where it came from."""


def release_type(attribute: Attribute) -> pa.DataType:
    """Return the Arrow type of a released attribute."""
    match attribute.type:
        case AttributeType.INTEGER:
            return pa.int64()
        case AttributeType.NUMBER:
            return pa.decimal128(_precision(attribute), attribute.decimals)
        case AttributeType.DATE:
            return pa.date32()
        case AttributeType.CATEGORY:
            return pa.dictionary(pa.int32(), pa.string(), ordered=attribute.ordered)
        case AttributeType.BOOLEAN:
            return pa.bool_()


def _precision(attribute: Attribute) -> int:
    """Return the fewest digits that hold the whole domain, with one before the point at least."""
    digits = len(str(max(abs(attribute.lower), abs(attribute.upper))))
    return max(digits, attribute.decimals + 1)


def release_schema(plan: Plan) -> pa.Schema:
    """Return the schema of a release."""
    fields = [pa.field(each.name, release_type(each), nullable=False) for each in plan.attributes]
    return pa.schema([pa.field(RECORD_COLUMN, pa.int64(), nullable=False), *fields])


def from_units(attribute: Attribute, units: Int64Array) -> pa.Array:
    """Turn values into their release type.

    Args:
        attribute: The attribute.
        units: Values in resolution units within the attribute's domain, shape (n_records,).

    Returns:
        An array of `release_type(attribute)`.
    """
    kind = release_type(attribute)
    whole = pa.array(units, pa.int64())
    match attribute.type:
        case AttributeType.INTEGER:
            return whole
        case AttributeType.NUMBER:
            # A decimal128 is its units as a 128-bit integer: the same bytes under another scale.
            wide = pc.cast(whole, pa.decimal128(38, 0))
            return pa.Array.from_buffers(kind, len(units), wide.buffers())
        case AttributeType.DATE:
            return pc.cast(pc.cast(whole, pa.int32()), kind)
        case AttributeType.CATEGORY:
            labels = pa.array(attribute.categories, pa.string())
            indices = pc.cast(whole, pa.int32())
            return pa.DictionaryArray.from_arrays(indices, labels, ordered=attribute.ordered)
        case AttributeType.BOOLEAN:
            return pc.equal(whole, 1)


def to_units(attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn a released column, or its text in a CSV file, back into resolution units.

    Args:
        attribute: The attribute.
        column: A column of a release.

    Returns:
        The values as int64; null for a category that is not declared.

    Raises:
        pyarrow.ArrowException: If a value is none of the attribute's type.
    """
    match attribute.type:
        case AttributeType.INTEGER:
            return pc.cast(column, pa.int64())
        case AttributeType.NUMBER:
            exact = pc.cast(column, pa.decimal128(38, attribute.decimals))
            return pc.cast(pa.chunked_array(map(_unscaled, exact.chunks), pa.decimal128(38, 0)), pa.int64())
        case AttributeType.DATE:
            return pc.cast(pc.cast(pc.cast(column, pa.date32()), pa.int32()), pa.int64())
        case AttributeType.CATEGORY:
            labels = pa.array(attribute.categories, pa.string())
            return pc.cast(pc.index_in(pc.cast(column, pa.string()), value_set=labels), pa.int64())
        case AttributeType.BOOLEAN:
            return pc.cast(pc.cast(column, pa.bool_()), pa.int64())


def _unscaled(decimals: pa.Array) -> pa.Array:
    kind = pa.decimal128(38, 0)
    return pa.Array.from_buffers(kind, len(decimals), decimals.buffers(), offset=decimals.offset)


_BATCH_RECORDS = 65_536
_NEEDS_QUOTES = '[",\r\n]'


def write_csv(stream: BinaryIO, table: pa.Table) -> None:
    """Write a table of release types, with a header line.

    Args:
        stream: A binary file open for writing.
        table: The release (`common.release.table.release_schema`), without missing values.
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
