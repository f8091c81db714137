"""Many counters in one number: what an owner encrypts of a person, and what another adds to the sums.

A number has the counters of the bins of some attributes. A counter has `width` bits, signed. A person's
number has a 1 in one counter of each attribute, so a sum of persons' numbers has the counts, and they fit. An
attribute that does not fit into a number any more is in the next one.

The other owner adds to the sum, with L the bits of the layout,

    z = Σ_counters j (noise_j + 2^(width - 1)) 2^(place j) + R 2^L,  R uniform below N/2^L.

The owner with the key sees Σ (y_j + 2^(width - 1)) 2^(place j) + R 2^L modulo N, y_j = count_j + noise_j.
This is a function of the noisy numbers y and of R, whatever their size. Carries, borrows and wraps are part
of that function. So they disclose nothing, also where a noisy number does not fit its counter. Such a number
is read wrongly, which happens with a probability below e^-60 (`common.synthesis.counters`). Every counter is
asked for and has noise.

R hides what is above the layout. For sums of rows, that is nothing: then the holder sees exactly the noisy
numbers and R. For other plaintexts, of a holder that encrypts something else, the sum may wrap around N. What
such a holder can learn beyond noisy counts is not bounded here (`docs/tables-across-owners.md`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gmpy2 import mpz

from common.arrays import Int64Array
from common.synthesis.counters import Place, layout
from owner_node.masking.arrays import BitSource


@dataclass(frozen=True)
class Packing:
    """Where the counters of a person are; a function of public numbers."""

    width: int
    """Bits of a counter."""
    places: Mapping[int, Place]
    """By attribute, in the order of numbers and bits."""

    @classmethod
    def of(
        cls, n_counters: Mapping[int, int], partners: Mapping[int, tuple[int, ...]], width: int
    ) -> "Packing":
        """Fill numbers with the counters of attributes (`common.synthesis.counters.layout`)."""
        return cls(width, layout(n_counters, partners, width))

    @cached_property
    def n_numbers(self) -> int:
        """How many numbers a person has."""
        return 1 + max((place.number for place in self.places.values()), default=-1)

    def n_bits(self, number: int) -> int:
        """Return L, the bits of a number's counters."""
        return max(
            place.start + place.n_counters * self.width
            for place in self.places.values()
            if place.number == number
        )

    def numbers(self, bins: Mapping[int, Int64Array]) -> list[mpz]:
        """Return the numbers of persons, person by person.

        Args:
            bins: The persons' bins, `(n_persons,)` by attribute.
        """
        found = [mpz(0)] * (next((each.size for each in bins.values()), 0) * self.n_numbers)
        for attribute, place in self.places.items():
            ones = [mpz(1) << (place.start + i * self.width) for i in range(place.n_counters)]
            for person, of_person in enumerate(bins[attribute].tolist()):
                found[person * self.n_numbers + place.number] += ones[of_person]
        return found

    def addend(self, number: int, noise: Mapping[int, Int64Array], modulus: mpz, bits: BitSource) -> mpz:
        """Return z, what is added to the sum of persons' numbers; see above.

        Args:
            number: Which of the numbers of a person.
            noise: On the counters of every attribute of the number, `(n_counters,)`.
            modulus: N.
            bits: Random bits, used for nothing else.

        Raises:
            ValueError: If a counter has no noise.
        """
        half, n_bits = 1 << (self.width - 1), self.n_bits(number)
        found = uniform_number(modulus >> n_bits, bits) << n_bits
        for attribute, place in self.places.items():
            if place.number == number:
                # Every counter has its noise, or nothing is returned.
                for i, each in zip(range(place.n_counters), noise[attribute].tolist(), strict=True):
                    found += mpz(each + half) << (place.start + i * self.width)
        return found

    def read(self, number: int, value: mpz) -> dict[int, Int64Array]:
        """Return the noisy counters of a number, `(n_counters,)` by attribute."""
        half, mask = 1 << (self.width - 1), (1 << self.width) - 1
        found = {}
        for attribute, place in self.places.items():
            if place.number == number:
                counters = [
                    int(value >> (place.start + i * self.width)) & mask for i in range(place.n_counters)
                ]
                found[attribute] = np.array(counters, dtype=np.int64) - half
        return found


def uniform_number(bound: mpz, bits: BitSource) -> mpz:
    """Draw a uniform number from 0 to bound - 1; words beyond it are drawn again."""
    n_bits = bound.bit_length()
    while True:
        drawn = mpz.from_bytes(bits.words(-(-n_bits // 64)).tobytes(), "little") & ((mpz(1) << n_bits) - 1)
        if drawn < bound:
            return drawn
