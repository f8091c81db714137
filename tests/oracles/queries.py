"""Answers to questions written as plainly as possible, and all that a person's records could become."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product


def statistic(kind: str, values: Sequence[int]) -> Fraction:
    """An order statistic by its definition; the quantile is that of 0.3."""
    ordered, n = sorted(values), len(values)
    if kind == "median":
        middle = ordered[n // 2] if n % 2 else Fraction(ordered[n // 2 - 1] + ordered[n // 2], 2)
        return Fraction(middle)
    if kind == "quantile":
        return Fraction(next(each for i, each in enumerate(ordered, 1) if 10 * i >= 3 * n))
    return Fraction(ordered[-1] if kind == "maximum" else ordered[-2])


def counts(values: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """How many values are in each half-open range."""
    return [sum(first <= value < end for value in values) for first, end in ranges]


def neighbours(values: Sequence[int], g: int, domain: Sequence[int]) -> Iterator[list[int]]:
    """Every table in which the values of any g records, or fewer, are replaced by any of the domain."""
    for chosen in combinations(range(len(values)), min(g, len(values))):
        for replaced in product(domain, repeat=len(chosen)):
            changed = list(values)
            for position, value in zip(chosen, replaced, strict=True):
                changed[position] = value
            yield changed
