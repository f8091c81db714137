"""A preview of one plan: its effect on the requested data, computed before a person decides.

The draws are made for the preview alone, so it discloses nothing about the noise of the release.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.model.mechanisms import COUNTS, rules_of
from common.model.privacy import NO_RANK_NOISE
from common.model.schema import Attribute
from owner_node.masking.engine import Engine
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import ATTACKS
from owner_node.risk.measures import mean_sse_of_means
from owner_node.risk.trials import (
    Aims,
    Randomness,
    knowledge_of,
    people_of,
    risk_across,
    risks_of,
    sorted_records,
)
from owner_node.risk.utility import measure

REPETITIONS = 3
"""Draws that the mean SSE is averaged over."""
MOST_INFERRED = 5
"""Most attributes whose values are inferred, chosen at random: each is inferred from all others."""
MOST_EFFORT = 300_000
"""Largest effort of a preview: it takes some seconds then, however long or wide the table is."""
_RECORDS_PER_ATTRIBUTE = 1_000
_DISTANCES_PER_RECORD = 20


def effort(n_records: int, attributes: Iterable[tuple[Attribute, str]]) -> int:
    """Estimate the effort of a preview, in units of the time for one value of a long table.

    Every attribute has a fixed cost; counts are drawn for every possible value, and a taxonomy has a table of
    distances.

    Args:
        n_records: Number of masked records.
        attributes: The masked attributes, each with its mechanism.
    """
    total = 0
    for attribute, mechanism in attributes:
        total += n_records + _RECORDS_PER_ATTRIBUTE
        if rules_of(mechanism).carrier is COUNTS:
            total += attribute.n_values
        if attribute.taxonomy:
            total += attribute.n_values**2 // _DISTANCES_PER_RECORD
    return total


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was released from the same data set before."""

    records: Engine
    """The records, with the attributes of the plan and of all these releases."""
    releases: tuple[tuple[AttributeTask, ...], ...]
    """How each release masked its attributes."""


def preview(
    records: Engine,
    tasks: Sequence[AttributeTask],
    randomness: Randomness,
    earlier: Earlier | None = None,
) -> dict[str, Any]:
    """Try a plan on the requested records.

    Args:
        records: The original records.
        tasks: How the plan masks each attribute.
        randomness: Source of noise and choices.
        earlier: Earlier releases, which an intruder may have, too.

    Returns:
        `{attributes, mean_sse, mean_sse_of_means, risks, risk_with_earlier, risks_without_rank_noise}`: the
        number of attributes, and the others as in `results`. `risk_with_earlier` is null without earlier
        releases. The last is null if the plan has no rank noise, else the results of the same attacks
        without rank noise, in the same order.

    Raises:
        UnusableDataError: If there are fewer records than k.
        UsageError: If there is only one record.
    """
    records.check(tasks)
    inferred = np.sort(randomness.choices.permutation(len(tasks))[:MOST_INFERRED])
    aims = Aims(ATTACKS, knowledge_of([task.attribute.name for task in tasks], ()), inferred)
    people = people_of(records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    whole = sorted_records(records.columns, tasks, randomness.bits)

    def attacked(tried: Sequence[AttributeTask]) -> list[dict[str, Any]]:
        return [risk.to_document() for risk in risks_of(tried, people, aims, randomness)]

    mean_sse = measure(whole, tasks, REPETITIONS, (), randomness.bits).mean_sse()
    return {
        "attributes": len(tasks),
        "mean_sse": mean_sse.to_document() if mean_sse else None,
        "mean_sse_of_means": mean_sse_of_means([each.scale for each in whole.attributes]),
        "risks": attacked(tasks),
        "risk_with_earlier": None if earlier is None else _with_earlier(tasks, earlier, randomness),
        "risks_without_rank_noise": attacked([replace(task, rank_noise=NO_RANK_NOISE) for task in tasks])
        if any(task.rank_noise for task in tasks)
        else None,
    }


def _with_earlier(
    tasks: Sequence[AttributeTask], earlier: Earlier, randomness: Randomness
) -> dict[str, Any] | None:
    """Attack the plan together with the earlier releases, by an intruder who knows all attributes."""
    by_name = {task.attribute.name: task for release in (*earlier.releases, tasks) for task in release}
    sorted_as = tuple(by_name.values())
    fewest = max(task.k or 1 for release in (*earlier.releases, tasks) for task in release)
    people = people_of(earlier.records.columns, sorted_as, randomness, fewest)
    (everything, *_) = knowledge_of(list(by_name), ())
    found = risk_across((tasks, *earlier.releases), people, everything, randomness)
    return found.to_document() if found else None
