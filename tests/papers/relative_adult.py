"""Relative error and Jensen–Shannon divergence of Adult: two numbers and two categories with taxonomies.

References:
    Sánchez et al. 2016, §4.3 and §4.4, Figures 2 and 4; Algorithm 2 for the categories.
"""

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.model.privacy import SMALLEST_K, share
from common.model.schema import Attribute, AttributeType, CategoryOrder, TaxonomyMethod
from owner_node.masking.arrays import Int64Array, SystemBits
from owner_node.masking.clusters import Clusters
from owner_node.masking.lists import ReleasedList
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.draws import Draw, SortedAttribute
from owner_node.risk.measures import divergence, relative_error
from owner_node.risk.utility import estimate
from tests.papers import data_sets
from tests.papers.figures import curves
from tests.papers.in_process import NOISELESS, Setting, task_of
from tests.papers.multivariate import Column
from tests.papers.multivariate import masked as multivariate
from tests.papers.relative import MULTIVARIATE, MULTIVARIATE_NOISELESS, OURS
from tests.papers.tables import Line, line, markdown, write_csv
from tests.papers.taxonomies import COUNTRIES, OCCUPATIONS, taxonomy

TRAINING = 30_162
"""Complete records of Adult's first part, which are the first of all complete ones."""
EPSILONS = tuple(map(Decimal, ("0.1", "1", "10")))
KS = (2, 5, 10, 25, 50, 100, 200)
OUR_KS = (*(k for k in KS if k >= SMALLEST_K), None)
"""Those that our mechanism takes, and k chosen."""
NAMES = ("occupation", "native_country", "age", "hours_per_week")


@dataclass(frozen=True, slots=True)
class Ready:
    """One attribute, sorted, and a way of masking it whose ε and k are still to be set."""

    own: SortedAttribute
    """The attribute."""
    task: AttributeTask
    """How it is masked."""


def ready(data: Path, method: TaxonomyMethod) -> list[Ready]:
    """Return the four attributes, numbers with domains of 1.5 times the maximum.

    Args:
        data: Folder of the published files.
        method: What is done with categories: drawn, and numbers by `dp-ir`, as in the paper; or masked in
            the order of their taxonomy, all by `idp-joint`.
    """
    table, found = data_sets.adult(data, "declared"), []
    is_drawn = method is TaxonomyMethod.EXPONENTIAL
    for name in NAMES:
        declared = next(each for each in table.attributes if each.name == name)
        values = table.columns[name][:TRAINING]
        if declared.categories:
            tree = taxonomy(OCCUPATIONS if name == "occupation" else COUNTRIES, declared.categories)
            attribute = replace(declared, order=CategoryOrder.DECLARED, taxonomy=tree.digest, method=method)
            mechanism = "exponential" if is_drawn else OURS
            task = AttributeTask(attribute, Decimal(1), 3, mechanism, taxonomy=tree)
        else:
            attribute = Attribute(name, AttributeType.INTEGER, 0, int(values.max()) * 3 // 2)
            task = AttributeTask(attribute, Decimal(1), 3, "dp-ir" if is_drawn else OURS)
        found.append(Ready(SortedAttribute.of(values, task, SystemBits()), task))
    return found


def masked(attributes: list[Ready], setting: Setting, random: np.random.Generator) -> list[Int64Array]:
    """Return all columns masked once. Noise alone is k = 1: one draw or one noise for every record."""
    k = setting.k or 1
    if setting.mechanism in (MULTIVARIATE, MULTIVARIATE_NOISELESS):
        columns = [Column(x.task.attribute, x.own.original, x.own.scale.distances) for x in attributes]
        of_all = float(setting.epsilon) if setting.mechanism == MULTIVARIATE else None
        return multivariate(columns, k, of_all, random)
    if setting.mechanism == NOISELESS:
        return [each.own.by_record(_centres(each.own, k)) for each in attributes]
    found = []
    for each in attributes:
        epsilon = share(setting.epsilon, len(NAMES))
        if setting.mechanism == OURS:
            k = task_of(each.task.attribute, setting, epsilon, TRAINING).k or SMALLEST_K
        task = replace(each.task, epsilon=epsilon, k=k)
        found.append(each.own.by_record(each.own.draw(task, SystemBits())))
    return found


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


def measured(
    attributes: list[Ready], setting: Setting, runs: int, random: np.random.Generator
) -> list[tuple[float, float]]:
    """Return relative error and divergence, means over the attributes, by run."""
    found = []
    for _ in range(runs):
        errors, apart = [], []
        for each, column in zip(attributes, masked(attributes, setting, random), strict=True):
            own = each.own
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


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    lines, random = [], np.random.default_rng(seed)
    theirs, ours = (ready(data, each) for each in (TaxonomyMethod.EXPONENTIAL, TaxonomyMethod.RANK))
    every = [
        *(Setting("dp", epsilon, None) for epsilon in EPSILONS),
        *(Setting(each, epsilon, k) for each in ("dp-ir", MULTIVARIATE) for epsilon in EPSILONS for k in KS),
        *(Setting(each, Decimal(1), k) for each in (NOISELESS, MULTIVARIATE_NOISELESS) for k in KS),
        *(Setting(OURS, epsilon, k) for epsilon in EPSILONS for k in OUR_KS),
    ]
    for setting in every:
        found = measured(ours if setting.mechanism == OURS else theirs, setting, runs, random)
        for i, measure in enumerate(("relative error", "divergence")):
            about = estimate([each[i] for each in found])
            assert about is not None
            lines.append(line("002 Fig. 2, 4", "adult", "central", setting, measure, runs, about))
    lines.sort(key=lambda each: each.measure, reverse=True)
    write_csv(out / "adult.csv", lines)
    for measure in ("relative error", "divergence"):
        _draw(out / f"{measure.replace(' ', '_')}.png", measure, [e for e in lines if e.measure == measure])
    return {"adult relative": markdown(lines, "k", ["measure", "mechanism", "epsilon"])}


def _draw(path: Path, measure: str, lines: list[Line]) -> None:
    panels = [
        (
            f"ε = {epsilon}",
            [
                e
                for e in lines
                if e.epsilon == f"{epsilon}" or e.mechanism in (NOISELESS, MULTIVARIATE_NOISELESS)
            ],
        )
        for epsilon in EPSILONS
    ]
    curves(path, panels, logarithmic=True, label=measure)
