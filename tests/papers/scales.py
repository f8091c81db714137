"""What the size of the noise tells: a classifier for the median record against the end of the domain.

Individual differential privacy takes the size of the noise as given. Here both data sets have noise of their
own size. An ε-differentially private list keeps the classifier's AUC below e^ε / (1 + e^ε).

References:
    Soria-Comas et al. 2017, Definition 5.
"""

from collections.abc import Iterator
from decimal import Decimal
from math import exp
from pathlib import Path

import numpy as np

from common.model.schema import Schema, round_to_leading_digit
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.masking.arrays import SystemBits
from owner_node.risk.scales import distinguished
from owner_node.risk.trials import CONTROL_SHARE
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.tables import Numbers, n_runs

MECHANISMS = ("idp-joint", "idp-quantiles", "dp-quantiles")
HEADS = ("data, carrier", "ε allows", "mean", "largest attribute", "one record in ten left out")
LISTS = 500
"""Lists of each data set that the classifier is trained on, and as many to test it."""


def told(
    data: DataSet, mechanism: str, left_out: int, random: np.random.Generator, n_lists: int = LISTS
) -> list[float]:
    """Return the classifier's AUC for every attribute, at ε = 1 for all of them.

    Args:
        data: The records.
        mechanism: How they are masked.
        left_out: Number of records that are left out, chosen at random.
        random: Chooses them.
        n_lists: Lists of each data set to train on, and as many to test.
    """
    kept = np.delete(np.arange(data.n_records), random.choice(data.n_records, left_out, replace=False))
    schema = Schema(data.attributes, records_rounded=round_to_leading_digit(kept.size))
    tasks = plan_cell(GridSetting(mechanism, Decimal(1), None), schema, {}).tasks
    found = []
    for task in tasks:
        ascending = np.sort(data.columns[task.attribute.name][kept]) - task.attribute.lower
        auc = distinguished(ascending, task, SystemBits(), n_lists)
        assert auc is not None
        found.append(auc)
    return found


def allowed(data: DataSet) -> float:
    """Return the largest AUC that differential privacy allows for one attribute's share of ε = 1."""
    odds = exp(1 / len(data.attributes))
    return odds / (1 + odds)


def _rows(data: DataSet, runs: int, random: np.random.Generator) -> Iterator[tuple[str, tuple[float, ...]]]:
    for mechanism in MECHANISMS:
        whole = np.mean([told(data, mechanism, 0, random) for _ in range(runs)], axis=0)
        n_left_out = data.n_records // CONTROL_SHARE
        fewer = [told(data, mechanism, n_left_out, random) for _ in range(runs)]
        numbers = (allowed(data), whole.mean(), whole.max(), np.mean(fewer))
        yield f"{data.name}, `{mechanism}`", tuple(map(float, numbers))


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/risk.md by name."""
    random = np.random.default_rng(seed)
    sets = (risk_data.wine(data), risk_data.census(data))
    table = Numbers(HEADS, tuple(row for each in sets for row in _rows(each, runs, random)))
    table.write(out / "scales.csv")
    return {"scales": f"{n_runs(runs)}\n\n{table.markdown()}"}
