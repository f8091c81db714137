"""Whether compressing makes an upload faster, decided chunk by chunk from what the chunks before took."""

import time

from common.wire.chunks import compress
from common.wire.v1 import owner_pb2 as wire

_TRIED_EVERY = 64
"""One chunk in so many is compressed in any case, since both the data and the line may change."""
_KEPT = 63 / 64
"""What is kept of the seconds and bytes before, with every chunk; gRPC accepts many at once, then none."""
_CLEARLY = 2.0
"""How many times the processor's time the line must save: the processor has other work, too."""


class ChunkPacking:
    """Makes the chunks of one upload, compressed where that saves more time on the line than it takes.

    Args:
        allowed: Whether the aggregator unpacks compressed chunks.
    """

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._n_chunks = 0
        self._seconds = self._bytes = 0.0
        """How long gRPC took to accept chunks, and their bytes on the line; the newest count most."""
        self._cost = self._saved = 0.0
        """Of the last chunk compressed: seconds of the processor for a byte, and the share of bytes saved."""

    def chunk(self, offset: int, data: memoryview | bytes) -> wire.UploadChunk:
        """Return the next chunk."""
        tried = self._n_chunks % _TRIED_EVERY == 0
        self._n_chunks += 1
        if not self._allowed or not (tried or self._pays):
            return wire.UploadChunk(offset=offset, data=bytes(data))
        began = time.thread_time()
        packed = compress(data)
        self._cost = (time.thread_time() - began) / len(data)
        self._saved = 1 - len(packed) / len(data)
        if self._saved <= 0:
            return wire.UploadChunk(offset=offset, data=bytes(data))
        return wire.UploadChunk(offset=offset, zstd=packed, zstd_size=len(data))

    def sent(self, chunk: wire.UploadChunk, seconds: float) -> None:
        """Take note of how long gRPC took to accept a chunk."""
        self._seconds = self._seconds * _KEPT + seconds
        self._bytes = self._bytes * _KEPT + chunk.ByteSize()

    @property
    def _pays(self) -> bool:
        return self._saved * self._seconds > _CLEARLY * self._cost * self._bytes
