"""The array types of masking, and its source of random bits.

Every attribute of every masking has a key of its own from the operating system. Its random bits are AES-256
of block addresses under that key, which is counter mode with any counter at hand. Elements (records,
clusters, values, places of a list) are numbered, and the bits of an element are at a fixed place:

    purpose (8 bits) | lane (8 bits) | block (112 bits)                    some bytes for each element in turn
    purpose (8 bits) | lane 255      | element (80 bits) | count (32 bits) further words, which few need

So whoever draws for record i draws the same, whatever the number of threads, the size of blocks or the
engine, and a retry draws it again. No address has two uses: purposes do not overlap, there is a lane for each
use and number of bytes, and a source gives every element number once.

References:
    NIST SP 800-38A, 6.5 (counter mode). AES blocks of one key never repeat: 2^40 of them differ from random
    bits with probability below 2^-49.
"""

import os
from enum import IntEnum
from itertools import count
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

LARGEST_INT64 = 2**63 - 1

Int64Array: TypeAlias = NDArray[np.int64]
"""Values, sums, sensitivities and scales, in resolution units."""
UInt64Array: TypeAlias = NDArray[np.uint64]
"""Words of random bits."""
TieArray: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]
"""Random numbers, one per record, that break ties between equal values."""
PositionArray: TypeAlias = NDArray[np.int64]
"""Positions of records, 0 to n_records - 1."""
NoisyPositionArray: TypeAlias = NDArray[np.int32 | np.int64]
"""Noise on positions of records, or positions with noise on them."""
SignArray: TypeAlias = NDArray[np.int8]
"""0 for plus, -1 for minus."""
BoolArray: TypeAlias = NDArray[np.bool_]
Float64Array: TypeAlias = NDArray[np.float64]
"""Numbers after the noise, where rounding discloses nothing more."""


_Unsigned = TypeVar("_Unsigned", bound=np.generic)
KEY_BYTES, _BLOCK_BYTES = 32, 16
_FURTHER, _SPAWNED = 255, 254
_ZEROS = bytes(2**18)


class Purpose(IntEnum):
    """What the bits of a masking are for; each purpose has addresses of its own."""

    LIST = 1
    TIES = 2
    RANK_NOISE = 3
    RANK_TIES = 4
    SHUFFLE = 5


class Words(Protocol):
    """A source of words for some elements, one after the other."""

    def next(self, which: PositionArray) -> UInt64Array:
        """Return one more uniform word, from 0 to 2^64 - 1, for each of some elements, `(n,)`."""
        ...


class BitSource:
    """The random bits of one purpose, under one key, for elements from some number on.

    A source is for one thread at a time; `spawn` gives others theirs.
    """

    def __init__(self, key: bytearray, purpose: int = 0, first: int = 0) -> None:
        """Start at an element.

        Args:
            key: 32 random bytes; the source does not copy them, so that they can be erased.
            purpose: From 0 to 255.
        """
        self._key, self._purpose, self._next = key, purpose, first
        self._spawned = count()

    def take(self, size: int) -> "ElementBits":
        """Return the bits of the next elements; no later call returns any of them again."""
        first, self._next = self._next, self._next + size
        return ElementBits(self, first, size)

    def words(self, n_words: int) -> UInt64Array:
        """Return a word for each of the next elements, `(n_words,)`."""
        return self.take(n_words).integers(np.uint64)

    def next(self, which: PositionArray) -> UInt64Array:
        """Return a word for each of the next elements, as many as are named: here each is a new one."""
        return self.words(which.size)

    def of(self, purpose: Purpose, first: int = 0) -> "BitSource":
        """Return the bits of a purpose under the same key, from an element on, always the same ones."""
        return BitSource(self._key, purpose, first)

    def spawn(self) -> "BitSource":
        """Return a source with its own key, a new one at each call."""
        address = (self._purpose << 120) | (_SPAWNED << 112) | (2 * next(self._spawned))
        return BitSource(bytearray(self._counter(address, KEY_BYTES)))

    def copy_key(self) -> bytes:
        """Return a copy of the key for other processes, which draw under it; `erase` does not reach it."""
        return bytes(self._key)

    def erase(self) -> None:
        """Overwrite the key, also that of all sources of purposes; none can be used afterwards."""
        self._key[:] = bytes(len(self._key))
        self._key.clear()

    def bytes_of(self, lane: int, width: int, first: int, size: int) -> NDArray[np.uint8]:
        """Return bytes of a lane below 15: `width` for each of `size` elements from `first` on."""
        block, before = divmod(first * width, _BLOCK_BYTES)
        address = (self._purpose << 120) | (lane << 116) | (width << 112) | block
        drawn = self._counter(address, before + size * width)
        return drawn[before:]

    def further(self, elements: UInt64Array, counts: UInt64Array) -> UInt64Array:
        """Return a further word of each of some elements, `(n,)`, by how many it has had, `(n,)`."""
        addresses = np.empty((elements.size, 2), dtype=">u8")
        addresses[:, 0] = (elements >> np.uint64(32)) | np.uint64((self._purpose << 56) | (_FURTHER << 48))
        addresses[:, 1] = (elements << np.uint64(32)) | counts
        encryptor = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305
        drawn = np.frombuffer(encryptor.update(addresses.tobytes()), dtype=np.uint64)
        return drawn[::2].copy()

    def _counter(self, address: int, n_bytes: int) -> NDArray[np.uint8]:
        """Return the blocks from an address on."""
        encryptor = Cipher(algorithms.AES(self._key), modes.CTR(address.to_bytes(_BLOCK_BYTES))).encryptor()
        drawn = np.empty(n_bytes, dtype=np.uint8)
        for start in range(0, n_bytes, len(_ZEROS)):
            size = min(len(_ZEROS), n_bytes - start)
            encryptor.update_into(memoryview(_ZEROS)[:size], drawn.data[start : start + size])
        return drawn


class SystemBits(BitSource):
    """A source with a fresh key from the operating system: the only one that releases are made with."""

    def __init__(self) -> None:
        super().__init__(bytearray(os.urandom(KEY_BYTES)))


class ElementBits:
    """The bits of consecutive elements of a source."""

    def __init__(self, source: BitSource, first: int, size: int) -> None:
        self._source, self._first, self.size = source, first, size
        self._counts: NDArray[np.uint32] | None = None

    def integers(
        self, kind: type[_Unsigned], lane: int = 0, block: slice = slice(None)
    ) -> NDArray[_Unsigned]:
        """Return a uniform integer of some bytes at the elements' place in a lane; always the same ones."""
        first, after, _ = block.indices(self.size)
        width = np.dtype(kind).itemsize
        return self._source.bytes_of(lane, width, self._first + first, after - first).view(kind)

    def next(self, which: PositionArray) -> UInt64Array:
        """Return one further word of each of some elements, by their place here, `(n,)`."""
        if self._counts is None:
            self._counts = np.zeros(self.size, dtype=np.uint32)
        counts = self._counts[which]
        self._counts[which] = counts + np.uint32(1)
        elements = (which + self._first).astype(np.uint64)
        return self._source.further(elements, counts.astype(np.uint64))


class Chosen:
    """Some elements of a source of words, renumbered from 0."""

    def __init__(self, bits: Words, elements: PositionArray) -> None:
        self._bits, self._elements = bits, elements

    def next(self, which: PositionArray) -> UInt64Array:
        """Return one more word of each of some of them."""
        return self._bits.next(self._elements[which])
