"""Masking a data set for its owner: a release of one owner, the papers' centralised case.

It is planned like a release. `owner_node.local.masked_tables` charges, draws and stores it.

References:
    Soria-Comas et al. 2025, §4.1; Del Vasto-Terrientes et al. 2025, §5 (the centralised baseline).
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from common import __version__
from common.errors import InternalError
from common.model.plan import Plan
from common.model.products import Product
from common.planning.arguments import ReleaseArguments
from common.planning.planner import make_plan
from common.progress import MASKING, Progress
from common.wire.decoding import decode_batches
from common.words.guarantee import invariants, promises
from owner_node.consent.plan_rules import PlannedWork
from owner_node.engines.pinned import AnyEngine
from owner_node.engines.sampling import sampled
from owner_node.local.charge import LOCAL, LocalData, LocalWork
from owner_node.local.masked_tables import MadeTable, released_table
from owner_node.masking.arrays import SystemBits
from owner_node.masking.foreseen import Forecast
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask, mask_tasks
from owner_node.risk.appraisal import foresee

SHUFFLED = "shuffled"
"""For a table that is passed on: anyone who has seen the original file knows records by their place."""
ORIGINAL = "original"
"""For a table that stays with the holder of the original records."""


@dataclass(frozen=True, slots=True, repr=False)
class MaskJob:
    """Masking that is planned and possible."""

    plan: Plan
    work: LocalWork
    """Its charge, and the data."""
    tasks: tuple[AttributeTask, ...]
    """How each attribute is masked."""
    order: str
    """`SHUFFLED` or `ORIGINAL`."""

    @property
    def records(self) -> AnyEngine:
        """The original records."""
        return self.work.data.records.engine

    def make(self, fragment: Path, progress: Progress) -> MadeTable:
        """Mask; the records are masked as their pieces are taken."""
        report = _report_of(self.plan, n_records=self.work.data.n_records, order=self.order)
        return MadeTable(report, _draw(self, fragment, progress))

    def foresee(self) -> Forecast:
        """Compute the expected effect of masking. It depends on the data, so it is for their owner alone."""
        return foresee(*sampled(self.records, self.tasks), self.work.asked.policy)[0]


def prepare_mask(arguments: ReleaseArguments, data: LocalData, order: str = SHUFFLED) -> MaskJob:
    """Plan the masking and check for every foreseeable error; nothing is charged.

    Args:
        arguments: The request: a horizontal release of this owner alone, under the work's id.
        order: `SHUFFLED`, or `ORIGINAL` for records in memory.

    Raises:
        UsageError: If a setting is not possible.
        UnusableDataError: If the data cannot be masked with these settings, for example fewer than k records.
    """
    (owner,) = arguments.owners
    created = data.now.isoformat(timespec="seconds")
    plan = make_plan(arguments, {owner: data.schema}, aggregator=LOCAL, created=created, version=__version__)
    assignment = plan.assignment_of(owner)
    tasks = mask_tasks(plan, assignment.attributes, data.dataset.taxonomies)
    asked = PlannedWork(
        assignment=assignment, policy=data.policy, dataset=data.dataset, today=data.now.date()
    )
    document = _document_of(plan, order)
    work = LocalWork(data.records, plan.release, document, asked, data.pinned, Product.MASKED, data.place)
    job = MaskJob(plan, work, tasks, order)
    job.records.check(tasks)
    return job


def _draw(job: MaskJob, fragment: Path, progress: Progress) -> Generator[pa.Table]:
    """Mask, and return the masked records in pieces; shuffled ones through a fragment, as in a release."""
    n_records = job.work.data.n_records
    progress.begin(MASKING, n_records * len(job.tasks))
    masked = mask_table(job.records, job.tasks, progress.reach)
    progress.end()
    if any(len(column) != n_records for column in masked.values()):
        raise InternalError("masking changed the number of records")
    if job.order == ORIGINAL:
        yield released_table(job.plan, masked)
        return
    (assignment,) = job.plan.assignments.values()
    shuffle = SystemBits()
    try:
        with fragment.open("xb") as stream:
            job.work.data.records.write_fragment(stream, assignment, masked, shuffle)
        for batch in decode_batches(fragment, job.plan, assignment, n_records):
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield released_table(job.plan, {name: column.to_numpy() for name, column in columns})
    finally:
        shuffle.erase()
        fragment.unlink(missing_ok=True)


def _document_of(plan: Plan, order: str) -> dict[str, Any]:
    """Return the document of all arguments: equal for equal work, independent of the time."""
    (task,) = plan.tasks
    return {
        "kind": "mask",
        "dataset": task.dataset,
        "order": order,
        "epsilon": plan.epsilon,
        "schema": [attribute.to_document() for attribute in plan.attributes],
        **({"following": [each.to_document() for each in plan.following]} if plan.following else {}),
        "max_records_per_person": plan.max_records_per_person,
        "attributes": [attribute.to_document() for attribute in task.attributes],
    }


def _report_of(plan: Plan, *, n_records: int, order: str) -> Mapping[str, Any]:
    """Return the report of a masked file: how it was made, what is promised and what is not hidden."""
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
        "schema": [attribute.to_document() for attribute in plan.released],
        **({"following": [each.to_document() for each in plan.following]} if plan.following else {}),
        "attributes": [each.to_document() for each in task.attributes],
        "promises": list(promises(plan)),
        "invariants": list(invariants(plan)),
    }
