"""Compressed chunks: taken where they make an upload faster, and never more than they state."""

import numpy as np
import pytest

from common.errors import ProtocolError
from common.files import CHUNK_BYTES
from common.wire.chunks import compress, data_of
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.packing import ChunkPacking

RNG = np.random.default_rng(1)
INDICES = RNG.integers(0, 16, CHUNK_BYTES, np.uint8).tobytes()
TOKENS = RNG.integers(0, 256, CHUNK_BYTES, np.uint8).tobytes()
SLOW, FAST = 1.0, 1e-9
"""Seconds that a line takes for a chunk: slower and faster than any processor compresses one."""


def packed(data: bytes, seconds: float, *, allowed: bool = True) -> list[bool]:
    """Return which of two hundred chunks travel compressed; all arrive as they were."""
    packing, found = ChunkPacking(allowed=allowed), []
    for place in range(200):
        chunk = packing.chunk(place * len(data), data)
        packing.sent(chunk, seconds)
        assert (data_of(chunk), chunk.offset) == (data, place * len(data))
        found.append(bool(chunk.zstd))
    return found


def test_a_slow_line_gets_compressed_chunks():
    """The line is what an upload waits for: all chunks are compressed."""
    assert all(packed(INDICES, SLOW))


def test_a_fast_line_gets_chunks_as_they_are():
    """Compressing would take longer than sending: only the chunks that try it are compressed."""
    assert [place for place, each in enumerate(packed(INDICES, FAST)) if each] == [0, 64, 128, 192]


def test_tokens_are_never_compressed():
    """What compressing does not make smaller is sent as it is, however slow the line."""
    assert not any(packed(TOKENS, SLOW))


def test_nothing_is_compressed_for_an_older_aggregator():
    """An aggregator that does not say that it unpacks chunks would store the frames."""
    assert not any(packed(INDICES, SLOW, allowed=False))


def test_a_line_that_becomes_slow_is_noticed():
    """Chunks are compressed some time after the line has become slow."""
    packing, found = ChunkPacking(allowed=True), []
    for seconds in [FAST] * 10 + [SLOW] * 50:
        chunk = packing.chunk(0, INDICES)
        packing.sent(chunk, seconds)
        found.append(bool(chunk.zstd))
    assert (any(found[1:10]), found[-1]) == (False, True)


@pytest.mark.parametrize(
    "chunk",
    [
        wire.UploadChunk(zstd=compress(bytes(100 << 20)), zstd_size=CHUNK_BYTES),
        wire.UploadChunk(zstd=compress(bytes(100 << 20)), zstd_size=100 << 20),
        wire.UploadChunk(zstd=compress(bytes(100)), zstd_size=99),
        wire.UploadChunk(zstd=compress(bytes(100)), zstd_size=101),
        wire.UploadChunk(zstd=compress(bytes(100)), zstd_size=0),
        wire.UploadChunk(zstd=compress(bytes(100)) * 2, zstd_size=100),
        wire.UploadChunk(zstd=compress(bytes(100)), zstd_size=100, data=b"x"),
        wire.UploadChunk(zstd=b"no frame", zstd_size=100),
        wire.UploadChunk(zstd=compress(b"") * 400_000 + compress(b"x"), zstd_size=1),
    ],
    ids=["bomb", "large bomb", "more", "fewer", "none stated", "two frames", "both", "garbage", "long frame"],
)
def test_a_frame_that_lies_is_refused(chunk):
    """Nothing but exactly the stated bytes comes out of a frame, and they are at most a chunk."""
    with pytest.raises(ProtocolError, match="compressed chunk"):
        data_of(chunk)
