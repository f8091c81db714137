"""A pandas DataFrame as a source of records, parsed by the same rules as a file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from owner_node.sources import texts
from owner_node.sources.findings import Findings
from owner_node.sources.loaded import Tally
from owner_node.sources.reading import identified
from owner_node.values.normal_forms import NormalForm

BATCH_RECORDS = 2**16
"""Records that are converted at a time."""


class FrameSource:
    """A DataFrame in memory. What pandas takes for missing (None, NaN, NaT, NA) is missing.

    Args:
        frame: The records; columns that are not asked for are not looked at.
        drop: Whether records with a missing value in a column that is asked for are left out.
        identifiers: Columns where a text that identifies nobody is missing, too, with the normal form that
            says which texts do not.
        others: Columns that are only there to recognise the data by: what is missing or wrong there leaves no
            record out and is no problem.
    """

    ordered = True

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        drop: bool = False,
        identifiers: Mapping[str, NormalForm] | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self._frame, self._drop = frame, drop
        self._identifiers, self._others = identifiers or {}, others
        self._kept: list[NDArray[np.bool_]] = []
        labels: list[Any] = list(frame.columns)
        self.names: Sequence[str] = tuple(label for label in labels if isinstance(label, str))

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which records were handed on, shape (n_records,); known once all batches were read."""
        return np.concatenate(self._kept) if self._kept else np.zeros(0, dtype=np.bool_)

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns in the frame's own types (see `Source`)."""
        self._kept = []
        for first in range(0, len(self._frame), BATCH_RECORDS):
            records = self._frame.iloc[first : first + BATCH_RECORDS]
            arrays = [_arrow(records[name]) for name in columns]
            complete = np.ones(len(records), dtype=np.bool_)
            if self._drop:
                for name, array in zip(columns, arrays, strict=True):
                    if name not in self._others:
                        complete &= self._present(name, array)
                arrays = [array.filter(pa.array(complete)) for array in arrays]
            self._kept.append(complete)
            yield arrays

    def _present(self, name: str, array: Any) -> NDArray[np.bool_]:
        if not texts.is_readable(array.type):
            # Found when it is read, and then no record is a good one.
            return np.ones(len(array), dtype=np.bool_)
        if name in self._identifiers:
            # What is wrong with identifiers is found when they are read.
            form = self._identifiers[name]
            array = identified(name, texts.as_text(texts.plain(array)), form, Findings())
        present: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
        return present

    def tally(self, columns: Sequence[str], identifiers: Sequence[str], findings: Findings) -> Tally | None:
        """Count nothing: the records are at hand (see `Source`)."""
        return None

    def close(self) -> None:
        """Let go of nothing: the frame is the caller's."""


def _arrow(column: Any) -> Any:
    """Convert a column; one of several types, or of a foreign one, becomes one of a type that is not read."""
    try:
        converted = pa.array(column, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # What the library says about it quotes the value that it stumbled over.
        return pa.nulls(len(column), pa.binary())
    return converted.combine_chunks() if isinstance(converted, pa.ChunkedArray) else converted
