"""Where `auto` changes from one carrier to the next: values of six shapes, one attribute of ten at ε = 1.

Two tables of docs/decisions.md: counts against quantiles by the number of possible values, and
`dp-quantiles` against `idp-quantiles` by the number of records. Both are ratios, of squared errors and of
total variations; below 1 the first carrier is nearer.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import sqrt
from pathlib import Path
from types import MappingProxyType

import numpy as np

from common.model.schema import Attribute, AttributeType
from owner_node.masking.arrays import Float64Array, SystemBits
from owner_node.risk.draws import SortedAttribute
from tests.papers.data_sets import DataSet
from tests.papers.in_process import Setting, task_of
from tests.papers.risk_measures import Distributions
from tests.papers.tables import Numbers

Shape = Callable[[np.random.Generator, int], Float64Array]
SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "uniform": lambda draw, n: draw.random(n),
        "normal": lambda draw, n: draw.normal(0.5, 0.15, n),
        "log-normal": lambda draw, n: draw.lognormal(0, 1, n) / 20,
        "two humps": lambda draw, n: draw.normal(np.where(draw.random(n) < 0.5, 0.25, 0.75), 0.07),
        "90 % zeros": lambda draw, n: np.where(draw.random(n) < 0.9, 0, draw.random(n)),
        "narrow": lambda draw, n: 0.48 + 0.04 * draw.random(n),
    }
)
"""Values as shares of the domain, by shape; what lies outside is clamped."""
MULTIPLES = (1, 1.5, 2.5, 3.5, 5, 6)
"""Possible values, as multiples of sqrt(n ε)."""
EPSILON = Decimal("0.1")
"""Share of one attribute of ten."""
COUNTED, RECORDS = (800, 4_000), (2_000, 5_000, 10_000, 20_000)
"""n ε in both tables."""
MANY_VALUES = 100_000
COUNTS, GLOBAL, LOCAL = "dp-hist", "dp-quantiles", "idp-quantiles"


def values_of(shape: str, budget: int, n_values: int, draw: np.random.Generator) -> DataSet:
    """Return values of a shape in a domain of `n_values` values, with `budget` as n ε."""
    n_records = int(budget / EPSILON)
    attribute = Attribute("value", AttributeType.INTEGER, 0, n_values - 1)
    shares = np.clip(SHAPES[shape](draw, n_records), 0, 1)
    return DataSet(shape, (attribute,), {"value": np.rint(shares * (n_values - 1)).astype(np.int64)})


def distances(
    shape: str, sizes: tuple[int, int], mechanisms: Sequence[str], runs: int, draw: np.random.Generator
) -> Float64Array:
    """Return how far mechanisms are off, `(n_mechanisms, 2)`: squared error by variance, total variation.

    Args:
        shape: Of `SHAPES`.
        sizes: n ε, and number of possible values.
        mechanisms: Their ids.
        runs: How many times values are drawn, and masked once by each mechanism.
        draw: Draws the values.
    """
    found = np.zeros((len(mechanisms), 2))
    for _ in range(runs):
        data = values_of(shape, *sizes, draw)
        (attribute,), (column,) = data.attributes, data.columns.values()
        distributions = Distributions.of(data.attributes, data.columns)
        for number, mechanism in enumerate(mechanisms):
            task = task_of(attribute, Setting(mechanism, EPSILON, None), EPSILON, data.n_records)
            own = SortedAttribute.of(column, task, SystemBits())
            drawn = own.draw(task, SystemBits())
            found[number] += own.error(drawn) or 0.0, *distributions.of_single([own.by_record(drawn)])
    return found / runs


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the CSV files; returns the tables of docs/decisions.md by name. Reads no data set."""
    draw, rows = np.random.default_rng(seed), defaultdict(list)
    for shape in SHAPES:
        by_values = [
            [distances(shape, (n, round(each * sqrt(n))), (COUNTS, LOCAL), runs, draw) for n in COUNTED]
            for each in MULTIPLES
        ]
        ratios = np.array([[first / second for first, second in found] for found in by_values]).mean(axis=1)
        by_records = np.array(
            [distances(shape, (n, MANY_VALUES), (GLOBAL, LOCAL), runs, draw) for n in RECORDS]
        )
        for number, name in enumerate(("squared error", "total variation")):
            rows["counts"].append((f"{shape}, {name}", tuple(ratios[:, number].tolist())))
            relative = by_records[:, 0, number] / by_records[:, 1, number]
            rows["global"].append((f"{shape}, {name}", tuple(relative.tolist())))
        rows["global"].append((f"{shape}, squared error of `{GLOBAL}`", tuple(by_records[:, 0, 0].tolist())))
    heads = {
        "counts": ("V / √(n·ε)", *map(str, MULTIPLES)),
        "global": ("n·ε", *(f"{each:,}" for each in RECORDS)),
    }
    tables = {name: Numbers(heads[name], tuple(found)) for name, found in rows.items()}
    for name, table in tables.items():
        table.write(out / f"{name}.csv")
    return {f"carriers {name}": table.markdown() for name, table in tables.items()}
