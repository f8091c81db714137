"""What the size of the noise tells: a classifier for the median record against the end of the domain, and
the best test of all for records at the ends.

Individual differential privacy takes the size of the noise as given. Here both data sets have noise of their
own size. An ε-differentially private list keeps every AUC below e^ε / (1 + e^ε).

References:
    Soria-Comas et al. 2017, Definition 5.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain, cycle
from math import exp
from pathlib import Path

import numpy as np

from common.model.schema import Attribute, AttributeType, Schema, round_to_leading_digit
from common.model.tails import Tails
from common.words.numbers import count_text
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.masking.arrays import Float64Array, Int64Array, SystemBits
from owner_node.masking.clusters import Clusters, ClusterStatistics
from owner_node.masking.mechanisms import ExactSums, QuantileMechanism
from owner_node.masking.tails import smooth_range
from owner_node.masking.tasks import AttributeTask, mechanism_of
from owner_node.risk.links import chance_above
from owner_node.risk.scales import distinguish
from owner_node.risk.trials import CONTROL_SHARE
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.tables import Numbers

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
        auc = distinguish(ascending, task, SystemBits(), n_lists)
        assert auc is not None
        found.append(auc)
    return found


def allowed(data: DataSet) -> float:
    """Return the largest AUC that differential privacy allows for one attribute's share of ε = 1."""
    return _auc_allowed(1 / len(data.attributes))


def _auc_allowed(epsilon: float | Decimal) -> float:
    odds = exp(epsilon)
    return odds / (1 + odds)


def _rows(data: DataSet, runs: int, random: np.random.Generator) -> Iterator[tuple[str, tuple[float, ...]]]:
    for mechanism in MECHANISMS:
        whole = np.mean([told(data, mechanism, 0, random) for _ in range(runs)], axis=0)
        n_left_out = data.n_records // CONTROL_SHARE
        fewer = [told(data, mechanism, n_left_out, random) for _ in range(runs)]
        numbers = (allowed(data), whole.mean(), whole.max(), np.mean(fewer))
        yield f"{data.name}, `{mechanism}`", tuple(map(float, numbers))


# --- the best test of all -------------------------------------------------------------------------------
# A list is made of noisy sums, so nothing that is computed from it tells two data sets apart better than the
# ratio of the densities of their noisy sums does (Neyman and Pearson 1933).

DRAWS = 4_000
"""Noisy sums of each data set."""
BEST_HEADS = (
    "data, carrier", "ε allows", "mean", "largest", "mean scale, of the domain",
    "smooth bound, of the range", "largest bound, of the range",
)  # fmt: skip
TIES = range(1, 21)
"""Records that share the largest income."""
INCOMES = Attribute("income", AttributeType.INTEGER, 0, 1_200_000)
CODED = 1_000_000
"""Where incomes are top-coded; all others end far below."""
CODED_SETTINGS = ((300, "0.3"), (1_000, "0.1"), (6_500, "0.1"), (9_000, "0.3"))
"""Records and ε."""


def neighbours(ascending: Int64Array, n_values: int) -> Iterator[Int64Array]:
    """Yield data sets that differ in one record: the ends come, go, and change sides."""
    middle, last = ascending.size // 2, ascending.size - 1
    for record, value in (
        (middle, n_values - 1),
        (middle, ascending[-1]),
        (last, ascending[middle]),
        (0, ascending[middle]),
        (0, ascending[-1]),
    ):
        yield np.sort(np.append(np.delete(ascending, record), value))


def best_test(
    one: Int64Array, other: Int64Array, task: AttributeTask, random: np.random.Generator
) -> tuple[float, float]:
    """Return the AUC of the likelihood ratio of two data sets' noisy sums, and the first one's mean scale.

    Args:
        one: `(n_records,)`, ascending, from 0 to V - 1.
        other: The same with one record changed.
        task: How they are masked.
        random: Draws the noise.
    """
    mechanism = mechanism_of(task)
    assert isinstance(mechanism, QuantileMechanism)
    exact = [mechanism.sums.exact_sums(each, task.setting) for each in (one, other)]

    def ratios(drawn: ExactSums) -> Float64Array:
        noisy = drawn.sums + random.laplace(size=(DRAWS, drawn.sums.size)) * drawn.scales
        one, other = (np.log(each.scales) + np.abs(noisy - each.sums) / each.scales for each in exact)
        found: Float64Array = (one - other).sum(axis=1)
        return found

    scale = float((exact[0].scales / exact[0].divisors).mean())
    return chance_above(ratios(exact[1]), ratios(exact[0])), scale / task.setting.n_values


def best(ascending: Int64Array, task: AttributeTask, random: np.random.Generator) -> tuple[float, float]:
    """Return the largest AUC over `neighbours`, and the mean scale, as a share of the domain."""
    found = [
        best_test(ascending, each, task, random) for each in neighbours(ascending, task.setting.n_values)
    ]
    return max(auc for auc, _ in found), found[0][1]


def widened(ascending: Int64Array, task: AttributeTask) -> float:
    """Return by what factor the smooth bound of `idp-quantiles` exceeds the range that it bounds.

    A scale that follows the range itself would let one record change it by any factor.
    """
    mechanism, setting = mechanism_of(task), task.setting
    if not isinstance(mechanism, QuantileMechanism) or task.mechanism != "idp-quantiles":
        return 1.0
    clusters, depth = Clusters(ascending.size, setting.k), mechanism.sums.depth(setting)
    tails = Tails.of(ascending.size, clusters.k, setting.g)
    statistics = ClusterStatistics.of(ascending, clusters, depth, tails.trimmed)
    plain = setting.g * int(ascending[-tails.trimmed] - ascending[tails.trimmed - 1])
    return float(smooth_range(statistics, setting.n_values, tails)) / max(plain, 1)


def top_coded(n_records: int, ties: int, random: np.random.Generator) -> Int64Array:
    """Return incomes in order, of which some are the largest one, and all others lie far below it."""
    incomes = np.rint(np.exp(random.normal(10, 0.6, n_records)))
    incomes = np.sort(np.minimum(incomes, np.quantile(incomes, 0.999)).astype(np.int64))
    incomes[-ties:] = CODED
    return incomes


def _masked_together(
    name: str, attributes: Sequence[Attribute], columns: Sequence[Int64Array], epsilon: Decimal,
    random: np.random.Generator,
) -> Iterator[tuple[str, tuple[float, ...]]]:  # fmt: skip
    """Yield the row of each quantile carrier; `columns` ascend from 0, and each gets a task in turn."""
    schema = Schema(tuple(attributes), records_rounded=round_to_leading_digit(columns[0].size))
    for mechanism in MECHANISMS[1:]:
        tasks = plan_cell(GridSetting(mechanism, epsilon, None), schema, {}).tasks
        pairs = zip(cycle(tasks), columns, strict=False)
        aucs, scales = np.array([best(column, task, random) for task, column in pairs]).T
        factors = [widened(column, task) for task, column in zip(cycle(tasks), columns, strict=False)]
        numbers = (
            _auc_allowed(tasks[0].epsilon), aucs.mean(), aucs.max(), scales.mean(),
            np.mean(factors), max(factors),
        )  # fmt: skip
        yield f"{name}, `{mechanism}`", tuple(map(float, numbers))


def _best_rows(data: DataSet, random: np.random.Generator) -> Iterator[tuple[str, tuple[float, ...]]]:
    columns = [np.sort(data.columns[each.name]) - each.lower for each in data.attributes]
    yield from _masked_together(data.name, data.attributes, columns, Decimal(1), random)


def _coded_rows(
    n_records: int, epsilon: str, random: np.random.Generator
) -> Iterator[tuple[str, tuple[float, ...]]]:
    columns = [top_coded(n_records, ties, random) for ties in TIES]
    name = f"{n_records:,} incomes, {TIES[0]} to {TIES[-1]} of them top-coded, ε = {epsilon}"
    yield from _masked_together(name, [INCOMES], columns, Decimal(epsilon), random)


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the CSV files; returns the tables of docs/risk.md by name."""
    random = np.random.default_rng(seed)
    sets = (risk_data.wine(data), risk_data.census(data))
    table = Numbers(HEADS, tuple(row for each in sets for row in _rows(each, runs, random)))
    table.write(out / "scales.csv")
    coded = [row for n, epsilon in CODED_SETTINGS for row in _coded_rows(n, epsilon, random)]
    best_table = Numbers(
        BEST_HEADS, tuple(chain((row for each in sets for row in _best_rows(each, random)), coded))
    )
    best_table.write(out / "scales_best.csv")
    words = f"{count_text(runs, 'run')}, each with {4 * LISTS:,} lists of an attribute."
    best_words = f"{DRAWS:,} draws for each attribute and changed record."
    return {
        "scales": f"{words}\n\n{table.markdown()}",
        "scales best": f"{best_words}\n\n{best_table.markdown()}",
    }
