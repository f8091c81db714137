"""Masking written as plainly as possible, on Python integers: what the fast modules are compared with."""

from collections.abc import Sequence
from fractions import Fraction


def stable_order(values: Sequence[int]) -> list[int]:
    """Record positions by value, ties by position."""
    return sorted(range(len(values)), key=lambda position: (values[position], position))


def clusters(values: Sequence[int], k: int) -> list[list[int]]:
    """Sorted values in clusters of k, the last with the remainder."""
    ordered = sorted(values)
    n_clusters = len(ordered) // k
    cut = [ordered[index * k : (index + 1) * k] for index in range(n_clusters)]
    cut[-1] += ordered[n_clusters * k :]
    return cut


def cluster_of_record(values: Sequence[int], k: int) -> list[int]:
    """The cluster of every record."""
    last = len(values) // k - 1
    places = {position: place for place, position in enumerate(stable_order(values))}
    return [min(places[position] // k, last) for position in range(len(values))]


def trimmed_sum(cluster: Sequence[int], g: int = 1) -> int:
    """The g smallest become the (g+1)-th smallest, the g largest the (g+1)-th largest; then the sum."""
    ordered = sorted(cluster)
    for index in range(g):
        ordered[index] = ordered[g]
        ordered[-1 - index] = ordered[-1 - g]
    return sum(ordered)


def rise(cluster: Sequence[int], g: int = 1) -> int:
    """Remove the g smallest values, add g above the largest: by how much the trimmed sum rises."""
    ordered = sorted(cluster)
    return trimmed_sum(ordered[g:] + [ordered[-1]] * g, g) - trimmed_sum(ordered, g)


def fall(cluster: Sequence[int], g: int = 1) -> int:
    """Remove the g largest values, add g below the smallest: by how much the trimmed sum falls."""
    ordered = sorted(cluster)
    return trimmed_sum(ordered, g) - trimmed_sum([ordered[0]] * g + ordered[:-g], g)


def joint_sensitivity(values: Sequence[int], k: int, g: int = 1) -> Fraction:
    """Λ of one attribute."""
    cut = clusters(values, k)
    if g > 1:
        return sum((Fraction(max(rise(c, g), fall(c, g)), len(c)) for c in cut), Fraction(0))
    rises = sum((Fraction(rise(c), len(c)) for c in cut), Fraction(0))
    falls = sum((Fraction(fall(c), len(c)) for c in cut), Fraction(0))
    return max(rises, falls)
