"""Many counters in one number: what an owner encrypts of a person, and what another adds to the sums.

A number has groups of counters: for every attribute the fine ones of its bins, and the coarse ones of its
merged bins. A counter has `width` bits, signed. A person's number has a 1 in one counter of each group, so a
sum of persons' numbers has the counts, and they fit. A number that is too long becomes several.

The other owner asks for some groups at a time, and hides the rest. To the sum it adds

    z = Σ_{asked counters j} (noise_j + 2^(width - 1)) 2^(place j) + Σ_{runs of hidden groups} u 2^(place)

For an asked counter the sum then has y_j = count_j + noise_j. A hidden run has some value x below 2^h, h its
bits, and above it a guard: `GUARD_BITS` that nothing else uses. u is uniform, of h + GUARD_BITS - 1 bits. So
x + u stays within run and guard, and is as good as independent of x: for any two x its distributions have a
total variation below 2^-(GUARD_BITS - 1).

The owner with the key sees Σ (y_j + 2^(width - 1)) 2^(place j) + Σ (x + u) 2^(place), modulo N. This is a
function of the noisy numbers y and of the x + u, whatever their size. Carries, borrows and wraps are part of
that function. So they disclose nothing, also where a noisy number does not fit its counter. Such a number is
read wrongly, which happens with a probability below e^-60 (`common.synthesis.counters`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from gmpy2 import mpz

from common.arrays import Int64Array
from common.errors import UsageError
from common.synthesis.counters import GUARD_BITS
from common.synthesis.roles import Counters
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.paillier import MODULUS_BITS

CAPACITY = MODULUS_BITS - 1
"""Bits of a number that is surely below N."""


class Place(NamedTuple):
    """Where a group's counters are."""

    number: int
    """In which number of a person."""
    start: int
    """Bit of its first counter."""
    n_counters: int


@dataclass(frozen=True)
class Packing:
    """Where the counters of a person are; a function of public numbers."""

    width: int
    """Bits of a counter."""
    places: Mapping[Counters, Place]
    """Of all groups, in the order of numbers and bits."""

    @classmethod
    def of(cls, n_counters: Mapping[Counters, int], width: int) -> "Packing":
        """Fill numbers with groups: all coarse ones, then the fine ones.

        Coarse groups are asked for together, or not at all: they share a guard.

        Args:
            n_counters: Of each group.
            width: Bits of a counter.

        Raises:
            UsageError: If a group does not fit into a number.
        """
        places: dict[Counters, Place] = {}
        number, end, before = 0, 0, False
        for group in sorted(n_counters, key=lambda each: (not each.coarse, each.attribute)):
            bits = n_counters[group] * width
            if bits + GUARD_BITS > CAPACITY:
                raise UsageError(
                    f"{n_counters[group]} counters of {width} bits are too many for one number",
                    "choose a larger epsilon or fewer attributes",
                )
            start = end if before and group.coarse else end + GUARD_BITS * bool(end)
            if start + bits + GUARD_BITS > CAPACITY:
                number, start = number + 1, 0
            places[group] = Place(number, start, n_counters[group])
            end, before = start + bits, group.coarse
        return cls(width, places)

    @cached_property
    def n_numbers(self) -> int:
        """How many numbers a person has."""
        return 1 + max(place.number for place in self.places.values())

    def numbers(self, bins: Mapping[Counters, Int64Array]) -> list[mpz]:
        """Return the numbers of persons, person by person.

        Args:
            bins: The persons' bins, `(n_persons,)` by group.
        """
        found = [mpz(0)] * (next(iter(bins.values())).size * self.n_numbers)
        for group, place in self.places.items():
            ones = [mpz(1) << (place.start + i * self.width) for i in range(place.n_counters)]
            for person, of_person in enumerate(bins[group].tolist()):
                found[person * self.n_numbers + place.number] += ones[of_person]
        return found

    def needed(self, asked: Sequence[Counters]) -> list[int]:
        """Return which of a person's numbers have any of some groups, ascending."""
        return sorted({self.places[group].number for group in asked})

    def addend(self, number: int, noise: Mapping[Counters, Int64Array], bits: BitSource) -> mpz:
        """Return z, what is added to the sum of persons' numbers; see above.

        Args:
            number: Which of the numbers of a person.
            noise: On the counters of the groups that are asked for, `(n_counters,)` by group.
            bits: Random bits, used for nothing else.
        """
        found = mpz(0)
        for hidden, run in self._runs(number, noise):
            if hidden:
                n_bits = run[-1].start + run[-1].n_counters * self.width - run[0].start + GUARD_BITS - 1
                drawn = mpz.from_bytes(bits.words(-(-n_bits // 64)).tobytes(), "little")
                found += (drawn & ((mpz(1) << n_bits) - 1)) << run[0].start
        half = 1 << (self.width - 1)
        for group, added in noise.items():
            place = self.places[group]
            if place.number == number:
                for i, each in enumerate(added.tolist()):
                    found += mpz(each + half) << (place.start + i * self.width)
        return found

    def _runs(self, number: int, asked: Mapping[Counters, object]) -> Iterator[tuple[bool, list[Place]]]:
        """Yield consecutive groups that are hidden, or asked for."""
        of_number = [each for each in self.places.items() if each[1].number == number]
        if len({group in asked for group, _ in of_number if group.coarse}) > 1:
            raise ValueError("coarse counters are asked for together")
        for hidden, run in groupby(of_number, key=lambda each: each[0] not in asked):
            yield hidden, [place for _, place in run]

    def read(self, number: int, value: mpz, asked: Sequence[Counters]) -> dict[Counters, Int64Array]:
        """Return the noisy counters of a number that are asked for, `(n_counters,)` by group."""
        half, mask = 1 << (self.width - 1), (1 << self.width) - 1
        found = {}
        for group in asked:
            place = self.places[group]
            if place.number == number:
                counters = [
                    int(value >> (place.start + i * self.width)) & mask for i in range(place.n_counters)
                ]
                found[group] = np.array(counters, dtype=np.int64) - half
        return found

    def fits(self, number: int, value: mpz) -> bool:
        """Whether a decrypted number has no bits beyond the groups and their guards."""
        end = max(
            place.start + place.n_counters * self.width
            for place in self.places.values()
            if place.number == number
        )
        return bool(value.bit_length() <= end + GUARD_BITS)
