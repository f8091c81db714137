"""A seedable source of bits. It lives outside the package: a release cannot be made with it."""

import numpy as np

from owner_node.masking.arrays import UInt64Array


class SeededBits:
    """Reproducible words from PCG64, for tests and evaluations only."""

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._seeds = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        self._generator = np.random.PCG64(self._seeds)

    def words(self, n_words: int) -> UInt64Array:
        """Return uniform words, `(n_words,)`."""
        return self._generator.random_raw(n_words)

    def spawn(self) -> "SeededBits":
        """Return a source of other words, the same ones each time that the first is made with a seed."""
        return SeededBits(self._seeds.spawn(1)[0])
