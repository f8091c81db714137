"""A file in bounded pieces, from any offset."""

from collections.abc import Iterator
from pathlib import Path

from common.errors import ProtocolError

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
