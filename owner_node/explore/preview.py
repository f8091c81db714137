"""A preview of one plan: its effect on the requested data, computed before a person decides.

The draws are made for the preview alone, so it discloses nothing about the noise of the release.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from common.model.mechanisms import COUNTS, rules_of
from common.model.privacy import NO_RANK_NOISE
from common.model.schema import Attribute
from owner_node.masking.engine import Engine
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import ATTACKS
from owner_node.risk.measures import mean_sse_of_means
from owner_node.risk.trials import Aims, Randomness, knowledge_of, people_of, risks_of
from owner_node.risk.utility import OriginalRecords, measure

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


def preview(records: Engine, tasks: Sequence[AttributeTask], randomness: Randomness) -> dict[str, Any]:
    """Try a plan on the requested records.

    Args:
        records: The original records.
        tasks: How the plan masks each attribute.
        randomness: Source of noise and choices.

    Returns:
        `{attributes, mean_sse, mean_sse_of_means, risks, risks_without_rank_noise}`: the number of
        attributes, and the others as in `results`. The last is null if the plan has no rank noise, else the
        results of the same attacks without rank noise, in the same order.

    Raises:
        UnusableDataError: If there are fewer records than k.
        UsageError: If there is only one record.
    """
    records.check(tasks)
    inferred = np.sort(randomness.choices.permutation(len(tasks))[:MOST_INFERRED])
    aims = Aims(ATTACKS, knowledge_of([task.attribute.name for task in tasks], ()), inferred)
    people = people_of(records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    whole = OriginalRecords.sorted(records.columns, tasks, randomness.bits)

    def attacked(tried: Sequence[AttributeTask]) -> list[dict[str, Any]]:
        return [risk.to_document() for risk in risks_of(tried, people, aims, randomness)]

    mean_sse = measure(whole, tasks, REPETITIONS, (), randomness.bits).mean_sse()
    return {
        "attributes": len(tasks),
        "mean_sse": mean_sse.to_document() if mean_sse else None,
        "mean_sse_of_means": mean_sse_of_means([each.scale for each in whole.attributes]),
        "risks": attacked(tasks),
        "risks_without_rank_noise": attacked([replace(task, rank_noise=NO_RANK_NOISE) for task in tasks])
        if any(task.rank_noise for task in tasks)
        else None,
    }
