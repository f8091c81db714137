"""A seedable source of bits. It lives outside the package: a release cannot be made with it."""

from hashlib import sha256

import numpy as np

from owner_node.masking.arrays import BitSource, PositionArray, UInt64Array


class SeededBits(BitSource):
    """Reproducible bits, for tests and evaluations only."""

    def __init__(self, seed: int) -> None:
        super().__init__(bytearray(sha256(str(seed).encode()).digest()))


class QueuedWords:
    """Gives the queued words first, then seeded ones."""

    def __init__(self, *words: int) -> None:
        self._queue = list(words)
        self._after = SeededBits(1)

    def next(self, which: PositionArray) -> UInt64Array:
        """Return the next words."""
        taken, self._queue = self._queue[: which.size], self._queue[which.size :]
        rest = self._after.words(which.size - len(taken))
        return np.concatenate([np.array(taken, dtype=np.uint64), rest])
