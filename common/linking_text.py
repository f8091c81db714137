"""What a plan lets linking find, and what linking found, in words for operators and owners."""

from common.fragment import Addendum
from common.plan import Plan


def allowed(plan: Plan) -> tuple[str, ...]:
    """Say what linking may find besides disjoint parts and equal groups; nothing if no more than these."""
    lines = []
    if plan.linking.max_overlap > 1:
        most = plan.linking.max_overlap
        lines.append(
            f"A person may be at up to {most} owners of the same attributes. Every owner reserves its charge "
            "as often as that, but no more often than there are owners of these attributes, spends it as "
            "often as linking finds such owners, and has the rest returned."
        )
    if plan.linking.intersects:
        lines.append(
            "Where the owners of different attributes hold different persons, only those that all of them "
            f"hold are masked, at least {plan.linking.min_common}; k stays as it is. Every owner learns "
            "which of its own persons these are."
        )
    return tuple(lines)


def found(plan: Plan, addendum: Addendum) -> tuple[str, ...]:
    """Say what linking found of that."""
    lines = []
    for owners, multiple in zip(plan.groups, addendum.multiples, strict=False):
        if multiple > 1:
            lines.append(f"persons at up to {multiple} of {', '.join(owners)}")
    if addendum.multiples and not lines:
        lines.append("nobody at two owners of the same attributes")
    if addendum.common is not None:
        lines.append(f"{addendum.common:,} persons whom the owners of all attributes hold, alone masked")
    return tuple(lines)
