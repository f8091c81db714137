"""A published release for analysis: verified, as a pandas or Arrow table."""

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from common.model.schema import Attribute, AttributeType
from common.release.table import to_units


def to_frame(table: pa.Table, attributes: Sequence[Attribute], index: pd.Index) -> pd.DataFrame:
    """Return a table of release types as a DataFrame.

    Integers become int64, numbers doubles and dates datetime64[s]; booleans stay booleans; categories become
    a Categorical with all declared categories, ordered if they are. A number whose domain has too many digits
    for a double stays an exact decimal of Arrow.

    Args:
        table: The table.
        attributes: The attributes to take, in the order of the columns.
        index: The index of the DataFrame.
    """
    columns = {each.name: _column(each, table.column(each.name)) for each in attributes}
    return pd.DataFrame(columns, columns=list(columns), copy=False).set_axis(index)


def _column(attribute: Attribute, column: pa.ChunkedArray) -> pd.Series:
    match attribute.type:
        case AttributeType.NUMBER if pa.types.is_decimal(column.type):
            return pd.Series(pd.array(column.combine_chunks(), dtype=pd.ArrowDtype(column.type)))
        case AttributeType.DATE:
            days = to_units(attribute, column).to_numpy()
            return pd.Series(days.astype("datetime64[D]").astype("datetime64[s]"))
        case AttributeType.CATEGORY:
            labels = pd.CategoricalDtype(list(attribute.categories), ordered=attribute.ordered)
            units = to_units(attribute, column).to_numpy()
            return pd.Series(pd.Categorical.from_codes(units, dtype=labels))
        case _:
            return pd.Series(column.to_numpy())
