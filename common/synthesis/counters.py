"""The counters of tables across owners: how wide they are, where they are, and what encrypted rows weigh."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

from common.errors import UsageError
from common.model.rounds import CIPHERTEXT_BYTES, ParcelKind
from common.synthesis.accounting import Kind, Noise
from common.synthesis.schedule import Design

GUARD_BITS = 100
"""s: all that is not asked for is hidden but for 2^-s (`owner_node.synthesis.packing`)."""
CAPACITY = 8 * CIPHERTEXT_BYTES // 2 - 1
"""Bits of a number that is surely below the modulus of a key."""
MOST_PERSONS = 2**22
_LAPLACE_REACH, _GAUSSIAN_REACH = 64, 12
"""Noise beyond so many scales or deviations has a probability below e^-60."""
_LARGEST_HEADER = 2**17
"""Bytes of a parcel beside ciphertexts and who has a person: keys and digests."""
_SECONDS = 0.0012
"""To encrypt one number, as `docs/tables-across-owners.md` measures it."""


def counter_width(n_persons: int, noise: Noise) -> int:
    """Return how many bits a signed counter needs, for counts of persons with noise.

    Args:
        noise: What an adder adds to a counter.

    Raises:
        UsageError: If there are too many persons.
    """
    if n_persons > MOST_PERSONS:
        raise UsageError(
            f"{n_persons:,} persons, tables across owners count at most {MOST_PERSONS:,}",
            "release a part of the records",
        )
    is_laplace = noise.kind is Kind.LAPLACE
    reach = _LAPLACE_REACH * noise.size if is_laplace else _GAUSSIAN_REACH * (isqrt(noise.size) + 1)
    return 1 + (n_persons + reach).bit_length()


def width_of(design: Design) -> int:
    """Return how many bits the counters of a release have.

    Raises:
        UsageError: If there are too many persons.
    """
    noises = {design.table_noise(pair) for pair in design.pairs if design.is_across(pair)}
    return max(counter_width(design.n_records, noise) for noise in noises)


class Place(NamedTuple):
    """Where an attribute's counters are."""

    number: int
    """In which number of a person."""
    start: int
    """Bit of its first counter."""
    n_counters: int


def counted_with(design: Design, group: int) -> dict[int, tuple[int, ...]]:
    """Return the attributes that a group's owners encrypt, each with those of adders that it is counted with.

    Both are ascending.
    """
    adding = design.order[design.order.index(group) + 1 :]
    found: dict[int, tuple[int, ...]] = {}
    for pair in design.pairs:
        for own, other in (pair, pair[::-1]):
            if design.home(own) == group and design.home(other) in adding:
                found[own] = (*found.get(own, ()), other)
    return {own: tuple(sorted(found[own])) for own in sorted(found)}


def layout(
    n_counters: Mapping[int, int], partners: Mapping[int, tuple[int, ...]], width: int
) -> dict[int, Place]:
    """Fill numbers with the counters of attributes; return where each attribute's are.

    Attributes of one number are counted with the same attributes of others, so that no counter of a number
    comes back that was not asked for. Below L bits of counters are g = ceil((CAPACITY + 1 - L + s)/2) bits.

    Args:
        n_counters: By attribute.
        partners: As `counted_with` returns them.
        width: Bits of a counter.

    Raises:
        UsageError: If an attribute does not fit into a number.
    """
    places: dict[int, Place] = {}
    number, end, before = 0, 0, None
    for attribute in sorted(n_counters, key=lambda each: (partners[each], each)):
        count = n_counters[attribute]
        bits = count * width
        if bits + GUARD_BITS >= CAPACITY:
            raise UsageError(
                f"{count} counters of {width} bits are too many for one number",
                "choose a larger epsilon or fewer attributes",
            )
        if end and (end + bits + GUARD_BITS >= CAPACITY or partners[attribute] != before):
            number, end = number + 1, 0
        places[attribute] = Place(number, end, count)
        end, before = end + bits, partners[attribute]
    sizes = Counter[int]()
    for place in places.values():
        sizes[place.number] += place.n_counters * width
    filler = {number: (CAPACITY - size + GUARD_BITS) // 2 + 1 for number, size in sizes.items()}
    return {
        attribute: place._replace(start=filler[place.number] + place.start)
        for attribute, place in places.items()
    }


@dataclass(frozen=True, slots=True)
class Traffic:
    """What counting across owners costs, from public numbers: of attributes with as many bins as may be."""

    n_bytes: int
    """Encrypted rows that owners send the aggregator."""
    passed_on: int
    """Encrypted rows that it sends owners."""
    seconds: float
    """Processor time of the owner that encrypts most."""


def traffic(design: Design) -> Traffic:
    """Return what counting across owners costs, where groups of owners have different attributes.

    Raises:
        UsageError: If an attribute has too many bins to be encrypted, or there are too many persons.
    """
    # Owners of the last group encrypt nothing; all others send theirs to those of later groups.
    numbers = [_most_numbers(design, group) for group in design.order[:-1]]
    rows = [CIPHERTEXT_BYTES * design.n_records * number for number in numbers]
    later = [sum(map(design.n_owners.__getitem__, design.order[i:])) for i in range(1, design.n_groups)]
    passed_on = sum(size * n_owners for size, n_owners in zip(rows, later, strict=True))
    return Traffic(sum(rows), passed_on, _SECONDS * design.n_records * max(numbers, default=0))


def _most_numbers(design: Design, group: int) -> int:
    """Return how many numbers a person of a holder can have."""
    partners = counted_with(design, group)
    sizes = {place: design.largest_binning(place) for place in partners}
    places = layout(sizes, partners, width_of(design))
    return 1 + max((place.number for place in places.values()), default=-1)


def largest_parcel(design: Design, group: int, kind: ParcelKind, n_persons: int) -> int:
    """Return the most bytes that an owner can have to send others in a round.

    Args:
        group: The owner's group.
        kind: What it sends.
        n_persons: The owner's.
    """
    place = design.order.index(group)
    if kind is ParcelKind.ROWS:
        # Who has a person in each of the groups that add; sealing takes less than a byte a person.
        n_pairs = design.n_groups - place
        return n_persons * (_most_numbers(design, group) * CIPHERTEXT_BYTES + n_pairs) + _LARGEST_HEADER
    size = 0
    for holders in design.order[:place]:
        counted = {other for others in counted_with(design, holders).values() for other in others}
        n_bins = sum(design.largest_binning(each) for each in counted if design.home(each) == group)
        of_holder = n_bins * _most_numbers(design, holders) * CIPHERTEXT_BYTES + _LARGEST_HEADER
        size += design.n_owners[holders] * of_holder
    return size
