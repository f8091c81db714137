"""What a plan allows linking to find, and what linking found, in words for operators and owners."""

from common.model.fragment import Addendum
from common.model.plan import Plan
from common.model.schema import IdentifierRules

WRITTEN_DIFFERENTLY = (
    "A person who is written differently at two owners counts as two there, and then their ε add up."
)
"""The case that no comparison of identifiers can exclude."""


def compared_as(rules: IdentifierRules | None) -> str:
    """Say how identifiers are normalised before they are compared; only equal ones match."""
    if rules is None:
        return "not compared"
    of_columns = [f"column {n}: {', '.join(steps)}" for n, steps in enumerate(rules.also, 1) if steps]
    steps = "; ".join([*([", ".join(rules.normalise)] if rules.normalise else []), *of_columns])
    return f"as normalised: {steps}" if steps else "as they are written: no normalisation is declared"


def allowed(plan: Plan) -> tuple[str, ...]:
    """Say what linking may find besides disjoint parts and equal groups; empty if nothing else."""
    lines = []
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
            f"hold are masked, at least {plan.linking.min_common}; k stays as it is. Every owner learns "
            "which of its own persons these are."
        )
    return tuple(lines)


def found(plan: Plan, addendum: Addendum) -> tuple[str, ...]:
    """Say what linking found besides disjoint parts and equal groups."""
    lines = []
    for owners, multiple in zip(plan.groups, addendum.multiples, strict=False):
        if multiple > 1:
            lines.append(f"persons at up to {multiple} of {', '.join(owners)}")
    if addendum.multiples and not lines:
        lines.append("nobody at two owners of the same attributes, by equal identifiers")
    if addendum.common is not None:
        lines.append(f"{addendum.common:,} persons at the owners of all attributes; only these are masked")
    return tuple(lines)
