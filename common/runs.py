"""Sorted runs of records, in memory or in a scratch file, and several of them read side by side.

A run is read in blocks. `in_ranges` reads blocks of all runs at once and cuts them at a common key, so that
every piece that it yields holds all records of its range of keys, and a computation on one range after the
other finds what a computation on everything would find.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

Records: TypeAlias = NDArray[Any]
"""Records of a fixed size, structured or single keys; shape (n_records,)."""
_FEWEST_RECORDS = 256
"""Of one block: smaller ones take longer to ask for than to read."""


@dataclass(frozen=True, slots=True)
class ArrayRun:
    """A run in memory."""

    records: Records

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self.records)

    def read(self, start: int, stop: int) -> Records:
        """Return the records from one position up to another, without copying them."""
        return self.records[start:stop]


@dataclass(frozen=True, slots=True)
class FileRun:
    """A run in a file, which stays open as long as the run is read."""

    stream: BinaryIO
    """The file, unbuffered."""
    offset: int
    """Its first byte."""
    n_records: int
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> Records:
        """Return the records from one position up to another."""
        records = np.empty(stop - start, dtype=self.dtype)
        read_at(self.stream, self.offset + start * self.dtype.itemsize, records)
        return records


def read_at(stream: BinaryIO, offset: int, records: Records) -> None:
    """Fill a contiguous array from an unbuffered file; an OSError if it ends too early."""
    stream.seek(offset)
    place = records.view(np.uint8).reshape(-1).data
    while place:
        n_bytes = stream.readinto(place)  # type: ignore[attr-defined]  # a raw file
        if not n_bytes:
            raise OSError("a scratch file ended too early")
        place = place[n_bytes:]


Run: TypeAlias = ArrayRun | FileRun
"""Records in ascending order of their keys."""


class RunFile:
    """Appends runs to a scratch file, which is unbuffered and empty."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._end = 0

    def append(self, pieces: Iterable[Records], dtype: np.dtype[Any]) -> FileRun:
        """Write a run."""
        start = self._end
        self._stream.seek(start)
        for piece in pieces:
            data = np.ascontiguousarray(piece, dtype=dtype).view(np.uint8).reshape(-1).data
            self._end += len(data)
            while data:
                data = data[self._stream.write(data) :]
        return FileRun(self._stream, start, (self._end - start) // dtype.itemsize, dtype)


def in_ranges(runs: Sequence[Run], n_records: int, key: str | None = None) -> Iterator[list[Records]]:
    """Read runs side by side, one range of keys after the other.

    Args:
        runs: Each in ascending order of its keys; a key may repeat.
        n_records: About how many records of all runs are held at once. More are held only where a key repeats
            more often than a block of a run has records, or where there are more runs.
        key: Name of the field that is the key; None if a record is its key.

    Yields:
        One block per run, possibly empty: together all records of all runs whose keys are in one range. The
        ranges ascend and do not overlap.
    """

    def keys(block: Records) -> Records:
        return block if key is None else block[key]

    total = sum(run.n_records for run in runs)
    # In proportion to the runs: keys that are spread evenly are used up at the same pace in all of them.
    sizes = [
        min(run.n_records, max(_FEWEST_RECORDS, n_records * run.n_records // max(total, 1))) for run in runs
    ]
    positions = [0] * len(runs)
    while True:
        blocks = [
            run.read(position, min(position + size, run.n_records))
            for run, position, size in zip(runs, positions, sizes, strict=True)
        ]
        last = [
            keys(block)[-1]
            for run, position, block in zip(runs, positions, blocks, strict=True)
            if position + len(block) < run.n_records
        ]
        if not last:
            yield blocks
            return
        bound = min(last)
        # The bound itself can go on in a block that was not read yet. What is left of a block is read again.
        cuts = [int(np.searchsorted(keys(block), bound)) for block in blocks]
        if any(cuts):
            yield [block[:cut] for block, cut in zip(blocks, cuts, strict=True)]
            positions = [position + cut for position, cut in zip(positions, cuts, strict=True)]
        else:
            sizes = [2 * size for size in sizes]
