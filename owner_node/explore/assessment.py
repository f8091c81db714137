"""The grid of settings, and the assessment of one setting: measured, modelled and attacked.

Every setting masks all attributes as a release of one owner would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import inf
from typing import Any

import numpy as np

from common.check import Check, unchecked
from common.errors import UnusableDataError, UsageError
from common.model.mechanisms import rules_of
from common.model.plan import Layout
from common.model.privacy import NO_RANK_NOISE
from common.model.schema import Schema
from common.planning.arguments import RankNoise, ReleaseArguments
from common.planning.planner import make_plan
from owner_node.explore.models import Propensity, f_measures, propensity, split
from owner_node.explore.results import AttributeResult, CellResult, ClassResult
from owner_node.masking.arrays import Float64Array, Int64Array
from owner_node.masking.tasks import AttributeTask, mask_tasks
from owner_node.risk.trials import AttackPlan, Population, Randomness, people_of, risks_of, sorted_records
from owner_node.risk.utility import (
    CORRELATION,
    DIVERGENCE,
    MEASURES,
    RELATIVE_ERROR,
    SSE,
    UNCHANGED,
    VARIANCE,
    OriginalRecords,
    Utility,
    estimate,
    measure,
    without_noise,
)
from owner_node.values.taxonomy import Taxonomy

CHOSEN = "auto"
"""Text for a k that is chosen for every attribute."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All explored settings."""

    epsilons: tuple[Decimal, ...]
    """Budgets for all attributes together."""
    ks: tuple[int | None, ...]
    """Minimum cluster sizes; None to choose one for every attribute."""
    mechanisms: tuple[str, ...]
    rank_noises: tuple[Decimal, ...] = (NO_RANK_NOISE,)
    """Scales of rank noise, as shares of the ranks."""
    own_rank_noises: tuple[tuple[str, Decimal], ...] = ()
    """Attributes with their own rank noise, the same in every setting."""

    def settings(self) -> list["GridSetting"]:
        """Return every setting once: arguments that a mechanism does not take are not varied."""
        return [
            GridSetting(mechanism, epsilon, k, noise, self.own_rank_noises if rules.listed else ())
            for mechanism, rules in ((name, rules_of(name)) for name in self.mechanisms)
            for noise in (self.rank_noises if rules.listed else (NO_RANK_NOISE,))
            for k in (self.ks if rules.clustered else (None,))
            for epsilon in self.epsilons
        ]


@dataclass(frozen=True, slots=True)
class GridSetting:
    """One cell of the grid."""

    mechanism: str
    epsilon: Decimal
    """For all attributes together."""
    k: int | None
    """Minimum cluster size; None to choose one for every attribute, or for a mechanism without clusters."""
    rank_noise: Decimal = NO_RANK_NOISE
    """Scale of rank noise, as a share of the ranks."""
    own_rank_noises: tuple[tuple[str, Decimal], ...] = ()
    """Attributes with their own rank noise."""

    @property
    def k_text(self) -> str | None:
        """The minimum cluster size as the results name it."""
        if not rules_of(self.mechanism).clustered:
            return None
        return CHOSEN if self.k is None else str(self.k)


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting, and how it masks each attribute."""

    setting: GridSetting
    tasks: tuple[AttributeTask, ...] = ()
    """How every attribute is masked; empty if there is a problem."""
    epsilon_joint: Decimal | None = None
    """The bound on whole lists; None if there is none."""
    epsilon_table: Decimal | None = None
    """The bound on lists and on the assignment of records to their values; None if there is none."""
    problem: str | None = None
    """Why these data cannot be masked with this setting."""


def plan_cell(setting: GridSetting, schema: Schema, taxonomies: Mapping[str, Taxonomy]) -> Cell:
    """Plan one cell, from the same public numbers that a release would be planned from.

    Args:
        schema: The attributes that would be released, and the rounded number of records.
    """
    arguments = ReleaseArguments(
        release="explore", dataset="data", layout=Layout.HORIZONTAL, groups=(("owner",),),
        epsilon=setting.epsilon, k=setting.k, mechanism=setting.mechanism,
        rank_noise=RankNoise(setting.rank_noise, setting.own_rank_noises),
    )  # fmt: skip
    try:
        # What the data set states is for plans: here every rank noise is tried.
        plan = make_plan(
            arguments, {"owner": replace(schema, rank_noise=None)}, aggregator="local", created="", version=""
        )
    except (UsageError, UnusableDataError) as error:
        return Cell(setting, problem=error.message)
    (task,) = plan.tasks
    return Cell(
        setting, mask_tasks(plan, task.attributes, taxonomies), plan.epsilon_joint, plan.epsilon_table
    )


PMSE, F_MEASURE = "pmse", "f-measure"
ALL_MEASURES = (*MEASURES, PMSE, F_MEASURE)
"""Optional measures; the mean SSE is always computed."""
MOST_MODELLED = 10_000
"""Records that models are trained on and compared with."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The requested results for each setting."""

    repetitions: int
    """Draws that measures are averaged over."""
    deep_repetitions: int
    """Draws that models are trained on."""
    measures: tuple[str, ...]
    """Of `ALL_MEASURES`."""
    aims: AttackPlan
    """What is attacked."""
    class_number: int | None = None
    """Number of the class attribute of the F-measure."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The records, with everything that all settings share."""

    whole: OriginalRecords
    """All records."""
    people: Population | None
    """The people of the attacked releases; None without attacks."""
    f_measures: Float64Array | None
    """F-measures of a model of the original records, `(n_classes,)`; None without a class attribute."""
    wanted: Outputs
    most_error: float = inf
    """Largest mean SSE of settings that are attacked."""


def subject_of(
    columns: Mapping[str, Int64Array],
    tasks: Sequence[AttributeTask],
    wanted: Outputs,
    randomness: Randomness,
    fewest_members: int,
) -> Assessment:
    """Sort all attributes once, and once more without the people who are left out for the attacks.

    Args:
        columns: Original values by attribute, `(n_records,)` each, in resolution units.
        tasks: Tasks of any one setting.

    Raises:
        UsageError: If there are too few records to leave one out.
    """
    n_records = columns[tasks[0].attribute.name].size
    if n_records < 2:
        raise UsageError(f"{n_records} record is too little to be explored", "explore more records")
    whole = sorted_records(columns, tasks, randomness.bits)
    seed, originals = int(randomness.choices.integers(2**31)), None
    if wanted.class_number is not None and F_MEASURE in wanted.measures:
        originals = _f_measures(whole, whole.places, wanted, seed)
    people = people_of(columns, tasks, randomness, fewest_members) if wanted.aims.attacks else None
    return Assessment(whole, people, originals, wanted)


def assess(
    cell: Cell,
    subject: Assessment,
    randomness: Randomness,
    utility: Utility | None = None,
    check: Check = unchecked,
) -> CellResult:
    """Mask with one setting several times, then measure and model the results, and attack useful ones.

    Args:
        utility: The measures, if they are known already.
    """
    check()
    if utility is None:
        wanted = subject.wanted
        utility = measure(subject.whole, cell.tasks, wanted.repetitions, wanted.measures, randomness.bits)
    mean_sse = utility.mean_sse()
    result = replace(
        result_of(cell),
        mean_sse=mean_sse,
        mean_sse_without_noise=without_noise(subject.whole, cell.tasks),
        relative_error=utility.overall(RELATIVE_ERROR),
        variance_change=utility.overall(VARIANCE),
        divergence=utility.overall(DIVERGENCE),
        correlation_error=utility.overall(CORRELATION),
        attributes=tuple(
            AttributeResult(
                task.attribute.name,
                task.mechanism,
                task.k,
                f"{task.epsilon:f}",
                *(
                    utility.of_attribute(name, n)
                    for name in (SSE, UNCHANGED, RELATIVE_ERROR, VARIANCE, DIVERGENCE)
                ),
            )
            for n, task in enumerate(cell.tasks)
        ),
        **_model_results(cell, subject, randomness, check),
    )
    useful = mean_sse is not None and mean_sse.mean <= subject.most_error
    return attacked(result, cell, subject, randomness, check) if useful else result


def attacked(
    result: CellResult, cell: Cell, subject: Assessment, randomness: Randomness, check: Check = unchecked
) -> CellResult:
    """Return the result of a cell with what attacks find, if any are requested."""
    if subject.people is None:
        return result
    return replace(result, risks=risks_of(cell.tasks, subject.people, subject.wanted.aims, randomness, check))


def result_of(cell: Cell) -> CellResult:
    """Return the result of a cell before anything is measured."""
    setting = cell.setting
    return CellResult(
        setting.mechanism,
        f"{setting.epsilon:f}",
        setting.k_text,
        f"{setting.rank_noise:f}",
        None if cell.epsilon_joint is None else f"{cell.epsilon_joint:f}",
        None if cell.epsilon_table is None else f"{cell.epsilon_table:f}",
        cell.problem,
    )


# --- models --------------------------------------------------------------------------------------------


def _model_results(cell: Cell, subject: Assessment, randomness: Randomness, check: Check) -> dict[str, Any]:
    """Return the fields of a result that come from models."""
    whole, wanted = subject.whole, subject.wanted
    wants_pmse = PMSE in wanted.measures
    if not wants_pmse and subject.f_measures is None:
        return {}
    scores: list[Propensity] = []
    recognised: list[Float64Array] = []
    for _ in range(wanted.deep_repetitions):
        check()
        masked = whole.places_of(whole.masked(cell.tasks, randomness.bits))
        seed = int(randomness.choices.integers(2**31))
        if wants_pmse:
            some = np.arange(whole.n_records)
            if some.size > MOST_MODELLED:
                some = np.sort(randomness.choices.choice(some.size, MOST_MODELLED, replace=False))
            scores.append(propensity(whole.places[some], masked[some]))
        if subject.f_measures is not None:
            recognised.append(_f_measures(whole, masked, wanted, seed))
    return {
        "pmse": estimate([score.pmse for score in scores]),
        "pmse_ratio": estimate([score.ratio for score in scores]),
        "f_measure": None
        if subject.f_measures is None
        else _by_class(subject, subject.f_measures, recognised),
    }


def _by_class(
    subject: Assessment, originals: Float64Array, recognised: Sequence[Float64Array]
) -> tuple[ClassResult, ...]:
    attribute = subject.whole.attributes[subject.wanted.class_number or 0].scale.attribute
    labels = map(attribute.text, range(attribute.lower, attribute.highest + 1))
    by_class = zip(labels, zip(*recognised, strict=True), originals, strict=True)
    return tuple(
        ClassResult(label, estimate([float(rate) for rate in masked], 1.0), float(original))
        for label, masked, original in by_class
    )


def _f_measures(whole: OriginalRecords, masked: Float64Array, wanted: Outputs, seed: int) -> Float64Array:
    """Train on the first masked records, and test on the original records after them."""
    number = wanted.class_number or 0
    n_training = split(whole.n_records)
    training = masked[:n_training][:MOST_MODELLED]
    test = whole.places[n_training:][:MOST_MODELLED]
    scale = whole.attributes[number].scale
    class_at = np.arange(scale.attribute.n_values)
    if scale.place_of is not None:
        class_at = np.argsort(scale.place_of)
    inputs = np.delete(np.arange(masked.shape[1]), number)
    classes = [class_at[rows[:, number].astype(np.int64)] for rows in (training, test)]
    return f_measures(
        (training[:, inputs], classes[0]), (test[:, inputs], classes[1]), class_at.size, seed=seed
    )
