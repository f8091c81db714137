"""Check a fragment as its bytes arrive, and decode it on request.

Arrow reads what its format allows, and the format allows more than a fragment needs: compressed buffers
that unpack to any size, dictionaries that are replaced or grow, batches of any length. The stream is
therefore cut into messages as its bytes arrive: the schema first, then at most one plain dictionary per
column, then uncompressed batches of a limited number of records, and nothing after the end. A message is
refused by its header, before any memory is allocated for its body.

Arrow's reader receives one complete message at a time, after its header was checked. It never waits, and
only dictionaries and the latest message are kept.

References:
    Apache Arrow columnar format, IPC streaming format; Message.fbs (slots of Message, RecordBatch and
    DictionaryBatch).
"""

import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import IntegrityError, TesseraError
from common.files import read_chunks
from common.model.plan import Plan
from common.model.schema import Attribute
from common.model.task import Assignment
from common.wire.fragment_layout import (
    BATCH_RECORDS,
    TOKEN_COLUMN,
    check_schema,
    check_sorted,
    decoded_schema,
    has_tokens,
    size_limit,
    token_array,
    token_view,
)

_PREFIX = struct.Struct("<II")
_CONTINUATION = 0xFFFFFFFF
_MESSAGE_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_BATCH_LENGTH, _BATCH_COMPRESSION = 0, 3
_DICTIONARY_DATA, _DICTIONARY_IS_DELTA = 1, 2
_WIDEST_VALUE = 16
_COLUMN_HEADER_BYTES = 4096
"""The most that a column adds to the header of a message, or as padding to its body."""


class FragmentCheck:
    """Checks a fragment piece by piece.

    Args:
        tokens: Whether it has tokens; None: as the plan says. Owners drop theirs after publication.
    """

    def __init__(
        self, plan: Plan, assignment: Assignment, n_records: int, size: int, *, tokens: bool | None = None
    ) -> None:
        self._owner = assignment.owner
        self._tokens = has_tokens(plan) if tokens is None else tokens
        self._domains = {
            planned.name: _Domain(plan.attribute(planned.name)) for planned in assignment.attributes
        }
        self._messages = _Messages(n_records, BATCH_RECORDS, len(self._domains))
        self._feed = _Feed()
        self._reader: Any = None
        self._last_token: bytes | None = None
        with self._refusals():
            if not 0 < size <= size_limit(assignment, n_records):
                raise IntegrityError("the size of the fragment does not fit its number of records")

    def update(self, data: bytes | memoryview) -> Iterator[list[pa.Array]]:
        """Check the next bytes; they are checked as far as batches are read.

        Args:
            data: Any number of them; they may change once all batches were read.

        Yields:
            The columns of every batch that is whole now, the token first where there is one. They are there
            until the next batch is read; only dictionaries may be kept.

        Raises:
            IntegrityError: If the bytes are not exactly such a fragment. Nothing of the data is in the error.
        """
        with self._refusals():
            for message, is_batch in self._messages.update(data):
                # The reader keeps dictionaries.
                self._feed.add(message if is_batch else memoryview(bytes(message)))
                if self._reader is None:
                    self._reader = pa.ipc.open_stream(pa.PythonFile(self._feed, mode="r"))
                    check_schema(self._reader.schema, list(self._domains), tokens=self._tokens)
                elif is_batch:
                    yield self._read_batch()

    def finish(self) -> None:
        """Check that the fragment is complete."""
        with self._refusals():
            self._messages.finish()
            if self._feed:
                raise IntegrityError("it has a dictionary that no batch uses")

    def _read_batch(self) -> list[pa.Array]:
        try:
            batch = self._reader.read_next_batch()
        except StopIteration:
            raise IntegrityError("a dictionary is missing") from None
        batch.validate()
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for column in columns.values():
            _validate(column)
        for name, domain in self._domains.items():
            domain.check(columns[name])
        if self._tokens:
            token = columns[TOKEN_COLUMN]
            if token.null_count:
                raise IntegrityError("a token is missing")
            self._last_token = check_sorted(
                token, self._last_token, IntegrityError("the tokens are not sorted, or repeat")
            )
        return list(batch.columns)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Say whose fragment cannot be used; Arrow's own words, which can quote values, are left out."""
        try:
            yield
            return
        except TesseraError as error:
            problem = f"used: {error.message}"
        except (
            pa.ArrowException,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            OverflowError,
            OSError,
            MemoryError,
        ) as e:
            problem = f"read ({type(e).__name__})"
        raise IntegrityError(
            f"the fragment of {self._owner} cannot be {problem}",
            "the owner node must run a compatible version; if it does, its fragment was damaged",
            {"owner": self._owner},
        ) from None


class _Messages:
    """Cuts a stream into messages and checks their headers.

    Neither pyarrow nor another installed library reports compression and lengths before it allocates or
    decompresses, so the few fields that state them are read from the flatbuffers by their fixed layout.
    """

    def __init__(self, n_records: int, batch_records: int, n_columns: int) -> None:
        self._n_records = n_records
        self._batch_records = batch_records
        self._n_columns = n_columns
        self._n_messages = self._n_found = self._n_dictionaries = 0
        self._held = bytearray()
        self._wanted = self._header_end = _PREFIX.size
        self._kind = 0
        self._ended = False

    def update(self, data: bytes | memoryview) -> Iterator[tuple[memoryview, bool]]:
        """Take the next bytes.

        A message is copied only if it began in earlier bytes.

        Yields:
            The messages that are complete now, and for each whether it is a batch of records. A message is
            valid until the next one is requested, or the bytes change.
        """
        view = memoryview(data)
        while view:
            if self._ended:
                raise IntegrityError("something follows the end of the stream")
            message: memoryview | bytearray = view
            if self._held or len(view) < self._wanted:
                # It grows with the bytes that arrive, not with what a header declares.
                n_missing = self._wanted - len(self._held)
                self._held += view[:n_missing]
                view, message = view[n_missing:], self._held
            if len(message) < self._wanted:
                return
            is_whole = self._is_whole(message)
            if not (is_whole or self._ended):
                continue
            if message is view:
                view = view[self._wanted :]
            # A new one: Arrow may still hold the former, which then cannot be resized.
            self._held = bytearray()
            if is_whole:
                yield memoryview(message)[: self._wanted], self._kind == _BATCH
                self._n_messages += 1
            self._wanted = self._header_end = _PREFIX.size

    def finish(self) -> None:
        """Check that the stream was complete."""
        if not self._ended:
            raise IntegrityError("it is cut short")
        if self._n_found != self._n_records:
            raise IntegrityError(f"it has {self._n_found} records, {self._n_records} were stated")

    def _is_whole(self, message: memoryview | bytearray) -> bool:
        """Determine how many bytes the message needs; return whether all have arrived."""
        if self._wanted == _PREFIX.size:
            marker, length = _PREFIX.unpack_from(message)
            if marker != _CONTINUATION or length > _COLUMN_HEADER_BYTES * (self._n_columns + 1):
                raise IntegrityError("a message cannot be read")
            self._ended = length == 0
            self._wanted = self._header_end = _PREFIX.size + length
            return False
        if self._wanted == self._header_end:
            try:
                self._wanted += self._body_bytes(bytes(message[_PREFIX.size : self._wanted]))
            except (struct.error, IndexError):
                raise IntegrityError("a message cannot be read") from None
            self._header_end = 0
        return len(message) >= self._wanted

    def _body_bytes(self, metadata: bytes) -> int:
        """Return the size of a message's body; refuses what a fragment never has."""
        message = _u32(metadata, 0)
        kind = _slot(metadata, message, _MESSAGE_TYPE)
        self._kind = metadata[kind] if kind is not None else 0
        if (self._kind == _SCHEMA) != (self._n_messages == 0):
            raise IntegrityError("its schema is not the first message, or not the only one")
        n_in_message = 0
        if self._kind != _SCHEMA:
            n_in_message = self._count(metadata, _table(metadata, _slot(metadata, message, _MESSAGE_HEADER)))
        length = _i64(metadata, _slot(metadata, message, _MESSAGE_BODY_LENGTH))
        if not 0 <= length <= (self._n_columns + 1) * (_WIDEST_VALUE * n_in_message + _COLUMN_HEADER_BYTES):
            raise IntegrityError("the size of a message does not fit its number of records")
        return length

    def _count(self, metadata: bytes, header: int) -> int:
        """Count a dictionary or batch; return its number of values or records."""
        most = self._batch_records
        if self._kind == _DICTIONARY:
            self._n_dictionaries, most = self._n_dictionaries + 1, self._n_records
            delta = _slot(metadata, header, _DICTIONARY_IS_DELTA)
            if delta is not None and metadata[delta]:
                raise IntegrityError("a dictionary is sent in pieces")
            header = _table(metadata, _slot(metadata, header, _DICTIONARY_DATA))
        if self._kind not in (_DICTIONARY, _BATCH) or self._n_dictionaries > self._n_columns:
            raise IntegrityError("it holds something that is not a batch of records")
        if _slot(metadata, header, _BATCH_COMPRESSION) is not None:
            raise IntegrityError("its buffers are compressed")
        n_in_message = _i64(metadata, _slot(metadata, header, _BATCH_LENGTH))
        if not 0 <= n_in_message <= most:
            raise IntegrityError("a batch has more records than agreed")
        self._n_found += n_in_message if self._kind == _BATCH else 0
        return n_in_message


def _u32(data: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", data, position)[0])


def _i64(data: bytes, position: int | None) -> int:
    return 0 if position is None else int(struct.unpack_from("<q", data, position)[0])


def _slot(data: bytes, table: int, slot: int) -> int | None:
    """Return where a field of a flatbuffer table is, or None if it is left at its default."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    entry = 4 + 2 * slot
    if entry >= int(struct.unpack_from("<H", data, vtable)[0]):
        return None
    offset = int(struct.unpack_from("<H", data, vtable + entry)[0])
    return table + offset if offset else None


def _table(data: bytes, position: int | None) -> int:
    if position is None:
        raise IntegrityError("a message is incomplete")
    return position + _u32(data, position)


class _Feed:
    """Presents whole messages to Arrow as a file, without copying them."""

    closed = False

    def __init__(self) -> None:
        self._messages: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: memoryview) -> None:
        """Take a message; it must not change until it has been read and is not needed any more."""
        self._messages.append(message.toreadonly())

    def read(self, size: int) -> memoryview:
        """Return the next bytes; nothing if there are no more."""
        if not self._messages or size <= 0:
            return memoryview(b"")
        taken, rest = self._messages[0][:size], self._messages[0][size:]
        if rest:
            self._messages[0] = rest
        else:
            self._messages.popleft()
        return taken

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return the next bytes as Arrow's own."""
        return pa.py_buffer(self.read(size))

    def close(self) -> None:
        """Nothing is open."""


def _validate(column: pa.Array) -> None:
    """Do what `validate(full=True)` does; over indices into a dictionary that takes ten times as long."""
    if not isinstance(column, pa.DictionaryArray):
        column.validate(full=True)
        return
    column.indices.validate(full=True)
    column.dictionary.validate(full=True)
    ends = pc.min_max(column.indices)
    if len(column) > column.null_count and not (
        ends["min"].as_py() >= 0 and ends["max"].as_py() < len(column.dictionary)
    ):
        raise IntegrityError("an index leads outside its dictionary")


class _Domain:
    """Checks an attribute's columns batch by batch; a dictionary that batches share is checked once."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._dictionary: pa.Array | None = None

    def check(self, column: pa.Array) -> None:
        """Check that all values are there and within the domain."""
        values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if column.null_count or values.null_count:
            raise IntegrityError(f"attribute {self._attribute.name!r} has missing values")
        if values is not column:
            # It is kept, so that its place is not another's before this comparison.
            if self._dictionary is not None and _place(values) == _place(self._dictionary):
                return
            self._dictionary = values
        if not len(values):
            return
        ends = pc.min_max(values)
        if ends["min"].as_py() < self._attribute.lower or ends["max"].as_py() > self._attribute.highest:
            raise IntegrityError(f"attribute {self._attribute.name!r} has values outside its domain")


def _place(values: pa.Array) -> tuple[int, int, int]:
    return values.buffers()[1].address, values.offset, len(values)


_READ_BYTES = 4 << 20


def decode(
    path: Path, plan: Plan, assignment: Assignment, n_records: int, *, tokens: bool | None = None
) -> pa.Table:
    """Read and check a whole fragment; see `decode_batches`."""
    batches = list(decode_batches(path, plan, assignment, n_records, tokens=tokens))
    return pa.Table.from_batches(batches, schema=_decoded_schema(plan, assignment, tokens=tokens))


def _decoded_schema(plan: Plan, assignment: Assignment, *, tokens: bool | None) -> pa.Schema:
    with_tokens = has_tokens(plan) if tokens is None else tokens
    return decoded_schema([attribute.name for attribute in assignment.attributes], tokens=with_tokens)


def decode_batches(
    path: Path, plan: Plan, assignment: Assignment, n_records: int, *, tokens: bool | None = None
) -> Iterator[pa.RecordBatch]:
    """Read and check a fragment, batch by batch.

    Args:
        path: The file; it must not change meanwhile.
        tokens: As `FragmentCheck`.

    Yields:
        int64 columns in plan order, in resolution units, after the column `token` where there is one.
    """
    schema = _decoded_schema(plan, assignment, tokens=tokens)
    fragment = FragmentCheck(plan, assignment, n_records, path.stat().st_size, tokens=tokens)
    for piece in read_chunks(path, chunk_bytes=_READ_BYTES):
        for columns in fragment.update(piece):
            yield pa.record_batch([_copy_column(column) for column in columns], schema=schema)
    fragment.finish()


def _copy_column(column: pa.Array) -> pa.Array:
    """Return a column as integers, or tokens, in memory of its own."""
    if isinstance(column, pa.FixedSizeBinaryArray):
        return token_array(token_view(column).copy())
    # In numpy's memory: Arrow's pool keeps more than was requested.
    if isinstance(column, pa.DictionaryArray):
        return pa.array(column.dictionary.to_numpy()[column.indices.to_numpy()])
    return pa.array(column.to_numpy().copy())
