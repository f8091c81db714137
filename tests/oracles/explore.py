"""The measures and attacks of exploring, record by record, as their definitions read."""

from collections import Counter
from collections.abc import Sequence
from math import exp, log2, sqrt


def squared_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Add up squared differences."""
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def linked(
    targets: Sequence[Sequence[float]], own: Sequence[int], released: Sequence[Sequence[float]]
) -> list[float]:
    """Look at every pair: 1/(records as near as the own one), or 0 if one is nearer."""
    found = []
    for target, mine in zip(targets, own, strict=True):
        distances = [squared_distance(target, record) for record in released]
        least = min(distances)
        ties = sum(distance <= least + 1e-9 for distance in distances)
        found.append(1 / ties if distances[mine] <= least + 1e-9 else 0.0)
    return found


def divergence(first: Sequence[object], second: Sequence[object]) -> float:
    """Jensen-Shannon divergence of the values themselves, in bits, from entropies: H(M) - (H(P) + H(Q))/2."""

    def entropy(weights: Sequence[float]) -> float:
        return -sum(weight * log2(weight) for weight in weights if weight)

    counts = [Counter(values) for values in (first, second)]
    kinds = sorted({*counts[0], *counts[1]}, key=str)
    p, q = ([count[kind] / count.total() for kind in kinds] for count in counts)
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return entropy(middle) - (entropy(p) + entropy(q)) / 2


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation; 0 with what does not vary."""
    a, b = (sum(values) / len(values) for values in (first, second))
    above = sum((x - a) * (y - b) for x, y in zip(first, second, strict=True))
    below = sqrt(sum((x - a) ** 2 for x in first) * sum((y - b) ** 2 for y in second))
    return above / below if below else 0.0


def neighbours(value: float, originals: Sequence[float], share: float) -> tuple[float, float]:
    """The interval from so many ranks below the first of a value's equals to so many above the last."""
    ordered = sorted(originals)
    first = sum(each < value for each in ordered)
    last = sum(each <= value for each in ordered) - 1
    reach = int(share * len(ordered))
    low, high = min(first, last) - reach, max(first, last) + reach
    low, high = (min(max(rank, 0), len(ordered) - 1) for rank in (low, high))
    return min(ordered[low], value), max(ordered[high], value)


def inferred(
    target: Sequence[float],
    truth: tuple[float, float],
    known: Sequence[Sequence[float]],
    wanted: Sequence[float],
) -> set[float]:
    """The shares of right guesses among the records equal to a nearest one; several where several tie."""
    distances = [squared_distance(target, record) for record in known]
    nearest = {
        tuple(r) for r, distance in zip(known, distances, strict=True) if distance <= min(distances) + 1e-9
    }
    found = set()
    for kind in nearest:
        guesses = [value for record, value in zip(known, wanted, strict=True) if tuple(record) == kind]
        found.add(sum(truth[0] <= guess <= truth[1] for guess in guesses) / len(guesses))
    return found


def refined(groups: Sequence[Sequence[int]], rounds: int) -> list[object]:
    """Colour refinement with nested tuples as names."""
    n_records = len(groups[0])
    named = [
        {group: (attribute, of.count(group)) for group in set(of)} for attribute, of in enumerate(groups)
    ]
    names: list[object] = [tuple(named[a][of[i]] for a, of in enumerate(groups)) for i in range(n_records)]
    for _ in range(rounds):
        numbers = {name: number for number, name in enumerate(sorted(set(names), key=repr))}
        members = [
            {
                group: tuple(sorted(numbers[names[i]] for i in range(n_records) if of[i] == group))
                for group in set(of)
            }
            for of in groups
        ]
        names = [
            (numbers[names[i]], *(members[a][of[i]] for a, of in enumerate(groups))) for i in range(n_records)
        ]
    return names


def transition(before: tuple[float, float], after: tuple[float, float], scale: float) -> float:
    """How probable it is that a rank out of `before` has a place in `after` once all ranks have their noise.

    All are shares of the ranks; the noise is Laplace's. Places are told by bisection, ranks are averaged.
    """
    if not scale:
        return max(0.0, min(before[1], after[1]) - max(before[0], after[0])) / (before[1] - before[0])

    def below(noisy: float, low: float, high: float) -> float:
        """The share of ranks between two that are below a noisy one: the mean over many of them."""
        total, steps = 0.0, 300
        for step in range(steps):
            rank = low + (high - low) * (step + 0.5) / steps
            tail = exp(-abs(noisy - rank) / scale) / 2
            total += 1 - tail if noisy >= rank else tail
        return total / steps

    def noisy_of(share: float) -> float:
        low, high = -30 * scale, 1 + 30 * scale
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle, 0, 1) < share else (low, middle)
        return low

    first, last = (below(noisy_of(end), *before) if 0 < end < 1 else end for end in after)
    return last - first


def likely(
    original: Sequence[Sequence[float]], released: Sequence[Sequence[float]], scales: Sequence[float]
) -> list[list[float]]:
    """The probability of every released record for every person; attributes down, records across."""
    n_records = len(original[0])
    found = [[1.0] * n_records for _ in range(n_records)]
    for before, after, scale in zip(original, released, scales, strict=True):
        ends = [
            {
                value: (
                    sum(each < value for each in column) / n_records,
                    sum(each <= value for each in column) / n_records,
                )
                for value in column
            }
            for column in (before, after)
        ]
        for person in range(n_records):
            for record in range(n_records):
                probability = transition(ends[0][before[person]], ends[1][after[record]], scale)
                found[person][record] *= max(probability, 1e-15)
    return found


def linked_by_likelihood(
    original: Sequence[Sequence[float]], released: Sequence[Sequence[float]], scales: Sequence[float]
) -> list[float]:
    """Compare every person with every record: likely for them, in proportion to how likely for everybody."""
    probabilities = likely(original, released, scales)
    n_records, found = len(probabilities), []
    everybody = [sum(row[record] for row in probabilities) for record in range(n_records)]
    for person, row in enumerate(probabilities):
        ratios = [row[i] / everybody[i] for i in range(n_records)]
        best = max(ratios)
        as_likely = sum(ratio > best * (1 - 1e-6) for ratio in ratios)
        found.append(1 / as_likely if ratios[person] > best * (1 - 1e-6) else 0.0)
    return found
