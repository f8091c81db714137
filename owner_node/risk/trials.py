"""Attacks on several draws of a release, by intruders who know more or less about everybody.

Every draw is made for this alone. Some people are left out of the attacked releases, to measure what an
attack finds out about anybody.

*Earlier releases.* Rows of one person in several releases show noise drawn several times, which averages
out. The attack assumes that an intruder can tell which rows belong together, and that all people were in all
releases: it is an upper bound. It masks again with the earlier plans; no earlier fragment is kept or read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.check import Check, unchecked
from common.errors import UsageError
from common.model.mechanisms import QUANTILES
from owner_node.masking.arrays import BitSource, Int64Array, PositionArray, SystemBits
from owner_node.masking.clusters import Clusters
from owner_node.masking.mask import for_each
from owner_node.masking.tasks import AttributeTask, mechanism_of
from owner_node.risk.attacks import (
    LIKELIHOOD,
    LINKING,
    SCALES,
    WINDOW,
    WORDS,
    Ascending,
    AttackResult,
    Crowd,
    Intruder,
    MaskedRecords,
    attack,
    known_attribute,
    related_attributes,
)
from owner_node.risk.draws import SortedAttribute
from owner_node.risk.likelihood import linked_by_likelihood
from owner_node.risk.risks import Risk, reidentified
from owner_node.risk.scales import LISTS, distinguished_by_scales
from owner_node.risk.utility import Estimate, OriginalRecords, share

DRAWS = 3
"""Default number of attacked draws."""
MOST_TARGETS = 1000
MOST_PERSONS = 150
"""Records that attacks by likelihood and by inference use: both take longer."""
CONTROL_SHARE, MOST_CONTROLS = 10, 300
"""One record in `CONTROL_SHARE`, at most `MOST_CONTROLS`, is left out of the attacked releases."""
SOME_KNOWN = (3, 5)
"""Numbers of attributes that an intruder knows who does not know all."""


@dataclass(frozen=True, slots=True)
class Randomness:
    """Sources of random choices: the operating system, unless an evaluation passes its own."""

    bits: BitSource
    """Bits of the noise."""
    choices: np.random.Generator
    """Choices of records and of models."""

    @classmethod
    def of_system(cls) -> "Randomness":
        """Return the operating system's."""
        return cls(SystemBits(), np.random.default_rng())


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What an intruder knows about everybody."""

    words: str
    """The same for people."""
    attributes: PositionArray
    """Numbers of the attributes."""
    n_chosen: int = 0
    """How many of them the intruder knows, others in every draw; 0 for all."""
    approximate: bool = False
    """Whether ranks are known up to `WINDOW` to either side; categories without an order, exactly."""


def knowledge_of(names: Sequence[str], known: Sequence[str]) -> tuple[Knowledge, ...]:
    """Return the intruders to try: first the one who knows most.

    Args:
        known: Attributes that an intruder knows; empty for all, and then also for any three and five.
    """
    numbers = np.array([names.index(name) for name in known or names], dtype=np.int64)
    words = ", ".join(known) if known else "all"
    some = () if known else tuple(number for number in SOME_KNOWN if number < len(names))
    return (
        Knowledge(words, numbers),
        Knowledge(f"{words}, approximately", numbers, approximate=True),
        *(Knowledge(f"any {number}", numbers, number) for number in reversed(some)),
    )


@dataclass(frozen=True, slots=True)
class AttackPlan:
    """What is attacked."""

    attacks: tuple[str, ...]
    """Of `attacks.ATTACKS`."""
    known: tuple[Knowledge, ...]
    """The intruders. All attacks are tried with what the first one knows, linking by likelihood with all."""
    inferred: PositionArray
    """Numbers of the attributes that the first intruder infers."""
    draws: int = DRAWS
    """Draws that are attacked."""
    enough: float = 1.0
    """Share of persons whose re-identification ends the draws, once the confidence interval is above it."""


@dataclass(frozen=True, slots=True)
class Population:
    """The people of the attacked releases, and those who were left out."""

    members: OriginalRecords
    """Their records, sorted once."""
    crowd: Crowd
    """The same, as attacks compare them."""


def people_of(
    columns: Mapping[str, Int64Array],
    tasks: Sequence[AttributeTask],
    randomness: Randomness,
    fewest_members: int = 0,
) -> Population:
    """Leave some people out, and sort the records of the others.

    Args:
        columns: Original values by attribute, `(n_records,)` each, in resolution units.
        tasks: Tasks of any one setting.
        fewest_members: Least number of people who are not left out: clusters of k need k records.

    Raises:
        UsageError: If there is only one record.
    """
    n_records = columns[tasks[0].attribute.name].size
    if n_records < 2:
        raise UsageError(f"{n_records} record is too little to be explored", "explore more records")
    n_outside = min(n_records // CONTROL_SHARE, MOST_CONTROLS, max(n_records - fewest_members, 0))
    left_out = np.zeros(n_records, dtype=np.bool_)
    left_out[randomness.choices.choice(n_records, n_outside, replace=False)] = True
    inside = {name: column[~left_out] for name, column in columns.items()}
    members = sorted_records(inside, tasks, randomness.bits)
    return Population(members, crowd_of(members, [columns[task.attribute.name][left_out] for task in tasks]))


def sorted_records(
    columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask], bits: BitSource
) -> OriginalRecords:
    """Sort records once for all settings; arguments as in `people_of`."""

    def one(task: AttributeTask) -> SortedAttribute:
        return SortedAttribute.of(columns[task.attribute.name], task, bits.spawn())

    return OriginalRecords.of(for_each(one, tasks, columns[tasks[0].attribute.name].size))


def crowd_of(members: OriginalRecords, outside: Sequence[Int64Array]) -> Crowd:
    """Prepare attacks on releases of some records; `outside`: values by attribute of those left out."""
    scales = [attribute.scale for attribute in members.attributes]
    return Crowd.of(scales, [attribute.original for attribute in members.attributes], outside)


def risks_of(
    tasks: Sequence[AttributeTask],
    people: Population,
    aims: AttackPlan,
    randomness: Randomness,
    check: Check = unchecked,
) -> tuple[Risk, ...]:
    """Mask several times, and attack the results."""
    by_attack: dict[tuple[str, str | None, str], list[AttackResult]] = {}
    n_records, risks = people.members.n_records, list[Risk]()
    for _ in range(aims.draws):
        release = masked(tasks, people.members, randomness.bits)
        for knows, result in attacks_on(release, people, aims, randomness):
            check()
            by_attack.setdefault((result.attack, result.attribute, knows), []).append(result)
        risks = [_risk(results, knows, n_records) for (_, _, knows), results in by_attack.items()]
        best = reidentified(risks)
        if best is not None and best.rate.low > aims.enough:
            break
    if SCALES in aims.attacks and (rates := distinguished_by_scales(people.members, tasks, randomness.bits)):
        rate = share(rates, LISTS * len(rates))
        risks.append(Risk(SCALES, rate, 0.5, LISTS * len(rates), WORDS[SCALES].meaning))
    return tuple(risks)


def attacked_share(
    tasks: Sequence[AttributeTask],
    people: Population,
    known: Collection[str],
    randomness: Randomness,
    check: Check = unchecked,
) -> Estimate:
    """Return the share of persons that the best attack re-identifies; arguments as in `best_linking`."""
    risk = best_linking(tasks, people, known, randomness, check)
    return Estimate(0.0, 0.0, 0.0) if risk is None else risk.rate


def best_linking(
    tasks: Sequence[AttributeTask],
    people: Population,
    known: Collection[str],
    randomness: Randomness,
    check: Check = unchecked,
) -> Risk | None:
    """Return the attack that re-identifies most persons; None if no known attribute is masked.

    Args:
        known: Attributes that an intruder knows exactly of everybody; empty for all.
        check: Called between attacks.
    """
    names = [task.attribute.name for task in tasks]
    intersection = [name for name in names if name in known]
    if known and not intersection:
        return None
    (intruder, *_) = knowledge_of(names, intersection)
    aims = AttackPlan(LINKING, (intruder,), np.empty(0, dtype=np.int64), 2 * DRAWS)
    return reidentified(risks_of(tasks, people, aims, randomness, check))


def attacks_on(
    release: MaskedRecords, people: Population, aims: AttackPlan, randomness: Randomness
) -> Iterator[tuple[str, AttackResult]]:
    """Attack one draw; yields what the intruder knows, for attacks that re-identify, and the result."""
    for number, known in enumerate(aims.known):
        names = [name for name in aims.attacks if not number or name == LIKELIHOOD]
        for result in attack(names, people.crowd, release, _intruder(known, aims, people, randomness)):
            linked = result.attack in LINKING
            yield known.words if linked else "", result


def masked(tasks: Sequence[AttributeTask], members: OriginalRecords, bits: BitSource) -> MaskedRecords:
    """Mask records once."""
    columns = members.masked(tasks, bits)
    return MaskedRecords(
        columns,
        members.places_of(columns),
        tuple(task.k for task in tasks),
        tuple(carrier_of(task, members.n_records) for task in tasks),
    )


def carrier_of(task: AttributeTask, n_records: int) -> Ascending | None:
    """Return how a task's released values ascend with ranks; None if its mechanism does not guarantee it."""
    if not mechanism_of(task).ascending:
        return None
    by_frequency = task.taxonomy is None and task.attribute.by_frequency
    as_declared = by_frequency and not task.rules.is_ordered_by_data(frequency_order=True)
    shuffled = Clusters(n_records, task.k or 1).sizes if task.rules.carrier is QUANTILES else None
    return Ascending(task.rank_noise, as_declared, shuffled)


def _intruder(known: Knowledge, aims: AttackPlan, people: Population, randomness: Randomness) -> Intruder:
    choices, n_records = randomness.choices, people.members.n_records
    attributes = known.attributes
    if known.n_chosen:
        attributes = choices.choice(attributes, known.n_chosen, replace=False)
    errors = None
    if known.approximate:
        errors = choices.uniform(-WINDOW, WINDOW, (n_records + len(people.crowd.outside), attributes.size))
    targets = choices.permutation(n_records)[:MOST_TARGETS]
    return Intruder(
        attributes, errors, aims.inferred, targets, targets[:MOST_PERSONS], choices.permutation(n_records)
    )


def risk_across(
    releases: Sequence[Sequence[AttributeTask]],
    people: Population,
    known: Knowledge,
    randomness: Randomness,
    draws: int = DRAWS,
    check: Check = unchecked,
) -> Risk | None:
    """Link persons by likelihood to their rows in several releases together (see above).

    Attributes that the intruder does not know count by their relations in the new release.

    Args:
        releases: How each release masks its attributes, the new one first.
        people: The people, with the attributes of all releases.

    Returns:
        The risk; None if no known attribute's released values ascend with ranks.
    """
    members, crowd = people.members, people.crowd
    numbers = {attribute.scale.attribute.name: number for number, attribute in enumerate(members.attributes)}
    knows = set(known.attributes.tolist())
    results = []
    for _ in range(draws):
        check()
        everything, newest = [], {}
        for position, tasks in enumerate(releases):
            for task in tasks:
                number, carrier = numbers[task.attribute.name], carrier_of(task, members.n_records)
                if position and number not in knows:
                    continue
                own = members.attributes[number]
                column = own.by_record(own.draw(task, randomness.bits))
                if not position:
                    newest[number] = own.scale.places(column)
                if carrier is not None and number in knows:
                    everything.append(known_attribute(crowd, number, column, carrier))
        if not everything:
            return None
        others = randomness.choices.permutation(members.n_records)
        targets = others[:MOST_PERSONS]
        rate = float(linked_by_likelihood(everything, targets, others).right.mean())
        if related := related_attributes(crowd, newest, knows):
            rate = max(rate, float(linked_by_likelihood(everything, targets, others, related).right.mean()))
        results.append(AttackResult(LIKELIHOOD, rate, 1 / members.n_records, targets.size))
    n_earlier = len(releases) - 1
    words = f"{known.words}, with {n_earlier} earlier release{'s' if n_earlier > 1 else ''}"
    return _risk(results, words, members.n_records)


def _risk(results: Sequence[AttackResult], knows: str, n_records: int) -> Risk:
    """Combine the results of one attack over all draws, which had other targets if there are enough."""
    first = results[0]
    n_targets = max(first.targets, min(first.targets * len(results), n_records))
    controls = [result.control for result in results if result.control is not None]
    return Risk(
        first.attack,
        share([result.rate for result in results], n_targets),
        float(np.mean([result.baseline for result in results])),
        first.targets,
        WORDS[first.attack].meaning,
        share(controls, first.outside) if controls else None,
        first.attribute,
        knows,
    )
