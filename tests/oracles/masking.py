"""Masking written as plainly as possible, on Python integers: what the fast modules are compared with."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import isqrt


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


def trimmed_sum(cluster: Sequence[int], h: int = 1) -> int:
    """The h smallest become the (h+1)-th smallest, the h largest the (h+1)-th largest; then the sum."""
    ordered = sorted(cluster)
    for index in range(h):
        ordered[index] = ordered[h]
        ordered[-1 - index] = ordered[-1 - h]
    return sum(ordered)


def rise(cluster: Sequence[int], g: int = 1, h: int | None = None) -> int:
    """Remove the g smallest values, add g above the largest: by how much the trimmed sum rises; h is g."""
    ordered, h = sorted(cluster), g if h is None else h
    return trimmed_sum(ordered[g:] + [ordered[-1]] * g, h) - trimmed_sum(ordered, h)


def fall(cluster: Sequence[int], g: int = 1, h: int | None = None) -> int:
    """Remove the g largest values, add g below the smallest: by how much the trimmed sum falls; h is g."""
    ordered, h = sorted(cluster), g if h is None else h
    return trimmed_sum(ordered, h) - trimmed_sum([ordered[0]] * g + ordered[:-g], h)


def joint_sensitivity(values: Sequence[int], k: int, g: int = 1, h: int | None = None) -> Fraction:
    """Λ of one attribute."""
    cut = clusters(values, k)
    if g > 1:
        return sum((Fraction(max(rise(c, g, h), fall(c, g, h)), len(c)) for c in cut), Fraction(0))
    rises = sum((Fraction(rise(c, g, h), len(c)) for c in cut), Fraction(0))
    falls = sum((Fraction(fall(c, g, h), len(c)) for c in cut), Fraction(0))
    return max(rises, falls)


def tails(n_records: int, k: int, g: int = 1) -> tuple[int, int]:
    """The numbers h and s of `idp-quantiles`, from public numbers."""
    s = g * (isqrt(4 * (n_records // k)) + 1)
    return max(g, min(max(6 * s, 32) + g - 1, 2 * k // 5)), s


def inner_sums(values: Sequence[int], k: int, h: int) -> list[int]:
    """Sums of clusters, of which the h smallest and the h largest values of all records count nothing."""
    ordered, cut = sorted(values), clusters(values, k)
    sums = [sum(c) for c in cut]
    sums[0] -= sum(ordered[:h])
    sums[-1] -= sum(ordered[-h:])
    return sums


def smooth_range(values: Sequence[int], n_values: int, k: int, g: int = 1) -> Fraction:
    """The largest distance of values near the ends, each step outwards counted s/(s + 1) times, g times."""
    h, s = tails(len(values), k, g)
    placed = [0, *sorted(values), n_values - 1]
    steps = range(h - g + 2)
    return g * max(
        Fraction(s, s + 1) ** (a + b) * (placed[len(values) - h + g + b] - placed[h + 1 - g - a])
        for a in steps
        for b in steps
    )


def linear_list(
    centroids: Sequence[float], n_records: int, k: int, n_values: int, tail: int = 0
) -> list[int]:
    """Knots at the middles of the clusters without the tails; outer slopes go on; clamped and rounded."""
    ends = [index * k for index in range(n_records // k)] + [n_records]
    ends[0], ends[-1] = tail, n_records - tail
    middles = [(first + after - 1) / 2 for first, after in pairwise(ends)]
    found = []
    for place in range(n_records):
        value = centroids[0]
        if len(centroids) > 1:
            right = next((i for i, middle in enumerate(middles) if middle > place), len(middles) - 1)
            right = max(right, 1)
            slope = (centroids[right] - centroids[right - 1]) / (middles[right] - middles[right - 1])
            value = centroids[right] + slope * (place - middles[right])
        found.append(round(min(max(value, 0), n_values - 1)))
    return found
