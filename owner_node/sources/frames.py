"""A pandas DataFrame as a source of records, parsed by the same rules as a file."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from owner_node.sources import texts
from owner_node.sources.findings import Findings
from owner_node.sources.person_texts import identifier_texts
from owner_node.sources.source import Reader
from owner_node.values.normal_forms import NormalForm

BATCH_RECORDS = 2**16
"""Records that are converted at a time."""


class FrameReader(Reader):
    """A DataFrame in memory. The missing values of pandas (None, NaN, NaT, NA) are missing values.

    Args:
        frame: The records; columns that are not requested are not read.
        dropping: Columns whose missing values drop the record, where they are requested.
        identifiers: Identifier columns with their normal forms. A text whose normal form is blank identifies
            nobody and counts as missing.
        others: Columns that only serve to recognise the data: missing or wrong values there drop no record
            and are no problem.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        dropping: Collection[str] = (),
        identifiers: Mapping[str, NormalForm] | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self._frame, self._dropping = frame, dropping
        self._identifiers, self._others = identifiers or {}, others
        self._kept: list[NDArray[np.bool_]] = []
        labels: list[Any] = list(frame.columns)
        self.names: Sequence[str] = tuple(label for label in labels if isinstance(label, str))

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which records were yielded, shape (n_records,); complete once all batches were read."""
        return np.concatenate(self._kept) if self._kept else np.zeros(0, dtype=np.bool_)

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns in the frame's own types (see `Reader`)."""
        self._kept = []
        for first in range(0, len(self._frame), BATCH_RECORDS):
            records = self._frame.iloc[first : first + BATCH_RECORDS]
            arrays = [_arrow(records[name]) for name in columns]
            complete = np.ones(len(records), dtype=np.bool_)
            if needed := [name for name in columns if name in self._dropping and name not in self._others]:
                for name in needed:
                    complete &= self._present(name, arrays[columns.index(name)])
                arrays = [array.filter(pa.array(complete)) for array in arrays]
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
        present: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
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
        return texts.unreadable(len(column), str(column.dtype))
    return converted.combine_chunks() if isinstance(converted, pa.ChunkedArray) else converted
