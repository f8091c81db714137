"""Streams of records, sorted within a limit of memory.

This is the only operation that needs all records at a time. Records with a key of 63 bits, as almost all
have, are dealt into buckets (`owner_node.engines.buckets`); DuckDB sorts all others, by any columns. What
does not fit is spilled into the scratch folder. DuckDB encrypts what it spills, but ships without a secure
source of randomness, so that this is not relied upon: the folder is private, and its disk should be
encrypted.

The order is asserted wherever a sorted stream is read. Positions are counted in the sorted stream, which is
`row_number() OVER ()` behind an `ORDER BY` without a second pass: a window function would hold all records.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from common.errors import CancelledError, CannotStoreError, InternalError
from common.workspace import Workspace
from owner_node.engines.buckets import bucket_records, sorted_buckets
from owner_node.engines.sharing import TURNS
from owner_node.masking.arrays import Int64Array

BATCH_RECORDS = 2**17
"""Records that are handed over at a time."""
KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear."""
SMALLEST_MEMORY = 100 * 10**6
"""Bytes below which DuckDB does not sort with two threads."""
_OTHERS = 250 * 10**6
"""Bytes for batches, statistics of clusters and files, of memory limits from twice this size on."""


def sorting_memory(memory: int) -> int:
    """Return the bytes of a memory limit that DuckDB gets: what is spilled takes twice the time."""
    return max(memory - max(_OTHERS, memory // 4), memory // 2, SMALLEST_MEMORY)


class Sorter:
    """Sorts streams of records. It may sort several at a time, one feeding the next.

    Sorters of one process take turns, so that one at a time fills its memory.

    Args:
        workspace: Memory and threads.
        folder: Where to spill.
        batch_records: Records that are handed over at a time.
    """

    def __init__(self, workspace: Workspace, folder: Path, batch_records: int = BATCH_RECORDS) -> None:
        memory = sorting_memory(workspace.memory)
        self._folder, self._workspace, self.batch_records = folder, workspace, batch_records
        self._database = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{memory // 1024}KiB",
                "threads": workspace.threads,
                "temp_directory": str(folder),
                "temp_file_encryption": True,
                "force_mbedtls_unsafe": True,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self._lock, self._closed, self._n_sorts = Lock(), False, 0

    def sort(self, batches: Iterable[Any], schema: Any, keys: Sequence[str]) -> Iterator[Any]:
        """Sort records by some of their columns, ascending.

        Yields:
            Arrow record batches in order.

        Raises:
            CannotStoreError: If memory or disk do not suffice.
            CancelledError: If the sorter was closed.
        """
        names = ", ".join(f'"{key}"' for key in keys)
        yield from self._select(f"SELECT * FROM unsorted ORDER BY {names}", {"unsorted": (schema, batches)})  # noqa: S608

    def sort_keys(self, batches: Iterable[Int64Array], splits: Int64Array) -> Iterator[Int64Array]:
        """Sort integers; arguments, integers and errors as in `buckets.sorted_buckets`.

        Raises:
            CancelledError: If the sorter was closed.
        """
        with self._turn():
            for bucket in sorted_buckets(self._checked(batches), splits, self._workspace):
                for first in range(0, len(bucket), self.batch_records):
                    self._check()
                    yield bucket[first : first + self.batch_records]

    def n_buckets(self, n_records: int) -> int:
        """Return into how many buckets so many records are dealt."""
        return -(-n_records // bucket_records(self._workspace))

    def count_missing(
        self, own: Iterable[Any], others: Iterable[Any], schema: Any, keys: Sequence[str]
    ) -> int:
        """Count records that are missing from others; equal records are counted as often as they occur.

        Raises:
            CannotStoreError, CancelledError: As `sort` says.
        """
        names = ", ".join(f'"{key}"' for key in keys)
        counted = f"(SELECT {names}, count(*) AS {{}} FROM {{}} GROUP BY ALL)"  # noqa: S608
        query = (
            "SELECT CAST(coalesce(sum(greatest(n_own - coalesce(n_others, 0), 0)), 0) AS BIGINT) AS missing "  # noqa: S608
            f"FROM {counted.format('n_own', 'own')} LEFT JOIN {counted.format('n_others', 'others')} "
            f"USING ({names})"
        )
        streams = {"own": (schema, own), "others": (schema, others)}
        return sum(int(batch.column(0)[0].as_py()) for batch in self._select(query, streams) if len(batch))

    def _select(self, query: str, streams: Mapping[str, tuple[Any, Iterable[Any]]]) -> Iterator[Any]:
        """Run a query on streams of record batches, by name with their schemas."""
        raised: list[BaseException] = []
        with self._turn():
            cursor = self._begin()
            try:
                for name, (schema, batches) in streams.items():
                    reader = pa.RecordBatchReader.from_batches(schema, self._watched(batches, raised))
                    cursor.register(name, reader)
                yield from cursor.sql(query).to_arrow_reader(self.batch_records)
            except (duckdb.Error, pa.ArrowException, RuntimeError) as fault:
                raise self._explained(fault, raised) from None
            finally:
                # A kept error refers to its frames, and so to this list and to the sorts that feed this one:
                # they would keep the turn until the next garbage collection.
                raised.clear()
                with self._lock:
                    self._running.discard(cursor)
                with suppress(duckdb.Error):
                    cursor.close()

    def close(self) -> None:
        """Interrupt what is being sorted, and free memory and spilled files."""
        with self._lock:
            self._closed = True
            running = tuple(self._running)
        for cursor in running:
            with suppress(duckdb.Error):
                cursor.interrupt()
        # Works that wait with this sorter check again, too.
        TURNS.give_back(self)
        if not running:
            with suppress(duckdb.Error):
                self._database.close()

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
            raise _cancelled()

    def _begin(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            self._check()
            cursor = self._database.cursor()
            self._running.add(cursor)
        return cursor

    def _checked(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Read a stream until the sorter is closed."""
        for batch in batches:
            self._check()
            yield batch

    def _watched(self, batches: Iterable[Any], raised: list[BaseException]) -> Iterator[Any]:
        """Keep an error of the stream, of which DuckDB would pass on the text alone."""
        try:
            yield from self._checked(batches)
        except BaseException as error:
            raised.append(error)
            raise

    def _explained(self, fault: Exception, raised: list[BaseException]) -> BaseException:
        """Return the error of the catalogue; the text of DuckDB can quote values."""
        if raised:
            return raised[0]
        if self._closed:
            return _cancelled()
        text = str(fault)
        if "No space left" in text or isinstance(fault, duckdb.IOException) or "temp_directory" in text:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        if isinstance(fault, duckdb.OutOfMemoryException):
            return CannotStoreError(
                "engine.memory_limit is too small for sorting the records",
                hint="raise it in owner.toml; the daemon then continues, and nothing is charged twice",
            )
        return InternalError(f"sorting failed ({type(fault).__name__})")


def _cancelled() -> CancelledError:
    return CancelledError("the work on these records was cancelled", "their copy in scratch is removed")


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

    def joined(self, high: Int64Array | int, low: Int64Array | int) -> Any:
        """Return both numbers in one."""
        return (high << self.low_bits) | low

    def sorted_by(
        self,
        sorter: Sorter,
        batches: Iterable[tuple[Int64Array, Int64Array]],
        splits: Callable[[], Int64Array],
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Sort records by the key, which is another one for every record, and assert their order.

        Args:
            sorter: Sorts them.
            batches: The numbers of the key of some records.
            splits: Returns joined keys that divide the records into buckets.

        Yields:
            The numbers of the key of some records.
        """
        before: tuple[int, int] | None = None
        sort = self._in_buckets if self.packed else self._by_columns
        for high, low in sort(sorter, batches, splits):
            if not high.size:
                continue
            ascends = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
            first = int(high[0]), int(low[0])
            if not ascends.all() or (before is not None and first <= before):
                raise InternalError("sorted records are not in order")
            before = int(high[-1]), int(low[-1])
            yield high, low

    def _in_buckets(
        self, sorter: Sorter, batches: Iterable[Any], splits: Callable[..., Any]
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Sort joined keys."""
        for joined in sorter.sort_keys((self.joined(high, low) for high, low in batches), splits()):
            yield joined >> self.low_bits, joined & ((1 << self.low_bits) - 1)

    def _by_columns(
        self, sorter: Sorter, batches: Iterable[Any], _: Callable[..., Any]
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Let DuckDB sort by two columns."""
        schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("high", "low")])
        stream = (pa.record_batch(list(map(pa.array, batch)), schema=schema) for batch in batches)
        for batch in sorter.sort(stream, schema, schema.names):
            yield batch.column(0).to_numpy(), batch.column(1).to_numpy()


def together(*streams: Iterable[Any], size: Callable[[Any], int] = len) -> Iterator[tuple[Any, ...]]:
    """Cut streams of arrays into pieces of the same records.

    Args:
        streams: Streams of arrays of the same number of elements altogether; NumPy or Arrow.
        size: Returns the number of elements of an array.

    Yields:
        A piece of every stream, all of the same length.

    Raises:
        InternalError: If one stream has more elements than another.
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


def ascending_from(records: Int64Array, first: int) -> Int64Array:
    """Return record numbers if they are `first`, `first + 1` and so on.

    Raises:
        InternalError: If they are not.
    """
    if not np.array_equal(records, np.arange(first, first + records.size)):
        raise InternalError("records are missing, or there twice")
    return records
