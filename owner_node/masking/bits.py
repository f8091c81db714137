"""Where random bits come from: the operating system, and in tests a source they bring along."""

import os
from typing import Protocol

import numpy as np

from owner_node.masking.arrays import UInt64Array


class BitSource(Protocol):
    """Gives random bits, 64 at a time."""

    def words(self, n_words: int) -> UInt64Array:
        """Return independent uniform words, `(n_words,)`, each from 0 to 2^64 - 1."""
        ...

    def apart(self) -> "BitSource":
        """Return a source for another thread, whose words are independent of those of this one."""
        ...


class SystemBits:
    """The operating system's randomness: the only source a release is ever made with."""

    def words(self, n_words: int) -> UInt64Array:
        """Return independent uniform words, `(n_words,)`, read-only, each from 0 to 2^64 - 1."""
        return np.frombuffer(os.urandom(8 * n_words), dtype=np.uint64)

    def apart(self) -> "SystemBits":
        """Return this source: the operating system answers all threads, each with words of its own."""
        return self
