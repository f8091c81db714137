"""The plan of masking one data set for its owner: the papers' centralised case, a release of one owner.

References:
    Soria-Comas et al. 2025, §4.1; Del Vasto-Terrientes et al. 2025, §5 (the centralised baseline).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.errors import UsageError
from common.model.plan import BudgetSplit, Layout, Linking, Plan
from common.model.privacy import DEFAULT_MECHANISM
from common.model.schema import Schema
from common.model.task import Task
from common.planning.arguments import RankNoise
from common.planning.attributes import plan_attribute
from common.planning.cluster_size import check_k
from common.planning.shares import shares
from common.words.guarantee import invariants, promises
from owner_node.consent.policy_rules import Use


@dataclass(frozen=True, slots=True)
class MaskRequest:
    """What is asked for."""

    epsilon: Decimal
    """For all attributes together."""
    k: int | None = None
    """Minimum cluster size of every attribute; None to have it chosen for each."""
    mechanism: str = DEFAULT_MECHANISM
    """Mechanism id."""
    attributes: tuple[str, ...] = ()
    """Attributes to mask, in the order of the columns; empty for all that the policy lets take part."""
    weights: tuple[tuple[str, Decimal], ...] = ()
    """Attributes and their weights; empty for equal shares."""
    rank_noise: RankNoise = RankNoise()  # noqa: RUF009 - frozen
    """Rank noise."""


def make_mask_plan(
    request: MaskRequest,
    schema: Schema,
    *,
    owner: str,
    dataset: str,
    work_id: str,
    made_by: str,
    created: str,
    version: str,
) -> Plan:
    """Plan the masking of one data set, as a horizontal release of one owner would be planned.

    Args:
        request: What is asked for.
        schema: The owner's schema of the data set.
        owner: Owner id.
        dataset: Name of the data set.
        work_id: Id of the work.
        made_by: Stands where the aggregator's name would.
        created: ISO 8601 time, UTC.
        version: Version of the software.

    Raises:
        UsageError: If epsilon cannot be divided so, or an attribute, k or rank noise does not go with it.
    """
    g = schema.max_records_per_person
    check_k(request.mechanism, request.k, g)
    attributes = _chosen(request, schema)
    request.rank_noise.check_names(attribute.name for attribute in attributes)
    split = BudgetSplit.WEIGHTS if request.weights else BudgetSplit.OWNER
    epsilons = shares(
        request.epsilon, [[attribute.name for attribute in attributes]], split, dict(request.weights)
    )
    planned = tuple(
        plan_attribute(
            attribute,
            mechanism=request.mechanism,
            epsilon=epsilons[attribute.name],
            k=request.k,
            records_rounded=schema.records_rounded,
            g=g,
            least_k=schema.min_k,
            rank_noise=request.rank_noise,
        )
        for attribute in attributes
    )
    tasks = (Task(owner, dataset, 0, schema.records_rounded, planned),)
    return Plan(
        release=work_id,
        aggregator=made_by,
        created=created,
        version=version,
        purpose="",
        layout=Layout.HORIZONTAL,
        epsilon=request.epsilon,
        budget_split=split,
        attributes=attributes,
        identifier=schema.identifier,
        max_records_per_person=g,
        linking=Linking(tokens=schema.identifier is not None),
        tasks=tasks,
    )


def _chosen(request: MaskRequest, schema: Schema) -> tuple[Any, ...]:
    unknown = [name for name in request.attributes if name not in schema.by_name]
    if unknown:
        raise UsageError(
            f"no attribute {', '.join(map(repr, unknown))}", f"accepted: {', '.join(schema.names)}"
        )
    return tuple(schema.by_name[name] for name in request.attributes or schema.names)


def uses_of(plan: Plan) -> tuple[Use, ...]:
    """Return what a plan of one owner does with its attributes, for the policy to judge."""
    (task,) = plan.tasks
    return tuple(
        Use(
            each.name,
            each.mechanism,
            each.k,
            unbounded=each.epsilon_joint is None,
            rank_noise=each.rank_noise,
        )
        for each in task.attributes
    )


def arguments_of(plan: Plan, *, order: str) -> dict[str, Any]:
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


def report_of(plan: Plan, *, n_records: int, order: str) -> Mapping[str, Any]:
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
