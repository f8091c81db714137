"""The sizes that a Parquet file's pages state, read before any page is unpacked.

A page of zeros unpacks to 30,000 times its size, and the footer's sizes are claims that no reader compares
with the pages. Arrow takes no limit of memory and does not show the headers of pages, so they are read here.
A header is a struct of Thrift's compact protocol (https://github.com/apache/parquet-format), of which two
integers count and everything else is skipped.
"""

from typing import BinaryIO

_UNCOMPRESSED, _COMPRESSED = 2, 3
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_FARTHEST = 2**48
_DEEPEST = 8
"""Structs within a page header: page header, header of its kind, statistics."""


def unpacked_size(stream: BinaryIO, start: int, length: int, n_rows: int) -> int:
    """Return how many bytes the pages of a column chunk take once they are unpacked, as their headers state.

    Args:
        stream: The file; its position moves.
        start: Where the first page begins.
        length: Bytes of all pages together, headers included.
        n_rows: How many records they have, which is one or more in each page but that of a dictionary.

    Raises:
        ValueError: If these are no pages that end where they should.
    """
    stream.seek(start)
    total, end, n_left = 0, start + length, n_rows + 1
    while stream.tell() < end:
        n_left -= 1
        if n_left < 0:
            raise ValueError("more pages than records")
        header = _integers(stream)
        compressed, unpacked = header.get(_COMPRESSED, -1), header.get(_UNCOMPRESSED, -1)
        if compressed < 0 or unpacked < 0:
            raise ValueError("a page without sizes")
        total += unpacked
        _pass(stream, compressed)
    if stream.tell() != end:
        raise ValueError("pages that end elsewhere")
    return total


def _integers(stream: BinaryIO, depth: int = 0) -> dict[int, int]:
    """Read a struct, and return its own integers by the numbers of their fields."""
    integers: dict[int, int] = {}
    number = 0
    if depth > _DEEPEST:
        raise ValueError("structs within structs")
    while (head := _byte(stream)) != 0:
        number = number + (head >> 4) if head >> 4 else _decode_zigzag(_varint(stream))
        kind = head & 15
        if kind in _INTEGERS:
            integers[number] = _decode_zigzag(_varint(stream))
        elif kind not in _BOOLEANS:
            _skip(stream, kind, depth)
    return integers


def _skip(stream: BinaryIO, kind: int, depth: int) -> None:
    if kind == _STRUCT:
        _integers(stream, depth + 1)
    elif kind == _BINARY:
        _pass(stream, _varint(stream))
    elif kind == _BYTE:
        stream.seek(1, 1)
    elif kind == _DOUBLE:
        stream.seek(8, 1)
    else:
        raise ValueError("a field of a type that no page header has")


def _pass(stream: BinaryIO, n_bytes: int) -> None:
    if n_bytes > _FARTHEST:
        raise ValueError("a size beyond every file")
    stream.seek(n_bytes, 1)


def _byte(stream: BinaryIO) -> int:
    read = stream.read(1)
    if not read:
        raise ValueError("a header that ends early")
    return read[0]


def _varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 63, 7):
        part = _byte(stream)
        value |= (part & 127) << shift
        if part < 128:
            return value
    raise ValueError("an integer that is too long")


def _decode_zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)
