"""Masking a data set for its owner: planned, judged, charged, drawn once and kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from common import __version__
from common.arrays import Int64Array, random_order
from common.errors import InternalError, RefusedError
from common.model.plan import Plan
from common.model.privacy import charge
from common.model.schema import Schema
from owner_node.config import PolicyConfig
from owner_node.consent.policy_rules import check_policy, check_rules
from owner_node.local.charge import LOCAL, ChargedData, LocalCharges, LocalWork, Standing
from owner_node.local.mask_plan import MaskRequest, arguments_of, make_mask_plan, report_of, uses_of
from owner_node.local.masked_tables import MaskedTables, released_table
from owner_node.masking.forecast import forecast
from owner_node.masking.foreseen import Forecast, has_limits, is_close, objections
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask, check_table, mask_tasks
from owner_node.values.taxonomy import Taxonomy

SHUFFLED = "shuffled"
"""For a table that is handed on: a record's place in a file is as good as a name to who has seen the file."""
ORIGINAL = "original"
"""For a table that stays with who holds the original records."""


@dataclass(frozen=True, slots=True, repr=False)
class Originals:
    """What is masked. Lives in memory only."""

    dataset: str
    """Name of the data set."""
    schema: Schema
    """Its schema."""
    columns: Mapping[str, Int64Array]
    """Original values in resolution units by attribute, `(n_records,)` each."""
    taxonomies: Mapping[str, Taxonomy]
    """Taxonomies by attribute."""
    data: ChargedData
    """What they are known by."""

    @property
    def n_records(self) -> int:
        """Exact number of records."""
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, slots=True, repr=False)
class MaskJob:
    """Masking that is planned and could be done."""

    plan: Plan
    """The plan."""
    work: LocalWork
    """What it costs."""
    originals: Originals
    """What is masked."""
    tasks: tuple[AttributeTask, ...]
    """How each attribute is masked."""
    order: str
    """`SHUFFLED` or `ORIGINAL`."""


def prepare_mask(
    request: MaskRequest,
    originals: Originals,
    *,
    budget: str,
    total_epsilon: Decimal,
    policy: PolicyConfig,
    work_id: str,
    owner: str,
    order: str,
    now: datetime,
) -> MaskJob:
    """Plan the masking and check all that it could fail on; charges nothing.

    Args:
        request: What is asked for.
        originals: What is masked.
        budget: Name of the budget it is charged to.
        total_epsilon: The budget's configured total.
        policy: The owner's policy, which says what is charged; it judges in `judge_mask`.
        work_id: Id of the work.
        owner: Owner id.
        order: `SHUFFLED` or `ORIGINAL`.
        now: The time.

    Raises:
        UsageError: If a setting does not fit.
        UnusableDataError: If the data cannot be masked so, fewer than k records included.
    """
    plan = make_mask_plan(
        request,
        originals.schema,
        owner=owner,
        dataset=originals.dataset,
        work_id=work_id,
        made_by=LOCAL,
        created=now.isoformat(timespec="seconds"),
        version=__version__,
    )
    (task,) = plan.tasks
    tasks = mask_tasks(plan, task.attributes, originals.taxonomies)
    check_table(originals.columns, tasks)
    work = LocalWork(
        work_id,
        arguments_of(plan, order=order),
        budget,
        total_epsilon,
        charge(policy.accounting, task.epsilon, task.epsilon_joint),
        task.epsilon,
        task.epsilon_joint,
        policy.accounting,
        originals.data,
        task.rank_loss,
        policy.total_rank_loss,
    )
    return MaskJob(plan, work, originals, tasks, order)


def foresee(job: MaskJob, policy: PolicyConfig) -> Forecast:
    """Compute what masking is expected to do to these data. For their owner alone: it depends on them."""
    found = forecast(job.originals.columns, job.tasks)
    if is_close(found, policy):
        found = forecast(job.originals.columns, job.tasks, closely=True)
    return found


def judge_mask(
    job: MaskJob, policy: PolicyConfig, charges: LocalCharges, now: datetime, expected: Forecast | None = None
) -> None:
    """Refuse what the policy does not allow, and note the refusal.

    Args:
        job: What would be done.
        policy: The owner's policy.
        charges: The owner's ledger.
        now: The time.
        expected: What masking is expected to do; computed here if None, where the policy limits it.

    Raises:
        RefusedError: With every rule that objects, or if the data are known to belong to another budget.
        BalanceError: If the budget does not cover it.
    """
    work = job.work
    try:
        check_policy(policy, uses_of(job.plan), epsilon=work.epsilon, charge=work.charge, today=now.date())
        charges.check_budget(work)
        if expected is None and has_limits(policy):
            expected = foresee(job, policy)
        check_rules(objections(expected, policy) if expected is not None else ())
    except RefusedError as refusal:
        charges.refused(work, refusal)
        raise


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
    masked = mask_table(job.originals.columns, job.tasks)
    n_records = job.originals.n_records
    if any(column.shape != (n_records,) for column in masked.values()):
        raise InternalError("masking changed the number of records")
    if job.order == SHUFFLED:
        places = random_order(n_records)
        masked = {name: column[places] for name, column in masked.items()}
    table = released_table(job.plan.attributes, masked)
    return table, report_of(job.plan, n_records=n_records, order=job.order)
