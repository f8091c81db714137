"""A distribution of whole records, fitted to noisy counts of some tables.

The distribution is a Markov random field on the bins of the attributes: among all distributions that agree
with the fitted tables it is the one of the largest entropy, and it assumes no relation that was not measured.
It is given by the tables of the cliques of a junction tree; two neighbours in the tree agree about the
attributes that both have, their separator.

The fit minimises Σ |μ - y|²/(2σ²) over all measured tables, μ the model's table, y the noisy counts and σ²
the variance of their noise. As y has normally distributed noise or nearly so, this is the likelihood. It is
convex in the distribution, and mirror descent finds the minimum: a step of size s adds -s times the gradient
to the logarithms of the cliques' tables.

Anyone is to arrive at the same tables bit by bit, on any machine. So nothing is used but sums in a fixed
order (`numpy.bincount` adds one number after the other), products, quotients and comparisons of doubles,
which IEEE 754 rounds in one way, and an exponential function made of these.

References:
    Koller, Friedman 2009, "Probabilistic Graphical Models", 9.4 (elimination), 10.1 to 10.3 (clique trees,
    division). McKenna, Sheldon, Miklau 2019, "Graphical-model based estimation and inference for differential
    privacy". Beck, Teboulle 2003, "Mirror descent and nonlinear projected subgradient methods for convex
    optimization".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.arrays import Float64Array, Int64Array
from common.errors import UsageError

Attributes: TypeAlias = tuple[int, ...]
"""Positions of some attributes, ascending. A table of them is flat, the last attribute moving fastest."""

ATTEMPTS = 600
"""The most steps that the fit tries."""
_FEWEST_STEPS, _LITTLE = 50, 1e-6
"""After so many steps the fit ends when a step gains less than this share of what is left."""
_SUFFICIENT, _GROWTH, _LEAST_STEP = 0.25, 1.1, 1e-9


@dataclass(frozen=True, slots=True)
class Measurement:
    """The noisy counts of one table."""

    attributes: Attributes
    """Of the table."""
    counts: Float64Array
    """Noisy counts of its cells, `(n_cells,)`."""
    variance: Float64Array
    """Of the noise of each, `(n_cells,)`."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """Cells of a table that no record may be in."""

    attributes: Attributes
    """Of the table."""
    cells: NDArray[np.bool_]
    """Which cells these are, `(n_cells,)`."""


class JunctionTree:
    """Cliques of attributes such that every measured table lies in one, each after its parent."""

    def __init__(self, sizes: Sequence[int], tables: Iterable[Attributes]) -> None:
        """Make the tree.

        Args:
            sizes: Number of bins by attribute.
            tables: Attributes of the tables that the model has to have.
        """
        self.sizes = tuple(sizes)
        self.cliques, self.parents = _spanning_tree(cliques_of(sizes, tables))
        self.separators = tuple(
            tuple(sorted(set(clique) & set(self.cliques[parent]))) if i else ()
            for i, (clique, parent) in enumerate(zip(self.cliques, self.parents, strict=True))
        )
        self._places: dict[tuple[int, Attributes], Int64Array] = {}

    def n_cells(self, attributes: Attributes) -> int:
        """Return the number of cells of a table."""
        return prod(self.sizes[attribute] for attribute in attributes)

    def home(self, attributes: Attributes) -> int:
        """Return the first clique that has all these attributes."""
        return next(i for i, clique in enumerate(self.cliques) if set(attributes) <= set(clique))

    def places(self, clique: int, attributes: Attributes) -> Int64Array:
        """Return where each cell of a clique is in a table of some of its attributes, `(n_cells,)`."""
        cells = self._places.get((clique, attributes))
        if cells is None:
            shape = [self.sizes[attribute] for attribute in self.cliques[clique]]
            where = dict(zip(self.cliques[clique], np.indices(shape).reshape(len(shape), -1), strict=True))
            cells = np.zeros(prod(shape), dtype=np.int64)
            for attribute in attributes:
                cells = cells * self.sizes[attribute] + where[attribute]
            self._places[clique, attributes] = cells
        return cells

    def summed(self, table: Float64Array, clique: int, attributes: Attributes) -> Float64Array:
        """Sum a clique's table over all but some of its attributes, `(n_cells,)`."""
        return np.bincount(self.places(clique, attributes), table, self.n_cells(attributes)).astype(
            np.float64, copy=False
        )

    def distribution(self, potentials: Sequence[Float64Array]) -> list[Float64Array] | None:
        """Return the cliques' tables of the distribution ∝ exp(Σ potentials).

        Args:
            potentials: A logarithm of every cell of every clique; minus infinity where no record may be.

        Returns:
            Tables of sum 1, or None if all cells underflow.
        """
        if any(np.isneginf(potential.max()) for potential in potentials):
            return None
        ends = np.cumsum([potential.size for potential in potentials])[:-1]
        below = [potential - potential.max() for potential in potentials]
        tables = np.split(exponential(np.concatenate(below)), ends)
        upward: list[Float64Array] = [np.empty(0)] * len(tables)
        for i in range(len(tables) - 1, 0, -1):
            upward[i] = self.summed(tables[i], i, self.separators[i])
            largest = upward[i].max()
            if not largest > 0:
                return None
            upward[i] /= largest
            tables[self.parents[i]] *= upward[i][self.places(self.parents[i], self.separators[i])]
        for i in range(len(tables)):
            if i:
                whole = self.summed(tables[self.parents[i]], self.parents[i], self.separators[i])
                # Of what nearly underflows nothing is left: its total is no number.
                with np.errstate(over="ignore", invalid="ignore"):
                    ratio = np.divide(whole, upward[i], out=np.zeros_like(whole), where=upward[i] > 0)
                    tables[i] *= ratio[self.places(i, self.separators[i])]
            total = float(self.summed(tables[i], i, ())[0])
            if not total > 0:
                return None
            tables[i] /= total
        return tables


def cliques_of(sizes: Sequence[int], tables: Iterable[Attributes]) -> list[Attributes]:
    """Return cliques of a junction tree: attributes are eliminated in turn, the smallest clique first."""
    around: dict[int, set[int]] = {attribute: set() for attribute in range(len(sizes))}
    for table in tables:
        for one, other in combinations(table, 2):
            around[one].add(other)
            around[other].add(one)
    cliques = []
    while around:
        first = min(around, key=lambda node: (prod(sizes[i] for i in {node, *around[node]}), node))
        neighbours = around.pop(first)
        cliques.append(tuple(sorted({first, *neighbours})))
        for neighbour in neighbours:
            around[neighbour] |= neighbours
            around[neighbour] -= {neighbour, first}
    return [clique for clique in cliques if not any(set(clique) < set(other) for other in cliques)]


def n_model_cells(sizes: Sequence[int], tables: Iterable[Attributes]) -> int:
    """Return how many cells the cliques of a model of these tables have."""
    return sum(prod(sizes[attribute] for attribute in clique) for clique in cliques_of(sizes, tables))


def _spanning_tree(cliques: Sequence[Attributes]) -> tuple[tuple[Attributes, ...], tuple[int, ...]]:
    """Order cliques along a spanning tree of the largest separators, which is a junction tree.

    Returns:
        The cliques, and the position of each one's parent, which is before it; 0 for the first.
    """
    ordered, parents, left = [cliques[0]], [0], list(cliques[1:])
    while left:
        _, which, parent = max(
            (len(set(clique) & set(other)), -i, -j)
            for i, clique in enumerate(left)
            for j, other in enumerate(ordered)
        )
        ordered.append(left.pop(-which))
        parents.append(-parent)
    return tuple(ordered), tuple(parents)


@dataclass(frozen=True, slots=True)
class Model:
    """A fitted distribution."""

    tree: JunctionTree
    """Its cliques."""
    tables: tuple[Float64Array, ...]
    """Their tables, each of sum 1."""

    def table(self, attributes: Attributes) -> Float64Array:
        """Return the table of some attributes of one clique, of sum 1, `(n_cells,)`."""
        home = self.tree.home(attributes)
        return self.tree.summed(self.tables[home], home, attributes)


def fit(
    sizes: Sequence[int],
    measurements: Sequence[Measurement],
    n_records: int,
    impossible: Sequence[Impossible] = (),
    attempts: int = ATTEMPTS,
) -> Model:
    """Fit a model to noisy counts.

    Args:
        sizes: Number of bins by attribute.
        measurements: Noisy counts.
        n_records: n, which the counts of every whole table sum to but for their noise.
        impossible: Cells that no record may be in.

    Raises:
        UsageError: If no record is possible.
    """
    related = [part.attributes for part in measurements] + [part.attributes for part in impossible]
    tree = JunctionTree(sizes, related)
    potentials = _possible(tree, impossible)
    loss = _Loss(tree, measurements, n_records)
    tables = tree.distribution(potentials)
    if tables is None:
        raise UsageError("the structural zeros leave no possible record", "check the rules")
    now = loss.at(tables)
    size = 2 * sum(potential.size for potential in potentials) / len(potentials)
    gradient, n_steps = loss.gradient(now), 0
    for _ in range(attempts):
        moved = [potential - size * slope for potential, slope in zip(potentials, gradient, strict=True)]
        reached = tree.distribution(moved)
        then = None if reached is None else loss.at(reached)
        if reached is None or then is None or then.value > now.value - _SUFFICIENT * now.descent(then):
            size /= 2
            if size < _LEAST_STEP:
                break
            continue
        gained, potentials, tables, now = now.value - then.value, moved, reached, then
        n_steps += 1
        if n_steps > _FEWEST_STEPS and gained < _LITTLE * now.value:
            break
        gradient, size = loss.gradient(now), size * _GROWTH
    return Model(tree, tuple(tables))


def is_possible(sizes: Sequence[int], impossible: Sequence[Impossible]) -> bool:
    """Whether any record is left; arguments as in `fit`."""
    tree = JunctionTree(sizes, [part.attributes for part in impossible])
    return tree.distribution(_possible(tree, impossible)) is not None


def _possible(tree: JunctionTree, impossible: Sequence[Impossible]) -> list[Float64Array]:
    """Return the potentials of the distribution in which all possible records are equally probable."""
    potentials = [np.zeros(tree.n_cells(clique)) for clique in tree.cliques]
    for zero in impossible:
        home = tree.home(zero.attributes)
        potentials[home][zero.cells[tree.places(home, zero.attributes)]] = -np.inf
    return potentials


@dataclass(frozen=True, slots=True)
class _Point:
    """A distribution as the measurements see it."""

    value: float
    """Of the loss."""
    shares: list[Float64Array]
    """The model's shares of the measured cells, by measurement."""
    slopes: list[Float64Array]
    """Derivatives of the loss by these shares."""

    def descent(self, other: "_Point") -> float:
        """Return the gradient here times the way from another distribution to here."""
        return fsum(
            fsum((slope * (here - there)).tolist())
            for slope, here, there in zip(self.slopes, self.shares, other.shares, strict=True)
        )


class _Loss:
    """Σ |μ - y|²/(2σ²) as a function of the cliques' tables, up to a factor."""

    def __init__(self, tree: JunctionTree, measurements: Sequence[Measurement], n_records: int) -> None:
        self._tree, self._attributes = tree, [measurement.attributes for measurement in measurements]
        self._homes = [tree.home(attributes) for attributes in self._attributes]
        self._shares = [measurement.counts / n_records for measurement in measurements]
        weights = [1 / measurement.variance for measurement in measurements]
        mean = fsum(fsum(weight.tolist()) / weight.size for weight in weights) / len(weights)
        self._weights = [weight / mean for weight in weights]

    def at(self, tables: Sequence[Float64Array]) -> _Point:
        shares = [
            self._tree.summed(tables[home], home, attributes)
            for home, attributes in zip(self._homes, self._attributes, strict=True)
        ]
        apart = [share - measured for share, measured in zip(shares, self._shares, strict=True)]
        slopes = [weight * gap for weight, gap in zip(self._weights, apart, strict=True)]
        value = fsum(fsum((slope * gap).tolist()) for slope, gap in zip(slopes, apart, strict=True)) / 2
        return _Point(value, shares, slopes)

    def gradient(self, point: _Point) -> list[Float64Array]:
        """Return the derivatives of the loss by the cells of the cliques."""
        gradient = [np.zeros(self._tree.n_cells(clique)) for clique in self._tree.cliques]
        for home, attributes, slopes in zip(self._homes, self._attributes, point.slopes, strict=True):
            gradient[home] += slopes[self._tree.places(home, attributes)]
        return gradient


# ln 2 in two parts: products of the first with whole numbers up to 2^20 are exact.
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")
_SERIES = tuple(1.0 / prod(range(1, i + 1)) for i in range(13, -1, -1))
_LOWEST = -700.0


def exponential(x: Float64Array) -> Float64Array:
    """Return exp(x) for x <= 0, the same bits on every machine; 0 below -700.

    x = k ln 2 + r with |r| <= ln 2 / 2, so exp(x) = 2^k exp(r), and exp(r) is its series up to r^13. The
    result is off by less than 10^-15 of itself.
    """
    above = np.maximum(x, _LOWEST)
    k = np.rint(above / (_LN2_HIGH + _LN2_LOW))
    r = above - k * _LN2_HIGH - k * _LN2_LOW
    series = np.full_like(r, _SERIES[0])
    for coefficient in _SERIES[1:]:
        series *= r
        series += coefficient
    values: Float64Array = np.where(x < _LOWEST, 0.0, np.ldexp(series, k.astype(np.int32)))
    return values
