"""The appraisal of a plan on an owner's data: its forecast, what attacks find, and what is distorted.

It depends on the data and is for their owner only. Its draws are made for it alone, so it discloses nothing
about the noise of a release. A sweep (`owner_node.explore.sweep`) consists of the same parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.check import Check, unchecked
from common.model.mechanisms import COUNTS, rules_of
from common.model.privacy import NO_RANK_NOISE
from common.model.schema import Attribute
from common.progress import Progress
from owner_node.config import PolicyConfig
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.forecast import forecast
from owner_node.masking.foreseen import Forecast, Reidentification, as_share
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import ATTACKS, LIKELIHOOD, LINKING
from owner_node.risk.distortion import distortions
from owner_node.risk.risks import Risk
from owner_node.risk.trials import (
    AttackPlan,
    Knowledge,
    Randomness,
    best_linking,
    knowledge_of,
    people_of,
    risk_across,
    risks_of,
    sorted_records,
)

MOST_INFERRED = 5
"""Most attributes whose values are inferred, chosen at random: each is inferred from all others."""
MOST_EFFORT = 300_000
"""Largest effort of the attacks: about half a minute of processor time, however long or wide the table is."""
FEWEST_TRIED = 500
"""Fewest records of a sample that says something about a longer table."""
_STEPS = 4
_RECORDS_PER_ATTRIBUTE = 1_000
_DISTANCES_PER_RECORD = 20


def foresee(
    records: MemoryEngine,
    tasks: Sequence[AttributeTask],
    policy: PolicyConfig,
    check: Check = unchecked,
    *,
    for_person: bool = False,
) -> tuple[Forecast, Risk | None]:
    """Forecast the effect of masking, with the attack of the intruder that the policy expects.

    Args:
        check: Called between attacks.
        for_person: Whether a person decides by it. The intruder then attacks without a limit, too.

    Returns:
        The forecast, and the best attack in it; None if nobody attacked.
    """
    effect = forecast(records.columns, tasks)
    if policy.max_reidentified is None and not (for_person and records.n_records > 1):
        return effect, None
    randomness = Randomness.of_system()
    people = people_of(records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    risk = best_linking(tasks, people, policy.known, randomness, check)
    if risk is None:
        return effect, None
    names = [task.attribute.name for task in tasks]
    shares = map(as_share, (risk.rate.mean, risk.rate.low, risk.rate.high, risk.without_release))
    known = tuple(name for name in names if name in (policy.known or names))
    intruder = Reidentification(known, risk.attack, *shares)
    return replace(effect, reidentified=intruder.share, intruder=intruder), risk


def most_records(attributes: Iterable[tuple[Attribute, str]]) -> int:
    """Return how many records are attacked; 0 if the attributes alone take longer than `MOST_EFFORT`.

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
    """Earlier releases from the same data set."""

    records: MemoryEngine
    """The records, with the attributes of the plan and of all these releases."""
    releases: tuple[tuple[AttributeTask, ...], ...]
    """How each release masks its attributes: first the plan, then what was released before."""


def attack(
    records: MemoryEngine,
    tasks: Sequence[AttributeTask],
    randomness: Randomness,
    linking: Risk | None = None,
    earlier: PriorReleases | None = None,
    progress: Progress | None = None,
    known: Sequence[str] = (),
) -> dict[str, Any]:
    """Attack a plan on an owner's data, and measure what it distorts.

    Args:
        linking: The best attack of the expected intruder, as `foresee` found it; None to try that here.
        progress: Counts the steps; it can end them.
        known: Attributes that the expected intruder knows of everybody; empty for all, also if none of them
            is masked.

    Returns:
        `{attributes, expected, risks, risks_with_earlier, risks_without_rank_noise, distortions}`: the number
        of attributes, what the expected intruder knows (`knows` of risks; empty if that is none of the masked
        attributes), and the others as in `owner_node.explore.results`. `risks_with_earlier` is empty without
        earlier releases. `risks_without_rank_noise` is null if the plan has no rank noise.

    Raises:
        UnusableDataError: If there are fewer records than k.
        UsageError: If there is only one record.
    """
    records.check(tasks)
    steps = progress or Progress()
    masked = [task.attribute.name for task in tasks]
    inferred = np.sort(randomness.choices.permutation(len(tasks))[:MOST_INFERRED])
    first, *others = intruders = _intruders(masked, known)
    people = people_of(records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    steps.begin("attacks", _STEPS)
    risks = [] if linking is None else [linking]
    names = tuple(name for name in ATTACKS if linking is None or name not in LINKING)
    for plan in (AttackPlan(names, (first,), inferred), AttackPlan((LIKELIHOOD,), tuple(others), inferred)):
        risks += risks_of(tasks, people, plan, randomness, lambda: steps.reach(0))
    steps.reach(1)
    with_earlier: tuple[Risk, ...] = ()
    if earlier is not None:
        with_earlier = _with_earlier(earlier, known, randomness, lambda: steps.reach(1))
    steps.reach(2)
    without: tuple[Risk, ...] | None = None
    if any(task.rank_noise for task in tasks):
        bare = [replace(task, rank_noise=NO_RANK_NOISE) for task in tasks]
        plan = AttackPlan(ATTACKS, intruders, inferred)
        without = risks_of(bare, people, plan, randomness, lambda: steps.reach(2))
    steps.reach(3)
    whole = sorted_records(records.columns, tasks, randomness.bits)
    return {
        "attributes": len(tasks),
        "expected": first.words if not known or set(known) & set(masked) else "",
        "risks": [risk.to_document() for risk in risks],
        "risks_with_earlier": [risk.to_document() for risk in with_earlier],
        "risks_without_rank_noise": without and [risk.to_document() for risk in without],
        "distortions": distortions(whole, tasks, randomness.bits),
    }


def _intruders(names: Sequence[str], known: Sequence[str]) -> tuple[Knowledge, ...]:
    """Return the intruders to try: the expected one first, and one who knows everything."""
    own = [name for name in names if name in known]
    if not own or len(own) == len(names):
        return knowledge_of(names, ())
    return (*knowledge_of(names, own), knowledge_of(names, ())[0])


def _with_earlier(
    earlier: PriorReleases, known: Sequence[str], randomness: Randomness, check: Check
) -> tuple[Risk, ...]:
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
    return tuple(risk for risk in tried if risk is not None)
