"""Which k an attribute gets, and whether it can have it: from public quantities only (MECHANISMS §5).

A small k leaves much noise in every centroid, a large one puts unlike records together; where the two meet
depends on the number of records, the share of the budget and the number of values.
"""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from math import isqrt

from common.errors import UnusableDataError, UsageError
from common.model.privacy import AUTO, EXPONENTIAL, MECHANISMS, SMALLEST_K, smallest_k
from common.model.schema import Schema, most_records
from common.model.task import Task

_JOINT = Fraction(3, 2)
"""Isotonic regression averages noise away, so that smaller clusters do than without it."""
_DRAWN = Decimal("3.2")
"""Of categories drawn from a taxonomy: found on trees of 14 to 300 categories (docs/decisions.md)."""
_DIGITS = Context(prec=20)
_PLAIN = Fraction(11, 5)
"""24^(1/4): the within-cluster error (k/n)²/12 and the noise 2/(k·epsilon)² of the squared range balance."""


def check_k(mechanism: str, k: int | None, g: int) -> None:
    """Check the k that an operator asked for.

    Args:
        mechanism: Mechanism id, or "auto".
        k: Minimum cluster size; None to have it chosen.
        g: The most records that one person has.

    Raises:
        UsageError: If the mechanism takes none so small.
    """
    # Where "auto" makes clusters, they are those of its mechanism for clusters.
    needed = smallest_k("idp-joint" if mechanism == AUTO else mechanism, g)
    if k is not None and needed is not None and k < needed:
        is_trimmed = mechanism == AUTO or MECHANISMS[mechanism].trimmed
        trimmed = f", and {g} records per person" if is_trimmed and g > 1 else ""
        raise UsageError(
            f"k must be at least {needed} with mechanism {mechanism}{trimmed}, not {k}", "ask for a larger k"
        )


def smallest_accepted_k(schemas: Sequence[Schema]) -> int:
    """Return the smallest k that the policies of all owners accept."""
    return max(SMALLEST_K, *(schema.min_k for schema in schemas))


def choose_k(
    mechanism: str, *, n_records: int, n_values: int, epsilon: Decimal, g: int, least: int
) -> int | None:
    """Choose k for one attribute of one owner.

    Args:
        mechanism: Mechanism id.
        n_records: The owner's number of records, as rounded in its schema.
        n_values: Number of values of the attribute's declared domain.
        epsilon: The attribute's share of the budget.
        g: The most records that one person has; noise grows with it as if epsilon were divided by it.
        least: The smallest k that all policies accept.

    Returns:
        The minimum cluster size, from what mechanism and policies need to the number of records; None where
        the mechanism makes no clusters.
    """
    needed = smallest_k(mechanism, g)
    if needed is None:
        return None
    per_record = Fraction(epsilon) / g
    # isqrt of the whole part is the whole part of the root, so no double decides about a k.
    if mechanism == "idp-cbls":
        wanted = 0
    elif mechanism == "idp-joint":
        wanted = min(isqrt(int(_JOINT**2 * n_records / per_record)), int(n_values / per_record))
    elif mechanism == EXPONENTIAL:
        wanted = _of_drawn_categories(n_records, epsilon, g)
    else:
        wanted = isqrt(int(_PLAIN**2 * n_records / per_record))
    return max(min(wanted, n_records), needed, least)


def _of_drawn_categories(n_records: int, epsilon: Decimal, g: int) -> int:
    """Return where drawing another category than most of a cluster's becomes rarer than mixing categories.

    A cluster of one category is drawn as another with a probability that falls by exp(-ε/2) with each record
    that it has, about; the clusters that hold two categories become more in proportion to k/n, whatever the
    number of categories. The sum is least where k grows with ln(n·ε)/ε.
    """
    per_record = _DIGITS.divide(epsilon, Decimal(g))
    half = _DIGITS.divide(_DIGITS.multiply(Decimal(n_records), per_record), Decimal(2))
    return int(
        _DIGITS.divide(_DIGITS.multiply(_DRAWN, _DIGITS.ln(_DIGITS.add(half, Decimal(1)))), per_record)
    )


def check_records(tasks: Sequence[Task], schemas: Mapping[str, Schema]) -> None:
    """Check that every owner can have as many records as its largest k.

    Numbers of records come rounded down: only what is too small whatever was rounded away is refused here.

    Raises:
        UnusableDataError: Naming every owner that cannot.
    """
    short = []
    for task in tasks:
        most = most_records(schemas[task.owner].records_rounded)
        k = max((each.k for each in task.attributes if each.k is not None), default=1)
        if most < k:
            short.append({"owner": task.owner, "k": k})
    if short:
        told = ", ".join(f"{each['owner']} (k = {each['k']})" for each in short)
        raise UnusableDataError(
            f"fewer than k records at {told}: at least k are needed",
            "ask for a smaller k, or for a release without these owners; nothing was spent",
            {"owners": short},
        )
