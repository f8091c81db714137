"""Tables of other libraries in notebooks, through Arrow's stream: the records of a pandas frame."""

from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from common.errors import DataError, UsageError
from owner_node.notebook import Workspace

SCHEMA = {
    "age": {"type": "integer", "min": 0, "max": 99},
    "ward": {"type": "category", "categories": ["A", "B"]},
}
AGES, WARDS = [n if n % 10 else None for n in range(60)], ["A", "B", "A"] * 20


class Stream:
    """A table of a library that has nothing but the stream, such as polars."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the stream."""
        return self._table.__arrow_c_stream__(requested_schema)


class Failing:
    """A table that cannot be streamed, with a value in its error."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Fail as a library does."""
        raise RuntimeError("secret")


class LazyFrame:
    """A question that no one has computed yet, as polars names it."""

    def collect(self) -> None:
        """Not called."""


TABLE = pa.table({"age": pa.array(AGES, pa.int32()), "ward": WARDS, "other": [[1]] * 60})
TABLES = {
    "table": TABLE,
    "batch": TABLE.to_batches()[0],
    "several chunks": pa.concat_tables([TABLE.slice(0, 7), TABLE.slice(7)]),
    "duckdb": duckdb.from_arrow(TABLE),
    "stream": Stream(TABLE),
    "views": Stream(TABLE.set_column(1, "ward", pa.array(WARDS, pa.string_view()))),
    "large": Stream(TABLE.set_column(1, "ward", pa.array(WARDS, pa.large_string()))),
    "dictionary": Stream(TABLE.set_column(1, "ward", pa.array(WARDS).dictionary_encode())),
}


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """An empty workspace."""
    return Workspace(tmp_path / "workspace", budget="patients", total_epsilon="9")


@pytest.mark.parametrize("kind", TABLES)
def test_any_table_of_arrow_is_masked_as_the_frame(workspace, kind):
    """The same records are recognised as the same: the second call gives the first result, uncharged."""
    frame = pd.DataFrame({"age": pd.array(AGES, "Int64"), "ward": WARDS})
    asked = {"epsilon": "2", "k": 5, "missing": "drop", "anyway": True, "id": "one"}
    first = workspace.mask(frame, SCHEMA, **asked)
    again = workspace.mask(TABLES[kind], SCHEMA, **asked)
    assert again.frame.equals(first.frame)
    assert again.frame.index.tolist() == [n for n in range(60) if n % 10]
    assert str(workspace.balance().remaining) == "7"


@pytest.mark.parametrize(
    ("table", "problem", "hint"),
    [
        (LazyFrame(), "not LazyFrame", "collect()"),
        (Failing(), "Failing cannot be read as a table of Arrow", "name a whole table"),
        (pd.Series([1]), "Series cannot be read", "name a whole table"),
        ({"age": [1]}, "not dict", "pandas.DataFrame"),
        (np.zeros((2, 2)), "not ndarray", "pandas.DataFrame"),
    ],
)
def test_what_is_no_table_is_named(workspace, table, problem, hint):
    """With what to do; nothing of a library's error is passed on."""
    with pytest.raises(UsageError) as caught:
        workspace.mask(table, SCHEMA, epsilon="1")
    assert problem in caught.value.message
    assert hint in caught.value.hint
    assert "secret" not in repr(caught.value.to_document())


RANGES = "store ranges as texts"
LENGTHS = "store lengths of time as numbers"


@pytest.mark.parametrize(
    ("column", "name", "hint"),
    [
        (pd.cut(pd.Series(range(60)), 3), "pandas.interval", RANGES),
        (pd.Series(pd.interval_range(0, 60)), "pandas.interval", RANGES),
        (pd.Series(pd.interval_range(0, 60)).astype(object), "pandas.Interval", RANGES),
        (pd.Series([pd.Timedelta(days=1)] * 60), "duration", LENGTHS),
        (pd.Series([timedelta(1)] * 60, dtype=object), "duration", LENGTHS),
        (pd.Series([pd.DateOffset(months=1)] * 60, dtype=object), "month_day_nano_interval", LENGTHS),
    ],
)
def test_ranges_are_no_lengths_of_time(workspace, column, name, hint):
    """Both are called intervals; each is named, with what to do."""
    with pytest.raises(DataError) as caught:
        workspace.mask(pd.DataFrame({"age": column}), {"age": SCHEMA["age"]}, epsilon="1")
    assert f"values of type {name} cannot be read (60 records)" in caught.value.message
    assert hint in caught.value.hint
