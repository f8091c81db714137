"""How often intervals of hazard ratios and of survival hold the originals: tables of docs/analysis.md.

One cohort is flchain, with the highest decile of free light chains as an attribute. The other one is of
100,000 simulated persons: log hazard ratios are 0.04 for a year, 0.5 for men and -0.3 for the treated. One
owner counts time and death as one. Widths are beside those that the original records have for whom they are
a sample of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
from sksurv.nonparametric import kaplan_meier_estimator

from common.analysis.hazards import plain_cox_fit
from common.analysis.noisy_counts import NoisyCounts
from common.analysis.synthetic import SyntheticEstimates
from common.arrays import BoolArray, Float64Array, Int64Array
from common.model.schema import Attribute, AttributeType
from common.model.together import modelled, to_codes
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.own_table import synthesise_together
from tests.papers.synthetic import DELTA
from tests.papers.synthetic_cohort import cohort
from tests.papers.tables import Numbers

HEADS = ("release", "HR of a year", "HR of men", "HR of the third", "survival", "survival by sex")
N_SIMULATED = 100_000
_REACH = 1.96


@dataclass(frozen=True, slots=True)
class Cohort:
    """Persons, and what is asked of their releases."""

    attributes: tuple[Attribute, ...]
    columns: dict[str, Int64Array]
    """In units, `(n_records,)` by attribute."""
    regressors: tuple[str, str, str]
    times: tuple[float, float]
    epsilons: tuple[str, ...]


def flchain() -> Cohort:
    """Return flchain."""
    attributes, columns = cohort()
    values = {each.name: column for each, column in zip(attributes, columns, strict=True)}
    values["top"] = (values.pop("decile") == 10).astype(np.int64)
    top = Attribute("top", AttributeType.BOOLEAN, 0, 1)
    own = tuple(top if each.name == "decile" else each for each in attributes)
    return Cohort(own, values, ("age", "male", "top"), (1825.0, 3650.0), ("1", "2", "4"))


def simulated() -> Cohort:
    """Return simulated persons, followed for 1,000 to 3,600 days."""
    draw = np.random.default_rng(51)
    age, male, treated = draw.integers(40, 90, N_SIMULATED), *draw.integers(0, 2, (2, N_SIMULATED))
    dies = draw.exponential(5000 * np.exp(-0.04 * (age - 65) - 0.5 * male + 0.3 * treated))
    ends = draw.uniform(1000, 3600, N_SIMULATED)
    days = np.floor(np.minimum(dies, ends)).astype(np.int64)
    columns = {
        Attribute("age", AttributeType.INTEGER, 40, 89): age,
        Attribute("male", AttributeType.BOOLEAN, 0, 1): male,
        Attribute("treated", AttributeType.BOOLEAN, 0, 1): treated,
        Attribute("days", AttributeType.INTEGER, 0, 3599): days,
        Attribute("death", AttributeType.BOOLEAN, 0, 1): (dies < ends).astype(np.int64),
    }
    values = {each.name: column for each, column in columns.items()}
    return Cohort(tuple(columns), values, ("age", "male", "treated"), (1000.0, 2000.0), ("1",))


COHORTS = {"hazards": flchain, "simulated": simulated}


@dataclass(frozen=True, slots=True)
class Truth:
    """Original estimates, and the standard errors of their sampling."""

    estimates: Float64Array
    errors: Float64Array


def run(_data: Path, out: Path, runs: int, name: str) -> dict[str, str]:
    """Make the CSV file; returns a table of docs/analysis.md."""
    study = COHORTS[name]()
    counted = modelled(study.attributes, [("days", "death")])
    codes, truths = to_codes(counted, study.columns), [_hazards(study), *_survival(study)]
    rows, lines = [], [" | ".join(HEADS), " | ".join(["---"] * len(HEADS))]
    for epsilon in study.epsilons:
        answers: list[list[pd.DataFrame]] = []
        for _ in range(runs):
            design = Design(counted, codes[0].size, Decimal(epsilon), Decimal(DELTA))
            made = synthesise_together(design, [codes], [SystemBits()])
            answers.append(list(_ask(study, SyntheticEstimates(NoisyCounts(made.measured), made.codes))))
        cells = []
        for truth, tables in zip(truths, zip(*answers, strict=True), strict=True):
            low, high = (np.array([table[side] for table in tables], dtype=float) for side in ("low", "high"))
            held = (low <= truth.estimates) & (truth.estimates <= high)
            widths = (high - low) / (2 * _REACH * truth.errors)
            # A column of each hazard ratio, and one of each kind of survival.
            single = truth is truths[0]
            for own, width in zip(held.T, widths.T, strict=True) if single else [(held, widths)]:
                cells.append((float(own.mean()), float(np.median(width))))
        rows.append((f"ε = {epsilon}", tuple(each for cell in cells for each in cell)))
        shown = (f"{held:.2f} · {width:.1f}" for held, width in cells)
        lines.append(" | ".join([f"synthetic, ε = {epsilon}", *shown]))
    heads = [head for name in HEADS[1:] for head in (f"{name}: held", f"{name}: width")]
    Numbers((HEADS[0], *heads), tuple(rows)).write(out / "hazards.csv")
    return {f"conclusions {name}": "\n".join(f"| {line} |" for line in lines)}


def _ask(study: Cohort, estimates: SyntheticEstimates) -> Iterator[pd.DataFrame]:
    yield estimates.cox("days", "death", study.regressors)
    yield estimates.survival("days", "death", study.times)
    yield estimates.survival("days", "death", study.times, by="male")


def _hazards(study: Cohort) -> Truth:
    values = study.columns
    columns = np.column_stack([values[name] for name in study.regressors]).astype(np.float64)
    days, dead = values["days"].astype(np.float64), values["death"] == 1
    return Truth(*_with_errors(columns - columns.mean(axis=0), days, dead))


def _with_errors(
    columns: Float64Array, days: Float64Array, dead: BoolArray
) -> tuple[Float64Array, Float64Array]:
    """Return log hazard ratios, and their standard errors by the scatter of tenths of the records."""
    parts = np.array_split(np.random.default_rng(1).permutation(len(days)), 10)
    found = np.array([plain_cox_fit(columns[own], days[own], dead[own]) for own in parts])
    return plain_cox_fit(columns, days, dead), found.std(axis=0, ddof=1) / np.sqrt(10)


def _survival(study: Cohort) -> Iterator[Truth]:
    """Yield survival of all, and by sex, with Greenwood's errors."""
    values = study.columns
    days, dead, male = values["days"].astype(np.float64), values["death"] == 1, values["male"] == 1
    for groups in ([np.ones(len(days), dtype=np.bool_)], [~male, male]):
        found = []
        for own in groups:
            times, shares, ends = kaplan_meier_estimator(dead[own], days[own], conf_type="log-log")
            last = [int(np.flatnonzero(times <= at)[-1]) for at in study.times]
            found += [(shares[each], (ends[1] - ends[0])[each] / (2 * _REACH)) for each in last]
        yield Truth(*np.array(found).T)
