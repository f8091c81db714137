"""Releases of really masked values, planned as a release is and published as one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from common.analysis.reading import Release, read_release
from common.arrays import Int64Array
from common.model.plan import Plan
from common.model.schema import Attribute, Schema, round_to_leading_digit
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from common.release.table import release_schema
from common.release.values import from_units
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_attribute
from owner_node.masking.tasks import mask_tasks
from tests.fakes.bits import SeededBits
from tests.fakes.published import Made, make_release
from tests.fakes.releases import AGGREGATOR

Columns = Mapping[str, Int64Array]


def plan_of(
    attributes: Sequence[Attribute], n_records: int, epsilon: str, *, owners: str = "a", **asked: Any
) -> Plan:
    """Return the plan of a horizontal release; `asked` is as `parse_arguments` takes it."""
    arguments = parse_arguments(
        release="study", dataset="cohort", layout="horizontal", groups=[tuple(owners)],
        epsilon=epsilon, **asked,
    )  # fmt: skip
    schema = Schema(tuple(attributes), None, 1, round_to_leading_digit(n_records // len(owners)))
    made = make_plan(
        arguments, dict.fromkeys(owners, schema), aggregator=AGGREGATOR, created="2026-03-01T12:00:00+00:00",
        version="0.1.0",
    )  # fmt: skip
    return replace(made, purpose="a study")


def masked(plan: Plan, columns: Columns, seed: int) -> dict[str, Int64Array]:
    """Mask every owner's part of the records, which follow each other."""
    parts = []
    for place, task in enumerate(plan.tasks):
        rows = np.array_split(np.arange(len(next(iter(columns.values())))), len(plan.tasks))[place]
        engine = MemoryEngine({name: values[rows] for name, values in columns.items()})
        found = {}
        for number, each in enumerate(mask_tasks(plan, task.attributes, {})):
            made = mask_attribute(engine, each, SeededBits(1000 * seed + 10 * number + place))
            found[each.attribute.name] = made.column
        parts.append(found)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def publish_masked(directory: Path, plan: Plan, columns: Columns, seed: int = 1) -> Made:
    """Mask and publish."""
    n_records = len(next(iter(columns.values())))
    return make_release(
        directory, plan=plan, columns=masked(plan, columns, seed), n_records=n_records, linking="asserted"
    )


def with_values(release: Release, columns: Columns) -> Release:
    """Return a release as if it had been made with other values."""
    plan = release.verified.plan
    numbers = pa.array(np.arange(1, release.table.num_rows + 1))
    arrays = [from_units(each, columns[each.name]) for each in plan.attributes]
    return Release(release.verified, pa.table([numbers, *arrays], schema=release_schema(plan)))


def draws(directory: Path, plan: Plan, columns: Columns, n_draws: int) -> list[Release]:
    """Return a release as it comes out of several draws of the noise."""
    first = read_release(publish_masked(directory, plan, columns).folder)
    return [with_values(first, masked(plan, columns, seed)) for seed in range(n_draws)]
