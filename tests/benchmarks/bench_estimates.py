"""Seconds of a processor that calls of `release.estimates` take for 30,000 records of eleven attributes."""

import tempfile
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from common.analysis.noisy_counts import NoisyCounts
from common.analysis.replicates import N_REPLICATES, analysed
from common.analysis.synthetic import SyntheticEstimates
from common.model.together import modelled, released_units, to_codes
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.own_table import synthesise_together
from tests.benchmarks.result import Result
from tests.fakes.masked_releases import draws, plan_of
from tests.papers.synthetic import DELTA
from tests.papers.synthetic_cohort import cohort

N_RECORDS = 30_000
CALL, ANALYSIS = 5.0, 60.0
"""Seconds that somebody who asks waits at most."""
THREE = ["age", "male", "decile"]
SIX = [*THREE, "kappa", "lambda", "mgus"]
_Ask: TypeAlias = Callable[[Any], object]
CALLS: dict[str, _Ask] = {
    "means of all": lambda of: of.means(),
    "shares": lambda of: of.shares("cause"),
    "quantiles": lambda of: of.quantiles("days"),
    "crosstab": lambda of: of.crosstab("kappa", "cause"),
    "correlations of all": lambda of: of.correlations(),
    "regress, a factor among three": lambda of: of.regress("age", ["kappa", "male", "cause"]),
    "logistic, three": lambda of: of.logistic("death", THREE),
    "logistic, an interaction": lambda of: of.logistic("death", ["decile", "age*male"]),
    "cox, three": lambda of: of.cox("days", "death", THREE),
    "cox, an interaction": lambda of: of.cox("days", "death", ["decile", "age*male"]),
    "cox, six": lambda of: of.cox("days", "death", SIX),
    "survival by groups": lambda of: of.survival("days", "death", by="mgus"),
}

MASKED = ("means of all", "shares", "quantiles", "correlations of all", "logistic, three")
"""Calls that a masked release is asked, too."""


def run() -> Iterable[Result]:
    """Measure every call on a release that nothing was asked of before, and an analysis."""
    attributes, columns = cohort()
    rows = np.random.default_rng(1).integers(0, columns[0].size, N_RECORDS)
    values = {each.name: own[rows] for each, own in zip(attributes, columns, strict=True)}
    counted = modelled(attributes, [("days", "death"), ("age", "male")])
    design = Design(counted, N_RECORDS, Decimal(2), Decimal(DELTA))
    made = synthesise_together(design, [to_codes(counted, values)], [SystemBits()])
    released = pd.DataFrame(released_units(counted, made.codes))

    def analyse(of: SyntheticEstimates) -> object:
        names = [*THREE, "days", "death"]
        tables = (
            pd.DataFrame(each) for each, _ in zip(of.tables(names), range(N_REPLICATES + 1), strict=False)
        )
        return analysed(_slope, released[names], tables, N_REPLICATES, 0.95, lambda *_: None)

    calls = [(name, ask, CALL) for name, ask in CALLS.items()]
    for name, ask, limit in [*calls, (f"analyse, {N_REPLICATES} replicates", analyse, ANALYSIS)]:
        yield _timed(name, ask, SyntheticEstimates(NoisyCounts(made.measured), made.codes), limit)
    plan = plan_of(attributes, N_RECORDS, "4", rank_noise=["0.03"])
    with tempfile.TemporaryDirectory() as folder:
        for name, release in zip(MASKED, draws(Path(folder), plan, values, len(MASKED)), strict=True):
            yield _timed(f"masked, {name}", CALLS[name], release.estimates, CALL)


def _timed(name: str, ask: _Ask, estimates: object, limit: float) -> Result:
    began = time.process_time()
    ask(estimates)
    seconds = time.process_time() - began
    return Result(f"estimates, {name} / {limit:.0f} s", seconds / limit, 1.0, f"{seconds:.1f} s")


def _slope(table: pd.DataFrame) -> dict[str, float]:
    return {"slope": float(np.polyfit(table["age"], table["days"], 1)[0])}
