"""Values of a release: in resolution units, in Arrow, and in a DataFrame.

A number is the double nearest to it, from which its decimal digits follow exactly; where its domain has more
than 15 digits they would not, and it is a decimal128.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.model.schema import Attribute, AttributeType

if TYPE_CHECKING:
    import pandas as pd

_MOST_DIGITS = 15
"""Decimal numbers of up to this many digits survive the conversion to a double and back."""


class _Form:
    """How the values of a type stand in a release: in Arrow, and in a DataFrame. This one is of integers.

    Its units are those of 10^-decimals.
    """

    def type(self, _attribute: Attribute) -> pa.DataType:
        """Return the Arrow type."""
        return pa.int64()

    def from_units(self, attribute: Attribute, units: Int64Array) -> pa.Array:
        """Turn units, none of which is missing, into values."""
        return pc.cast(pa.array(units, pa.int64()), self.type(attribute))

    def to_units(self, _attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Turn values, or their texts, none of which is missing, into int64."""
        return pc.cast(column, pa.int64())

    def to_series(self, attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        """Return a released column as pandas has it."""
        import pandas as pd

        if not attribute.keeps_missing:
            return pd.Series(column.to_numpy())
        units = to_units(attribute, column).to_numpy()
        return pd.Series(units * attribute.step, dtype="Int64").mask(units > attribute.upper)


class _Number(_Form):
    def type(self, attribute: Attribute) -> pa.DataType:
        digits = len(str(max(abs(attribute.lower), abs(attribute.upper)) * attribute.step))
        exact = pa.decimal128(max(digits, attribute.decimals + 1), attribute.decimals)
        return pa.float64() if digits <= _MOST_DIGITS else exact

    def from_units(self, attribute: Attribute, units: Int64Array) -> pa.Array:
        kind = self.type(attribute)
        if pa.types.is_floating(kind):
            return pa.array(units / np.float64(10**attribute.decimals))
        # A decimal128 is its units as a 128-bit integer: the same bytes under another scale.
        wide = pc.cast(pa.array(units, pa.int64()), pa.decimal128(38, 0))
        return pa.Array.from_buffers(kind, len(units), wide.buffers())

    def to_units(self, attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_floating(column.type):
            return units_of_doubles(column, attribute.decimals)
        exact = pc.cast(column, pa.decimal128(38, attribute.decimals))
        return pc.cast(pa.chunked_array(map(unscaled, exact.chunks), pa.decimal128(38, 0)), pa.int64())

    def to_series(self, _attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        import pandas as pd

        if pa.types.is_decimal(column.type):
            return pd.Series(pd.array(column.combine_chunks(), dtype=pd.ArrowDtype(column.type)))
        return pd.Series(column.to_numpy())


class _Date(_Form):
    def type(self, _attribute: Attribute) -> pa.DataType:
        return pa.date32()

    def from_units(self, _attribute: Attribute, units: Int64Array) -> pa.Array:
        return pc.cast(pc.cast(pa.array(units, pa.int64()), pa.int32()), pa.date32())

    def to_units(self, _attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.cast(pc.cast(pc.cast(column, pa.date32()), pa.int32()), pa.int64())

    def to_series(self, attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        import pandas as pd

        days = to_units(attribute, column).to_numpy()
        dates = pd.Series(days.astype("datetime64[D]").astype("datetime64[s]"))
        return dates.mask(days > attribute.upper) if attribute.keeps_missing else dates


class _Category(_Form):
    def type(self, attribute: Attribute) -> pa.DataType:
        return pa.dictionary(pa.int32(), pa.string(), ordered=attribute.ordered)

    def from_units(self, attribute: Attribute, units: Int64Array) -> pa.Array:
        labels, indices = pa.array(attribute.categories, pa.string()), pa.array(units, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, labels, ordered=attribute.ordered)

    def to_units(self, attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        labels = pa.array(attribute.categories, pa.string())
        return pc.cast(pc.index_in(pc.cast(column, pa.string()), value_set=labels), pa.int64())

    def to_series(self, attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        import pandas as pd

        labels = pd.CategoricalDtype(list(attribute.categories), ordered=attribute.ordered)
        return pd.Series(pd.Categorical.from_codes(self.to_units(attribute, column).to_numpy(), dtype=labels))


class _Boolean(_Form):
    def type(self, _attribute: Attribute) -> pa.DataType:
        return pa.bool_()

    def to_units(self, _attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.cast(pc.cast(column, pa.bool_()), pa.int64())


_FORMS: Mapping[AttributeType, _Form] = {
    AttributeType.INTEGER: _Form(),
    AttributeType.NUMBER: _Number(),
    AttributeType.DATE: _Date(),
    AttributeType.CATEGORY: _Category(),
    AttributeType.BOOLEAN: _Boolean(),
}


def release_type(attribute: Attribute) -> pa.DataType:
    """Return the Arrow type of a released attribute."""
    return _FORMS[attribute.type].type(attribute)


def to_series(attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
    """Return a released column as pandas has it (`common.analysis.reading.to_frame`)."""
    return _FORMS[attribute.type].to_series(attribute, column)


def from_units(attribute: Attribute, units: Int64Array) -> pa.Array:
    """Turn values into their release type.

    Args:
        units: Values in resolution units within the attribute's domain, shape (n_records,).

    Returns:
        An array of `release_type(attribute)`, with nulls for missing values.
    """
    form = _FORMS[attribute.type]
    if attribute.keeps_missing:
        missing = units > attribute.upper
        present = form.from_units(attribute, np.where(missing, attribute.lower, units) * attribute.step)
        return pc.if_else(pa.array(missing), pa.scalar(None, present.type), present)
    return form.from_units(attribute, units * attribute.step if attribute.step > 1 else units)


def with_derived_units(
    released: Sequence[Attribute], units: Mapping[str, Int64Array]
) -> dict[str, Int64Array]:
    """Return the values of all released attributes by name, `(n_records,)` each, the derived ones included.

    Args:
        released: These attributes.
        units: Values of those that are masked or drawn, or more, in resolution units.
    """
    bases, derived = {each.name: each for each in released}, {}
    for each in filter(lambda each: each.base, released):
        table = np.array(each.derived_units(bases[each.base]), np.int64)
        derived[each.name] = table[units[each.base] - bases[each.base].lower]
    return {**units, **derived}


def columns_of(released: Sequence[Attribute], units: Mapping[str, Int64Array]) -> list[pa.Array]:
    """Return records as columns of release types, with those that are derived from others.

    Args:
        released: The columns to return, and all that they derive from.
        units: Values in resolution units, shape (n_records,) each, by name of the column.
    """
    known = with_derived_units(released, units)
    return [from_units(each, known[each.name]) for each in released]


def to_units(attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn a released column, or its text in a CSV file, back into resolution units.

    Args:
        column: A column of a release.

    Returns:
        The values as int64; null for a category that is not declared.

    Raises:
        pyarrow.ArrowException: If a value is not of the attribute's type.
    """
    form = _FORMS[attribute.type]
    if not attribute.keeps_missing:
        return _in_steps(attribute, form.to_units(attribute, column))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    units = np.full(len(column), attribute.highest, dtype=np.int64)
    present = _in_steps(attribute, form.to_units(attribute, column.drop_null())).to_numpy()
    if present.size and present.max() > attribute.upper:
        raise pa.ArrowInvalid("a value is beyond the domain, where missing values have their number")
    units[column.is_valid().to_numpy()] = present
    return pa.chunked_array([units])


def _in_steps(attribute: Attribute, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if attribute.step == 1:
        return values
    units, rest = np.divmod(values.to_numpy(), attribute.step)
    if rest.any():
        raise pa.ArrowInvalid("a number is between two steps of the attribute")
    return pa.chunked_array([units])


def units_of_doubles(column: pa.ChunkedArray, decimals: int) -> pa.ChunkedArray:
    """Turn doubles into resolution units.

    Raises:
        pyarrow.ArrowInvalid: If one is not the double nearest to a number of that many places.
    """
    values, scale = column.to_numpy(), np.float64(10**decimals)
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.rint(values * scale)
    # Not a number, infinity and a missing value are no numbers of a domain either.
    if not ((np.abs(units) < 10**_MOST_DIGITS) & (units / scale == values)).all():
        raise pa.ArrowInvalid("a double is not the one nearest to a number of the attribute")
    return pa.chunked_array([units.astype(np.int64)])


def unscaled(decimals: pa.Array) -> pa.Array:
    """Return decimals as whole numbers of their last place."""
    kind = pa.decimal128(38, 0)
    return pa.Array.from_buffers(kind, len(decimals), decimals.buffers(), offset=decimals.offset)
