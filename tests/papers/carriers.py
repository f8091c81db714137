"""Where `auto` changes from one carrier to the next: values of six shapes, one attribute of ten at ε = 1.

Four tables of docs/decisions.md: counts against quantiles by the number of possible values, `dp-quantiles`
against `idp-quantiles` by the number of records, counts without stray counts against their projection alone
by how much of the domain the values fill, and what `auto` chooses against the best of the three. All are
ratios, of squared errors and of total variations; below 1 the first one is nearer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import sqrt
from pathlib import Path
from types import MappingProxyType

import numpy as np

from common.model.counts import nearest_counts, whole_counts
from common.model.empty_regions import without_stray_counts
from common.model.mechanisms import PublicNumbers, choose
from common.model.schema import Attribute, AttributeType
from common.planning.arguments import DEFAULT
from owner_node.masking.arrays import BoolArray, Float64Array, SystemBits
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.risk.draws import SortedAttribute
from owner_node.risk.total_variation import Distributions
from tests.papers.data_sets import DataSet
from tests.papers.in_process import Setting, task_of
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
MORE_SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        **SHAPES,
        "exponential": lambda draw, n: draw.exponential(0.12, n),
        "heavy tail": lambda draw, n: draw.pareto(1.2, n) / 60,
        "top-coded": lambda draw, n: np.minimum(draw.lognormal(0, 0.8, n) / 8, 0.4),
        "round numbers": lambda draw, n: _rounded(draw.normal(0.5, 0.15, n), draw.random(n) < 0.4),
        "two values": lambda draw, n: np.where(draw.random(n) < 0.7, 0.2, 0.9),
        "twenty values": lambda draw, n: (2 * draw.integers(0, 20, n) + 1) / 41,
        "three per cent apart": lambda draw, n: np.where(
            draw.random(n) < 0.97, draw.normal(0.15, 0.04, n), draw.normal(0.9, 0.02, n)
        ),
    }
)
"""Of the last table."""
MULTIPLES = (1, 2.5, 5, 10, 20)
"""Possible values, as multiples of sqrt(n ε)."""
EPSILON = Decimal("0.1")
"""Share of one attribute of ten."""
COUNTED, RECORDS = (800, 4_000), (2_000, 5_000, 10_000, 20_000)
"""n ε in both tables."""
MANY_VALUES = 100_000
WIDTHS = (1, 4, 10)
"""Width of the domain in the last table, in widths of a domain that fits."""
SETTINGS = tuple(product((200, 2_000, 20_000), (16, 100, 500), (0.125, 0.5)))
"""Numbers of records, numbers of values in a domain that fits, and shares of ε in the last table."""
DRAWS_PER_RUN = 4
"""Of the last table: the squared errors of few draws vary by more than the largest ratio may be above 1."""
FEW, LARGE = 2, 20_000
"""Draws of more than so many records, which vary less and take longer, in the table of `auto`."""
COUNTS, GLOBAL, LOCAL = "dp-hist", "dp-quantiles", "idp-quantiles"
OWNERS_RECORDS = (200, 2_000, 20_000, 200_000, 500_000, 1_000_000)
"""Numbers of records in the table of `auto`."""
OWNERS_SETTINGS = tuple(product((100, 10_000), (1, 10), (Decimal("0.1"), Decimal(1))))
"""Numbers of values in a domain that fits, widths of the domain, and shares of ε in the same table."""


def _rounded(values: Float64Array, which: BoolArray) -> Float64Array:
    return np.where(which, np.rint(values * 10) / 10, values)


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


def without_stray(shape: str, width: int, runs: int, draw: np.random.Generator) -> Float64Array:
    """Return counts without stray counts against their projection, by setting, `(n_settings, 2)`.

    Args:
        shape: Of `MORE_SHAPES`.
        width: Of `WIDTHS`.
        runs: How many times noise is drawn.
        draw: Draws values and noise.

    Returns:
        Ratios of squared errors and of total variations.
    """
    ratios = []
    for n_records, n_fitting, epsilon in SETTINGS:
        n_values, scale = n_fitting * width, 2 / epsilon
        shares = np.clip(MORE_SHAPES[shape](draw, n_records), 0, 1)
        values = np.sort(np.rint(shares * (n_fitting - 1)).astype(np.int64)) + (n_values - n_fitting) // 3
        counts, found = np.bincount(values, minlength=n_values), np.zeros((2, 2))
        for _ in range(runs):
            noisy = counts + draw.laplace(0, scale, n_values)
            nearest = nearest_counts(noisy, n_records)
            for number, made in enumerate((without_stray_counts(noisy, n_records, scale), nearest)):
                whole = whole_counts(made, n_records)
                moved = np.repeat(np.arange(n_values), whole) - values
                found[number] += np.square(moved).mean(), np.abs(whole - counts).sum() / (2 * n_records)
        # What is exact in both is equal.
        ratios.append((found[0] + runs * 1e-6) / (found[1] + runs * 1e-6))
    return np.array(ratios)


def chosen_against_best(shape: str, n_records: int, runs: int, draw: np.random.Generator) -> float:
    """Return how many times the squared error of the best carrier that of the choice of `auto` is, at most.

    Columns are compared as they are released, with the default rank noise.

    Args:
        shape: Of `SHAPES`.
        n_records: Of one owner.
        runs: How many times values are drawn in each of `OWNERS_SETTINGS`.
        draw: Draws the values.
    """
    largest, mechanisms = 1.0, (COUNTS, GLOBAL, LOCAL)
    for n_fitting, width, epsilon in OWNERS_SETTINGS:
        attribute = Attribute("value", AttributeType.INTEGER, 0, n_fitting * width - 1)
        tasks = [
            replace(
                task_of(attribute, Setting(mechanism, epsilon, None), epsilon, n_records),
                rank_noise=DEFAULT,
            )
            for mechanism in mechanisms
        ]
        errors = np.zeros(len(tasks))
        for _ in range(runs):
            shares = np.clip(SHAPES[shape](draw, n_records), 0, 1)
            values = (
                np.rint(shares * (n_fitting - 1)).astype(np.int64) + (attribute.n_values - n_fitting) // 3
            )
            for number, task in enumerate(tasks):
                moved = mask_table(MemoryEngine({"value": values}), [task])["value"] - values
                errors[number] += np.square(moved, dtype=np.float64).mean()
        chosen = choose(attribute, PublicNumbers(n_records, attribute.n_values, epsilon))
        largest = max(largest, errors[mechanisms.index(chosen)] / errors.min())
    return largest


def _stray_rows(runs: int, draw: np.random.Generator) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Return geometric means over all settings by width of the domain, and the largest ratio of a setting."""
    of_shape = {
        shape: np.array([without_stray(shape, width, runs, draw) for width in WIDTHS])
        for shape in MORE_SHAPES
    }
    of_shape["all"] = np.concatenate(list(of_shape.values()), axis=1)
    for shape, found in of_shape.items():
        for number, name in enumerate(("squared error", "total variation")):
            ratios = found[:, :, number]
            means = np.exp(np.log(ratios).mean(axis=1)).tolist()
            yield f"{shape}, {name}", (*means, float(ratios.max()))


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
    rows["auto"] = [
        (
            shape,
            tuple(chosen_against_best(shape, n, runs if n <= LARGE else FEW, draw) for n in OWNERS_RECORDS),
        )
        for shape in SHAPES
    ]
    rows["stray"] = list(_stray_rows(runs * DRAWS_PER_RUN, draw))
    heads = {
        "auto": ("records", *(f"{each:,}" for each in OWNERS_RECORDS)),
        "stray": ("width of the domain", *map(str, WIDTHS), "largest of all"),
        "counts": ("V / √(n·ε)", *map(str, MULTIPLES)),
        "global": ("n·ε", *(f"{each:,}" for each in RECORDS)),
    }
    tables = {name: Numbers(heads[name], tuple(found)) for name, found in rows.items()}
    for name, table in tables.items():
        table.write(out / f"{name}.csv")
    return {f"carriers {name}": table.markdown() for name, table in tables.items()}
