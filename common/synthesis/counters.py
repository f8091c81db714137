"""The counters of tables across owners: how wide they are, and what the encrypted rows weigh."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isqrt

from common.errors import UsageError
from common.model.rounds import CIPHERTEXT_BYTES
from common.synthesis.accounting import Kind, Noise
from common.synthesis.course import Design
from common.synthesis.rounds import MOST_BINS, coarse_groups, most_bins

GUARD_BITS = 100
"""Room above counters that are hidden."""
_MOST_PERSONS = 2**22
_LAPLACE_REACH, _GAUSSIAN_REACH = 64, 12
"""Noise beyond so many scales or deviations has a probability below e^-60."""
_SECONDS = 0.0015
"""To encrypt one number, as `docs/tables-across-owners.md` measures it."""


def counter_width(n_persons: int, noises: Sequence[Noise]) -> int:
    """Return how many bits a signed counter needs, for counts of persons with noise.

    Args:
        n_persons: How many there are.
        noises: What may be added to a counter.

    Raises:
        UsageError: If there are too many persons.
    """
    if n_persons > _MOST_PERSONS:
        raise UsageError(
            f"{n_persons:,} persons, tables across owners count at most {_MOST_PERSONS:,}",
            "release a part of the records",
        )
    reach = max(
        _LAPLACE_REACH * one.size if one.kind is Kind.LAPLACE else _GAUSSIAN_REACH * (isqrt(one.size) + 1)
        for one in noises
    )
    return 1 + (n_persons + reach).bit_length()


def width_of(design: Design) -> int:
    """Return how many bits the counters of a release have.

    Raises:
        UsageError: If there are too many persons.
    """
    across = design.choice_noises[1]
    return counter_width(design.n_records, [design.most_table_noise, *([across] if across else [])])


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
    """Return what counting across owners costs, where owners have different attributes."""
    width, groups = width_of(design), coarse_groups(design.n_records)
    most = most_bins(design.n_records, design.pair_variance)
    bits = dict.fromkeys(design.holders, 0)
    for owner, attribute in zip(design.holders, design.attributes, strict=True):
        n_bins = min(attribute.n_values, MOST_BINS if attribute.is_categorical else most)
        bits[owner] += (n_bins + min(n_bins, groups)) * width + GUARD_BITS
    # Whoever has most bins encrypts nothing; all others send theirs to those that have more.
    room = 8 * CIPHERTEXT_BYTES // 2 - GUARD_BITS
    numbers = [ceil(n_bits / room) for n_bits in sorted(bits.values())]
    rows = [CIPHERTEXT_BYTES * design.n_records * number for number in numbers[:-1]]
    passed_on = sum(size * (len(rows) - place) for place, size in enumerate(rows))
    return Traffic(sum(rows), passed_on, _SECONDS * design.n_records * max(numbers[:-1], default=0))
