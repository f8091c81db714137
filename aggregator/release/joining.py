"""Joins fragments to one table: stack the parts, align the groups, drop the tokens, shuffle, renumber.

Several groups are aligned on persons. If the plan allows it, a person can have several records in a group, at
several owners. The person then gets as many released records as in the group that has most of them. Records
are matched in the order of the plan's owners, and a group with fewer records of the person repeats them.

References:
    Del Vasto-Terrientes et al. 2025, §4.2.1 (stacking) and §4.2.2 (joining by identifier).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from common.arrays import Int64Array, SortableArray, sortable
from common.errors import IntegrityError
from common.model.plan import Plan
from common.release.table import from_units, release_schema
from common.wire.encoding import TOKEN_COLUMN, check_sorted, token_view


def join(plan: Plan, parts: Mapping[str, pa.Table], permutation: Int64Array) -> pa.Table:
    """Join the decoded fragments of a release.

    Args:
        plan: The plan.
        parts: Decoded fragments (`common.wire.decoding.decode`) by owner id.
        permutation: The order of the released records, shape (n_records,), from the system's randomness
            (`common.arrays.random_order`): neither a record's owner nor its token shows in its number.

    Returns:
        The table to release: `record` from 1, then the plan's columns in release types.

    Raises:
        IntegrityError: If the groups do not hold the same persons, or more owners hold one than agreed.
    """
    stacked = {group: _stacked(plan, group, parts) for group in range(plan.n_groups)}
    positions = _aligned(stacked, plan.most_multiples) if plan.n_groups > 1 else {0: None}
    n_found = {
        table.num_rows if places is None else len(places)
        for table, places in zip(stacked.values(), positions.values(), strict=True)
    }
    if n_found != {len(permutation)}:
        raise IntegrityError("the fragments do not have the number of records that linking found")
    group_of = {attribute.name: task.group for task in plan.tasks for attribute in task.attributes}
    columns = [pa.array(np.arange(1, len(permutation) + 1, dtype=np.int64))]
    for group, column in plan.owner_columns.items():
        owners = [parts[owner].num_rows for owner in plan.owners_of(group)]
        in_group = positions[group]
        chosen = permutation if in_group is None else in_group[permutation]
        columns.append(from_units(column, np.repeat(np.arange(len(owners)), owners)[chosen]))
    for attribute in plan.attributes:
        group = group_of[attribute.name]
        in_group = positions[group]
        chosen = permutation if in_group is None else in_group[permutation]
        units = stacked[group].column(attribute.name).to_numpy()[chosen]
        columns.append(from_units(attribute, units))
    return pa.table(columns, schema=release_schema(plan))


def _stacked(plan: Plan, group: int, parts: Mapping[str, pa.Table]) -> pa.Table:
    """Return the records of a group's owners one below the other, with the attributes of that group alone."""
    tasks = [task for task in plan.tasks if task.group == group]
    columns = [TOKEN_COLUMN] if plan.n_groups > 1 else []
    columns += [attribute.name for attribute in tasks[0].attributes]
    return pa.concat_tables([parts[task.owner].select(columns) for task in tasks])


def _aligned(stacked: Mapping[int, pa.Table], most_multiples: Sequence[int]) -> dict[int, Int64Array | None]:
    """Return, per group, the positions of its records in the order of the persons, each as often as released.

    Raises:
        IntegrityError: If the groups do not agree, or a person is held by more owners than agreed.
    """
    if _is_aligned(stacked):
        return dict.fromkeys(stacked)
    persons: SortableArray | None = None
    orders: dict[int, Int64Array] = {}
    counts: dict[int, Int64Array] = {}
    for group, table in stacked.items():
        tokens = sortable(token_view(table.column(TOKEN_COLUMN).combine_chunks()))
        # Stable: records of one person stay in the order of the plan's owners.
        orders[group] = np.argsort(tokens, kind="stable").astype(np.int64, copy=False)
        ordered = tokens[orders[group]]
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
    return dict(orders) if not counts or persons is None else _repeated(orders, counts, len(persons))


def _repeated(
    orders: Mapping[int, Int64Array], counts: Mapping[int, Int64Array], n_persons: int
) -> dict[int, Int64Array | None]:
    """Return these positions where persons have several records, each as often as it is released.

    Args:
        orders: By group: positions that sort its records by person.
        counts: By group: how many records of each person it has; absent where that is one.
        n_persons: Number of persons.
    """
    ones = np.ones(n_persons, dtype=np.int64)
    most = np.maximum.reduce([ones, *counts.values()])
    within = np.arange(int(most.sum())) - np.repeat(np.cumsum(most) - most, most)
    positions: dict[int, Int64Array | None] = {}
    for group, order in orders.items():
        held = counts.get(group, ones)
        begins = np.cumsum(held) - held
        positions[group] = order[np.repeat(begins, most) + within % np.repeat(held, most)]
    return positions


def _is_aligned(stacked: Mapping[int, pa.Table]) -> bool:
    """Whether all groups have the same tokens in one order, as they do where each of them is of one owner."""
    first, *others = [table.column(TOKEN_COLUMN) for table in stacked.values()]
    if not all(first.equals(other) for other in others):
        return False
    last: bytes | None = None
    try:
        for chunk in first.chunks:
            last = check_sorted(chunk, last, IntegrityError("the tokens are not sorted, or repeat"))
    except IntegrityError:
        return False
    return True
