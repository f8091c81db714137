"""Linking by match keys as one would write it down: dictionaries and sets, person by person."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

Person = tuple[str, int]
"""Owner and number of a person."""


def linked(
    keys: Mapping[str, Sequence[Sequence[Hashable | None]]], n_passes: int
) -> tuple[set[frozenset[Person]], list[int], list[int]]:
    """Link persons pass by pass.

    Args:
        keys: By owner, by person, by pass: the key value, or None where it is not complete.
        n_passes: Number of passes.

    Returns:
        The persons as sets of entries, and per pass how many pairs were linked and how many key values were
        not used because they would have joined two persons of one owner.
    """
    persons = {(owner, n): frozenset([(owner, n)]) for owner, own in keys.items() for n in range(len(own))}
    pairs, conflicts = [], []
    for number in range(n_passes):
        holders = defaultdict(list)
        for owner, own in keys.items():
            values = [each[number] for each in own]
            for n, value in enumerate(values):
                if value is not None and values.count(value) == 1:
                    holders[value].append((owner, n))
        undecided = [each for each in holders.values() if len({persons[one] for one in each}) > 1]
        parts: list[set[Person]] = []
        for each in undecided:
            part = set().union(*(persons[one] for one in each))
            for other in [other for other in parts if other & part]:
                parts.remove(other)
                part |= other
            parts.append(part)
        consistent = [part for part in parts if len({owner for owner, _ in part}) == len(part)]
        used = [each for each in undecided if any(set(each) <= part for part in consistent)]
        conflicts.append(len(undecided) - len(used))
        pairs.append(sum(len({persons[one] for one in each}) - 1 for each in used))
        for part in consistent:
            for one in part:
                persons[one] = frozenset(part)
    return set(persons.values()), pairs, conflicts
