"""How often intervals of a synthetic release hold the original estimates: the table of docs/analysis.md.

The cohort is flchain (7,874 persons), the census is Adult. One owner, δ = 10^-6.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
from sksurv.nonparametric import kaplan_meier_estimator

from common.arrays import Float64Array, Int64Array
from common.model.schema import Attribute
from common.release.answers import is_numeric
from common.release.calibration import linear_fit, logistic_fit
from common.release.count_estimates import NoisyCounts
from common.release.synthetic_estimates import SyntheticEstimates
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.counts import synthesise_together
from tests.papers.synthetic import DELTA, adult
from tests.papers.synthetic_cohort import cohort
from tests.papers.tables import Numbers

KINDS = ("means", "quartiles", "correlations", "linear", "logistic", "survival")
SETTINGS = (("flchain", "1"), ("flchain", "2"), ("flchain", "4"), ("adult", "1"), ("adult", "4"))
TIMES = (365, 1825, 3650)
MODELS = {
    "flchain": ("age", "days", ("age", "male", "decile"), "death"),
    "adult": ("age", "hours_per_week", ("age", "race", "sex"), "class"),
}
"""By data set: two numbers with quartiles, of which the second is a response; regressors; an event."""


class Originals:
    """The original records, and what they answer."""

    def __init__(self, attributes: Sequence[Attribute], columns: Sequence[Int64Array]) -> None:
        self.attributes = {each.name: each for each in attributes}
        self.present = {
            each.name: column <= each.upper for each, column in zip(attributes, columns, strict=True)
        }
        self.values = {
            each.name: column * (1.0 if each.is_categorical else float(each.unit))
            for each, column in zip(attributes, columns, strict=True)
        }

    def column(self, name: str) -> Float64Array:
        """Return the column of a model, named as in an answer."""
        of, _, labels = name.partition(": ")
        if not labels:
            return self.values[of]
        codes = [
            self.attributes[of].labels.index(each) for each in labels.partition(" (against ")[0].split(", ")
        ]
        return np.isin(self.values[of], codes).astype(np.float64)

    def model(self, fit: Callable[..., Float64Array], response: str, found: pd.DataFrame) -> Float64Array:
        """Return the coefficients of a model with the regressors of an answer."""
        columns = [self.column(str(name)) for name in found.index]
        design = np.column_stack([np.ones(len(columns[0])), *(each - each.mean() for each in columns)])
        return fit(design, self.values[response], np.ones(len(design)))[1:]


def held(name: str, of: SyntheticEstimates, originals: Originals) -> dict[str, list[bool]]:
    """Return which intervals of a release hold what the originals have, by kind."""
    found: dict[str, list[bool]] = defaultdict(list)

    def note(kind: str, table: pd.DataFrame, true: Sequence[float] | Float64Array) -> None:
        found[kind] += ((table["low"] <= true) & (true <= table["high"])).tolist()

    number, response, regressors, event = MODELS[name]
    values = originals.values  # noqa: PD011
    numeric = [each for each, attribute in originals.attributes.items() if is_numeric(attribute)]
    note("means", of.means(numeric), [values[each][originals.present[each]].mean() for each in numeric])
    for each in (number, response):
        true = np.quantile(values[each], [0.25, 0.5, 0.75], method="inverted_cdf")
        note("quartiles", of.quantiles(each), true)
    pairs = of.correlations()
    note("correlations", pairs, [np.corrcoef(values[a], values[b])[0, 1] for a, b in pairs.index])
    linear, logistic = of.regress(response, regressors), of.logistic(event, regressors)
    note("linear", linear, originals.model(linear_fit, response, linear))
    note("logistic", logistic, originals.model(logistic_fit, event, logistic))
    if name == "flchain":
        times, survival = kaplan_meier_estimator(values[event] == 1, values[response])
        true = [survival[times <= each][-1] for each in TIMES]
        note("survival", of.survival(response, event, TIMES), true)
    return found


def run(data: Path, out: Path, runs: int) -> Mapping[str, str]:
    """Make the CSV file; returns the table of docs/analysis.md."""
    census = adult(data)
    sources = {"flchain": cohort(), "adult": (census.attributes, census.released)}
    rows = []
    for name, epsilon in SETTINGS:
        attributes, columns = sources[name]
        codes = [column - each.lower for each, column in zip(attributes, columns, strict=True)]
        originals, found = Originals(attributes, columns), defaultdict[str, list[bool]](list)
        for _ in range(runs):
            design = Design(attributes, codes[0].size, Decimal(epsilon), Decimal(DELTA))
            made = synthesise_together(design, [codes], [SystemBits()])
            estimates = SyntheticEstimates(NoisyCounts(made.measured), made.codes)
            for kind, each in held(name, estimates, originals).items():
                found[kind] += each
        shares = tuple(float(np.mean(found[kind])) if found[kind] else float("nan") for kind in KINDS)
        rows.append((f"{name}, ε = {epsilon}", shares))
    table = Numbers(("release", *KINDS), tuple(rows))
    table.write(out / "conclusions.csv")
    return {"conclusions": table.markdown()}
