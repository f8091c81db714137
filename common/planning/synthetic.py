"""Synthetic releases as they are planned: from public numbers to the design that every question follows from.

The aggregator checks a plan before it asks any owner, and every owner checks it again before it consents.
"""

from dataclasses import replace
from decimal import Decimal
from math import sqrt

from common.errors import UsageError
from common.model.plan import Layout, Plan
from common.model.schema import most_records
from common.synthesis.course import Design, check_noise, n_numbers, next_round
from common.synthesis.rounds import MOST_ATTRIBUTES
from common.synthesis.sample import MOST_RECORDS

DELTA, _DELTA_OF = Decimal("0.000001"), 10
"""The δ that is recommended, and how many times it may be 1/n at most."""
WARNED, REFUSED = 0.05, 0.2
"""Shares of the records that noise moves in a small table: from here on relations are poor, or worthless."""
_SMALL_TABLE = 16
"""Cells."""
_MEAN_OF_NOISE = 0.4
"""The expected total variation per cell, by standard deviations of its noise: half of about 0.8."""
MOST_NUMBERS = 2**17
"""Most numbers of a round: 1 MB of an owner's answer."""


def design_of(plan: Plan, n_records: int | None = None) -> Design:
    """Return what the questions of a release follow from, beside the answers.

    Args:
        plan: A plan with a synthesis.
        n_records: The exact number of records; None before linking: the least that owners stated.
    """
    synthesis = plan.synthesis
    if synthesis is None:
        raise ValueError("the plan is not that of a synthetic release")
    planned = max(sum(task.records_rounded for task in plan.tasks), 1)
    return Design(
        plan.attributes,
        planned if n_records is None else n_records,
        plan.epsilon,
        synthesis.delta,
        owners=len(plan.owners),
        colluding=synthesis.colluding,
        split=synthesis.split,
    )


def noise_share(design: Design) -> float:
    """Return what noise is expected to move of the records in a table of 4 x 4 cells, from public numbers.

    That is half of the sum of all absolute errors, divided by the number of records; 0 for one attribute,
    which has no tables.
    """
    if len(design.attributes) < 2:
        return 0.0
    deviation = sqrt(design.pair_variance)
    return _SMALL_TABLE * _MEAN_OF_NOISE * deviation / design.n_records


def noise_share_with_delta(design: Design) -> float | None:
    """Return `noise_share` with the recommended δ; None if there is a δ, or there are too few records."""
    if design.delta or len(design.attributes) < 2 or DELTA * _DELTA_OF * design.n_records > 1:
        return None
    return noise_share(replace(design, delta=DELTA))


def check_delta(delta: Decimal, n_records: int) -> None:
    """Check that δ is small beside one record of so many.

    Raises:
        UsageError: If it is above 1/(10 n): a release could then show whole records and keep its promise.
    """
    if delta * _DELTA_OF * n_records > 1:
        raise UsageError(
            f"delta {delta:f} is too large for {n_records:,} records",
            f"a delta of 1/n allows showing somebody's record: choose at most 1/({_DELTA_OF} n)",
        )


def records_needed(design: Design) -> int:
    """Return with how many records noise would move few enough of them, for this ε and these attributes."""
    return int(round(design.n_records * noise_share(design) / WARNED, -2))


def check_synthetic(plan: Plan) -> None:
    """Check that a synthetic release can be made as planned.

    Raises:
        UsageError: If it cannot.
    """
    if plan.layout is not Layout.HORIZONTAL or plan.n_groups > 1:
        raise UsageError(
            f"a synthetic release of a {plan.layout} layout is not possible yet",
            "choose --product masked, or owners that have the same attributes: --layout horizontal",
        )
    if plan.owner_column:
        raise UsageError("a synthetic record comes from no owner", "leave --owner-column out")
    if plan.max_records_per_person != 1:
        raise UsageError(
            "a synthetic release needs data in which a person has one record",
            "an owner declares max_records_per_person to be more: it has to make one record of each person",
        )
    if len(plan.attributes) > MOST_ATTRIBUTES:
        raise UsageError(
            f"{len(plan.attributes)} attributes, a model has at most {MOST_ATTRIBUTES}",
            "choose some: --attributes a,b,c",
        )
    design = design_of(plan)
    if design.n_records > MOST_RECORDS:
        raise UsageError(
            f"{design.n_records:,} records, a synthetic release has at most {MOST_RECORDS:,}",
            "make it of fewer owners",
        )
    check_delta(design.delta, most_records(design.n_records))
    check_noise(design)
    asked = next_round(design, ())
    if isinstance(asked, tuple) and n_numbers(asked) > MOST_NUMBERS:
        raise UsageError(
            f"{n_numbers(asked):,} values of attributes would be counted, at most {MOST_NUMBERS:,} can be",
            "leave attributes with the most categories out: --attributes a,b,c",
        )
