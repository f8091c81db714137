"""The frame of an Arrow IPC stream, checked before anything in it is decoded.

Arrow reads what its format allows, and the format allows more than a fragment needs: compressed buffers
that unpack to any size, dictionaries that are replaced or grow, batches of any length. Here the messages
are looked at one by one, without touching their data: the schema first, then at most one plain dictionary
per column, then batches of at most so many records, uncompressed, and after the end nothing.

The few fields that say so are read from the messages' flatbuffers by their fixed layout.

References:
    Apache Arrow columnar format, IPC streaming format; Message.fbs (slots of Message, RecordBatch and
    DictionaryBatch).
"""

import struct
from typing import Any

import pyarrow as pa

from common.errors import IntegrityError

_MESSAGE_HEADER = 2
_BATCH_LENGTH, _BATCH_COMPRESSION = 0, 3
_DICTIONARY_DATA, _DICTIONARY_IS_DELTA = 1, 2


def check_messages(source: Any, n_records: int, batch_records: int, n_columns: int) -> None:
    """Check the frame of an IPC stream.

    Args:
        source: A seekable Arrow file, at its beginning; afterwards at the end of the stream.
        n_records: How many records its batches must have together.
        batch_records: Most records of one batch.
        n_columns: Most dictionaries.

    Raises:
        IntegrityError: If something else is in it.
    """
    n_found = n_dictionaries = 0
    for position, message in enumerate(pa.ipc.MessageReader.open_stream(source)):
        if (message.type == "schema") != (position == 0):
            raise IntegrityError("its schema is not the first message, or not the only one")
        if position == 0:
            continue
        metadata = bytes(message.metadata)
        n_dictionaries += message.type == "dictionary"
        if message.type not in ("dictionary", "record batch") or n_dictionaries > n_columns:
            raise IntegrityError("it holds something that is not a batch of records")
        n_in_batch = _n_in_batch(metadata, is_dictionary=message.type == "dictionary")
        if message.type == "record batch":
            n_found += n_in_batch
        if not 0 <= n_in_batch <= (n_records if message.type == "dictionary" else batch_records):
            raise IntegrityError("a batch has more records than agreed")
    if n_found != n_records:
        raise IntegrityError(f"it has {n_found} records, {n_records} were stated")
    if source.tell() != source.size():
        raise IntegrityError("something follows the end of the stream")


def _n_in_batch(metadata: bytes, *, is_dictionary: bool) -> int:
    """Return the number of records of a batch; refuses what a fragment never has."""
    try:
        header = _table(metadata, _slot(metadata, _u32(metadata, 0), _MESSAGE_HEADER))
        if is_dictionary:
            delta = _slot(metadata, header, _DICTIONARY_IS_DELTA)
            if delta is not None and metadata[delta]:
                raise IntegrityError("a dictionary is sent in pieces")
            header = _table(metadata, _slot(metadata, header, _DICTIONARY_DATA))
        if _slot(metadata, header, _BATCH_COMPRESSION) is not None:
            raise IntegrityError("its buffers are compressed")
        length = _slot(metadata, header, _BATCH_LENGTH)
        return int(struct.unpack_from("<q", metadata, length)[0]) if length is not None else 0
    except (struct.error, IndexError):
        raise IntegrityError("a message cannot be read") from None


def _u32(data: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", data, position)[0])


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
