"""How often intervals of hazard ratios and of survival hold the originals: a table of docs/analysis.md.

The cohort is flchain, with the highest decile of free light chains as an attribute, by one owner who counts
days and death as one. Widths are beside those that the original records have for whom they are a sample of.
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

EPSILONS = ("1", "2", "4")
TIMES = (1825.0, 3650.0)
REGRESSORS = ("age", "male", "top")
HEADS = ("release", "HR of a year", "HR of men", "HR of the top decile", "survival", "survival by sex")
_REACH = 1.96


@dataclass(frozen=True, slots=True)
class Truth:
    """Original estimates, and the standard errors of their sampling."""

    estimates: Float64Array
    errors: Float64Array


def run(_data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/analysis.md."""
    attributes, columns = cohort()
    values = {each.name: column for each, column in zip(attributes, columns, strict=True)}
    values["top"] = (values.pop("decile") == 10).astype(np.int64)
    top = Attribute("top", AttributeType.BOOLEAN, 0, 1)
    counted = modelled([top if each.name == "decile" else each for each in attributes], [("days", "death")])
    codes, truths = to_codes(counted, values), [_hazards(values), *_survival(values)]
    rows, lines = [], [" | ".join(HEADS), " | ".join(["---"] * len(HEADS))]
    for epsilon in EPSILONS:
        answers: list[list[pd.DataFrame]] = []
        for _ in range(runs):
            design = Design(counted, codes[0].size, Decimal(epsilon), Decimal(DELTA))
            made = synthesise_together(design, [codes], [SystemBits()])
            answers.append(list(_ask(SyntheticEstimates(NoisyCounts(made.measured), made.codes))))
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
    return {"conclusions hazards": "\n".join(f"| {line} |" for line in lines)}


def _ask(estimates: SyntheticEstimates) -> Iterator[pd.DataFrame]:
    yield estimates.cox("days", "death", REGRESSORS)
    yield estimates.survival("days", "death", TIMES)
    yield estimates.survival("days", "death", TIMES, by="male")


def _hazards(values: dict[str, Int64Array]) -> Truth:
    columns = np.column_stack([values[name] for name in REGRESSORS]).astype(np.float64)
    days, dead = values["days"].astype(np.float64), values["death"] == 1
    return Truth(*_with_errors(columns - columns.mean(axis=0), days, dead))


def _with_errors(
    columns: Float64Array, days: Float64Array, dead: BoolArray
) -> tuple[Float64Array, Float64Array]:
    """Return log hazard ratios, and their standard errors by the scatter of tenths of the records."""
    parts = np.array_split(np.random.default_rng(1).permutation(len(days)), 10)
    found = np.array([plain_cox_fit(columns[own], days[own], dead[own]) for own in parts])
    return plain_cox_fit(columns, days, dead), found.std(axis=0, ddof=1) / np.sqrt(10)


def _survival(values: dict[str, Int64Array]) -> Iterator[Truth]:
    """Yield survival of all, and by sex, with Greenwood's errors."""
    days, dead, male = values["days"].astype(np.float64), values["death"] == 1, values["male"] == 1
    for groups in ([np.ones(len(days), dtype=np.bool_)], [~male, male]):
        found = []
        for own in groups:
            times, shares, ends = kaplan_meier_estimator(dead[own], days[own], conf_type="log-log")
            last = [int(np.flatnonzero(times <= at)[-1]) for at in TIMES]
            found += [(shares[each], (ends[1] - ends[0])[each] / (2 * _REACH)) for each in last]
        yield Truth(*np.array(found).T)
