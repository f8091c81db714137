"""Streams of records, sorted within a limit of memory.

This is the only operation that needs all records at a time. Runs of records are sorted in memory and written
to a scratch file; then all runs are read side by side, a block of each at a time, and merged. The file has no
name, so that it vanishes with the process. It is not encrypted: the folder is private, and its disk should be
encrypted.

The order is asserted wherever a sorted stream is read, and positions are counted in it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import CancelledError, InternalError
from common.runs import FileRun, RunFile
from common.workspace import Workspace
from owner_node.engines.sharing import TURNS
from owner_node.masking.arrays import Int64Array

BATCH_RECORDS = 2**17
"""Records that are handed over at a time."""
KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear."""
_SHARE_OF_MEMORY = 24
"""A run has one part in so many of the memory: three sorts that feed each other each hold two or three."""
_LARGEST_RUN = 2**28
"""Bytes of a run, of any memory: sorting one is not interrupted."""
_BLOCKS = 64
"""Blocks of a run, one of which is in memory while runs are merged."""


class Sorter:
    """Sorts streams of records. It may sort several at a time, one feeding the next.

    Sorters of one process take turns, so that one at a time fills its memory.

    Args:
        workspace: Memory, and the folder of the runs.
        batch_records: Records that are handed over at a time, at most.
    """

    def __init__(self, workspace: Workspace, batch_records: int = BATCH_RECORDS) -> None:
        self._workspace, self._batch_records = workspace, batch_records
        self._run_bytes = min(workspace.memory // _SHARE_OF_MEMORY, _LARGEST_RUN)
        self._lock, self._closed, self._n_sorts = Lock(), False, 0

    def sort(self, batches: Iterable[Any], schema: Any, keys: Sequence[str]) -> Iterator[Any]:
        """Sort records by some of their columns, ascending.

        Args:
            batches: Arrow record batches without nulls.
            keys: Names of the columns. Records that are equal in them come in any order.

        Yields:
            Arrow record batches in order. Nothing is yielded before all were read.

        Raises:
            CancelledError: If the sorter was closed.
        """
        with self._turn(), self._workspace.file() as stream:
            spool = RunFile(stream)
            runs = [self._write_run(spool, _in_order(run, keys)) for run in self._runs(batches)]
            for records in _merge([_read(run, schema) for run in runs], keys):
                for first in range(0, len(records), self._batch_records):
                    self._check()
                    yield records.slice(first, self._batch_records)

    def close(self) -> None:
        """Interrupt what is being sorted."""
        with self._lock:
            self._closed = True
        # Works that wait with this sorter check again, too.
        TURNS.give_back(self)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Sort during a turn. Sorts that feed each other have one, until the last of them ends."""
        with self._lock:
            self._n_sorts += 1
            waits = self._n_sorts == 1
        try:
            if waits:
                TURNS.take(self, lambda: self._closed)
            self._check()
            yield
        finally:
            with self._lock:
                self._n_sorts -= 1
                done = not self._n_sorts
            if done:
                TURNS.give_back(self)

    def _check(self) -> None:
        if self._closed:
            raise cancellation()

    def _runs(self, batches: Iterable[Any]) -> Iterator[list[Any]]:
        """Gather batches until they are large enough for a run."""
        held: list[Any] = []
        n_bytes = 0
        for batch in batches:
            self._check()
            if len(batch):
                held.append(batch)
                n_bytes += batch.nbytes
            if n_bytes >= self._run_bytes:
                yield held
                held, n_bytes = [], 0
        if held:
            yield held

    def _write_run(self, spool: RunFile, run: Any) -> list[FileRun]:
        """Write a sorted run, block by block."""
        self._check()
        size = max(1, len(run) * self._run_bytes // (_BLOCKS * max(1, run.nbytes)))
        blocks = (run.slice(first, size).serialize() for first in range(0, len(run), size))
        return [spool.append([np.frombuffer(block, np.uint8)], np.dtype(np.uint8)) for block in blocks]


def cancellation() -> CancelledError:
    """Return the error of work whose records were closed."""
    return CancelledError("the work on these records was cancelled", "their copy in scratch is removed")


def _read(run: Iterable[FileRun], schema: Any) -> Iterator[Any]:
    for block in run:
        yield pa.ipc.read_record_batch(pa.py_buffer(block.read(0, block.n_records)), schema)


def _in_order(batches: Sequence[Any], keys: Sequence[str]) -> Any:
    """Return the records of some batches in one, in order."""
    joined = pa.concat_batches(batches)
    if joined.num_columns == 1 and pa.types.is_integer(joined.schema.types[0]):
        # Numbers themselves are sorted in a tenth of the time in which their places are.
        return pa.record_batch([pa.array(np.sort(joined.column(0).to_numpy()))], schema=joined.schema)
    return joined.take(pc.sort_indices(joined, [(key, "ascending") for key in keys]))


def _merge(runs: Sequence[Iterator[Any]], keys: Sequence[str]) -> Iterator[Any]:
    """Merge sorted runs: yield all records up to the first end of a block in memory, again and again."""
    blocks = {run: next(run) for run in runs}
    while blocks:
        key_of = {run: _keys(block, keys) for run, block in blocks.items()}
        bound = min(key_of[run](len(block) - 1) for run, block in blocks.items())
        ready = []
        for run, block in list(blocks.items()):
            cut = bisect_right(range(len(block)), bound, key=key_of[run])
            ready.append(block.slice(0, cut))
            if cut < len(block):
                blocks[run] = block.slice(cut)
            elif (following := next(run, None)) is not None:
                blocks[run] = following
            else:
                del blocks[run]
        yield _in_order(ready, keys)


def _keys(block: Any, keys: Sequence[str]) -> Callable[[int], tuple[Any, ...]]:
    """Return what reads the key of a record of a block."""
    columns = [block.column(key) for key in keys]
    return lambda place: tuple(column[place].as_py() for column in columns)


class RunSums:
    """Adds up the weights of equal records, which come in order, some at a time."""

    def __init__(self) -> None:
        self._last: list[int] = []
        self._sum = 0

    def add(self, keys: Sequence[Any], weights: Int64Array) -> Int64Array:
        """Add the next records.

        Args:
            keys: Integers that tell them apart, each of shape (n_records,).
            weights: Shape (n_records,).

        Returns:
            The sums of equal records of which all were added; zeros may be among them.
        """
        if not weights.size:
            return weights
        starts = np.append(0, np.flatnonzero(np.any([key[1:] != key[:-1] for key in keys], axis=0)) + 1)
        sums = np.add.reduceat(weights, starts)
        if [int(key[0]) for key in keys] == self._last:
            sums[0] += self._sum
        else:
            sums = np.append(self._sum, sums)
        self._last, self._sum = [int(key[-1]) for key in keys], int(sums[-1])
        return sums[:-1]

    def finish(self) -> Int64Array:
        """Return the sum of the last equal records."""
        return np.array([self._sum])


@dataclass(frozen=True, slots=True)
class Key:
    """Two numbers that records are sorted by, in one 64-bit integer where they fit."""

    high_bits: int
    """Bits of the first number."""
    low_bits: int
    """Bits of the second number."""

    @property
    def packed(self) -> bool:
        """Whether both fit into one integer."""
        return self.high_bits + self.low_bits <= KEY_BITS

    def sorted_by(
        self, sorter: Sorter, batches: Iterable[tuple[Int64Array, Int64Array]]
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Sort records by the key, which is another one for every record, and assert their order.

        Yields:
            The numbers of the key of some records.
        """
        names = ("key",) if self.packed else ("high", "low")
        schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])
        columns = (((high << self.low_bits) | low,) if self.packed else (high, low) for high, low in batches)
        stream = (pa.record_batch(list(map(pa.array, numbers)), schema=schema) for numbers in columns)
        before: tuple[int, int] | None = None
        for batch in sorter.sort(stream, schema, names):
            high, low = batch.column(0).to_numpy(), batch.column(batch.num_columns - 1).to_numpy()
            if self.packed:
                high, low = high >> self.low_bits, low & ((1 << self.low_bits) - 1)
            ascends = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
            first = int(high[0]), int(low[0])
            if not ascends.all() or (before is not None and first <= before):
                raise InternalError("sorted records are not in order")
            before = int(high[-1]), int(low[-1])
            yield high, low


def together(*streams: Iterable[Any], size: Callable[[Any], int] = len) -> Iterator[tuple[Any, ...]]:
    """Cut streams of arrays into pieces of the same records.

    Args:
        streams: Streams of arrays of the same number of elements altogether; NumPy or Arrow.

    Yields:
        A piece of every stream, all of the same length.
    """
    sources = [iter(stream) for stream in streams]
    pieces: list[Any] = [None] * len(sources)
    while True:
        for number, source in enumerate(sources):
            while pieces[number] is None or not size(pieces[number]):
                pieces[number] = next(source, None)
                if pieces[number] is None:
                    break
        if any(piece is None for piece in pieces):
            if all(piece is None for piece in pieces):
                return
            raise InternalError("columns of the same records have different lengths")
        length = min(map(size, pieces))
        yield tuple(piece[:length] for piece in pieces)
        pieces = [piece[length:] for piece in pieces]


def numbered(blocks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Return blocks of consecutive records, each after the number of its first one."""
    first = 0
    for block in blocks:
        yield first, block
        first += len(block)


def ascending_from(records: Int64Array, first: int) -> Int64Array:
    """Return record numbers if they are `first`, `first + 1` and so on."""
    if not np.array_equal(records, np.arange(first, first + records.size)):
        raise InternalError("records are missing, or there twice")
    return records
