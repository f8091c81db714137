"""Relative error, Jensen–Shannon divergence and change of variances of Census: individual ranking and others.

References:
    Sánchez et al. 2016, §4.3 and §4.4, Figures 1 and 3, Table 1.
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.model.privacy import SMALLEST_K, share
from owner_node.masking.arrays import Int64Array, SystemBits
from owner_node.masking.clusters import Clusters
from owner_node.masking.lists import ReleasedList
from owner_node.risk.draws import Draw, SortedAttribute
from owner_node.risk.measures import divergence, histogram, relative_error, scale_of, variance_change
from owner_node.risk.utility import estimate
from tests.papers import data_sets
from tests.papers.data_sets import DataSet
from tests.papers.figures import curves
from tests.papers.in_process import NOISELESS, Setting, task_of
from tests.papers.multivariate import Column
from tests.papers.multivariate import masked as multivariate
from tests.papers.tables import Line, line, markdown, number, write_csv

ALL = (
    *("AFNLWGT", "AGI", "EMCONTRB", "FEDTAX", "PTOTVAL", "STATETAX", "TAXINC"),
    *("POTHVAL", "INTVAL", "PEARNVAL", "FICA", "WSALVAL", "ERNVAL"),
)
"""The thirteen attributes of Census, in the order of the file."""
ALPHA = "1.5"
NUMBERS = (1, 8, 13)
"""How many of them are protected."""
EPSILONS = tuple(map(Decimal, ("0.1", "1", "10")))
KS = (2, 5, 10, 25, 50, 100)
MULTIVARIATE, MULTIVARIATE_NOISELESS = "mdav", "mdav, no noise"
OURS = "idp-joint"
OUR_KS = (*(k for k in KS if k >= SMALLEST_K), None)
"""Those that our mechanism takes, and k chosen."""
TABLE_KS, TABLE_N = (2, 25, 50, 100), 8
"""Table 1: its cluster sizes and number of attributes."""
PAPER = """
25.89 25.06 22.84 25.01 9.42 24.77 21.74 24.57 8.08 20.19 0.16 3.06
20.75 23.05 2.33 9.80 0.02 0.45 15.27 17.38 0.38 0.95 0.02 0.89
9.14 8.21 7.40 8.20 3.45 8.12 8.33 8.05 2.30 6.62 0.12 1.23
7.41 7.52 1.13 3.63 0.04 0.12 5.69 5.84 0.11 0.50 0.05 0.18
24.97 24.90 11.79 22.89 0.47 10.36 24.83 24.80 12.85 22.72 0.44 8.63
24.17 24.83 9.64 22.56 0.37 8.10 23.63 24.78 9.60 22.27 0.1 6.84
10.46 9.58 8.69 9.55 3.72 9.46 9.43 9.35 2.39 7.64 0.08 1.13
8.29 8.78 1.16 3.81 0.00 0.06 5.78 6.65 0.48 0.42 0.03 0.23
16.71 15.87 14.50 15.84 6.59 15.62 14.35 15.54 5.33 12.87 0.16 2.22
13.13 14.60 2.41 6.63 0.01 0.06 9.86 11.48 0.18 0.94 0.05 0.27
22.07 21.22 19.30 21.21 8.20 21.04 19.50 20.73 6.36 17.12 0.19 2.37
15.61 19.44 3.63 8.05 0.03 0.15 10.20 14.81 0.45 0.85 0.04 0.44
8.61 7.69 6.91 7.69 3.12 7.57 7.63 7.54 2.97 6.14 0.03 1.12
6.57 7.05 0.95 3.25 0.02 0.06 4.95 5.44 0.30 0.41 0.01 0.20
70.22 69.71 64.01 69.66 24.06 68.89 63.42 68.21 14.90 55.85 0.05 5.93
49.28 64.05 3.66 25.56 0.12 0.25 41.36 47.38 0.78 2.05 0.21 0.81
"""
"""Table 1: by attribute and k, for each ε the change with individual ranking (IR) and multivariate (MV)."""


def draws(
    data: DataSet, setting: Setting, runs: int, random: np.random.Generator
) -> Iterator[list[Int64Array]]:
    """Yield masked columns, as many times as asked."""
    attributes = data.attributes
    if setting.mechanism in (MULTIVARIATE, MULTIVARIATE_NOISELESS):
        epsilon = None if setting.mechanism == MULTIVARIATE_NOISELESS else float(setting.epsilon)
        for _ in range(runs):
            columns = [Column(each, data.columns[each.name]) for each in attributes]
            yield multivariate(columns, setting.k or 1, epsilon, random)
        return
    epsilon_each = share(setting.epsilon, len(attributes))
    ready = []
    for attribute in attributes:
        mechanism = (
            Setting("dp-ir", setting.epsilon, setting.k) if setting.mechanism == NOISELESS else setting
        )
        task = task_of(attribute, mechanism, epsilon_each, data.n_records)
        ready.append((SortedAttribute.of(data.columns[attribute.name], task, SystemBits()), task))
    for _ in range(runs):
        if setting.mechanism == NOISELESS:
            yield [own.by_record(_means(own, setting.k or 1)) for own, _ in ready]
        else:
            yield [own.by_record(own.draw(task, SystemBits())) for own, task in ready]


def _means(own: SortedAttribute, k: int) -> Draw:
    """Return the means of clusters, without noise."""
    sizes = Clusters(own.ascending.size, k).sizes
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(own.ascending, starts) / sizes
    released = ReleasedList(np.rint(means).astype(np.int64), sizes)
    return Draw(released, own.order, own.positions, in_place=True)


def measured(data: DataSet, setting: Setting, runs: int, random: np.random.Generator) -> list[list[float]]:
    """Return, by run, relative error, divergence, and the change of every attribute's variance."""
    scales = [scale_of(each, data.columns[each.name]) for each in data.attributes]
    found = []
    for columns in draws(data, setting, runs, random):
        triples = [
            (scale, data.columns[scale.attribute.name], column)
            for scale, column in zip(scales, columns, strict=True)
        ]
        errors = [relative_error(*each) for each in triples]
        apart = [
            divergence(histogram(scale.attribute, before), histogram(scale.attribute, after))
            for scale, before, after in triples
        ]
        changes = [float(variance_change(*each) or 0.0) for each in triples]
        found.append([float(np.mean(errors)), float(np.mean(apart)), *changes])
    return found


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    random, lines, table = np.random.default_rng(seed), list[Line](), {}
    changes: list[Line] = []
    for n in NUMBERS:
        one = data_sets.census(data, ALPHA, ALL[:n])
        every = [
            *(Setting("dp", epsilon, None) for epsilon in EPSILONS),
            *(
                Setting(each, epsilon, k)
                for each in ("dp-ir", MULTIVARIATE)
                for epsilon in EPSILONS
                for k in KS
            ),
            *(Setting(each, Decimal(1), k) for each in (NOISELESS, MULTIVARIATE_NOISELESS) for k in KS),
            *(Setting(OURS, epsilon, k) for epsilon in EPSILONS for k in OUR_KS),
        ]
        for setting in every:
            found = np.array(measured(one, setting, runs, random))
            for measure, values in (("relative error", found[:, 0]), ("divergence", found[:, 1])):
                about = estimate(values.tolist())
                assert about is not None
                name = f"census, {n} attribute{'s' if n > 1 else ''}"
                lines.append(line("002 Fig. 1, 3", name, "central", setting, measure, runs, about))
            if n == TABLE_N:
                table[setting] = found[:, 2:].mean(axis=0)
                changes += _changes(setting, found[:, 2:], runs)
    write_csv(out / "census.csv", lines)
    write_csv(out / "census_variances.csv", changes)
    for measure in ("relative error", "divergence"):
        _draw(out, measure, [each for each in lines if each.measure == measure])
    return {
        "census relative error": _of(lines, "relative error"),
        "census divergence": _of(lines, "divergence"),
        "census variances": variances(table),
    }


def _changes(setting: Setting, found: np.ndarray, runs: int) -> list[Line]:
    """Return the change of every attribute's variance under one setting; `found`: by run and attribute."""
    lines = []
    for name, values in zip(ALL[:TABLE_N], found.T.tolist(), strict=True):
        about = estimate(values)
        assert about is not None
        lines.append(line("002 Table 1", "census", "central", setting, f"variance of {name}", runs, about))
    return lines


def _of(lines: list[Line], measure: str) -> str:
    return markdown(
        [each for each in lines if each.measure == measure], "k", ["data", "mechanism", "epsilon"]
    )


def _draw(out: Path, measure: str, lines: list[Line]) -> None:
    for n in dict.fromkeys(each.data for each in lines):
        own = [each for each in lines if each.data == n]
        panels = [
            (
                f"ε = {epsilon}",
                [
                    e
                    for e in own
                    if e.epsilon == f"{epsilon}" or e.mechanism in (NOISELESS, MULTIVARIATE_NOISELESS)
                ],
            )
            for epsilon in EPSILONS
        ]
        name = f"{measure.replace(' ', '_')}_{n.split()[1]}.png"
        curves(out / name, panels, logarithmic=True, label=measure)


def variances(table: dict[Setting, np.ndarray]) -> str:
    """Return Table 1: the paper's number / ours, individual ranking (IR) and multivariate (MV); then ours."""
    paper = np.array(PAPER.split(), dtype=float).reshape(8, len(TABLE_KS), 6)
    heads = [f"{name}, ε = {epsilon}" for epsilon in EPSILONS for name in ("IR", "MV")]
    heads += [f"{OURS}, ε = {epsilon}" for epsilon in EPSILONS]
    rows = ["| attribute | k | " + " | ".join(heads) + " |", "|---|---:|" + "---:|" * len(heads)]

    def cell(setting: Setting, attribute: int) -> str:
        return number(table[setting][attribute]) if setting in table else ""

    for i, attribute in enumerate(ALL[:8]):
        for j, k in enumerate((*TABLE_KS, None)):
            theirs = [Setting(each, epsilon, k) for epsilon in EPSILONS for each in ("dp-ir", MULTIVARIATE)]
            before = [""] * len(theirs) if k is None else [f"{each:g} / " for each in paper[i, j]]
            cells = [text + cell(setting, i) for text, setting in zip(before, theirs, strict=True)]
            cells += [cell(Setting(OURS, epsilon, k), i) for epsilon in EPSILONS]
            rows.append(f"| {attribute} | {'auto' if k is None else k} | " + " | ".join(cells) + " |")
    return "\n".join(rows)
