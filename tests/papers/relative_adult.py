"""Relative error and Jensen–Shannon divergence of Adult: two numbers and two categories with taxonomies.

References:
    Sánchez et al. 2016, §4.3, Figure 2; Algorithm 2 for the categories.
"""

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.privacy import share
from common.schema import Attribute, AttributeType, CategoryOrder, TaxonomyMethod
from owner_node.explore.draws import Draw, SortedAttribute
from owner_node.explore.estimates import estimate
from owner_node.explore.measures import divergence, relative_error
from owner_node.masking.arrays import Int64Array
from owner_node.masking.bits import SystemBits
from owner_node.masking.clusters import Clusters
from owner_node.masking.mask import AttributeTask
from owner_node.masking.released import ReleasedList
from tests.papers import data_sets
from tests.papers.figures import curves
from tests.papers.in_process import NOISELESS, Setting
from tests.papers.tables import Line, line, markdown, write_csv
from tests.papers.taxonomies import COUNTRIES, OCCUPATIONS, taxonomy

TRAINING = 30_162
"""Complete records of Adult's first part, which are the first of all complete ones."""
EPSILONS = tuple(map(Decimal, ("0.1", "1", "10")))
KS = (2, 5, 10, 25, 50, 100, 200)
NAMES = ("occupation", "native_country", "age", "hours_per_week")


@dataclass(frozen=True, slots=True)
class Ready:
    """One attribute, sorted, and a way of masking it whose ε and k are still to be set."""

    own: SortedAttribute
    """The attribute."""
    task: AttributeTask
    """How it is masked."""


def ready(data: Path) -> list[Ready]:
    """Return the four attributes: numbers with domains of 1.5 times the maximum, categories to be drawn."""
    table, found = data_sets.adult(data, "declared"), []
    for name in NAMES:
        declared = next(each for each in table.attributes if each.name == name)
        values = table.columns[name][:TRAINING]
        if declared.categories:
            tree = taxonomy(OCCUPATIONS if name == "occupation" else COUNTRIES, declared.categories)
            attribute = replace(
                declared,
                order=CategoryOrder.DECLARED,
                taxonomy=tree.digest,
                method=TaxonomyMethod.EXPONENTIAL,
            )
            task = AttributeTask(attribute, Decimal(1), 3, "exponential", taxonomy=tree)
        else:
            attribute = Attribute(name, AttributeType.INTEGER, 0, int(values.max()) * 3 // 2)
            task = AttributeTask(attribute, Decimal(1), 3, "dp-ir")
        found.append(Ready(SortedAttribute.of(values, task, SystemBits()), task))
    return found


def masked(each: Ready, setting: Setting) -> Int64Array:
    """Return one masked column. Noise alone is k = 1: one draw or one noise for every record."""
    k = setting.k or 1
    if setting.mechanism == NOISELESS:
        return each.own.by_record(_centres(each.own, k))
    task = replace(each.task, epsilon=share(setting.epsilon, len(NAMES)), k=k)
    return each.own.by_record(each.own.draw(task, SystemBits()))


def _centres(own: SortedAttribute, k: int) -> Draw:
    """Return clusters without noise: of numbers the means, of categories those of least marginality."""
    sizes = Clusters(own.ascending.size, k).sizes
    starts = np.cumsum(sizes) - sizes
    if own.scale.distances is None:
        values = np.rint(np.add.reduceat(own.ascending, starts) / sizes).astype(np.int64)
    else:
        assert own.order is not None
        places = own.order.category_at
        apart = own.scale.distances[np.ix_(places, places)]
        marginality = np.add.reduceat(apart[own.ascending], starts, axis=0)
        values = marginality.argmin(axis=1).astype(np.int64)
    return Draw(ReleasedList(values, sizes), own.order, own.positions, in_place=True)


def measured(attributes: list[Ready], setting: Setting, runs: int) -> list[tuple[float, float]]:
    """Return relative error and divergence, means over the attributes, by run."""
    found = []
    for _ in range(runs):
        errors, apart = [], []
        for each in attributes:
            column, own = masked(each, setting), each.own
            errors.append(relative_error(own.scale, own.original, column))
            # One bin per value, as the paper has it for discrete attributes.
            attribute = own.scale.attribute
            counts = [
                np.bincount(values - attribute.lower, minlength=attribute.n_values)
                for values in (own.original, column)
            ]
            apart.append(divergence(counts[0], counts[1]))
        found.append((float(np.mean(errors)), float(np.mean(apart))))
    return found


def run(data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    attributes, lines = ready(data), []
    every = [
        *(Setting("dp", epsilon, None) for epsilon in EPSILONS),
        *(Setting("dp-ir", epsilon, k) for epsilon in EPSILONS for k in KS),
        *(Setting(NOISELESS, Decimal(1), k) for k in KS),
    ]
    for setting in every:
        found = measured(attributes, setting, runs)
        for i, measure in enumerate(("relative error", "divergence")):
            about = estimate([each[i] for each in found])
            assert about is not None
            lines.append(line("002 Fig. 2", "adult", "central", setting, measure, runs, about))
    lines.sort(key=lambda each: each.measure, reverse=True)
    write_csv(out / "adult.csv", lines)
    for measure in ("relative error", "divergence"):
        _draw(out / f"{measure.replace(' ', '_')}.png", measure, [e for e in lines if e.measure == measure])
    return {"adult relative": markdown(lines, "k", ["measure", "mechanism", "epsilon"])}


def _draw(path: Path, measure: str, lines: list[Line]) -> None:
    panels = [
        (f"ε = {epsilon}", [e for e in lines if e.epsilon == f"{epsilon}" or e.mechanism == NOISELESS])
        for epsilon in EPSILONS
    ]
    curves(path, panels, logarithmic=True, label=measure)
