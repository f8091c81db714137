"""The numbers of a release that follow from its plan and addendum.

The manifest shows them to people; verification computes them again and compares, so that what a manifest
shows is what the owners signed.
"""

from typing import Any

from common.fragment import Addendum
from common.plan import Plan
from common.privacy import total, total_or_unbounded
from common.release_table import RECORD_COLUMN, release_schema
from common.task import Task


def summary(plan: Plan, addendum: Addendum) -> dict[str, Any]:
    """Return owners (with ε, ε_joint, k, records, attributes), totals and schema of a release.

    Args:
        plan: The plan.
        addendum: What linking found.

    Returns:
        A document with the keys `owners`, `totals` and `schema`.
    """
    return {
        "owners": [_owner(plan, addendum, owner) for owner in plan.owners],
        "totals": {
            "records": n_records(plan, addendum),
            "attributes": len(plan.attributes),
            "owners": len(plan.owners),
            "epsilon": plan.epsilon,
            "epsilon_joint": plan.epsilon_joint,
        },
        "schema": _schema(plan),
    }


def n_records(plan: Plan, addendum: Addendum) -> int:
    """Return how many records a release has: those of the owners of any one group."""
    return sum(addendum.records[task.owner] for task in plan.tasks if task.group == 0)


def _owner(plan: Plan, addendum: Addendum, owner: str) -> dict[str, Any]:
    tasks = [task for task in plan.tasks if task.owner == owner]
    return {
        "id": owner,
        "records": addendum.records[owner],
        "epsilon": total(task.epsilon for task in tasks),
        "epsilon_joint": total_or_unbounded(task.epsilon_joint for task in tasks),
        "k": min((a.k for task in tasks for a in task.attributes if a.k is not None), default=None),
        "attributes": [document for task in tasks for document in _attributes(task)],
    }


def _attributes(task: Task) -> list[dict[str, Any]]:
    return [{**attribute.to_document(), "group": task.group} for attribute in task.attributes]


def _schema(plan: Plan) -> list[dict[str, Any]]:
    types = release_schema(plan)
    return [
        {"name": RECORD_COLUMN, "column": str(types.field(RECORD_COLUMN).type)},
        *({**a.to_document(), "column": str(types.field(a.name).type)} for a in plan.attributes),
    ]
