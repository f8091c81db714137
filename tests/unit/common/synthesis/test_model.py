"""The model against enumeration of all cells, the fit against another optimiser, and the bits of a fit."""

import warnings
from hashlib import sha256
from itertools import combinations, product
from math import exp

import numpy as np
import pytest
from scipy.optimize import minimize

from common.errors import UsageError
from common.synthesis.model import (
    Impossible,
    JunctionTree,
    Measurement,
    cliques_of,
    exponential,
    fit,
    n_model_cells,
)

SHAPES = [
    ((2, 3), [(0, 1)]),
    ((2, 3, 4), [(0, 1), (1, 2)]),
    ((2, 3, 2, 4), [(0, 1), (1, 2), (2, 3), (0, 3)]),
    ((3, 2, 2, 2, 3), [(0, 1), (0, 2), (0, 3), (3, 4)]),
    ((2, 2, 3, 2), []),
    ((4,), []),
    ((2, 3, 2, 3, 2), [(0, 1), (1, 2), (0, 2), (3, 4)]),
]
"""Numbers of bins, and tables of a model: trees, a cycle, a star, attributes without relations, two parts."""


def summed(joint: np.ndarray, attributes: tuple[int, ...]) -> np.ndarray:
    """Sum a joint table over all other attributes."""
    return joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in attributes)).ravel()


def random_joint(sizes, seed: int) -> np.ndarray:
    """Return a joint distribution."""
    weights = np.random.default_rng(seed).gamma(0.5, size=sizes)
    return weights / weights.sum()


def measured(joint: np.ndarray, tables, n_records: int, noise: float, seed: int) -> list[Measurement]:
    """Return noisy counts of single attributes and of tables."""
    draw, found = np.random.default_rng(seed), []
    for attributes in [*((each,) for each in range(joint.ndim)), *tables]:
        counts = n_records * summed(joint, attributes)
        noisy = counts + noise * draw.normal(size=counts.size)
        found.append(Measurement(attributes, noisy, np.full(counts.size, max(noise, 1.0) ** 2)))
    return found


@pytest.mark.parametrize(("sizes", "tables"), SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_distribution_of_potentials(sizes, tables, seed):
    """Tables of the cliques are those of the joint distribution, cell by cell."""
    tree, draw = JunctionTree(sizes, tables), np.random.default_rng(seed)
    potentials = [3 * draw.normal(size=tree.n_cells(clique)) for clique in tree.cliques]
    joint = np.zeros(sizes)
    for cell in product(*map(range, sizes)):
        for clique, potential in zip(tree.cliques, potentials, strict=True):
            place = np.ravel_multi_index([cell[i] for i in clique], [sizes[i] for i in clique])
            joint[cell] += potential[place]
    joint = np.exp(joint)
    joint /= joint.sum()
    found = tree.distribution(potentials)
    assert found is not None
    for clique, table in zip(tree.cliques, found, strict=True):
        assert np.allclose(table, summed(joint, clique), atol=1e-12)


@pytest.mark.parametrize(("sizes", "tables"), SHAPES)
def test_junction_trees(sizes, tables):
    """Every table has a home, and the cliques of an attribute hang together."""
    tree = JunctionTree(sizes, tables)
    assert all(set(table) <= set(tree.cliques[tree.home(table)]) for table in tables)
    for attribute in range(len(sizes)):
        having = [i for i, clique in enumerate(tree.cliques) if attribute in clique]
        roots = [i for i in having if i == 0 or attribute not in tree.separators[i]]
        assert len(roots) == 1
    assert all(parent < i or i == 0 for i, parent in enumerate(tree.parents))


def test_known_cliques():
    """A cycle gets one chord, a complete graph is one clique; the chord with the fewest cells is taken."""
    cycle = [(0, 1), (1, 2), (2, 3), (0, 3)]
    assert sorted(cliques_of((9, 2, 9, 2), cycle)) == [(0, 1, 3), (1, 2, 3)]
    assert sorted(cliques_of((2, 9, 2, 9), cycle)) == [(0, 1, 2), (0, 2, 3)]
    assert cliques_of((2, 2, 2, 2), list(combinations(range(4), 2))) == [(0, 1, 2, 3)]
    assert n_model_cells((2, 9, 2, 9), cycle) == 72


@pytest.mark.parametrize(("sizes", "tables"), SHAPES)
def test_exact_counts_are_met(sizes, tables):
    """Without noise the model has the measured tables."""
    joint = random_joint(sizes, 3)
    model = fit(sizes, measured(joint, tables, 10_000, 0, 1), 10_000, attempts=3000)
    for table in [*((each,) for each in range(len(sizes))), *tables]:
        assert np.allclose(model.table(table), summed(joint, table), atol=2e-3)


@pytest.mark.parametrize(("sizes", "tables"), SHAPES[:3])
def test_noisy_counts_against_another_optimiser(sizes, tables):
    """The fit ends at the least squares over all joint distributions, found without a junction tree."""
    measurements = measured(random_joint(sizes, 4), tables, 1000, 30, 2)

    def loss(logarithms: np.ndarray) -> float:
        joint = np.exp(logarithms - logarithms.max()).reshape(sizes)
        joint /= joint.sum()
        return sum(
            float((((1000 * summed(joint, each.attributes) - each.counts) ** 2) / each.variance).sum())
            for each in measurements
        )

    start = np.random.default_rng(1).normal(size=int(np.prod(sizes)))
    oracle = minimize(loss, start, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**6})
    model = fit(sizes, measurements, 1000, attempts=3000)
    reached = sum(
        float((((1000 * model.table(each.attributes) - each.counts) ** 2) / each.variance).sum())
        for each in measurements
    )
    assert reached <= oracle.fun * 1.001 + 1e-3


def test_precise_tables_weigh_more():
    """Of two measurements of one table the model is near that with the small variance."""
    wrong = Measurement((0,), np.array([900.0, 100.0]), np.array([1e4, 1e4]))
    right = Measurement((0,), np.array([300.0, 700.0]), np.array([1.0, 1.0]))
    assert fit((2,), [wrong, right], 1000).table((0,))[0] == pytest.approx(0.3, abs=1e-3)


def test_impossible_cells_have_nothing():
    """Whatever was measured there; a rule relates attributes of which no table was measured."""
    measurements = measured(random_joint((2, 3, 2), 5), [(0, 1)], 1000, 10, 3)
    cells = np.zeros(4, dtype=np.bool_)
    cells[3] = True
    model = fit((2, 3, 2), measurements, 1000, [Impossible((0, 2), cells)])
    assert model.table((0, 2))[3] == 0
    assert model.table((0, 2)).sum() == pytest.approx(1)
    with pytest.raises(UsageError, match="no possible record"):
        fit((2, 3, 2), measurements, 1000, [Impossible((0, 2), np.ones(4, dtype=np.bool_))])


def test_noise_only():
    """Counts that are all noise, negative ones too, still yield a distribution."""
    measurements = [Measurement((0, 1), np.full(6, -50.0), np.full(6, 100.0))]
    model = fit((2, 3), measurements, 10)
    assert np.allclose(model.table((0, 1)), 1 / 6)


def test_exponential():
    """Against the library's function; far below, 0."""
    x = np.concatenate([-np.logspace(-12, 2.84, 5000), [0.0]])
    assert np.allclose(exponential(x), [exp(each) for each in x], rtol=1e-15, atol=0)
    assert exponential(np.array([-701.0, -1e300, -np.inf])).tolist() == [0, 0, 0]


def test_the_same_bits_everywhere():
    """A fit is a function of its input alone: these are the bits of one, which no machine may change."""
    sizes = (3, 4, 2, 3)
    measurements = [
        Measurement(
            table, (np.arange(n_cells) * 37 % 101).astype(np.float64), np.full(n_cells, 4.0 + n_cells)
        )
        for table, n_cells in [((0, 1), 12), ((1, 2), 8), ((0, 2), 6), ((2, 3), 6), ((3,), 3)]
    ]
    model = fit(sizes, measurements, 500)
    digest = sha256(b"".join(table.astype("<f8").tobytes() for table in model.tables)).hexdigest()
    assert digest == "24dd14793c6e22da96d44f3b12f15a5c887fac72db3edf2f758c7f263fad71b4"


def test_what_nearly_underflows_has_no_distribution():
    """Without a warning: it is one of the steps that the fit takes back."""
    tree = JunctionTree([2, 2, 2, 2], [(0, 1), (1, 2), (2, 3)])
    below: dict[tuple[int, ...], list[float]] = {
        (0, 1): [-np.inf, 0, -np.inf, 0], (1, 2): [0, 0, -np.inf, -352], (2, 3): [0, 0, -360, -360],
    }  # fmt: skip
    potentials = [np.array(below[clique], dtype=np.float64) for clique in tree.cliques]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tree.distribution(potentials) is None
