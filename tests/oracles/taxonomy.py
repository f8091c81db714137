"""Taxonomies written as plainly as possible: sets of ancestors, all pairs, exact products."""

from collections.abc import Sequence
from fractions import Fraction
from math import prod


def ancestors(path: Sequence[str]) -> set[tuple[str, ...]]:
    """The category and its ancestors; a node is its path from the root."""
    return {tuple(path[: depth + 1]) for depth in range(len(path))}


def difference(one: Sequence[str], other: Sequence[str]) -> Fraction:
    """What is inside the logarithm of the semantic distance, without the 1."""
    first, second = ancestors(one), ancestors(other)
    return Fraction(len(first | second) - len(first & second), len(first | second))


def order(paths: Sequence[Sequence[str]]) -> list[int]:
    """Indices by distance to the most marginal category, ties by index."""
    products = [prod(1 + difference(one, other) for other in paths) for one in paths]
    centre = products.index(max(products))
    return sorted(range(len(paths)), key=lambda index: (difference(paths[centre], paths[index]), index))
