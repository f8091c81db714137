"""The findings of linking that a plan allows, in words."""

from common.model.plan import Plan
from common.planning.limits import differing_counts
from common.words.linking import compared_as, made_verb, percent


def allowed_findings(plan: Plan) -> tuple[str, ...]:
    """Say what links persons, and what linking may find besides disjoint parts and equal groups.

    Returns:
        Lines; empty where equal identifiers are compared in one group, and nothing else may be found.
    """
    lines = []
    if plan.passes:
        lines.append(f"Persons are compared {compared_as(plan.identifier)}.")
    if plan.linking.min_match_quality:
        lines.append(
            "The release ends before anything is spent unless at least "
            f"{percent(plan.linking.min_match_quality)} of the links are right, by the lower end of the "
            "estimate's 95 % interval."
        )
    if plan.linking.max_overlap > 1:
        most = plan.linking.max_overlap
        lines.append(
            f"A person may be at up to {most} owners of the same attributes. Every owner reserves its charge "
            "that many times, but no more often than there are owners of these attributes. It spends the "
            "charge as often as linking finds such owners, and the rest is returned."
        )
    if plan.linking.intersects:
        lines.append(
            "Where the owners of different attributes hold different persons, only those that all of them "
            f"hold are {made_verb(plan)}, at least {plan.linking.min_common}"
            f"{'' if plan.product.rules.in_rounds else '; k stays as it is'}. Every owner learns which of "
            "its own persons these are."
        )
    elif plan.linking.unites:
        lines.append(
            "The owners of different attributes may hold different persons. Everybody whom any of them holds "
            "is counted, as absent at an owner that lacks the person. The number of them all is published. "
            "Owners do not learn which of their persons others have; the aggregator sees it by tokens."
        )
    elif plan.linking.tokens and len(plan.groups) > 1:
        lines.append(
            "The owners of different attributes have to hold the same persons. If they do not, the release "
            "ends before anything is spent."
        )
        if differing := differing_counts(plan):
            lines.append(f"They do not: {differing}.")
    return tuple(lines)
