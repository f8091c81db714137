"""The frame of an Arrow IPC stream, checked before anything in it is decoded.

Arrow reads what its format allows, and the format allows more than a fragment needs: compressed buffers
that unpack to any size, dictionaries that are replaced or grow, batches of any length. Here the stream is
cut into messages as its bytes arrive: the schema first, then at most one plain dictionary per column, then
batches of at most so many records, uncompressed, and after the end nothing. A message is refused by its
header, before any memory is taken for its body.

The few fields that say so are read from the messages' flatbuffers by their fixed layout.

References:
    Apache Arrow columnar format, IPC streaming format; Message.fbs (slots of Message, RecordBatch and
    DictionaryBatch).
"""

import struct
from collections.abc import Iterator

from common.errors import IntegrityError

_PREFIX = struct.Struct("<II")
_CONTINUATION = 0xFFFFFFFF
_MESSAGE_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_BATCH_LENGTH, _BATCH_COMPRESSION = 0, 3
_DICTIONARY_DATA, _DICTIONARY_IS_DELTA = 1, 2
_WIDEST_VALUE = 16
_COLUMN_HEADER_BYTES = 4096
"""The most that a column adds to the header of a message, or as padding to its body."""


class Messages:
    """Cuts a stream into messages.

    Args:
        n_records: How many records its batches must have together.
        batch_records: Most records of one batch.
        n_columns: Most columns, and so most dictionaries.
    """

    def __init__(self, n_records: int, batch_records: int, n_columns: int) -> None:
        self._n_records = n_records
        self._batch_records = batch_records
        self._n_columns = n_columns
        self._n_messages = self._n_found = self._n_dictionaries = 0
        self._held = bytearray()
        self._n_held = 0
        self._wanted = self._header_end = _PREFIX.size
        self._kind = 0
        self._ended = False

    def update(self, data: bytes | memoryview) -> Iterator[tuple[memoryview, bool]]:
        """Take the next bytes.

        A message is copied only if it began in earlier bytes, and such messages share one place.

        Yields:
            The messages that are whole now, and of each whether it is a batch of records. A message is there
            until the next one is asked for, or the bytes change.

        Raises:
            IntegrityError: If something is there that a fragment never has.
        """
        view = memoryview(data)
        while view:
            if self._ended:
                raise IntegrityError("something follows the end of the stream")
            message = view
            if self._n_held or len(view) < self._wanted:
                view = self._hold(view)
                message = memoryview(self._held)[: self._n_held]
            if len(message) < self._wanted:
                return
            is_whole = self._is_whole(message[: self._wanted])
            if is_whole:
                yield message[: self._wanted], self._kind == _BATCH
                self._n_messages += 1
            if is_whole or self._ended:
                view = view if self._n_held else view[self._wanted :]
                self._n_held = 0
                self._wanted = self._header_end = _PREFIX.size

    def _hold(self, view: memoryview) -> memoryview:
        """Keep what is wanted of the next bytes; returns the others."""
        taken = view[: self._wanted - self._n_held]
        end = self._n_held + len(taken)
        if len(self._held) < end:
            # It grows with what has come, not with what a header says. A new one, since Arrow may still look
            # at the former, which could not be resized then.
            room = bytearray(min(self._wanted, max(end, 2 * len(self._held))))
            room[: self._n_held] = memoryview(self._held)[: self._n_held]
            self._held = room
        self._held[self._n_held : end] = taken
        self._n_held = end
        return view[len(taken) :]

    def finish(self) -> None:
        """Check that the stream was complete.

        Raises:
            IntegrityError: If it was not.
        """
        if not self._ended:
            raise IntegrityError("it is cut short")
        if self._n_found != self._n_records:
            raise IntegrityError(f"it has {self._n_found} records, {self._n_records} were stated")

    def _is_whole(self, message: memoryview) -> bool:
        """Find out how much of the message is still to come; whether nothing is."""
        if self._wanted == _PREFIX.size:
            marker, length = _PREFIX.unpack(message)
            if marker != _CONTINUATION or length > _COLUMN_HEADER_BYTES * (self._n_columns + 1):
                raise IntegrityError("a message cannot be read")
            self._ended = length == 0
            self._wanted = self._header_end = _PREFIX.size + length
            return False
        if self._wanted == self._header_end:
            try:
                self._wanted += self._body_bytes(bytes(message[_PREFIX.size :]))
            except (struct.error, IndexError):
                raise IntegrityError("a message cannot be read") from None
            self._header_end = 0
        return len(message) == self._wanted

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
