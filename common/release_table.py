"""The table of a release: its columns, and each attribute between resolution units and release type.

`record` (int64 from 1), then the attributes in plan order as int64, decimal128, date32,
dictionary<string> or bool.
"""

import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.plan import Plan
from common.schema import Attribute, AttributeType

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
