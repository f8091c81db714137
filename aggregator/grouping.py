"""Which group of a grid an attribute belongs to, from who holds it alone.

Owners declare data sets, not groups. An owner that is in one group brings all its attributes to that group;
of one that is in several, an attribute belongs to the group whose owners are exactly those that hold it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence


def groups_of_attributes(
    groups: Sequence[Sequence[str]], holders: Mapping[str, Sequence[str]]
) -> dict[str, tuple[int, ...]]:
    """Find every attribute's group.

    Args:
        groups: Owner ids by group.
        holders: The owners that hold each attribute; every one of them is in some group.

    Returns:
        Indices of groups by attribute, in the order of `holders`. Where the declarations fit together that is
        one group, held by its owners and nobody else; otherwise all groups that the attribute may have been
        meant for, so that each can be told what does not fit.
    """
    times = Counter(owner for owners in groups for owner in owners)
    return {name: _homes(groups, set(having), times) for name, having in holders.items()}


def _homes(groups: Sequence[Sequence[str]], having: set[str], times: Mapping[str, int]) -> tuple[int, ...]:
    exactly = [index for index, owners in enumerate(groups) if set(owners) == having]
    if exactly:
        return (exactly[0],)
    settled = [
        index
        for index, owners in enumerate(groups)
        if any(owner in having and times[owner] == 1 for owner in owners)
    ]
    if settled:
        return tuple(settled)
    # Only owners of several groups hold it: most probably it is missing somewhere in the group that most of
    # them are in, of several such groups in the smallest.
    nearest = max(
        range(len(groups)), key=lambda index: (len(having & set(groups[index])), -len(groups[index]))
    )
    return (nearest,)
