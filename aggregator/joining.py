"""Fragments become one table: stack the parts, align the groups, drop the tokens, shuffle, number anew.

References:
    Del Vasto-Terrientes et al. 2025, §4.2.1 (stacking) and §4.2.2 (joining by identifier).
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from common.arrays import Int64Array, SortableArray, sortable
from common.errors import IntegrityError
from common.plan import Plan
from common.release_table import from_units, release_schema
from common.wire.arrow import TOKEN_COLUMN, token_view


def n_records(plan: Plan, parts: Mapping[str, pa.Table]) -> int:
    """Return how many records the joined table will have: those of any one group."""
    return sum(parts[owner].num_rows for owner in plan.owners_of(0))


def join(plan: Plan, parts: Mapping[str, pa.Table], permutation: Int64Array) -> pa.Table:
    """Join the decoded fragments of a release.

    Args:
        plan: The plan.
        parts: Decoded fragments (`common.wire.arrow.decode`) by owner id.
        permutation: The order of the released records, shape (n_records,), from the system's randomness
            (`common.shuffle.random_order`): neither a record's owner nor its token shows in its number.

    Returns:
        The table to release: `record` from 1, then the plan's attributes in release types.

    Raises:
        IntegrityError: If the groups do not hold the same records, or a part holds one twice.
    """
    stacked = {group: _stacked(plan, group, parts) for group in range(plan.n_groups)}
    positions = _aligned(stacked) if plan.n_groups > 1 else {0: None}
    if any(table.num_rows != len(permutation) for table in stacked.values()):
        raise IntegrityError("the fragments do not have the number of records that linking found")
    group_of = {attribute.name: task.group for task in plan.tasks for attribute in task.attributes}
    columns = [pa.array(np.arange(1, len(permutation) + 1, dtype=np.int64))]
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


def _aligned(stacked: Mapping[int, pa.Table]) -> dict[int, Int64Array | None]:
    """Return, per group, the positions that sort its records by token; checks that all groups agree."""
    reference: SortableArray | None = None
    positions: dict[int, Int64Array | None] = {}
    for group, table in stacked.items():
        tokens = sortable(token_view(table.column(TOKEN_COLUMN).combine_chunks()))
        order = np.argsort(tokens, kind="stable").astype(np.int64, copy=False)
        ordered = tokens[order]
        if np.any(ordered[1:] == ordered[:-1]):
            raise IntegrityError(f"a record appears twice in group {group}")
        if reference is not None and not np.array_equal(reference, ordered):
            raise IntegrityError("the groups of the release do not hold the same records")
        reference, positions[group] = ordered, order
    return positions
