"""Masking a data set for its owner: a release of one owner, the papers' centralised case.

Planned as a release is planned, judged, charged, drawn once and kept.

References:
    Soria-Comas et al. 2025, §4.1; Del Vasto-Terrientes et al. 2025, §5 (the centralised baseline).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from common import __version__
from common.arrays import random_order
from common.errors import InternalError
from common.model.plan import Plan
from common.model.schema import Schema
from common.planning.arguments import ReleaseArguments
from common.planning.planner import make_plan
from common.words.guarantee import invariants, promises
from owner_node.config import DatasetConfig, PolicyConfig
from owner_node.consent.plan_rules import Work
from owner_node.consent.policy_rules import foresee
from owner_node.local.charge import LOCAL, LocalCharges, LocalWork, Standing
from owner_node.local.masked_tables import MaskedTables, released_table
from owner_node.masking.engine import Engine, MemoryEngine
from owner_node.masking.foreseen import Forecast
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask, mask_tasks

if TYPE_CHECKING:
    from owner_node.sources import LoadedData

SHUFFLED = "shuffled"
"""For a table that is handed on: a record's place in a file is as good as a name to who has seen the file."""
ORIGINAL = "original"
"""For a table that stays with who holds the original records."""


@dataclass(frozen=True, slots=True, repr=False)
class MaskJob:
    """Masking that is planned and could be done. Lives in memory only."""

    plan: Plan
    """The plan."""
    work: LocalWork
    """What it costs, and the data."""
    tasks: tuple[AttributeTask, ...]
    """How each attribute is masked."""
    order: str
    """`SHUFFLED` or `ORIGINAL`."""

    @property
    def records(self) -> Engine:
        """The original records."""
        return MemoryEngine(self.work.loaded.columns)

    def foresee(self) -> Forecast:
        """Compute what masking is expected to do to the data. For their owner alone: it depends on them."""
        return foresee(self.records, self.tasks, self.work.asked.policy)


def prepare_mask(
    arguments: ReleaseArguments,
    dataset: DatasetConfig,
    loaded: "LoadedData",
    schema: Schema,
    *,
    policy: PolicyConfig,
    order: str,
    now: datetime,
    place: str = "",
) -> MaskJob:
    """Plan the masking and check all that it could fail on; charges nothing.

    Args:
        arguments: What is asked for: a horizontal release of this owner alone, under the work's id.
        dataset: The data set.
        loaded: Its data.
        schema: The schema of what may be masked.
        policy: The owner's policy, which says what is charged; `LocalCharges.judge` applies it.
        order: `SHUFFLED` or `ORIGINAL`.
        now: The time.
        place: Where the source is; empty for data that were handed in.

    Raises:
        UsageError: If a setting does not fit.
        UnusableDataError: If the data cannot be masked so, fewer than k records included.
    """
    (owner,) = arguments.owners
    created = now.isoformat(timespec="seconds")
    plan = make_plan(arguments, {owner: schema}, aggregator=LOCAL, created=created, version=__version__)
    assignment = plan.assignment_of(owner)
    tasks = mask_tasks(plan, assignment.attributes, dataset.taxonomies)
    asked = Work(assignment=assignment, policy=policy, dataset=dataset, today=now.date())
    job = MaskJob(
        plan, LocalWork(plan.release, _document_of(plan, order), asked, loaded, place), tasks, order
    )
    job.records.check(tasks)
    return job


def make_masked(job: MaskJob, charges: LocalCharges, tables: MaskedTables, holder: str) -> dict[str, Any]:
    """Spend the charge, draw the noise once, and keep the masked table.

    Work that was done before is not done again, and work that was interrupted after its charge is not charged
    again.

    Args:
        job: What to do.
        charges: The owner's ledger.
        tables: Where masked tables are kept; the table is under the work's id afterwards.
        holder: What does it, told to another process that comes in between.

    Returns:
        The report.

    Raises:
        BalanceError: If the budget does not cover it.
        ConflictError: If the id stands for something else.
        UsageError: If another process is masking, or the kept table was deleted.
        IntegrityError: If the kept table was changed.
    """
    work = job.work
    if charges.standing(work) is not Standing.DELIVERED:
        with tables.claimed(holder):
            charges.spend(work)
            if charges.standing(work) is Standing.SPENT:
                # One that was interrupted may have left a draw, and nobody should have two of one charge.
                tables.discard(work.id)
                kept = tables.put(work.id, *_drawn(job))
                charges.deliver(work, kept)
    return tables.report(work.id, charges.result(work))


def _drawn(job: MaskJob) -> tuple[pa.Table, Mapping[str, Any]]:
    masked = mask_table(job.records, job.tasks)
    n_records = job.work.loaded.n_records
    if any(column.shape != (n_records,) for column in masked.values()):
        raise InternalError("masking changed the number of records")
    if job.order == SHUFFLED:
        places = random_order(n_records)
        masked = {name: column[places] for name, column in masked.items()}
    table = released_table(job.plan.attributes, masked)
    return table, _report_of(job.plan, n_records=n_records, order=job.order)


def _document_of(plan: Plan, order: str) -> dict[str, Any]:
    """Return the document of all arguments: equal for equal work, whenever it is done.

    Args:
        plan: The plan.
        order: In which order the masked records are given.
    """
    (task,) = plan.tasks
    return {
        "kind": "mask",
        "dataset": task.dataset,
        "order": order,
        "epsilon": plan.epsilon,
        "schema": [attribute.to_document() for attribute in plan.attributes],
        "max_records_per_person": plan.max_records_per_person,
        "attributes": [each.to_document() for each in task.attributes],
    }


def _report_of(plan: Plan, *, n_records: int, order: str) -> Mapping[str, Any]:
    """Return what goes with a masked file: how it was made, what is promised and what is not hidden.

    Args:
        plan: The plan.
        n_records: Exact number of records.
        order: In which order the masked records are given.
    """
    (task,) = plan.tasks
    of_ranks = {"epsilon_table": plan.epsilon_table, "rank_loss": task.rank_loss}
    return {
        "id": plan.release,
        "owner": task.owner,
        "dataset": task.dataset,
        "created": plan.created,
        "version": plan.version,
        "epsilon": plan.epsilon,
        "epsilon_joint": plan.epsilon_joint,
        **(of_ranks if plan.has_rank_noise else {}),
        "records": n_records,
        "order": order,
        "max_records_per_person": plan.max_records_per_person,
        "schema": [attribute.to_document() for attribute in plan.attributes],
        "attributes": [each.to_document() for each in task.attributes],
        "promises": list(promises(plan)),
        "invariants": list(invariants(plan)),
    }
