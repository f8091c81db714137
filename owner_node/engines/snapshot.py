"""A snapshot of a loaded data set in the scratch folder, from which linking, masking and sealing read.

It has one file per attribute, by record number, which is the place of the record in the source; and tokens,
where the plan has them. Identifiers are in it only while it is made. The folder is removed with the snapshot.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from common.arrays import Int64Array, TokenArray
from common.files import naming
from common.model.task import Assignment
from common.progress import Progress
from common.wire.encoding import encode_batches
from common.wire.fragment_layout import BATCH_RECORDS
from common.workspace import Workspace
from owner_node.engines.column_files import ColumnFile, integers_between
from owner_node.engines.sorting import RunSums, numbered, together
from owner_node.engines.spark import Cluster, SparkEngine
from owner_node.engines.streamed import DiskEngine, SortingFolder, filter_column
from owner_node.ledger.budget_terms import Column
from owner_node.ledger.columns import streamed_columns_of
from owner_node.linking.tokens import KEY_SIZE, tokens
from owner_node.loading import schema_of
from owner_node.loading.reading import ReadBatch, Reading, report_repeated
from owner_node.masking.arrays import BitSource, Purpose
from owner_node.sources.digest import digest_of
from owner_node.sources.spark_session import SparkSettings
from owner_node.values.normal_forms import normalise

_log = logging.getLogger(__name__)
FOLDER = "records"
"""What names of snapshot folders begin with."""
_HALVES = ("first", "second")
"""Columns of the two halves of tokens."""


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """The tokens of the records."""

    halves: tuple[ColumnFile, ColumnFile]
    """Their first and last eight bytes as big-endian integers, by record number."""
    ascending: Path
    """The sorted tokens, 16 bytes each."""
    order: ColumnFile
    """The record numbers in the order of the tokens."""


@dataclass(frozen=True, slots=True, repr=False)
class SnapshotRecords:
    """Records in a snapshot: `PinnedRecords` for tables that do not fit into memory."""

    engine: DiskEngine | SparkEngine
    """The original records."""
    tokens: TokenFiles | None
    """None where the plan has none."""
    removing: ExitStack
    """Removes the folder."""

    def token_list(self) -> bytes | Path:
        """As `PinnedRecords.token_list`."""
        return b"" if self.tokens is None else self.tokens.ascending

    def token_order(self) -> Int64Array:
        """As `PinnedRecords.token_order`; takes eight bytes of memory per record."""
        return np.concatenate(list(self._tokens.order)).astype(np.int64)

    def selected(self, chosen: NDArray[np.bool_]) -> "SnapshotRecords":
        """As `PinnedRecords.selected`; takes one byte of memory per record."""
        held, desk = self._tokens, self.engine.desk
        # Each column and both halves of the tokens are read, and the chosen tokens sorted.
        n_read = self.engine.n_records * (len(self.engine.columns) + 2)
        desk.progress.begin("selecting records", n_read + 2 * int(chosen.sum()))
        by_record = np.zeros(self.engine.n_records, dtype=np.bool_)
        for records, kept in together(held.order, [chosen]):
            by_record[records] = kept
        columns = {
            name: filter_column(desk, column, by_record) for name, column in self.engine.columns.items()
        }
        first, second = (filter_column(desk, half, by_record) for half in held.halves)
        engine = replace(self.engine, columns=columns)
        return SnapshotRecords(engine, sorted_tokens(desk, (first, second)), self.removing)

    def write_fragment(
        self,
        stream: BinaryIO,
        assignment: Assignment,
        masked: Mapping[str, ColumnFile],
        shuffle: BitSource | None,
    ) -> None:
        """As `PinnedRecords.write_fragment`."""
        columns = [masked[attribute.name] for attribute in assignment.attributes]
        if shuffle is None:
            _write(stream, assignment, columns, self.engine.desk, _HALVES, self._tokens.halves)
        else:
            write_shuffled(stream, assignment, columns, self.engine.desk, shuffle)

    def close(self) -> None:
        """Interrupt what works on the records, and remove the folder."""
        self.engine.close()
        self.removing.close()

    @property
    def _tokens(self) -> TokenFiles:
        if self.tokens is None:
            raise ValueError("records of a plan without tokens have no such order")
        return self.tokens


def write_shuffled(
    stream: BinaryIO,
    assignment: Assignment,
    columns: Sequence[ColumnFile],
    desk: SortingFolder,
    shuffle: BitSource,
) -> None:
    """Write a fragment of masked columns in a random order.

    Args:
        columns: Its masked columns, with their distinct values.
    """
    _write(stream, assignment, columns, desk, ("word", "record"), _random_keys(shuffle, columns[0]))


def _write(
    stream: BinaryIO,
    assignment: Assignment,
    columns: Sequence[ColumnFile],
    desk: SortingFolder,
    names: tuple[str, str],
    keys: Sequence[Iterable[Any]],
) -> None:
    """Write a fragment whose records are sorted by two numbers; those named `_HALVES` are their tokens."""
    fields = [pa.field(name, pa.uint64(), nullable=False) for name in names]
    fields += [pa.field(str(number), column.kind, nullable=False) for number, column in enumerate(columns)]
    schema, aligned = pa.schema(fields), names == _HALVES

    def records_to_sort() -> Iterator[Any]:
        for pieces in together(*keys, *columns):
            arrays = map(pa.array, pieces)
            desk.progress.advance(len(pieces[0]))
            yield pa.record_batch(
                [array.cast(field.type) for array, field in zip(arrays, fields, strict=True)], schema=schema
            )

    ordered = _final(
        count_progress(desk.sorter.sort(records_to_sort(), schema, names), desk.progress), aligned=aligned
    )
    distinct = [column.distinct for column in columns]
    encode_batches(stream, assignment, distinct, len(columns[0]), ordered, tokens=aligned)


def count_progress(pieces: Iterable[Any], progress: Progress) -> Iterator[Any]:
    """Return pieces, and note the records of each once it was processed."""
    for piece in pieces:
        yield piece
        progress.advance(len(piece))


def _random_keys(shuffle: BitSource, column: ColumnFile) -> tuple[Iterator[Any], Iterator[Any]]:
    """Return random words by record number, and record numbers, in pieces as long as a column's."""
    words = (shuffle.of(Purpose.SHUFFLE, first).words(some.size) for first, some in numbered(column))
    records = (np.arange(first, first + some.size, dtype=np.uint64) for first, some in numbered(column))
    return words, records


def _final(ordered: Iterable[Any], *, aligned: bool) -> Iterator[tuple[list[Int64Array], TokenArray | None]]:
    """Cut sorted records into the batches of a fragment, with their tokens where they are aligned."""
    held: list[Any] = []

    def batch(pieces: list[Any]) -> tuple[list[Int64Array], TokenArray | None]:
        columns = [piece.astype(np.int64, copy=False) for piece in pieces[2:]]
        return columns, token_bytes(pieces[0], pieces[1]) if aligned else None

    for some in ordered:
        arrays = [column.to_numpy() for column in some.columns]
        held = [np.concatenate(pair) for pair in zip(held, arrays, strict=True)] if held else arrays
        while held[0].size >= BATCH_RECORDS:
            yield batch([array[:BATCH_RECORDS] for array in held])
            held = [array[BATCH_RECORDS:] for array in held]
    if held and held[0].size:
        yield batch(held)


def token_bytes(first: Any, second: Any) -> TokenArray:
    """Return tokens, `(n_records, 16)`, from their halves."""
    return np.stack([first, second], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)


def sorted_tokens(
    desk: SortingFolder, halves: tuple[ColumnFile, ColumnFile], runs: "_Runs | None" = None
) -> TokenFiles:
    """Sort tokens, and write them and the order of their records.

    Args:
        halves: As in `TokenFiles`.
    """
    schema = pa.schema(
        [*(pa.field(name, pa.uint64(), nullable=False) for name in _HALVES), pa.field("record", pa.int64())]
    )

    def records_to_sort() -> Iterator[Any]:
        n_before = 0
        for first, second in together(*halves):
            records = np.arange(n_before, n_before + first.size)
            n_before += first.size
            desk.progress.advance(first.size)
            yield pa.record_batch(list(map(pa.array, (first, second, records))), schema=schema)

    path = desk.folder / f"{next(desk.numbers)}.tokens"
    path.touch(0o600, exist_ok=False)
    with (
        naming(desk.folder),
        path.open("wb") as stream,
        desk.column(integers_between(0, len(halves[0]))) as order,
    ):
        for batch in count_progress(desk.sorter.sort(records_to_sort(), schema, schema.names), desk.progress):
            first, second, records = (column.to_numpy() for column in batch.columns)
            written = token_bytes(first, second)
            stream.write(written.data)
            order.write(records)
            if runs is not None:
                runs.add(first, second)
    return TokenFiles(halves, path, order.result())


class _Runs:
    """Counts the tokens that occur more often than allowed, in sorted tokens."""

    def __init__(self, limit: int) -> None:
        self._limit, self._lengths = limit, RunSums()
        self.persons = self.records = self.most = 0

    def add(self, first: Any, second: Any) -> None:
        """Add the next tokens, by their halves."""
        self._count(self._lengths.add((first, second), np.ones(first.size, dtype=np.int64)))

    def finish(self) -> None:
        """Count the last run."""
        self._count(self._lengths.finish())

    def _count(self, lengths: Int64Array) -> None:
        above = lengths[lengths > self._limit]
        self.persons += above.size
        self.records += int(above.sum())
        self.most = max(self.most, int(above.max(initial=0)))


@dataclass(frozen=True, slots=True)
class _Watched:
    """A column whose reading is noted."""

    column: ColumnFile
    progress: Progress

    def __len__(self) -> int:
        return len(self.column)

    def __iter__(self) -> Iterator[Any]:
        return count_progress(self.column, self.progress)


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """A finished snapshot."""

    records: SnapshotRecords
    digest: str
    """As `LoadedData.digest`."""
    known_by: tuple[Column, ...]
    """Digests that identify all declared columns, including the identifiers."""


class SnapshotWriter:
    """Writes a snapshot while the source is read; removes it if the block ends without `finish`.

    Args:
        release_key: Key of the release's tokens; None where the plan has none.
        progress: Advanced by whatever reads, sorts or writes the records from then on.
        spark: How the Spark session is started that masks the records; None for the disk engine.
    """

    def __init__(
        self,
        reading: Reading,
        workspace: Workspace,
        release_key: bytes | None,
        batch_records: int,
        progress: Progress,
        spark: SparkSettings | None = None,
    ) -> None:
        self._reading, self._release_key = reading, release_key
        self._engine_of: Callable[[Mapping[str, ColumnFile]], DiskEngine | SparkEngine]
        # Without tokens, persons with too many records are recognised under a temporary key.
        self._key = release_key or os.urandom(KEY_SIZE)
        with ExitStack() as removing:
            folder = removing.enter_context(workspace.folder(FOLDER))
            self._desk = SortingFolder.at(folder, workspace, batch_records, progress)
            removing.callback(self._desk.sorter.close)
            if spark is None:
                self._engine_of = partial(DiskEngine, self._desk)
            else:
                cluster = Cluster(spark, folder, progress)
                removing.callback(cluster.close)
                self._engine_of = partial(SparkEngine, self._desk, cluster=cluster)
            self._columns = [
                self._desk.column(integers_between(attribute.lower, attribute.highest))
                for attribute in reading.attributes
            ]
            self._identifiers = [self._desk.column(pa.string()) for _ in reading.dataset.person_columns]
            self._others = {name: self._desk.column(pa.int64()) for name in reading.others}
            self._halves = [self._desk.column(pa.uint64()) for _ in _HALVES if reading.dataset.identifier]
            self._removing = removing.pop_all()
        self._finished = False

    def __enter__(self) -> Self:
        """Remove the snapshot at the end of the block, unless `finish` handed it over."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove an unfinished snapshot."""
        if not self._finished or kind is not None:
            self._removing.close()

    def add(self, batch: ReadBatch) -> None:
        """Write some records; once there are findings, the source cannot be used and is only read on."""
        if self._reading.findings:
            return
        for writer, values in zip(self._columns, batch.columns, strict=True):
            writer.write(values)
        for writer, texts in zip(self._identifiers, batch.identifiers, strict=True):
            writer.write(texts)
        for name, values in batch.others.items():
            self._others[name].write(values)
        if self._halves and batch.n_records:
            person_tokens = tokens(
                normalise(batch.identifiers, self._reading.dataset.normal_forms), self._key
            )
            for writer, half in zip(self._halves, person_tokens.view(">u8").T, strict=True):
                writer.write(half.astype(np.uint64))

    def finish(self, source_key: bytes | None) -> Snapshot | None:
        """Return the snapshot; None if the source has findings.

        Args:
            source_key: Key of the column digests; None where nothing is to be charged.
        """
        for writer in (*self._columns, *self._identifiers, *self._others.values(), *self._halves):
            writer.finish()
        reading, dataset = self._reading, self._reading.dataset
        self._desk.progress.begin("pinning", reading.n_records * self._passes(source_key))
        held = self._sorted_tokens()
        if reading.findings:
            return None
        names = [attribute.name for attribute in reading.attributes]
        columns = dict(zip(names, (writer.result() for writer in self._columns), strict=True))
        identifiers = [writer.result() for writer in self._identifiers]
        others = {name: self._others[name].result() for name in reading.others}
        known: tuple[Column, ...] = ()
        if source_key is not None:
            attributes = schema_of(dataset, None, reading.n_records).attributes
            by_name = dict(zip(dataset.person_columns, map(self._read, identifiers), strict=True))
            by_name = {name: texts for name, texts in by_name.items() if name not in columns}
            values = {name: self._read(column) for name, column in (columns | others).items()}
            known = streamed_columns_of(values, attributes, source_key, by_name)
        digest = self._digest(list(columns.values()), identifiers)
        for column in (*identifiers, *(writer.result() for writer in self._others.values())):
            column.remove()
        self._finished = True
        _log.info("records pinned in scratch", extra={"dataset": dataset.name, "records": reading.n_records})
        tokens_held = held if self._release_key else None
        records = SnapshotRecords(self._engine_of(columns), tokens_held, self._removing)
        return Snapshot(records, digest, known)

    def _passes(self, source_key: bytes | None) -> int:
        """Return how often every record is read, sorted or written to pin it."""
        n_columns, n_identifiers = len(self._columns), len(self._identifiers)
        sorts = (1 if self._halves else 0) + (0 if self._reading.ordered else 1)
        # Digests of columns that are no categories read them twice.
        known = 2 * (n_columns + len(self._others)) + n_identifiers if source_key is not None else 0
        return 2 * sorts + n_columns + 2 * n_identifiers + known

    def _read(self, column: ColumnFile) -> "_Watched":
        return _Watched(column, self._desk.progress)

    def _sorted_tokens(self) -> TokenFiles | None:
        if not self._halves or self._reading.findings:
            return None
        runs = _Runs(self._reading.dataset.max_records_per_person)
        first, second = (writer.result() for writer in self._halves)
        held = sorted_tokens(self._desk, (first, second), runs)
        runs.finish()
        report_repeated(self._reading.dataset, runs.persons, runs.records, runs.most, self._reading.findings)
        return held

    def _digest(self, columns: Sequence[ColumnFile], identifiers: Sequence[ColumnFile]) -> str:
        """Return the digest that pins the source; records without an order are sorted by their content."""
        reading, made = self._reading, []
        if not reading.ordered:
            made = self._sorted_by_content([*identifiers, *columns])
            identifiers, columns = made[: len(identifiers)], made[len(identifiers) :]
        values, texts = list(map(self._read, columns)), list(map(self._read, identifiers))
        source_digest = digest_of(
            reading.attributes,
            values,
            texts,
            reading.n_records,
            ordered=reading.ordered,
            opt_out=reading.opt_out,
        )
        for column in made:
            column.remove()
        return source_digest

    def _sorted_by_content(self, columns: Sequence[ColumnFile]) -> list[ColumnFile]:
        schema = pa.schema([pa.field(str(number), column.kind) for number, column in enumerate(columns)])

        def records_to_sort() -> Iterator[Any]:
            for pieces in together(*columns):
                self._desk.progress.advance(len(pieces[0]))
                arrays = [
                    (piece if isinstance(piece, pa.Array) else pa.array(piece)).cast(field.type)
                    for piece, field in zip(pieces, schema, strict=True)
                ]
                yield pa.record_batch(arrays, schema=schema)

        writers = [self._desk.column(column.kind) for column in columns]
        ordered = self._desk.sorter.sort(records_to_sort(), schema, schema.names)
        for batch in count_progress(ordered, self._desk.progress):
            for writer, column in zip(writers, batch.columns, strict=True):
                writer.write(column)
        return [writer.finish() for writer in writers]
