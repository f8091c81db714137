"""How often intervals of means hold in domains that are far too wide: a table of docs/analysis-methods.md.

Values of 5,000 simulated persons are as lengths of stay, costs and counts are. One-way counts are made as in
a synthetic release of all attributes at ε = 1; no records are needed. The linear estimate is beside ours.
"""

from collections.abc import Mapping
from decimal import Decimal
from itertools import repeat
from pathlib import Path

import numpy as np

from common.analysis.noisy_counts import NoisyCounts, estimated_parts
from common.arrays import Int64Array
from common.model.schema import Attribute, AttributeType
from common.synthesis.schedule import Design, OneWay, Round, run_rounds
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.counts import exact_answer, noisy_answer
from tests.papers.synthetic import DELTA
from tests.papers.tables import Numbers

N_PERSONS = 5000
HEADS = ("attribute", "linear: held", "width", "fitted: held", "width")
_REACH = 1.96


def persons() -> Mapping[Attribute, Int64Array]:
    """Return values by attribute, `(N_PERSONS,)`, in units from 0."""
    draw = np.random.default_rng(7)
    outlying = draw.random(N_PERSONS) < 0.01
    values = {
        ("gamma", 120): draw.gamma(1.2, 2.7, N_PERSONS),
        ("exponential", 120): draw.exponential(8, N_PERSONS),
        ("Poisson", 40): draw.poisson(3, N_PERSONS),
        ("log-normal", 1_000_000): draw.lognormal(8, 1.5, N_PERSONS),
        ("Pareto", 100_000): 300 * draw.pareto(2, N_PERSONS),
        ("normal", 1000): draw.normal(120, 15, N_PERSONS),
        ("age", 110): draw.normal(50, 18, N_PERSONS),
        ("1 % far away", 5000): np.where(
            outlying, draw.normal(4000, 200, N_PERSONS), draw.normal(300, 50, N_PERSONS)
        ),
    }
    return {
        Attribute(name, AttributeType.INTEGER, 0, upper): np.clip(np.rint(own), 0, upper).astype(np.int64)
        for (name, upper), own in values.items()
    }


def run(_data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV file; returns the table."""
    columns, bits = persons(), repeat(SystemBits())
    codes, design = list(columns.values()), Design(tuple(columns), N_PERSONS, Decimal(1), Decimal(DELTA))

    def answer(asked: Round) -> Int64Array:
        # Tables of pairs are asked for after all one-way counts, and have no part in means.
        one_way = isinstance(asked[0], OneWay)
        return noisy_answer(asked, codes, bits) if one_way else exact_answer(asked, codes)

    found: dict[str, list[tuple[float, ...]]] = {each.name: [] for each in columns}
    for _ in range(runs):
        counts = NoisyCounts(run_rounds(design, answer))
        fitted = counts.means()
        for levels, (attribute, own) in zip(counts.levels, columns.items(), strict=True):
            true, sampling = own.mean(), own.std() / N_PERSONS**0.5
            parts = estimated_parts(levels, N_PERSONS)
            middles = (parts.first + parts.last) / 2
            linear = float(parts.counts @ middles) / N_PERSONS
            error = parts.variance(middles - linear) ** 0.5 / N_PERSONS
            line = fitted.loc[attribute.name]
            low, high = line["low"], line["high"]
            found[attribute.name].append(
                (
                    abs(linear - true) <= _REACH * error,
                    error / sampling,
                    low <= true <= high,
                    (high - low) / (2 * _REACH * sampling),
                )
            )
    rows = []
    for name, lines in found.items():
        held, width, fitted_held, fitted_width = np.array(lines, dtype=np.float64).T
        numbers = held.mean(), np.median(width), fitted_held.mean(), np.median(fitted_width)
        rows.append((name, tuple(map(float, numbers))))
    table = Numbers(HEADS, tuple(rows))
    table.write(out / "wide_domains.csv")
    return {"wide domains": table.markdown()}
