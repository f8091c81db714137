"""All experiments by name, run beside each other: one to a processor."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

from tests.papers import (
    carriers,
    classification,
    compared,
    comparison,
    conclusions,
    fragmented,
    hazards,
    interactive,
    linking,
    related,
    relative,
    relative_adult,
    risk,
    scales,
    spikes,
    synthetic,
    synthetic_cohort,
    synthetic_events,
    synthetic_intervals,
    synthetic_intruders,
    target,
    trial,
    wide_domains,
)

SEED = 1
Experiment: TypeAlias = Callable[[Path, Path, int], dict[str, str]]
Made: TypeAlias = tuple[str, dict[str, str], float]
"""Name of an experiment, its tables by name, and the seconds that it took."""

EXPERIMENTS: dict[str, tuple[int, Experiment]] = {
    "risk_adult_owners": (10, partial(risk.run, name="adult of four owners", seed=SEED)),
    "risk_adult": (10, partial(risk.run, name="adult", seed=SEED)),
    "risk_wine": (10, partial(risk.run, name="wine", seed=SEED)),
    "risk_census": (10, partial(risk.run, name="census", seed=SEED)),
    **{f"risk_target_{name}": (5, partial(target.run, name=name, seed=SEED)) for name in target.READERS},
    "risk_linking_census": (10, partial(linking.run, name="census", seed=SEED)),
    "risk_linking_wine": (1, partial(linking.run, name="wine", seed=SEED)),
    "risk_related": (20, partial(related.run, seed=SEED)),
    "risk_scales": (10, partial(scales.run, seed=SEED)),
    "classification": (10, classification.run),
    "fragmented": (50, partial(fragmented.run, seed=SEED)),
    "compared": (10, compared.run),
    "relative": (10, partial(relative.run, seed=SEED)),
    "relative_adult": (10, partial(relative_adult.run, seed=SEED)),
    "carriers": (12, partial(carriers.run, seed=SEED)),
    "spikes": (50, spikes.run),
    **{f"synthetic_{name}": (5, partial(synthetic.run, name=name, seed=SEED)) for name in synthetic.READERS},
    **{
        f"conclusions_{name}_{made}": (100, partial(conclusions.run, name=name, made=made))
        for name in conclusions.READERS
        for made in conclusions.PRODUCTS
    },
    **{f"conclusions_{name}": (20, partial(hazards.run, name=name)) for name in hazards.COHORTS},
    "conclusions_trial": (40, trial.run),
    "wide_domains": (100, wide_domains.run),
    "synthetic_cohort": (5, synthetic_cohort.run),
    "synthetic_events": (5, synthetic_events.run),
    "synthetic_intervals": (10, synthetic_intervals.run),
    "synthetic_intruders": (3, partial(synthetic_intruders.run, seed=SEED)),
    **{
        f"comparison_{name}": (3, partial(comparison.run, name=name, seed=SEED))
        for name in comparison.READERS
    },
    "interactive": (200, partial(interactive.run, seed=SEED)),
}
"""By name: the paper's number of runs, or ours where there is no paper, and what makes it; the longest first,
so that none of them is waited for alone."""


def named(name: str) -> list[str]:
    """Return the experiments of a name, or whose names begin with it and an underscore."""
    return [each for each in EXPERIMENTS if each == name or each.startswith(f"{name}_")]


def experiments(names: Sequence[str], data: Path, out: Path, runs: int | None) -> Iterator[Made]:
    """Yield every experiment as it ends; each is made in a process of its own.

    Args:
        names: Some of `EXPERIMENTS`.
        data: Folder with the published CSV files.
        out: Where figures and CSV files go.
        runs: Runs of every setting; None for each experiment's own number.

    Raises:
        TesseraError: If a data set is not there, or not as published.
    """
    ordered = [name for name in EXPERIMENTS if name in names]
    # Not forked: libraries that run threads do not survive it.
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as processes:
        running = [processes.submit(_made, name, data, out, runs) for name in ordered]
        try:
            for done in as_completed(running):
                yield done.result()
        finally:
            processes.shutdown(cancel_futures=True)


def _made(name: str, data: Path, out: Path, runs: int | None) -> Made:
    usual, experiment = EXPERIMENTS[name]
    began = time.monotonic()
    n_runs = runs or usual
    tables = experiment(data, out / name, n_runs)
    command = f"`python -m tests.papers --only {name} --runs {n_runs} --data DIR`"
    captioned = {each: f"{command}\n\n{table.strip()}" for each, table in tables.items()}
    return name, captioned, time.monotonic() - began
