"""Joins fragments: stacks the parts, or aligns the groups of attributes on tokens and drops these.

Fragments are in the order of their tokens. Several groups are aligned by reading all fragments side by side,
one range of tokens after the other. The result is in an order that says something about owners or tokens;
`aggregator.release.shuffling` puts it into a random one.

Several groups are aligned on persons. If the plan allows it, a person can have several records in a group, at
several owners. The person then gets as many released records as in the group that has most of them. Records
are matched in the order of the plan's owners, and a group with fewer records of the person repeats them.

References:
    Del Vasto-Terrientes et al. 2025, §4.2.1 (stacking) and §4.2.2 (joining by identifier).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from aggregator.release.records import joined_type
from common.arrays import Int64Array, SortableArray
from common.errors import IntegrityError
from common.model.plan import Plan
from common.runs import Records, Run, in_ranges
from common.wire.fragment_layout import TOKEN_COLUMN


def stack(plan: Plan, fragments: Mapping[str, Iterable[Records]]) -> Iterator[Records]:
    """Put the records of all owners of a release with one group one below the other.

    Args:
        fragments: The records of every owner (`aggregator.release.records.pack`), by owner id.

    Yields:
        Joined records (`aggregator.release.records.joined_type`).
    """
    dtype = joined_type(plan)
    for number, owner in enumerate(plan.owners_of(0)):
        for records in fragments[owner]:
            joined = np.empty(len(records), dtype=dtype)
            for column in plan.owner_columns.values():
                joined[column.name] = number
            for attribute in plan.attributes:
                joined[attribute.name] = records[attribute.name]
            yield joined


def align(plan: Plan, runs: Mapping[str, Run], n_records: int) -> Iterator[Records]:
    """Join the groups of a release on tokens.

    Args:
        runs: The records of every owner in the order of their tokens, by owner id.
        n_records: About how many records of all fragments are held at once.

    Yields:
        Joined records (`aggregator.release.records.joined_type`), range by range of tokens.

    Raises:
        IntegrityError: If the groups do not hold the same persons, or more owners hold one than agreed.
    """
    owners = list(runs)
    for blocks in in_ranges([runs[owner] for owner in owners], n_records, TOKEN_COLUMN):
        yield _join(plan, dict(zip(owners, blocks, strict=True)))


def _join(plan: Plan, blocks: Mapping[str, Records]) -> Records:
    """Join all records whose tokens are in one range; they are given by owner."""
    groups = range(plan.n_groups)
    tokens = {
        group: np.concatenate([blocks[owner][TOKEN_COLUMN] for owner in plan.owners_of(group)])
        for group in groups
    }
    positions = _align(tokens, plan.most_multiples)
    first = positions[0]
    joined = np.empty(len(tokens[0]) if first is None else len(first), dtype=joined_type(plan))
    for group, column in plan.owner_columns.items():
        counts = [len(blocks[owner]) for owner in plan.owners_of(group)]
        joined[column.name] = _chosen(np.repeat(np.arange(len(counts)), counts), positions[group])
    for group in groups:
        owners = plan.owners_of(group)
        for planned in next(task for task in plan.tasks if task.group == group).attributes:
            parts = [blocks[owner][planned.name] for owner in owners]
            values = parts[0] if len(parts) == 1 else np.concatenate(parts)
            joined[planned.name] = _chosen(values, positions[group])
    return joined


def _chosen(column: Records, positions: Int64Array | None) -> Records:
    return column if positions is None else column[positions]


def _align(
    tokens: Mapping[int, SortableArray], most_multiples: Sequence[int]
) -> Mapping[int, Int64Array | None]:
    """Return, per group, the positions of its records in the order of the persons, each as often as released.

    Args:
        tokens: By group: the tokens of its records, one owner after the other.
        most_multiples: By group: how many records of one person it may have.
    """
    first = tokens[0]
    if all(_equal(first, other) for other in tokens.values()) and bool(np.all(first[1:] > first[:-1])):
        return dict.fromkeys(tokens)
    persons: SortableArray | None = None
    orders: dict[int, Int64Array] = {}
    counts: dict[int, Int64Array] = {}
    for group, unordered in tokens.items():
        # Stable: records of one person stay in the order of the plan's owners.
        orders[group] = np.argsort(unordered, kind="stable").astype(np.int64, copy=False)
        ordered = unordered[orders[group]]
        again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
        if len(again):
            begins = np.delete(np.arange(len(ordered)), again)
            counts[group] = np.diff(begins, append=len(ordered))
            ordered = ordered[begins]
            if counts[group].max() > most_multiples[group]:
                raise IntegrityError(f"a record appears twice in group {group}")
        if persons is not None and not np.array_equal(persons, ordered):
            raise IntegrityError("the groups of the release do not hold the same records")
        persons = ordered
    return orders if not counts or persons is None else _repeat(orders, counts, len(persons))


def _equal(first: SortableArray, second: SortableArray) -> bool:
    # As numbers: comparing texts takes ten times as long.
    return np.array_equal(first.view(np.uint64), second.view(np.uint64))


def _repeat(
    orders: Mapping[int, Int64Array], counts: Mapping[int, Int64Array], n_persons: int
) -> dict[int, Int64Array]:
    """Return these positions where persons have several records, each as often as it is released.

    Args:
        orders: By group: positions that sort its records by person.
        counts: By group: how many records of each person it has; absent where that is one.
    """
    ones = np.ones(n_persons, dtype=np.int64)
    most = np.maximum.reduce([ones, *counts.values()])
    within = np.arange(int(most.sum())) - np.repeat(np.cumsum(most) - most, most)
    positions: dict[int, Int64Array] = {}
    for group, order in orders.items():
        held = counts.get(group, ones)
        begins = np.cumsum(held) - held
        positions[group] = order[np.repeat(begins, most) + within % np.repeat(held, most)]
    return positions
