"""What an epidemiologist concludes from synthetic records of a cohort: the table of docs/synthetic.md.

The cohort is flchain (7,874 persons, 11 attributes; Dispenzieri et al. 2012), which scikit-survival ships.
Laboratory values have a logarithmic scale. Death and its cause are two attributes that contradict each other
in no original record: with `rules` that is declared, and without it is not.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

import numpy as np
from sksurv.datasets import load_flchain
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.nonparametric import kaplan_meier_estimator
from sksurv.util import Surv

from common.arrays import Int64Array
from common.model.schema import Attribute, AttributeType
from common.synthesis.binning import StructuralZero
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.risk.total_variation import Distributions
from owner_node.synthesis.own_table import synthesise_together
from tests.papers.synthetic import ACCOUNTINGS
from tests.papers.tables import Numbers

EPSILONS = ("1", "2", "4", "8")
HEADS = (
    "release", "two-way TV", "HR of a year", "HR of men", "HR of the top decile", "survival at ten years",
    "women older by", "contradictions",
)  # fmt: skip
TEN_YEARS = 3650
NO_CAUSE = "none"


def cohort() -> tuple[tuple[Attribute, ...], list[Int64Array]]:
    """Return the attributes, and the values in units, `(n_records,)` by attribute."""
    frame, outcome = load_flchain()
    causes = frame["chapter"].astype(object).where(frame["chapter"].notna(), NO_CAUSE).astype("category")
    labels = tuple(map(str, causes.cat.categories))
    creatinine = frame["creatinine"]
    numbers = AttributeType.NUMBER, AttributeType.INTEGER
    columns: dict[Attribute, Any] = {
        Attribute("age", numbers[1], 50, 110): frame["age"],
        Attribute("male", AttributeType.BOOLEAN, 0, 1): frame["sex"] == "M",
        Attribute("year", numbers[1], 1995, 2003): frame["sample.yr"].astype(int),
        Attribute("kappa", numbers[0], 1, 30_000, 3, is_logarithmic=True): frame["kappa"] * 1000,
        Attribute("lambda", numbers[0], 1, 30_000, 3, is_logarithmic=True): frame["lambda"] * 1000,
        Attribute("decile", numbers[1], 1, 10): frame["flc.grp"].astype(int),
        Attribute("creatinine", numbers[0], 1, 200, 1, keeps_missing=True, is_logarithmic=True): (
            creatinine * 10
        ).fillna(201),
        Attribute("mgus", AttributeType.BOOLEAN, 0, 1): frame["mgus"] == "yes",
        Attribute("days", numbers[1], 0, 5299): outcome["futime"],
        Attribute("death", AttributeType.BOOLEAN, 0, 1): outcome["death"],
        Attribute("cause", AttributeType.CATEGORY, 0, len(labels) - 1, categories=labels): causes.cat.codes,
    }
    return tuple(columns), [
        np.rint(np.asarray(each, dtype=float)).astype(np.int64) for each in columns.values()
    ]


def rules_of(attributes: Sequence[Attribute]) -> tuple[StructuralZero, ...]:
    """Return that who died has a cause, and nobody else has one."""
    places = {each.name: place for place, each in enumerate(attributes)}
    labels = attributes[places["cause"]].labels
    none = labels.index(NO_CAUSE)
    others = [(code, code) for code in range(len(labels)) if code != none]
    return (
        {places["death"]: [(1, 1)], places["cause"]: [(none, none)]},
        {places["death"]: [(0, 0)], places["cause"]: others},
    )


def conclusions(attributes: Sequence[Attribute], columns: Sequence[Int64Array]) -> tuple[float, ...]:
    """Return hazard ratios of age, sex and the top decile, survival of that, the difference of mean ages
    between women and men, and how many records contradict themselves.
    """
    values = {each.name: column for each, column in zip(attributes, columns, strict=True)}
    dead, days, top = values["death"] == 1, values["days"].astype(float), values["decile"] == 10
    hazards = np.column_stack([values["age"], values["male"], top]).astype(float)
    ratios = np.exp(CoxPHSurvivalAnalysis(ties="efron").fit(hazards, Surv.from_arrays(dead, days)).coef_)
    times, survival = kaplan_meier_estimator(dead[top], days[top])
    men = values["male"] == 1
    older = values["age"][~men].mean() - values["age"][men].mean()
    none = attributes[-1].labels.index(NO_CAUSE)
    contradicting = np.count_nonzero(dead == (values["cause"] == none))
    return (*map(float, ratios), float(survival[times <= TEN_YEARS][-1]), float(older), float(contradicting))


def run(_data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/synthetic.md."""
    attributes, columns = cohort()
    codes = [column - each.lower for each, column in zip(attributes, columns, strict=True)]
    named = {each.name: column for each, column in zip(attributes, columns, strict=True)}
    near = Distributions.of(attributes, named)
    declared: Mapping[str, tuple[StructuralZero, ...]] = MappingProxyType(
        {"": (), ", rules": rules_of(attributes)}
    )
    rows = [("original", (0.0, *conclusions(attributes, columns)))]
    for label, delta in reversed(ACCOUNTINGS.items()):
        for epsilon in EPSILONS:
            for with_rules, rules in declared.items():
                found = []
                for _ in range(runs):
                    design = Design(attributes, codes[0].size, Decimal(epsilon), Decimal(delta), rules=rules)
                    made = synthesise_together(design, [codes], [SystemBits()]).codes
                    units = [code + each.lower for each, code in zip(attributes, made, strict=True)]
                    found.append((near.total_variation(units)[1], *conclusions(attributes, units)))
                means = tuple(map(mean, zip(*found, strict=True)))
                rows.append((f"ε = {epsilon}, {label}{with_rules}", means))
    table = Numbers(HEADS, tuple(rows))
    table.write(out / "cohort.csv")
    return {"synthetic cohort": table.markdown()}
