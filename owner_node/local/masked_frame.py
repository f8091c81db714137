"""A masked table as a pandas DataFrame, in types that people compute with."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from common.release_table import release_type, to_units
from common.schema import Attribute, AttributeType

_MOST_DIGITS = 15
"""Decimal texts of so many digits come back unchanged from the nearest double."""


def to_frame(table: pa.Table, attributes: Sequence[Attribute], index: pd.Index) -> pd.DataFrame:
    """Return a table of release types as a DataFrame.

    Integers become int64 and dates datetime64[s]; booleans stay booleans; categories become a Categorical
    with all declared categories, ordered if they are. A number becomes the double nearest to it, which prints
    as the number itself; where its domain has too many digits for that, an exact decimal of Arrow.

    Args:
        table: The table.
        attributes: Its attributes, in the order of its columns.
        index: The index of the DataFrame.
    """
    columns = {each.name: _column(each, table.column(each.name)) for each in attributes}
    return pd.DataFrame(columns, columns=list(columns), copy=False).set_axis(index)


def _column(attribute: Attribute, column: pa.ChunkedArray) -> pd.Series:
    units = to_units(attribute, column).to_numpy()
    match attribute.type:
        case AttributeType.INTEGER:
            return pd.Series(units)
        case AttributeType.NUMBER:
            if max(abs(attribute.lower), abs(attribute.upper)) < 10**_MOST_DIGITS:
                return pd.Series(units / np.float64(10**attribute.decimals))
            return pd.Series(pd.array(column.combine_chunks(), dtype=pd.ArrowDtype(release_type(attribute))))
        case AttributeType.DATE:
            return pd.Series(units.astype("datetime64[D]").astype("datetime64[s]"))
        case AttributeType.CATEGORY:
            labels = pd.CategoricalDtype(list(attribute.categories), ordered=attribute.ordered)
            return pd.Series(pd.Categorical.from_codes(units, dtype=labels))
        case AttributeType.BOOLEAN:
            return pd.Series(units == 1)
