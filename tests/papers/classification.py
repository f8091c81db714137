"""What a random forest learns from masked records: F-measures of both classes of Census and white wine.

The forest is trained on the first 66 % of the masked records and asked about the rest of the original ones;
the class attribute itself is not masked, as it is none of the paper's protected attributes.

References:
    Soria-Comas et al. 2025, §4.2, Figures 5 and 6.
"""

from decimal import Decimal
from pathlib import Path

import numpy as np

from common.arrays import Int64Array
from common.model.privacy import share
from owner_node.explore.models import f_measures, split
from owner_node.masking.arrays import SystemBits
from owner_node.risk.draws import SortedAttribute
from owner_node.risk.utility import estimate
from tests.papers import data_sets
from tests.papers.data_sets import DataSet
from tests.papers.figures import curves
from tests.papers.in_process import Setting, task_of
from tests.papers.tables import Line, line, markdown, write_csv

EPSILONS = tuple(map(Decimal, ("0.01", "0.1", "1")))
ALPHAS = ("1.5", "3")
KS = {"census": (3, 5, 10, 25, 50, 100), "white wine": (3, 5, 15, 50, 100, 200, 400)}
CLASSES = {"census": ("≤30K", ">30K"), "white wine": ("Not Excellent", "Excellent")}
MECHANISMS = ("idp-ls", "idp-cbls", "idp-joint")


def rows(data: DataSet, columns: list[Int64Array]) -> np.ndarray:
    """Return records of floating-point attributes, `(n_records, n_attributes)`."""
    return np.column_stack([column.astype(np.float64) for column in columns])


def originals(data: DataSet, runs: int) -> list[list[float]]:
    """Return the F-measures of forests trained on original records, by class and run."""
    every = rows(data, [data.columns[each.name] for each in data.attributes])
    assert data.above is not None
    cut = split(data.n_records)
    found = [
        f_measures((every[:cut], data.above[:cut]), (every[cut:], data.above[cut:]), 2, seed=seed)
        for seed in range(runs)
    ]
    return np.array(found).T.tolist()


def settings(name: str) -> list[Setting]:
    """Return the settings of a data set, k chosen for `idp-joint` among them."""
    return [
        *(Setting(each, epsilon, k) for each in MECHANISMS for epsilon in EPSILONS for k in KS[name]),
        *(Setting("idp-joint", epsilon, None) for epsilon in EPSILONS),
    ]


def measured(data: DataSet, alpha: str, every: list[Setting], runs: int) -> list[Line]:
    """Return both F-measures of every setting."""
    assert data.above is not None
    records, lines = rows(data, [data.columns[each.name] for each in data.attributes]), []
    cut = split(data.n_records)
    test = records[cut:], data.above[cut:]
    for setting in every:
        found = [
            f_measures((masked_rows(data, setting)[:cut], data.above[:cut]), test, 2, seed=seed)
            for seed in range(runs)
        ]
        for label, values in zip(CLASSES[data.name], np.array(found).T.tolist(), strict=True):
            about = estimate(values, 1.0)
            assert about is not None
            name, measure = f"{data.name}, α = {alpha}", f"F-measure {label}"
            lines.append(line("000 Fig. 5-6", name, "central", setting, measure, runs, about))
    return lines


def masked_rows(data: DataSet, setting: Setting) -> np.ndarray:
    """Return masked records, `(n_records, n_attributes)`, of one draw."""
    epsilon = share(setting.epsilon, len(data.attributes))
    columns = []
    for attribute in data.attributes:
        task = task_of(attribute, setting, epsilon, data.n_records)
        own = SortedAttribute.of(data.columns[attribute.name], task, SystemBits())
        columns.append(own.by_record(own.draw(task, SystemBits())))
    return rows(data, columns)


def run(data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    tables = {}
    for name, read in (("census", data_sets.census), ("white wine", data_sets.white_wine)):
        best = [float(np.mean(values)) for values in originals(read(data, "1.5"), runs)]
        lines = [
            each for alpha in ALPHAS for each in measured(read(data, alpha), alpha, settings(name), runs)
        ]
        file = name.replace(" ", "_")
        write_csv(out / f"{file}_classification.csv", lines)
        for number, label in enumerate(CLASSES[name]):
            for alpha in ALPHAS:
                own = [e for e in lines if e.measure.endswith(label) and e.data.endswith(f"= {alpha}")]
                panels = [
                    (f"{label}, ε = {epsilon}", [each for each in own if each.epsilon == f"{epsilon}"])
                    for epsilon in EPSILONS
                ]
                curves(
                    out / f"{file}_class_{number}_alpha_{alpha}.png", panels, logarithmic=False,
                    label="F-measure", level=[best[number]] * len(EPSILONS),
                )  # fmt: skip
        told = ", ".join(f"{label} {value:.3f}" for label, value in zip(CLASSES[name], best, strict=True))
        narrow = [each for each in lines if each.data.endswith(f"= {ALPHAS[0]}")]
        table = markdown(narrow, "k", ["measure", "mechanism", "epsilon"])
        tables[f"{name} classification"] = (
            f"Trained on original records: {told}. Masked, α = {ALPHAS[0]}:\n\n{table}"
        )
    return tables
