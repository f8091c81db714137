"""How many persons every two groups have in common: the match report, from token lists alone.

Only counts come out of here, never a token.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from common.arrays import Int64Array, SortableArray
from common.matches import Match

MOST_GROUPS = 32
"""Groups that are compared in pairs: with all of more, the report would grow with their square."""


def match_groups(groups: Mapping[int, Sequence[tuple[str, SortableArray]]]) -> tuple[Match, ...]:
    """Compare every two groups of owners.

    The sorted lists are merged once and the persons numbered; from there on everything is counting.

    Args:
        groups: Owner ids with their distinct tokens, sorted, each of shape (n_persons,), by group.

    Returns:
        One match per pair of groups, in their order. Of more than `MOST_GROUPS` groups those with the fewest
        persons are compared.
    """
    chosen = sorted(sorted(groups, key=lambda group: _size(groups[group]))[:MOST_GROUPS])
    cells = [(group, owner) for group in chosen for owner, _ in groups[group]]
    person, cell = _numbered([tokens for group in chosen for _, tokens in groups[group]])
    group_of = np.array([chosen.index(group) for group, _ in cells])[cell]
    members, lacking = [], []
    for place in range(len(chosen)):
        held = np.zeros(int(person[-1]) + 1 if len(person) else 0, dtype=np.bool_)
        held[person[group_of == place]] = True
        members.append(np.packbits(held))
        lacking.append(np.bincount(cell[~held[person]], minlength=len(cells)))
    return tuple(
        Match(
            (tuple(owner for owner, _ in groups[chosen[g]]), tuple(owner for owner, _ in groups[chosen[h]])),
            int(np.bitwise_count(members[g] & members[h]).sum()),
            {
                owner: int(lacking[h if group == chosen[g] else g][place])
                for place, (group, owner) in enumerate(cells)
                if group in (chosen[g], chosen[h])
            },
        )
        for g, h in combinations(range(len(chosen)), 2)
    )


def _size(parts: Sequence[tuple[str, SortableArray]]) -> int:
    return sum(len(tokens) for _, tokens in parts)


def _numbered(lists: Sequence[SortableArray]) -> tuple[Int64Array, Int64Array]:
    """Return the number of the person and of the list for every entry of all lists, shape (n_entries,)."""
    merged = np.concatenate(lists)
    order = np.argsort(merged, kind="stable")
    merged = merged[order]
    person = np.zeros(len(merged), dtype=np.int64)
    np.cumsum(merged[1:] != merged[:-1], out=person[1:])
    return person, np.repeat(np.arange(len(lists)), [len(each) for each in lists])[order]
