"""A file in bounded pieces, from any offset."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from common.errors import ProtocolError
from common.wire.v1 import owner_pb2 as wire

CHUNK_BYTES = 256 * 1024
"""Size of a chunk; the last one of a file is smaller."""


def read_chunks(path: Path, offset: int = 0, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """Read a file from an offset to its end.

    Args:
        path: The file.
        offset: First byte to read.
        chunk_bytes: Size of a chunk.

    Yields:
        Chunks, never an empty one. All are read into one place: each is there until the next is asked for.

    Raises:
        ProtocolError: If the offset is not within the file.
        OSError: If the file cannot be read.
    """
    size = path.stat().st_size
    if not 0 <= offset <= size:
        raise ProtocolError(
            f"offset {offset} is not within the {size} bytes of {path.name}",
            "ask how much the other side holds and go on from there",
        )
    place = memoryview(bytearray(min(chunk_bytes, size - offset)))
    with path.open("rb", buffering=0) as stream:
        stream.seek(offset)
        while n_bytes := stream.readinto(place):
            yield place[:n_bytes]


_SERVICE = wire.DESCRIPTOR.services_by_name["OwnerService"].full_name
_UPLOAD = "Upload"
_OFFSET_TAG = bytes([wire.UploadChunk.OFFSET_FIELD_NUMBER << 3])
_DATA_TAG = bytes([wire.UploadChunk.DATA_FIELD_NUMBER << 3 | 2])
_LONGEST_NUMBER = 10
"""Bytes of the longest integer."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A message of an upload."""

    blob: wire.BlobKey | None
    """What is uploaded; in the first message only."""
    offset: int
    """Where the bytes belong; later messages may leave it 0."""
    data: memoryview
    """The bytes."""


def message_of(offset: int, data: bytes | memoryview) -> bytes:
    """Return the message, as it is on the wire, that carries bytes of the blob which another has named."""
    return b"".join((_OFFSET_TAG, _number(offset), _DATA_TAG, _number(len(data)), data))


def chunk_of(message: bytes) -> Chunk:
    """Read a message as it is on the wire.

    Raises:
        google.protobuf.message.DecodeError: If it is none.
    """
    offset = place = 0
    if message[:1] == _OFFSET_TAG:
        offset, place = _number_at(message, 1)
    if message[place : place + 1] == _DATA_TAG:
        length, start = _number_at(message, place + 1)
        if start + length == len(message):
            return Chunk(None, offset, memoryview(message)[start:])
    chunk = wire.UploadChunk.FromString(message)
    return Chunk(chunk.blob if chunk.HasField("blob") else None, chunk.offset, memoryview(chunk.data))


def upload_call(channel: grpc.aio.Channel) -> Callable[..., Any]:
    """Return the call that uploads; it takes messages as they are on the wire."""
    method = f"/{_SERVICE}/{_UPLOAD}"
    return channel.stream_unary(method, None, wire.UploadResponse.FromString)


def upload_handler(behaviour: Callable[..., Any]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return a handler that hands a service the chunks of uploads; to be added before its other methods.

    Args:
        behaviour: The service's method: takes chunks and a context, returns the response.
    """
    upload = grpc.stream_unary_rpc_method_handler(behaviour, chunk_of, wire.UploadResponse.SerializeToString)
    return grpc.method_handlers_generic_handler(_SERVICE, {_UPLOAD: upload})


def _number(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _number_at(message: bytes, place: int) -> tuple[int, int]:
    """Return an integer and where it ends; -1 for what is none, which fits no message."""
    value = 0
    for index, group in enumerate(message[place : place + _LONGEST_NUMBER]):
        value |= (group & 0x7F) << (7 * index)
        if group < 0x80:
            return value, place + index + 1
    return -1, place
