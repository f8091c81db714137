"""What masking is asked to do: the attributes of a plan, with what an owner's data set adds to them."""

from collections.abc import Iterable, Mapping

from common.plan import Plan
from common.task import PlannedAttribute
from owner_node.masking.tasks import AttributeTask
from owner_node.masking.taxonomy import Taxonomy


def mask_tasks(
    plan: Plan, attributes: Iterable[PlannedAttribute], taxonomies: Mapping[str, Taxonomy]
) -> tuple[AttributeTask, ...]:
    """Return how to mask each attribute.

    Args:
        plan: The plan.
        attributes: Those of it that this owner masks.
        taxonomies: The owner's taxonomies by attribute.
    """
    return tuple(
        AttributeTask(
            plan.attribute(each.name),
            each.epsilon,
            each.k,
            each.mechanism,
            plan.max_records_per_person,
            taxonomies.get(each.name),
            each.rank_noise,
        )
        for each in attributes
    )
