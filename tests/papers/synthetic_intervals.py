"""How often intervals of 95 % from noisy counts hold what the original records have."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from common.analysis.noisy_counts import NoisyCounts
from common.arrays import Int64Array
from common.errors import UsageError
from common.synthesis.schedule import Design
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.own_table import synthesise_together
from tests.papers.synthetic import ACCOUNTINGS, EPSILON, READERS, Records
from tests.papers.tables import Numbers

KINDS = ("counts", "counts of pairs", "means", "correlations")


def held(records: Records, delta: str) -> dict[str, list[bool]]:
    """Make a release of all records, and return which intervals hold the original values, by kind."""
    attributes = records.attributes
    codes = [column - each.lower for each, column in zip(attributes, records.columns, strict=True)]
    design = Design(attributes, codes[0].size, Decimal(EPSILON), Decimal(delta))
    measured = synthesise_together(design, [codes], [SystemBits()]).measured
    counts = NoisyCounts(measured)
    without_noise = tuple(exact_answer(each, codes) for each in measured.rounds)
    exact = NoisyCounts(replace(measured, sums=without_noise))
    named = {each.name: column for each, column in zip(attributes, records.columns, strict=True)}
    units = {each.name: 10.0**-each.decimals for each in attributes}
    found: dict[str, list[bool]] = defaultdict(list)

    def note(kind: str, lines: pd.DataFrame, true: Sequence[float] | pd.Series) -> None:
        found[kind] += ((lines["low"] <= true) & (true <= lines["high"])).tolist()

    for name in named:
        note("counts", counts.table(name), exact.table(name)["count"])
    for pair in counts.pairs:
        note("counts of pairs", counts.table(*pair), exact.table(*pair)["count"])
    means = counts.means()
    note("means", means, [float(named[name].mean() * units[name]) for name in means.index])
    # Of a small table noise can hide every correlation; then there is no interval.
    with suppress(UsageError):
        related = counts.correlations()
        note("correlations", related, [correlation(named[one], named[other]) for one, other in related.index])
    return found


def correlation(one: Int64Array, other: Int64Array) -> float:
    """Return the correlation of two columns."""
    return float(np.corrcoef(one, other)[0, 1])


def run(data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/synthetic.md."""
    rows = []
    for name, read in READERS.items():
        records = read(data)
        for accounting, delta in ACCOUNTINGS.items():
            found: dict[str, list[bool]] = defaultdict(list)
            for _ in range(runs):
                for kind, each in held(records, delta).items():
                    found[kind] += each
            rows.append((f"{name}, {accounting}", tuple(float(np.mean(found[kind])) for kind in KINDS)))
    table = Numbers(("data set", *KINDS), tuple(rows))
    table.write(out / "intervals.csv")
    return {"synthetic intervals": table.markdown()}
