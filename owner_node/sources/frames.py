"""A table in memory as a source of records, parsed by the same rules as a file: of pandas, or of Arrow."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from common.errors import UsageError
from owner_node.sources import texts
from owner_node.sources.findings import Findings
from owner_node.sources.options import CsvOptions
from owner_node.sources.person_texts import identifier_texts
from owner_node.sources.source import Reader
from owner_node.sources.values import without_codes
from owner_node.values.missing_codes import MissingCodes
from owner_node.values.normal_forms import NormalForm

BATCH_RECORDS = 2**16
"""Records that are converted at a time."""


class ArrowTable(Protocol):
    """A table of polars, pyarrow, DuckDB and others, which has the C stream of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream in a capsule."""


Frame = pd.DataFrame | ArrowTable
"""Any table that is accepted."""


def as_table(frame: object) -> Any:
    """Return a DataFrame of pandas as it is, and any other table as an Arrow table.

    Raises:
        UsageError: If it is no table.
    """
    if isinstance(frame, pd.DataFrame):
        return frame
    kind = _kind(type(frame))
    problem = f"expected a DataFrame, not {type(frame).__name__}"
    hint = "create one: pandas.DataFrame(...)"
    if hasattr(frame, "collect"):
        hint = f"compute the {kind} first: its method collect() returns the table"
    elif hasattr(frame, "__arrow_c_stream__") or isinstance(frame, pa.RecordBatch):
        hint = "leave out columns without a type of Arrow, such as Python objects, and name a whole table"
        try:
            return pa.table(frame)
        except Exception:  # noqa: BLE001 - errors of libraries can be of any class, and quote a value
            problem = f"a {kind} cannot be read as a table of Arrow"
    raise UsageError(problem, hint)


class FrameReader(Reader):
    """A table in memory. The missing values of pandas (None, NaN, NaT, NA), and nulls, are missing values.

    Args:
        frame: The records, a DataFrame of pandas or an Arrow table; columns that are not requested are not
            read.
        dropping: Columns whose missing values drop the record, where they are requested.
        identifiers: Identifier columns with their normal forms. A text whose normal form is blank identifies
            nobody and counts as missing.
        others: Columns that only serve to recognise the data: missing or wrong values there drop no record
            and are no problem.
        na_values: Values that stand for missing ones, by column.
    """

    def __init__(
        self,
        frame: Any,
        *,
        dropping: Collection[str] = (),
        identifiers: Mapping[str, NormalForm] | None = None,
        others: Sequence[str] = (),
        na_values: Mapping[str, MissingCodes] | None = None,
    ) -> None:
        self._frame, self._dropping = frame, dropping
        self._identifiers, self._others = identifiers or {}, others
        self._na_values = na_values or {}
        self._kept: list[NDArray[np.bool_]] = []
        labels: list[Any] = list(frame.columns if isinstance(frame, pd.DataFrame) else frame.column_names)
        self.names: Sequence[str] = tuple(label for label in labels if isinstance(label, str))

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which records were yielded, shape (n_records,); complete once all batches were read."""
        return np.concatenate(self._kept) if self._kept else np.zeros(0, dtype=np.bool_)

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns in the frame's own types (see `Reader`)."""
        self._kept = []
        for first in range(0, len(self._frame), BATCH_RECORDS):
            if isinstance(self._frame, pd.DataFrame):
                records = self._frame.iloc[first : first + BATCH_RECORDS]
                arrays = [_arrow(records[name]) for name in columns]
            else:
                records = self._frame.slice(first, BATCH_RECORDS)
                arrays = [_joined(records.column(name)) for name in columns]
            complete = np.ones(len(records), dtype=np.bool_)
            if needed := [name for name in columns if name in self._dropping and name not in self._others]:
                for name in needed:
                    complete &= self._present(name, arrays[columns.index(name)])
                arrays = [texts.filter_values(array, pa.array(complete)) for array in arrays]
            self._kept.append(complete)
            yield arrays

    def _present(self, name: str, array: Any) -> NDArray[np.bool_]:
        if not texts.is_readable(array.type):
            # Reported when it is read; no record is usable then.
            return np.ones(len(array), dtype=np.bool_)
        if name in self._identifiers:
            # Problems of identifiers are reported when they are read.
            form = self._identifiers[name]
            array = identifier_texts(name, array, form, Findings())
        if name in self._na_values and texts.undecodable(array) is None:
            array = without_codes(texts.plain(array), self._na_values[name], CsvOptions())
        present: NDArray[np.bool_] = texts.decode(array).is_valid().to_numpy(zero_copy_only=False)
        return present


def _arrow(column: Any) -> Any:
    """Convert a column; with mixed or unknown types it becomes a column of a type that is not readable."""
    try:
        converted = pa.array(column, from_pandas=True)
        if column.dtype == np.object_ and pa.types.is_timestamp(converted.type):
            moments = column.where(column.notna(), None).tolist()
            converted = pa.array(texts.on_own_clocks(moments), from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # The library's error text is not used, since it quotes a value.
        kinds = set(map(type, column[column.notna()])) if column.dtype == np.object_ else set()
        foreign = len(kinds) == 1 and not any(kind.__module__ == "builtins" for kind in kinds)
        return texts.unreadable(len(column), _kind(kinds.pop()) if foreign else str(column.dtype))
    return _joined(converted)


def _joined(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _kind(kind: type) -> str:
    """Return the name of a type with its library."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
