"""Random words that a public seed determines: whoever has the seed makes the same records.

References:
    NIST FIPS 202, 6.2 (SHAKE256).
"""

from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array, order_of


class Keystream:
    """SHAKE256 of the seed and of the number of the call."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._calls = seed, 0

    def words(self, n_words: int) -> NDArray[np.uint64]:
        """Return the next words, `(n_words,)`."""
        stream = shake_256(self._seed + self._calls.to_bytes(8)).digest(8 * n_words)
        self._calls += 1
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64)

    def below(self, bounds: Int64Array) -> Int64Array:
        """Return whole numbers from 0 to bound - 1, `(n,)`: uniform but for bound/2^64."""
        return (self.words(bounds.size) % bounds.astype(np.uint64)).astype(np.int64)

    def number_below(self, bound: int) -> int:
        """Return one whole number from 0 to bound - 1."""
        return int(self.words(1)[0]) % bound

    def order(self, size: int) -> Int64Array:
        """Return the numbers from 0 to size - 1 in random order, `(size,)`."""
        return order_of(self.words(size))
