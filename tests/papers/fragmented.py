"""The figures of the paper on fragmented data: baseline, DP against iDP, horizontal and vertical.

References:
    Del Vasto-Terrientes et al. 2025, Figures 2 to 6.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np

from owner_node.explore.assessment import CHOSEN
from owner_node.risk.utility import Estimate
from tests.papers import data_sets
from tests.papers.data_sets import DataSet
from tests.papers.figures import heat_maps
from tests.papers.in_process import Setting, central, horizontal, vertical
from tests.papers.prepare import SETUPS
from tests.papers.tables import Line, line, markdown, write_csv

EPSILONS = tuple(map(Decimal, ("0.01", "0.1", "0.25", "0.5", "0.75", "1")))
KS = {"adult": (50, 100, 250, 500, 1000, 2000), "wine": (50, 100, 150, 200, 250, 300)}


def settings(data: str, mechanism: str, *, auto: bool = False) -> list[Setting]:
    """Return the cells of a heat map, ε by ε."""
    ks: Sequence[int | None] = (*KS[data], None) if auto else KS[data]
    return [Setting(mechanism, epsilon, k) for epsilon in EPSILONS for k in ks]


def baseline(data: DataSet, runs: int) -> list[Line]:
    """Return Figures 2 and 3, with `dp-ir` for Figure 4 and `idp-joint` beside."""
    every = [
        *(Setting("idp", epsilon, None) for epsilon in EPSILONS),
        *settings(data.name, "idp-ls", auto=True),
        *settings(data.name, "dp-ir"),
        *settings(data.name, "idp-joint", auto=True),
        *(Setting("ir", Decimal(1), k) for k in KS[data.name]),
    ]
    found = central(data, every, runs)
    return [
        line("003 Fig. 2-4", data.name, "central", setting, "mean SSE", runs, each)
        for setting, each in zip(every, found, strict=True)
    ]


def fragmented(data: DataSet, runs: int, seed: int) -> list[Line]:
    """Return Figures 5 and 6: the mean SSE of both layouts, `idp-joint` beside `idp-ls`."""
    every = [*settings(data.name, "idp-ls", auto=True), *settings(data.name, "idp-joint", auto=True)]
    random = np.random.default_rng(seed)
    sizes, groups = SETUPS[f"{data.name}-horizontal"].records, SETUPS[f"{data.name}-vertical"].attributes
    by_layout = {
        "horizontal": horizontal(data, sizes, every, runs, random),
        "vertical": vertical(data, groups, every, runs),
    }
    return [
        line("003 Fig. 5-6", data.name, layout, setting, "mean SSE", runs, each)
        for layout, found in by_layout.items()
        for setting, each in zip(every, found, strict=True)
    ]


def differences(lines: Sequence[Line], base: Sequence[Line]) -> list[Line]:
    """Return lines less those of the same setting among others; a cell of Figures 4, 5 and 6."""
    by_cell = {(each.epsilon, each.k): each for each in base}
    return [
        replace(
            each,
            mean=each.mean - by_cell[each.epsilon, each.k].mean,
            low=each.low - by_cell[each.epsilon, each.k].high,
            high=each.high - by_cell[each.epsilon, each.k].low,
        )
        for each in lines
    ]


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    tables: dict[str, str] = {}
    for one in (data_sets.adult(data, "frequency"), data_sets.wine(data)):
        first, later = baseline(one, runs), fragmented(one, runs, seed)
        write_csv(out / f"{one.name}.csv", [*first, *later])
        tables |= _baselines(one.name, first, out) | _gaps(one.name, first, later, out)
    agreed = agreed_order(data, runs, seed)
    write_csv(out / "adult_agreed_order.csv", agreed)
    return tables | {"adult agreed order": markdown(agreed, "k", ["measure", "mechanism", "epsilon"])}


def agreed_order(data: Path, runs: int, seed: int) -> list[Line]:
    """Return what owners of parts lose with an order of categories that all share, and with one of their own.

    The order of the data set's documentation is public; that by frequency is each owner's own. Numbers are
    mean SSE in parts less mean SSE in one place, in the same order.
    """
    lines = []
    sizes = SETUPS["adult-horizontal"].records
    every = [
        Setting(mechanism, epsilon, k)
        for mechanism in ("idp-ls", "idp-joint")
        for epsilon in (Decimal("0.1"), Decimal(1))
        for k in KS["adult"]
    ]
    for order, name in (("declared", "one order for all"), ("frequency", "an order of its own for each")):
        one = data_sets.adult(data, order)
        whole = central(one, every, runs)
        parts = horizontal(one, sizes, every, runs, np.random.default_rng(seed))
        lines += [
            line("ours", "adult", "horizontal", setting, name, runs, _less(part, base))
            for setting, part, base in zip(every, parts, whole, strict=True)
        ]
    return lines


def _less(one: Estimate, other: Estimate) -> Estimate:
    return Estimate(one.mean - other.mean, one.low - other.high, one.high - other.low)


def _of(lines: Sequence[Line], mechanism: str) -> list[Line]:
    return [each for each in lines if each.mechanism == mechanism]


def _baselines(name: str, lines: Sequence[Line], out: Path) -> dict[str, str]:
    """Return Figures 2 to 4 of one data set."""
    single, local, joint = (_of(lines, each) for each in ("idp", "idp-ls", "idp-joint"))
    plain = [each for each in local if each.k != CHOSEN]
    heat_maps(out / f"{name}_baseline.png", [("idp-ls", [*single, *plain]), ("idp-joint", joint)])
    less = differences(plain, _of(lines, "dp-ir"))
    heat_maps(out / f"{name}_idp_less_dp.png", [("idp-ls less dp-ir", less)], logarithmic=False)
    noiseless = [replace(each, epsilon="no noise") for each in _of(lines, "ir")]
    return {
        f"{name} baseline": markdown([*single, *local, *joint, *noiseless], "k", ["mechanism", "epsilon"]),
        f"{name} idp less dp": markdown(less, "k", ["epsilon"]),
    }


def _gaps(name: str, base: Sequence[Line], lines: Sequence[Line], out: Path) -> dict[str, str]:
    """Return Figures 5 and 6 of one data set."""
    gaps = {
        (layout, mechanism): differences(
            [each for each in _of(lines, mechanism) if each.layout == layout], _of(base, mechanism)
        )
        for layout in ("horizontal", "vertical")
        for mechanism in ("idp-ls", "idp-joint")
    }
    panels = [
        (layout, [each for each in gaps[layout, "idp-ls"] if each.k != CHOSEN])
        for layout in ("horizontal", "vertical")
    ]
    heat_maps(out / f"{name}_fragmented.png", panels, logarithmic=False)
    every = [each for part in gaps.values() for each in part]
    fixed, chosen = (
        [each for each in every if (each.k == CHOSEN) is is_chosen] for is_chosen in (False, True)
    )
    return {
        f"{name} fragmented": markdown(fixed, "k", ["layout", "mechanism", "epsilon"]),
        f"{name} fragmented, k chosen": markdown(chosen, "epsilon", ["layout", "mechanism"]),
    }
