"""A seedable source of bits. It lives outside the package: a release cannot be made with it."""

import numpy as np

from owner_node.masking.arrays import UInt64Array


class SeededBits:
    """Reproducible words from PCG64, for tests and evaluations only."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.PCG64(seed)

    def words(self, n_words: int) -> UInt64Array:
        """Return uniform words, `(n_words,)`."""
        return self._generator.random_raw(n_words)
