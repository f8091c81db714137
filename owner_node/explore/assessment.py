"""One setting looked at from all sides: measured, modelled, attacked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from owner_node.explore.attacks import MEANINGS, Ascending, Crowd, Finding, Intruder, Release, attack
from owner_node.explore.cells import Cell
from owner_node.explore.estimates import estimate, share
from owner_node.explore.models import Propensity, f_measures, propensity, split
from owner_node.explore.results import AttributeResult, CellResult, ClassResult, Risk
from owner_node.explore.utility import (
    CORRELATION,
    DIVERGENCE,
    MEASURES,
    RELATIVE_ERROR,
    VARIANCE,
    Originals,
    Utility,
    measure,
    without_noise,
)
from owner_node.masking.arrays import Float64Array, Int64Array, PositionArray
from owner_node.masking.bits import BitSource
from owner_node.masking.histogram import HistogramMechanism
from owner_node.masking.mechanisms import SumMechanism
from owner_node.masking.tasks import AttributeTask, mechanism_of

PMSE, F_MEASURE = "pmse", "f-measure"
ALL_MEASURES = (*MEASURES, PMSE, F_MEASURE)
"""What can be asked for beside the mean SSE, which is always there."""
MOST_TARGETS = 1000
MOST_PERSONS = 300
"""Records that are looked for by likelihood, and whose values are inferred: both take longer."""
MOST_MODELLED = 10_000
"""Records that models are trained on and compared with, unless another number is asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be found out about each setting."""

    repetitions: int
    """Draws that measures are averaged over."""
    deep_repetitions: int
    """Draws that models and attacks are averaged over."""
    measures: tuple[str, ...]
    """Of `ALL_MEASURES`."""
    attacks: tuple[str, ...]
    """Of `attacks.ATTACKS`."""
    known: PositionArray
    """Numbers of the attributes that an intruder knows of everybody."""
    inferred: PositionArray
    """Numbers of the attributes that it wants to know."""
    class_number: int | None = None
    """Number of the class attribute of the F-measure."""
    most_modelled: int = MOST_MODELLED
    """Records that models are trained on and compared with."""

    @property
    def is_deep(self) -> bool:
        """Whether anything is wanted beside the mean SSE."""
        return bool(self.measures or self.attacks)


@dataclass(frozen=True, slots=True)
class Randomness:
    """Where the random choices about one setting come from."""

    bits: BitSource
    """Bits of the noise."""
    choices: np.random.Generator
    """Which records are looked at, and what models choose."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """How well each class is recognised by a model of the original records, and what it was trained on."""

    labels: tuple[str, ...]
    """The classes."""
    original: Float64Array
    """F-measures, `(n_classes,)`."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything that settings are looked at with."""

    whole: Originals
    """All records."""
    members: Originals | None
    """The records of the releases that are attacked; None if none is."""
    crowd: Crowd | None
    """The same, and the people who were left out of them."""
    classes: Baseline | None
    """The classes; None without a class attribute."""
    wanted: Wanted
    """What is to be found out."""


def assess(cell: Cell, subject: Subject, randomness: Randomness, found: Utility | None = None) -> CellResult:
    """Mask with one setting several times, and measure, model and attack what comes out.

    Args:
        cell: The setting; without a problem.
        subject: The records and what is wanted.
        randomness: Where noise and choices come from.
        found: What is measured, if it was before.
    """
    setting, wanted, bits = cell.setting, subject.wanted, randomness.bits
    if found is None:
        found = measure(subject.whole, cell.tasks, wanted.repetitions, wanted.measures, bits)
    return CellResult(
        setting.mechanism,
        f"{setting.epsilon:f}",
        setting.k_text,
        f"{setting.rank_noise:f}",
        None if cell.epsilon_joint is None else f"{cell.epsilon_joint:f}",
        None if cell.epsilon_table is None else f"{cell.epsilon_table:f}",
        mean_sse=found.mean_sse(),
        mean_sse_without_noise=without_noise(subject.whole, cell.tasks),
        relative_error=found.overall(RELATIVE_ERROR),
        variance_change=found.overall(VARIANCE),
        divergence=found.overall(DIVERGENCE),
        correlation_error=found.correlation() if CORRELATION in wanted.measures else None,
        attributes=_attributes(cell, found),
        risks=risks_of(cell.tasks, subject, randomness),
        **_modelled(cell, subject, randomness),
    )


def _attributes(cell: Cell, found: Utility) -> tuple[AttributeResult, ...]:
    return tuple(
        AttributeResult(
            task.attribute.name,
            task.mechanism,
            task.k,
            f"{task.epsilon:f}",
            found.sse_of(number),
            found.unchanged_of(number),
            found.of_attribute(RELATIVE_ERROR, number),
            found.of_attribute(VARIANCE, number),
            found.of_attribute(DIVERGENCE, number),
        )
        for number, task in enumerate(cell.tasks)
    )


# --- models --------------------------------------------------------------------------------------------


def baseline_of(whole: Originals, wanted: Wanted, seed: int) -> Baseline | None:
    """Train a model on the original records, to compare others with; None without a class attribute."""
    number = wanted.class_number
    if number is None or F_MEASURE not in wanted.measures:
        return None
    attribute = whole.attributes[number].scale.attribute
    labels = attribute.categories or tuple(
        ("false", "true")
        if attribute.is_categorical
        else map(attribute.text, range(attribute.lower, attribute.upper + 1))
    )
    return Baseline(labels, _f_measures(whole, whole.places, wanted, seed))


def _modelled(cell: Cell, subject: Subject, randomness: Randomness) -> dict[str, Any]:
    wanted, classes = subject.wanted, subject.classes
    wants_pmse = PMSE in wanted.measures
    if not wants_pmse and classes is None:
        return {}
    told: list[Propensity] = []
    recognised: list[Float64Array] = []
    for _ in range(wanted.deep_repetitions):
        masked = subject.whole.placed(subject.whole.masked(cell.tasks, randomness.bits))
        seed = int(randomness.choices.integers(2**31))
        if wants_pmse:
            some = _some(subject.whole.n_records, wanted.most_modelled, randomness.choices)
            told.append(propensity(subject.whole.places[some], masked[some]))
        if classes is not None:
            recognised.append(_f_measures(subject.whole, masked, wanted, seed))
    return {
        "pmse": estimate([each.pmse for each in told]),
        "pmse_ratio": estimate([each.ratio for each in told]),
        "f_measure": None if classes is None else _by_class(classes, recognised),
    }


def _by_class(classes: Baseline, recognised: Sequence[Float64Array]) -> tuple[ClassResult, ...]:
    return tuple(
        ClassResult(label, estimate([float(each[number]) for each in recognised], 1.0), float(original))
        for number, (label, original) in enumerate(zip(classes.labels, classes.original, strict=True))
    )


def _f_measures(whole: Originals, masked: Float64Array, wanted: Wanted, seed: int) -> Float64Array:
    """Train on the first masked records, and test on the original ones that come after them."""
    number = wanted.class_number or 0
    n_training = split(whole.n_records)
    training = masked[:n_training][: wanted.most_modelled]
    test = whole.places[n_training:][: wanted.most_modelled]
    scale = whole.attributes[number].scale
    class_at = np.arange(scale.attribute.n_values)
    if scale.place_of is not None:
        class_at = np.argsort(scale.place_of)
    inputs = np.delete(np.arange(masked.shape[1]), number)
    classes = [class_at[rows[:, number].astype(np.int64)] for rows in (training, test)]
    return f_measures(
        (training[:, inputs], classes[0]), (test[:, inputs], classes[1]), class_at.size, seed=seed
    )


def _some(n_records: int, most: int, choices: np.random.Generator) -> PositionArray:
    """Choose records at random, in their order; all if they are few enough."""
    if n_records <= most:
        return np.arange(n_records)
    return np.sort(choices.choice(n_records, most, replace=False))


# --- attacks -------------------------------------------------------------------------------------------


def risks_of(tasks: Sequence[AttributeTask], subject: Subject, randomness: Randomness) -> tuple[Risk, ...]:
    """Mask the people who were not left out, several times, and attack what comes out.

    Args:
        tasks: How each attribute is masked.
        subject: The records and what is wanted.
        randomness: Where noise and choices come from.
    """
    members, crowd, wanted = subject.members, subject.crowd, subject.wanted
    if members is None or crowd is None:
        return ()
    draws = []
    for _ in range(wanted.deep_repetitions):
        columns = members.masked(tasks, randomness.bits)
        release = Release(
            columns, members.placed(columns), tuple(task.k for task in tasks), tuple(map(_carrier, tasks))
        )
        everybody = randomness.choices.permutation(members.n_records)
        targets, others = everybody[:MOST_TARGETS], randomness.choices.permutation(members.n_records)
        intruder = Intruder(wanted.known, wanted.inferred, targets, targets[:MOST_PERSONS], others)
        draws.append(attack(wanted.attacks, crowd, release, intruder))
    return tuple(_risk(found) for found in zip(*draws, strict=True))


def _carrier(task: AttributeTask) -> Ascending | None:
    """Return how a task's released values ascend with ranks, as only some mechanisms make sure they do."""
    mechanism = mechanism_of(task)
    counted = isinstance(mechanism, HistogramMechanism)
    if not counted and not (isinstance(mechanism, SumMechanism) and mechanism.monotone):
        return None
    as_declared = counted and task.taxonomy is None and task.attribute.by_frequency
    return Ascending(task.rank_noise, as_declared)


def _risk(found: Sequence[Finding]) -> Risk:
    """Put what one attack found in all draws together."""
    first = found[0]
    controls = [each.control for each in found if each.control is not None]
    return Risk(
        first.attack,
        share([each.rate for each in found], first.targets),
        float(np.mean([each.baseline for each in found])),
        first.targets,
        MEANINGS[first.attack],
        share(controls, first.outside) if controls else None,
        first.attribute,
    )


def crowd_of(members: Originals, outside: Sequence[Int64Array]) -> Crowd:
    """Prepare attacks on releases of some records; `outside`: values by attribute of those left out."""
    scales = [each.scale for each in members.attributes]
    return Crowd.of(scales, [each.original for each in members.attributes], outside)
