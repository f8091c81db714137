"""What was released from a data set before, as an intruder may have it beside the next release.

A release counts from its sealed fragment on. Its plan says how it masked its attributes, so that it can be
tried again; no earlier fragment is kept or read. Counts of synthetic tables have no records to be linked.
"""

from collections.abc import Mapping, Sequence

from common.clock import utc_now
from common.model.plan import Plan
from common.model.schema import Attribute
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.masking.tasks import AttributeTask, mask_tasks
from owner_node.state.database import OwnerDatabase
from owner_node.state.sessions import Sessions

MOST_EARLIER = 5
"""Most earlier releases that are tried, the newest ones."""


def released_plans(owner: OwnerConfig, dataset: str) -> list[Plan]:
    """Return the plans of the newest releases that a data set has sealed fragments for, the oldest first."""
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        sessions = Sessions(db, utc_now)
        sealed = [
            session for session in sessions.all() if session.dataset == dataset and session.fragment_digest
        ]
        newest = sorted(sealed, key=lambda session: session.created)
        plans = [Plan.from_bytes(plan) for session in newest if (plan := sessions.plan(session)) is not None]
    return [plan for plan in plans if plan.product.rules.by_record][-MOST_EARLIER:]


def released_tasks(
    plans: Sequence[Plan], owner: OwnerConfig, dataset: DatasetConfig, declared: Mapping[str, Attribute]
) -> tuple[tuple[AttributeTask, ...], ...]:
    """Return how releases masked their attributes, without those that are not declared so now.

    Args:
        plans: Their plans.
        declared: The attributes as they are declared now, by name.
    """
    releases = (
        tuple(
            task
            for task in mask_tasks(plan, plan.assignment_of(owner.owner.id).attributes, dataset.taxonomies)
            if declared.get(task.attribute.name) == task.attribute
        )
        for plan in plans
    )
    return tuple(release for release in releases if release)
