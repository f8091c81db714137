"""The counters of tables across owners: how wide they are, and what the encrypted rows weigh."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isqrt

from common.errors import UsageError
from common.model.rounds import CIPHERTEXT_BYTES
from common.synthesis.accounting import Kind, Noise
from common.synthesis.course import Design
from common.synthesis.rounds import MOST_BINS, all_pairs, coarse_groups, most_bins

GUARD_BITS = 100
"""Room above counters that are hidden."""
MOST_PERSONS = 2**22
_LAPLACE_REACH, _GAUSSIAN_REACH = 64, 12
"""Noise beyond so many scales or deviations has a probability below e^-60."""
_SECONDS = 0.0015
"""To encrypt one number, as `docs/tables-across-owners.md` measures it."""


def counter_width(n_persons: int, noises: Sequence[Noise]) -> int:
    """Return how many bits a signed counter needs, for counts of persons with noise.

    Args:
        noises: What may be added to a counter.

    Raises:
        UsageError: If there are too many persons.
    """
    if n_persons > MOST_PERSONS:
        raise UsageError(
            f"{n_persons:,} persons, tables across owners count at most {MOST_PERSONS:,}",
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
    across = [pair for pair in all_pairs(len(design.attributes)) if design.is_across(pair)][:1]
    noises = [noise(pair) for pair in across for noise in (design.most_table_noise, design.choice_noise)]
    return counter_width(design.n_records, noises)


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
    """Return what counting across owners costs, where groups of owners have different attributes."""
    width, groups = width_of(design), coarse_groups(design.n_records)
    most = most_bins(design.n_records, design.pair_variance)
    bits = dict.fromkeys(range(design.n_groups), 0)
    for place, attribute in enumerate(design.attributes):
        n_bins = min(attribute.n_values, MOST_BINS if attribute.is_categorical else most)
        bits[design.home(place)] += (n_bins + min(n_bins, groups)) * width + GUARD_BITS
    # Owners of the last group encrypt nothing; all others send theirs to those of later groups.
    room = 8 * CIPHERTEXT_BYTES // 2 - GUARD_BITS
    numbers = [ceil(bits[group] / room) for group in design.order[:-1]]
    rows = [CIPHERTEXT_BYTES * design.n_records * number for number in numbers]
    later = [sum(map(design.n_owners.__getitem__, design.order[i:])) for i in range(1, design.n_groups)]
    passed_on = sum(size * n_owners for size, n_owners in zip(rows, later, strict=True))
    return Traffic(sum(rows), passed_on, _SECONDS * design.n_records * max(numbers, default=0))
