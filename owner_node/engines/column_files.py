"""Columns of the records as files of the scratch folder, by record number: Parquet, uncompressed."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.files import naming
from common.wire.fragment_layout import MOST_DISTINCT
from owner_node.masking.arrays import Int64Array

_NAME = "column"


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """A written column."""

    path: Path
    kind: Any
    """Arrow type of the values."""
    n_values: int
    batch_records: int
    """Values that are read at a time."""
    lowest: int = 0
    """Smallest value, of integers."""
    highest: int = 0
    """Largest value, of integers."""
    distinct: Int64Array | None = None
    """The distinct values, ascending, if they were asked for and there are at most `MOST_DISTINCT`."""

    def __len__(self) -> int:
        """Return the number of values."""
        return self.n_values

    def __iter__(self) -> Iterator[Any]:
        """Read the values: integers as NumPy arrays of 64 bits, texts as Arrow arrays."""
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=self.batch_records, use_threads=False):
                values = batch.column(0)
                if not pa.types.is_integer(values.type):
                    yield values
                elif pa.types.is_unsigned_integer(values.type):
                    yield values.to_numpy()
                else:
                    yield values.to_numpy().astype(np.int64, copy=False)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


class ColumnWriter:
    """Writes a column, some values at a time.

    Args:
        kind: Arrow type of the values.
        batch_records: Values that are written at a time, and read later.
    """

    def __init__(self, path: Path, kind: Any, batch_records: int, *, distinct: bool = False) -> None:
        self._path, self._kind, self._batch_records = path, kind, batch_records
        self._schema = pa.schema([pa.field(_NAME, kind, nullable=False)])
        with naming(path.parent):
            self._writer = pq.ParquetWriter(
                path, self._schema, compression="none", use_dictionary=False, write_statistics=False
            )
        path.chmod(0o600)
        self._waiting: list[Any] = []
        self._n_waiting = self._n_values = 0
        self._lowest, self._highest = 2**63 - 1, -(2**63)
        self._distinct = np.zeros(0, dtype=np.int64) if distinct else None

    def __enter__(self) -> Self:
        """Write until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the file; after an error it is incomplete."""
        if kind is None:
            self.finish()
        else:
            # It is removed with its folder, complete or not.
            with suppress(OSError):
                self._writer.close()

    def write(self, values: Any) -> None:
        """Write the next values, NumPy or Arrow."""
        array = values if isinstance(values, pa.Array) else pa.array(values)
        if not len(array):
            return
        if pa.types.is_integer(self._kind):
            self._look_at(array.to_numpy())
        self._waiting.append(array.cast(self._kind))
        self._n_waiting += len(array)
        self._n_values += len(array)
        if self._n_waiting >= self._batch_records:
            self._flush()

    def finish(self) -> ColumnFile:
        """Write what is waiting, and close the file; returns it."""
        self._flush()
        with naming(self._path.parent):
            self._writer.close()
        return self.result()

    def result(self) -> ColumnFile:
        """Return the finished file."""
        return ColumnFile(
            self._path,
            self._kind,
            self._n_values,
            self._batch_records,
            self._lowest,
            self._highest,
            self._distinct,
        )

    def _look_at(self, values: Any) -> None:
        self._lowest = min(self._lowest, int(values.min()))
        self._highest = max(self._highest, int(values.max()))
        if self._distinct is not None:
            distinct = np.unique(values)
            new = np.setdiff1d(distinct, self._distinct, assume_unique=True)
            if self._distinct.size + new.size > MOST_DISTINCT:
                self._distinct = None
            elif new.size:
                self._distinct = np.sort(np.concatenate([self._distinct, new]))

    def _flush(self) -> None:
        if not self._waiting:
            return
        with naming(self._path.parent):
            self._writer.write_table(pa.table([pa.chunked_array(self._waiting)], schema=self._schema))
        self._waiting, self._n_waiting = [], 0


def integers_between(lower: int, upper: int) -> Any:
    """Return the smallest Arrow type of 32 or 64 bits for integers of a domain."""
    return pa.int32() if lower >= -(2**31) and upper < 2**31 else pa.int64()
