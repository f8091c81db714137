"""A sweep over epsilon, k and mechanism: attributes are sorted once, settings run in parallel threads."""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import numpy as np

from common.errors import UnusableDataError, UsageError
from common.model.schema import Schema
from common.planning.arguments import RankNoise
from common.progress import StepStoppedError
from owner_node.explore.advice import MOST_EXCESS, USEFUL, advise, most_protective
from owner_node.explore.assessment import (
    ALL_MEASURES,
    CHOSEN,
    F_MEASURE,
    PMSE,
    Assessment,
    Cell,
    Grid,
    Outputs,
    assess,
    attacked,
    plan_cell,
    result_of,
    subject_of,
)
from owner_node.explore.models import check_installed, in_own_threads
from owner_node.explore.results import CellResult, Results, ShownCell
from owner_node.masking.arrays import BitSource, PositionArray
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.tasks import check_domain, check_setting
from owner_node.risk.attacks import ATTACKS
from owner_node.risk.distortion import distortions
from owner_node.risk.measures import distribution, mean_sse_of_means
from owner_node.risk.trials import DRAWS, AttackPlan, Randomness, knowledge_of
from owner_node.risk.utility import OriginalRecords, Utility, measure_errors, measures_errors_alone
from owner_node.values.taxonomy import Taxonomy

MOST_CLASSES = 50
_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, repr=False)
class ExploredTable:
    """The explored records. They are kept in memory only."""

    dataset: str
    schema: Schema
    """The attributes, in the order of the results."""
    records: MemoryEngine
    """The original records."""
    taxonomies: Mapping[str, Taxonomy]
    sampled_from: int | None = None
    """Number of records of which `records` are a random sample; None if they are all."""
    left_out: Mapping[str, Any] = field(default_factory=dict)
    """Counts of what loading left out (`LoadCounts.left_out`)."""


@dataclass(frozen=True, slots=True)
class ExploreRequest:
    """The requested results, by names of attributes; `assessment.Wanted` has their numbers."""

    grid: Grid
    repetitions: int = 5
    deep_repetitions: int = DRAWS
    measures: tuple[str, ...] = ALL_MEASURES
    """Beside the mean SSE."""
    attacks: tuple[str, ...] = ATTACKS
    known: tuple[str, ...] = ()
    """Attributes that an intruder knows about everybody; empty for all."""
    class_attribute: str | None = None
    thorough: bool = True
    """True to attack all settings, in all draws. Else only useful ones are attacked, or without any the one
    with the smallest error, and one draw suffices where it shows that a setting is not safe enough."""


Progress = Callable[[int, int], None]
"""Called often with the number of finished settings and of all; what it raises ends the sweep."""
INTERRUPTED = "the exploration was interrupted before it was tried"
"""The problem of settings that were not assessed before Ctrl-C."""


def explore(
    table: ExploredTable,
    question: ExploreRequest,
    about: Mapping[str, Any],
    randomness: Randomness,
    progress: Progress,
    n_threads: int | None = None,
    show: Callable[[CellResult], None] = lambda _: None,
) -> Results:
    """Assess many settings of masking one table. Ctrl-C ends it; the settings that were assessed are kept.

    Args:
        about: Further entries of the results: time and version.
        progress: Called after every setting, and every second.
        n_threads: Settings assessed in parallel; None for one per processor. Results are reproducible only
            with a seed and one thread.
        show: Called with the result of a setting once it is assessed.

    Raises:
        KeyboardInterrupt: If it ended before any setting was assessed.
        UsageError: If an attribute does not exist or cannot be a class, if scikit-learn is needed and not
            installed, if no setting is possible, if there is only one record, or if no attribute varies.
    """
    wanted = _wanted_results(table, question)
    RankNoise(by_attribute=question.grid.own_rank_noises).check_names(table.schema.names)
    cells = [plan_cell(setting, table.schema, table.taxonomies) for setting in question.grid.settings()]
    _check_any(cells)
    for attribute in table.schema.attributes:
        check_domain(table.records.columns[attribute.name], attribute)
    # Everything is sorted once, as for the first possible setting.
    planned = next(cell for cell in cells if not cell.problem)
    needed = [max(task.k or 1 for task in cell.tasks) for cell in cells if not cell.problem]
    subject = subject_of(table.records.columns, planned.tasks, wanted, randomness, min(needed))
    of_means = mean_sse_of_means([attribute.scale for attribute in subject.whole.attributes])
    if not of_means:
        raise UsageError(
            "every attribute has the same value in all records: there is nothing to explore",
            "choose other attributes (--attributes)",
        )
    n_records = subject.whole.n_records
    n_fewest = n_records if subject.people is None else subject.people.members.n_records
    cells = [_check_cell(cell, n_records, n_fewest) for cell in cells]
    _check_any(cells)
    if not question.thorough:
        subject = replace(subject, most_error=USEFUL * of_means)
    done = {number: result_of(cell) for number, cell in enumerate(cells) if cell.problem}
    n_parallel = n_threads or os.cpu_count() or 1
    try:
        _assess_cells(cells, subject, randomness, progress, n_parallel, show, done)
        if subject.people is not None and not any(result.risks for result in done.values()):
            errors = {number: each.mean_sse.mean for number, each in done.items() if each.mean_sse}
            best = min(errors, key=errors.__getitem__)
            done[best] = attacked(done[best], cells[best], subject, randomness)
            show(done[best])
    except KeyboardInterrupt:
        if not any(result.mean_sse for result in done.values()):
            raise
    results = [
        done.get(number, replace(result_of(cell), problem=INTERRUPTED)) for number, cell in enumerate(cells)
    ]
    advice = advise(results, of_means)
    chosen = advice.cell if advice.cell is not None else most_protective(results, of_means)
    return Results(
        _about(table, question, about, n_records - n_fewest) | {"mean_sse_of_means": of_means},
        results,
        _show(chosen, cells[chosen], subject.whole, randomness.bits),
        advice,
    )


def check_question(question: ExploreRequest) -> None:
    """Check a request before the data are loaded.

    Raises:
        UsageError: If models are requested and scikit-learn is not installed.
    """
    if PMSE in question.measures or (F_MEASURE in question.measures and question.class_attribute is not None):
        check_installed()


def check_known(table: ExploredTable, known: Sequence[str]) -> None:
    """Check what an intruder is said to know."""
    _numbers(table.schema.names, known)


def _wanted_results(table: ExploredTable, question: ExploreRequest) -> Outputs:
    names = table.schema.names
    known = _numbers(names, question.known or names)
    intruders = knowledge_of(names, question.known)
    measures = question.measures
    number = None
    if question.class_attribute is not None:
        number = int(_numbers(names, (question.class_attribute,))[0])
        n_values = table.schema.attributes[number].n_values
        why = f"it can have {n_values} values" if n_values > MOST_CLASSES else "there is no other attribute"
        if n_values > MOST_CLASSES or len(names) < 2:
            raise UsageError(
                f"attribute {question.class_attribute!r} cannot be a class: {why}",
                f"choose one with at most {MOST_CLASSES}, and at least one other attribute",
            )
    else:
        measures = tuple(name for name in measures if name != F_MEASURE)
    check_question(question)
    unknown = np.setdiff1d(np.arange(len(names)), known)
    return Outputs(
        question.repetitions,
        question.deep_repetitions,
        measures,
        AttackPlan(
            question.attacks,
            intruders,
            unknown if unknown.size else known,
            question.deep_repetitions,
            1.0 if question.thorough else MOST_EXCESS,
        ),
        number,
    )


def _numbers(names: Sequence[str], chosen: Sequence[str]) -> PositionArray:
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise UsageError(f"no attribute {', '.join(map(repr, unknown))}", f"accepted: {', '.join(names)}")
    return np.array([names.index(name) for name in chosen], dtype=np.int64)


def _check_any(cells: Sequence[Cell]) -> None:
    """Refuse a grid without any possible setting."""
    if any(not cell.problem for cell in cells):
        return
    problems = sorted({cell.problem for cell in cells if cell.problem})
    raise UsageError(
        "; ".join(("no setting here can be made of these data", *problems)),
        "--k auto or another --k, another --mechanism, other --attributes, a larger --epsilon, "
        "or more records",
    )


def _check_cell(cell: Cell, n_records: int, n_fewest: int) -> Cell:
    """Return the cell, with a problem if all records, or those not left out, cannot be masked."""
    if cell.problem:
        return cell
    left_out = ""
    try:
        for task in cell.tasks:
            check_setting(n_records, task)
        left_out = (
            f"; {n_records - n_fewest} of {n_records} are left out for the attacks (--attacks none: none)"
        )
        for task in cell.tasks:
            check_setting(n_fewest, task)
    except (UsageError, UnusableDataError) as error:
        return Cell(cell.setting, problem=error.message + left_out)
    return cell


def _assess_cells(
    cells: Sequence[Cell],
    subject: Assessment,
    randomness: Randomness,
    progress: Progress,
    n_threads: int,
    show: Callable[[CellResult], None],
    results: dict[int, CellResult],
) -> None:
    """Assess every cell that has no result, several in parallel, and add the results by number."""
    wanted, stopped = subject.wanted, Event()
    choices = randomness.choices.spawn(len(cells))
    progress(len(results), len(cells))

    def check() -> None:
        if stopped.is_set():
            raise StepStoppedError

    def assess_cell(number: int, utility: Utility | None) -> CellResult:
        return assess(cells[number], subject, Randomness(randomness.bits, choices[number]), utility, check)

    def note(number: int, result: CellResult) -> None:
        results[number] = result
        show(result)
        progress(len(results), len(cells))

    with (
        in_own_threads() if PMSE in wanted.measures or subject.f_measures is not None else nullcontext(),
        ThreadPoolExecutor(n_threads, thread_name_prefix="explore") as threads,
    ):
        try:
            measured: dict[int, Utility] = {}
            rows = _rows(cells) if measures_errors_alone(wanted.measures) else []
            tasks = [[cells[number].tasks for number in row] for row in rows]
            errors = measure_errors(subject.whole, tasks, wanted.repetitions, randomness.bits, threads.map)
            for row, utilities in zip(rows, errors, strict=True):
                measured.update(zip(row, utilities, strict=True))
                if not wanted.measures and not wanted.aims.attacks:
                    for number in row:
                        note(number, assess_cell(number, measured[number]))
                else:
                    # So that it can be stopped between two rows.
                    progress(len(results), len(cells))
            running = {
                threads.submit(assess_cell, number, measured.get(number)): number
                for number in range(len(cells))
                if number not in results
            }
            while running:
                for done in wait(running, _CHECK_SECONDS, FIRST_COMPLETED).done:
                    note(running.pop(done), done.result())
                progress(len(results), len(cells))
        except BaseException:
            stopped.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _rows(cells: Sequence[Cell]) -> list[list[int]]:
    """Return the numbers of cells that differ in ε alone, so that their errors are measured together."""
    rows = defaultdict(list)
    for number, cell in enumerate(cells):
        if not cell.problem:
            rows[cell.setting.mechanism, cell.setting.rank_noise, cell.setting.k].append(number)
    return list(rows.values())


def _show(number: int, cell: Cell, whole: OriginalRecords, bits: BitSource) -> ShownCell:
    columns = [
        distribution(attribute.scale.attribute, attribute.original, masked)
        for attribute, masked in zip(whole.attributes, whole.masked(cell.tasks, bits), strict=True)
    ]
    return ShownCell(number, tuple(columns), tuple(distortions(whole, cell.tasks, bits)))


def _about(
    table: ExploredTable, question: ExploreRequest, about: Mapping[str, Any], n_outside: int
) -> dict[str, Any]:
    grid, attributes = question.grid, table.schema.attributes
    return {
        **about,
        "dataset": table.dataset,
        "records": table.records.n_records,
        "control_records": n_outside,
        "attributes": [
            {"name": attribute.name, "type": str(attribute.type), "values": attribute.n_values}
            for attribute in attributes
        ],
        "mechanisms": list(grid.mechanisms),
        "epsilons": [f"{epsilon:f}" for epsilon in grid.epsilons],
        "ks": [CHOSEN if k is None else str(k) for k in grid.ks],
        "rank_noises": [f"{noise:f}" for noise in grid.rank_noises],
        "own_rank_noises": {name: f"{noise:f}" for name, noise in grid.own_rank_noises},
        "repetitions": question.repetitions,
        "deep_repetitions": question.deep_repetitions,
        "attacked": "all" if question.thorough else "useful",
        "known": list(question.known or table.schema.names),
        "intruders": [intruder.words for intruder in knowledge_of(table.schema.names, question.known)],
        "class": question.class_attribute,
    }
