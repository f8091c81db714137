"""Can linking have found what an addendum says? Asked by owners before they spend, and by `verify`.

What the aggregator alone has seen it could still say wrongly: how many owners hold a person, and which
persons all groups hold. What is checked is everything that follows from plan and counts.
"""

from collections.abc import Iterator
from decimal import Decimal

from common.fragment import Addendum
from common.plan import Plan


def contradictions(plan: Plan, addendum: Addendum) -> Iterator[str]:
    """Find what an addendum says that cannot be so.

    Args:
        plan: The plan.
        addendum: What linking is said to have found.

    Yields:
        One text per contradiction, to follow "the addendum does not fit: ".
    """
    if (addendum.release, addendum.plan_digest) != (plan.release, plan.digest):
        yield "it belongs to another plan"
        return
    if set(addendum.records) != set(plan.owners):
        yield "it does not name the owners of the plan"
        return
    if addendum.linking not in plan.possible_linking:
        yield f"linking cannot have found {addendum.linking!r} under this plan"
    yield from _of_multiples(plan, addendum)
    yield from _of_selections(plan, addendum)
    yield from _of_counts(plan, addendum)


def multiples_of(plan: Plan, addendum: Addendum) -> tuple[int, ...]:
    """Return how many owners of each group hold the same person at most, as linking found it."""
    return addendum.multiples or (1,) * plan.n_groups


def bounds_of_person(plan: Plan, addendum: Addendum) -> dict[str, Decimal | None]:
    """Return what holds for one person with what linking found, by name; None where there is no bound."""
    multiples = multiples_of(plan, addendum)
    return {
        "epsilon_person": plan.epsilon_of_person(multiples),
        "epsilon_joint": plan.epsilon_joint_of_person(multiples),
        **({"epsilon_table": plan.epsilon_table_of_person(multiples)} if plan.has_rank_noise else {}),
    }


def _of_multiples(plan: Plan, addendum: Addendum) -> Iterator[str]:
    found, most = addendum.multiples, plan.most_multiples
    if plan.linking.max_overlap == 1:
        if found:
            yield "it speaks of persons at several owners, which the plan does not allow"
        return
    if len(found) != len(most) or not all(1 <= m <= limit for m, limit in zip(found, most, strict=False)):
        yield "it does not say, within the plan's bounds, how many owners hold the same person"
    elif plan.n_groups == 1 and (addendum.linking == "overlapping") is (found == (1,)):
        yield f"persons at {found[0]} owners are not {addendum.linking!r}"


def _of_selections(plan: Plan, addendum: Addendum) -> Iterator[str]:
    intersected = addendum.linking == "intersected"
    if set(addendum.selections) != (set(plan.owners) if intersected else set()):
        yield "records of every owner are selected where groups are intersected, and only there"
    if intersected is (addendum.common is None):
        yield "common persons are counted where groups are intersected, and only there"
    if addendum.common is not None and addendum.common < plan.linking.min_common:
        yield f"{addendum.common} persons are common, at least {plan.linking.min_common} are agreed"


def _of_counts(plan: Plan, addendum: Addendum) -> Iterator[str]:
    totals = [sum(addendum.records[owner] for owner in owners) for owners in plan.groups]
    multiples = multiples_of(plan, addendum)
    if len(multiples) != len(totals):
        return
    # Where nobody is shared, a group has one record of every person.
    persons = {total for total, most in zip(totals, multiples, strict=True) if most == 1}
    persons |= {addendum.common} if addendum.common is not None else set()
    if plan.n_groups > 1 and len(persons) > 1:
        yield "its groups of attributes have different numbers of records"
    if (addendum.released is None) is not (plan.linking.max_overlap == 1):
        yield "it says how many records are released where persons may be shared, and only there"
    elif addendum.released is not None:
        most = max(multiples) * min(totals) if plan.n_groups > 1 else totals[0]
        if not max(totals) <= addendum.released <= most:
            yield f"{addendum.released} records cannot come of those of its owners"
    for owner, assignment in plan.assignments.items():
        if addendum.records[owner] < assignment.largest_k:
            yield f"{owner} has fewer records than its k"
