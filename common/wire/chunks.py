"""Chunks of uploads, compressed on the way where both sides can; digests, sizes and offsets are of the blob.

Indices of masked values become a third to two thirds as large, tokens no smaller. gRPC's own compression
would need no fields, but its gzip has one level, at a tenth of the speed: slower than a line of 100 Mbit/s.
"""

from common.errors import ProtocolError
from common.files import CHUNK_BYTES
from common.wire.v1 import owner_pb2 as wire

_LEVEL = 1


def compress(data: bytes | memoryview) -> bytes:
    """Return a zstd frame of some bytes."""
    # An idle daemon does not need Arrow's memory.
    import pyarrow as pa

    return bytes(pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True))


def data_of(chunk: wire.UploadChunk) -> bytes:
    """Return the bytes of the blob that a chunk brings.

    Its frame is unpacked into the stated number of bytes: one that holds more, or fewer, is refused.

    Raises:
        ProtocolError: If they cannot be unpacked, or are more than a chunk may have.
    """
    packed, size = chunk.zstd, chunk.zstd_size
    # Every access to the field copies its bytes.
    data = chunk.data
    if not packed:
        return data
    # Unpacking a long frame of few bytes would cost much for nothing.
    if data or not len(packed) < size <= CHUNK_BYTES:
        raise ProtocolError(
            f"a compressed chunk of {len(packed)} bytes states {size}, not more and up to {CHUNK_BYTES}",
            "both sides must run compatible versions",
        )
    import pyarrow as pa

    try:
        return bytes(pa.Codec("zstd").decompress(packed, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError):
        raise ProtocolError(
            "a compressed chunk cannot be unpacked to the bytes that it states",
            "both sides must run compatible versions",
        ) from None
