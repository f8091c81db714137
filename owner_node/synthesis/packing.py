"""Many counters in one number: what an owner encrypts of a person, and what another adds to the sums.

A number has the counters of the bins of some attributes. A counter has `width` bits, signed. A person's
number has a 1 in one counter of each attribute, so a sum of persons' numbers has the counts, and they fit. An
attribute that does not fit into a number any more is in the next one.

The other owner blinds every bit that was not asked for. Let L be the bits of a number's counters, s =
`GUARD_BITS`, and g ≥ (log2 N - L + s)/2 the filler bits below them (`common.synthesis.counters.layout`).
Let M = floor(N/2^(L + g)), B = floor(N/M), and t = N - M B. So 0 ≤ t < M ≤ 2^(g - s), and B ≥ 2^(L + g).
That owner adds to the sum

    z = Σ_counters j (noise_j + 2^(width - 1)) 2^(place j) + F + u B,  F uniform below 2^g, u below M.

The holder, which has the key, sees v = m + z modulo N, and reads the counters from (v mod B) >> g.

Theorem. Write the sum m of plaintexts, whatever a holder encrypted, as a B + 2^g c + f with f < 2^g and
2^g c + f < B. Then v is within a total variation distance of t/2^g < 2^-s of

    2^g Y + F' + x B  modulo N,  Y = Σ_j (noise_j + 2^(width - 1)) 2^(place j - g) + c + [F' < f],

F' uniform below 2^g and x uniform below M, both independent of all else. For valid rows a = f = 0, and v has
exactly this distribution. So a holder learns nothing but the asked counters c with their noise. A
fraction f/2^g of the first one is rounded up or down at random.

Proof. a ≤ M, so a + u = x + M k with x uniform below M, and k = 1 if x < a, otherwise 0. As M B = N - t,
v = 2^g c + f + Σ_j … + F - k t + x B modulo N. Shifting F by t changes its distribution by t/2^g, and this
only where k = 1. Without the shift F' = (f + F) mod 2^g is uniform, and f + F carries where F' < f.

An adder answers with at most 2^20 numbers, which together are within 2^-80. Y is a function of the noisy
counts, whatever their size: carries, borrows and wraps are part of it. One that does not fit its counter is
read wrongly, which happens with a probability below e^-60. Every counter is asked for and has noise.
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

    def span(self, number: int) -> tuple[int, int]:
        """Return g, the first bit of a number's counters, and g + L, the bit after the last one."""
        places = [place for place in self.places.values() if place.number == number]
        return (
            min(place.start for place in places),
            max(place.start + place.n_counters * self.width for place in places),
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
        half, (first, end) = 1 << (self.width - 1), self.span(number)
        top = modulus >> end
        found = uniform_number(mpz(1) << first, bits) + uniform_number(top, bits) * (modulus // top)
        for attribute, place in self.places.items():
            if place.number == number:
                # Every counter has its noise, or nothing is returned.
                for i, each in zip(range(place.n_counters), noise[attribute].tolist(), strict=True):
                    found += mpz(each + half) << (place.start + i * self.width)
        return found

    def read(self, number: int, value: mpz, modulus: mpz) -> dict[int, Int64Array]:
        """Return the noisy counters of a number, `(n_counters,)` by attribute; the modulus is N."""
        half, mask = 1 << (self.width - 1), (1 << self.width) - 1
        value %= modulus // (modulus >> self.span(number)[1])
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
    n_bits = (bound - 1).bit_length()
    while True:
        drawn = mpz.from_bytes(bits.words(-(-n_bits // 64)).tobytes(), "little") & ((mpz(1) << n_bits) - 1)
        if drawn < bound:
            return drawn
