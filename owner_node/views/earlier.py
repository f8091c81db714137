"""What was released from a data set before, as an intruder may have it beside the next release.

A release counts from its sealed fragment on. Its plan says how it masked its attributes, so that it can be
tried again; no earlier fragment is kept or read. Counts of synthetic tables have no records to be linked.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice

from common.clock import utc_now
from common.model.plan import Plan
from common.model.schema import Attribute
from common.progress import Progress
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.engines.pinned import AnyEngine, pin
from owner_node.engines.sampling import sampled
from owner_node.loading import schema_of
from owner_node.masking.tasks import AttributeTask, mask_tasks
from owner_node.release.product import Prepared
from owner_node.risk.appraisal import PriorReleases
from owner_node.state.database import OwnerDatabase
from owner_node.state.sessions import Sessions

MOST_EARLIER = 5
"""Most earlier releases that are tried, the newest ones."""
_MOST_SEALED = 100
"""Newest fragments that they are looked for among: synthetic releases are left out."""


def released_plans(owner: OwnerConfig, dataset: str) -> list[Plan]:
    """Return the plans of the newest releases that a data set has sealed fragments for, the oldest first."""
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        sessions = Sessions(db, utc_now)
        kept = filter(None, map(sessions.plan, sessions.sealed(dataset, _MOST_SEALED)))
        by_record = (plan for plan in map(Plan.from_bytes, kept) if plan.product.rules.by_record)
        return [*islice(by_record, MOST_EARLIER)][::-1]


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


def prior_releases(
    owner: OwnerConfig, dataset: DatasetConfig, prepared: Prepared, most: int, progress: Progress
) -> PriorReleases | None:
    """Return how earlier releases would mask today's records, without attributes declared otherwise now.

    If they had attributes that the plan has not, the records are loaded for all attributes together, which
    can drop others for missing values.

    Args:
        prepared: The data of the plan.
        most: Most records of a sample.
    """
    released = released_plans(owner, dataset.name)
    if not released:
        return None
    declared = schema_of(dataset, None, prepared.n_records).by_name
    releases = released_tasks(released, owner, dataset, declared)
    own = {task.attribute.name for task in prepared.tasks}
    names = dict.fromkeys(task.attribute.name for release in (prepared.tasks, *releases) for task in release)
    records: AnyEngine = prepared.records
    with ExitStack() as removing:
        if len(names) > len(own):
            progress.begin("loading attributes of earlier releases", prepared.n_records)
            data = pin(dataset, list(names), owner.engine.kind, owner.workspace, progress=progress)
            removing.enter_context(closing(data))
            records = data.records.engine
        fitting = [release for release in releases if _largest_k(release) <= records.n_records]
        if not fitting or _largest_k(prepared.tasks) > records.n_records:
            return None
        in_turn = (prepared.tasks, *fitting)
        sample, scaled = sampled(records, list(chain(*in_turn)), most)
    tasks = iter(scaled)
    return PriorReleases(sample, tuple(tuple(islice(tasks, len(release))) for release in in_turn))


def _largest_k(tasks: Sequence[AttributeTask]) -> int:
    return max(task.k or 1 for task in tasks)
