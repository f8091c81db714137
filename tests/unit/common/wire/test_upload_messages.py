"""Messages of uploads, written and read beside protobuf."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from common.wire.uploads import chunk_of, message_of
from common.wire.v1 import owner_pb2 as wire

offsets = st.integers(0, 2**64 - 1)
pieces = st.binary(max_size=300)


@given(offsets, pieces)
def test_a_written_message_is_the_one_that_protobuf_reads(offset: int, data: bytes) -> None:
    """Whoever speaks the protocol by its description understands an owner's uploads."""
    read = wire.UploadChunk.FromString(message_of(offset, data))
    assert (read.HasField("blob"), read.offset, read.data) == (False, offset, data)


@given(offsets, pieces, st.booleans())
def test_what_protobuf_writes_is_read(offset: int, data: bytes, named: bool) -> None:
    """Every form of a message is understood, the first one with its blob, too."""
    blob = wire.BlobKey(release="r1", size=3) if named else None
    chunk = chunk_of(wire.UploadChunk(blob=blob, offset=offset, data=data).SerializeToString())
    assert (chunk.blob, chunk.offset, bytes(chunk.data)) == (blob, offset, data)


@given(st.binary(max_size=40) | st.tuples(st.sampled_from([b"\x08", b"\x10", b"\x1a"]), pieces).map(b"".join))
def test_any_bytes_mean_what_they_mean_to_protobuf(message: bytes) -> None:
    """A stranger's bytes are refused or read exactly as protobuf would."""
    try:
        expected = wire.UploadChunk.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            chunk_of(message)
        return
    chunk = chunk_of(message)
    assert (chunk.blob is not None) == expected.HasField("blob")
    assert (chunk.offset % 2**64, bytes(chunk.data)) == (expected.offset, expected.data)
