"""The array types of masking, and its source of random bits."""

import os
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

LARGEST_INT64 = 2**63 - 1

Int64Array: TypeAlias = NDArray[np.int64]
"""Values, sums, sensitivities and scales, in resolution units."""
UInt64Array: TypeAlias = NDArray[np.uint64]
"""Words of random bits."""
TieArray: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]
"""Random numbers, one per record, that break ties between equal values."""
KeyArray: TypeAlias = NDArray[np.uint16]
"""Keys of 16 bits: a value, and the random number that breaks its ties."""
PositionArray: TypeAlias = NDArray[np.int64]
"""Positions of records, 0 to n_records - 1."""
NarrowPositionArray: TypeAlias = NDArray[np.int32]
"""Positions of records, or twice the positions in halves: a fragment has at most 2^28 records."""
NoisyPositionArray: TypeAlias = NDArray[np.int32 | np.int64]
"""Positions of records with noise on them."""
EntryArray: TypeAlias = NDArray[np.int32]
"""Entries of a released list, 0 to its length - 1; a fragment has at most 2^28 records."""
SignArray: TypeAlias = NDArray[np.int8]
"""0 for plus, -1 for minus."""
BoolArray: TypeAlias = NDArray[np.bool_]
Float64Array: TypeAlias = NDArray[np.float64]
"""Numbers after the noise, where rounding discloses nothing more."""


class BitSource(Protocol):
    """A source of random bits, 64 at a time."""

    def words(self, n_words: int) -> UInt64Array:
        """Return independent uniform words, `(n_words,)`, each from 0 to 2^64 - 1."""
        ...

    def spawn(self) -> "BitSource":
        """Return a source for another thread; its words are independent of those of this source."""
        ...


class SystemBits:
    """The operating system's randomness: the only source that releases are made with."""

    def words(self, n_words: int) -> UInt64Array:
        """Return independent uniform words, `(n_words,)`, read-only, each from 0 to 2^64 - 1."""
        return np.frombuffer(os.urandom(8 * n_words), dtype=np.uint64)

    def spawn(self) -> "SystemBits":
        """Return this source: the operating system gives every thread different words."""
        return self
