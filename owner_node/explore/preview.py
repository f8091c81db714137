"""A preview of one plan: its effect on the requested data, computed before a person decides.

The draws are made for the preview alone, so it discloses nothing about the noise of the release.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from common.check import Check
from common.model.mechanisms import COUNTS, rules_of
from common.model.privacy import NO_RANK_NOISE
from common.model.schema import Attribute
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import ATTACKS
from owner_node.risk.measures import mean_sse_of_means
from owner_node.risk.trials import (
    AttackPlan,
    Knowledge,
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
"""Largest effort of a preview: about half a minute of processor time, however long or wide the table is."""
FEWEST_TRIED = 500
"""Fewest records of a sample that says something about a longer table."""
_RECORDS_PER_ATTRIBUTE = 1_000
_DISTANCES_PER_RECORD = 20


def most_records(attributes: Iterable[tuple[Attribute, str]]) -> int:
    """Return how many records are tried; 0 if the attributes alone take longer than `MOST_EFFORT`.

    The effort is measured in units of the time for one value of a long table. Every attribute has a fixed
    cost; counts are drawn for every possible value, and a taxonomy has a table of distances.

    Args:
        attributes: The masked attributes, each with its mechanism.
    """
    fixed = n_attributes = 0
    for attribute, mechanism in attributes:
        n_attributes += 1
        fixed += _RECORDS_PER_ATTRIBUTE
        if rules_of(mechanism).carrier is COUNTS:
            fixed += attribute.n_values
        if attribute.taxonomy:
            fixed += attribute.n_values**2 // _DISTANCES_PER_RECORD
    return max(0, MOST_EFFORT - fixed) // n_attributes


@dataclass(frozen=True, slots=True)
class PriorReleases:
    """What was released from the same data set before."""

    records: MemoryEngine
    """The records, with the attributes of the plan and of all these releases."""
    releases: tuple[tuple[AttributeTask, ...], ...]
    """How each release masks its attributes: first the plan, then what was released before."""


def preview(
    records: MemoryEngine,
    tasks: Sequence[AttributeTask],
    randomness: Randomness,
    earlier: PriorReleases | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    known: Sequence[str] = (),
) -> dict[str, Any]:
    """Try a plan on the requested records.

    Args:
        progress: Called often with the number of finished steps and of all; what it raises ends the trial.
        known: Attributes that the expected intruder knows of everybody; empty for all, also if none of them
            is masked.

    Returns:
        `{attributes, expected, mean_sse, mean_sse_of_means, risks, risks_with_earlier,
        risks_without_rank_noise}`: the number of attributes, what the expected intruder knows (`knows` of
        risks; empty if that is none of the masked attributes), and the others as in `results`.
        `risks_with_earlier` is empty without earlier releases. The last is null if the plan has no rank
        noise, else the results of the same attacks without rank noise, in the same order.

    Raises:
        UnusableDataError: If there are fewer records than k.
        UsageError: If there is only one record.
    """
    records.check(tasks)
    inferred = np.sort(randomness.choices.permutation(len(tasks))[:MOST_INFERRED])
    masked = [task.attribute.name for task in tasks]
    intruders = _intruders(masked, known)
    aims = AttackPlan(ATTACKS, intruders, inferred)
    people = people_of(records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    whole = sorted_records(records.columns, tasks, randomness.bits)

    def attack(tried: Sequence[AttributeTask], check: Check) -> list[dict[str, Any]]:
        return [risk.to_document() for risk in risks_of(tried, people, aims, randomness, check)]

    def measure_error(_check: Check) -> dict[str, Any]:
        mean_sse = measure(whole, tasks, REPETITIONS, (), randomness.bits).mean_sse()
        of_means = mean_sse_of_means([attribute.scale for attribute in whole.attributes])
        return {"mean_sse": mean_sse.to_document() if mean_sse else None, "mean_sse_of_means": of_means}

    bare = [replace(task, rank_noise=NO_RANK_NOISE) for task in tasks]
    steps: list[Callable[[Check], dict[str, Any]]] = [
        measure_error,
        lambda check: {"risks": attack(tasks, check)},
    ]
    if earlier is not None:
        steps.append(lambda check: {"risks_with_earlier": _with_earlier(earlier, known, randomness, check)})
    if any(task.rank_noise for task in tasks):
        steps.append(lambda check: {"risks_without_rank_noise": attack(bare, check)})
    expected = intruders[0].words if not known or set(known) & set(masked) else ""
    document: dict[str, Any] = {"attributes": len(tasks), "expected": expected}
    document |= {"risks_with_earlier": [], "risks_without_rank_noise": None}
    for number, step in enumerate(steps):
        check = partial(progress, number, len(steps))
        check()
        document |= step(check)
    progress(len(steps), len(steps))
    return document


def _intruders(names: Sequence[str], known: Sequence[str]) -> tuple[Knowledge, ...]:
    """Return the intruders to try: the expected one first, and one who knows everything."""
    own = [name for name in names if name in known]
    if not own or len(own) == len(names):
        return knowledge_of(names, ())
    return (*knowledge_of(names, own), knowledge_of(names, ())[0])


def _with_earlier(
    earlier: PriorReleases, known: Sequence[str], randomness: Randomness, check: Check
) -> list[dict[str, Any]]:
    """Attack the plan together with the earlier releases, by the expected intruder and one who knows all."""
    by_name = {task.attribute.name: task for release in reversed(earlier.releases) for task in release}
    sorted_as = tuple(by_name.values())
    fewest = max(task.k or 1 for release in earlier.releases for task in release)
    people = people_of(earlier.records.columns, sorted_as, randomness, fewest)
    exact = [
        knowledge
        for knowledge in _intruders(list(by_name), known)
        if not (knowledge.n_chosen or knowledge.approximate)
    ]
    tried = (risk_across(earlier.releases, people, knowledge, randomness, check=check) for knowledge in exact)
    return [risk.to_document() for risk in tried if risk is not None]
