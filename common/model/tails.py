"""How many of the smallest and largest values `idp-quantiles` leaves out, from public numbers.

What is made of them, and the proofs, are in `owner_node.masking.tails`.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Self

_LENGTH = 6
"""Trimmed values per s: e^-6 is left of what lies beyond them."""
_LEAST = 32
"""With few clusters that would be few values: so many hide twenty that are far from all others
(docs/decisions.md)."""
_MOST_OF_CLUSTER = 2, 5
"""At most two values in five of a cluster are trimmed at either end: a single cluster has one left."""


@dataclass(frozen=True, slots=True)
class Tails:
    """How much is trimmed, and how fast what lies in the tails counts less."""

    trimmed: int
    """h, the number of values at either end of all records: from g to two fifths of k, or g."""
    steps: int
    """s: one record changes the scale of the noise by at most a factor of 1 + 1/s."""
    g: int
    """The most records that one person has."""

    @classmethod
    def of(cls, n_records: int, k: int, g: int) -> Self:
        """Choose both.

        Args:
            n_records: Exact number of records.
            k: Minimum cluster size, at least 2g + 3.
            g: The most records that one person has.
        """
        steps = g * (isqrt(4 * (n_records // k)) + 1)
        most, of = _MOST_OF_CLUSTER
        return cls(max(g, min(max(_LENGTH * steps, _LEAST) + g - 1, k * most // of)), steps, g)
