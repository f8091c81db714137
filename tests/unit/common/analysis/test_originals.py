"""What the list of original values may have been: tails, noise and ties of the draws."""

import numpy as np
import pytest

from common.analysis.originals import (
    N_DRAWS,
    before_noise,
    drawn_shapes,
    from_counts,
    noisy_centroids,
    random_of,
    step_ratio,
    straight_lists,
    with_tails,
)
from common.model.counts import nearest_counts

N_CLUSTERS, SIZE = 12, 500
ENDS = np.linspace(0, 1, N_CLUSTERS + 1)


def centroids_of(quantile) -> tuple[np.ndarray, np.ndarray]:
    """The sorted values of a distribution, and the means of its clusters."""
    values = quantile((np.arange(N_CLUSTERS * SIZE) + 0.5) / (N_CLUSTERS * SIZE))
    return values, values.reshape(N_CLUSTERS, SIZE).mean(axis=1)


DISTRIBUTIONS = {
    "uniform": lambda u: u,
    "exponential": lambda u: -np.log(1 - u),
    "pareto": lambda u: (1 - u) ** -0.4,
}


@pytest.mark.parametrize(("shape", "name"), [(-1.0, "uniform"), (1e-9, "exponential"), (0.4, "pareto")])
def test_steps_show_the_shape_of_a_tail(shape, name):
    """The ratio of the outermost steps is that of the distribution with that shape."""
    _, centroids = centroids_of(DISTRIBUTIONS[name])
    steps = np.diff(centroids[-3:])
    assert steps[1] / steps[0] == pytest.approx(float(step_ratio(np.array([shape]))[0]), rel=0.02)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_variances_of_draws_hold_the_original_one(name):
    """A line between centroids misses a heavy tail; the draws with tails have its variance among them."""
    values, centroids = centroids_of(DISTRIBUTIONS[name])
    rows = np.tile(centroids, (N_DRAWS, 1))
    lines = straight_lists(rows, ENDS, 480)
    drawn = with_tails(lines, rows, ENDS, ENDS, random_of(name))
    low, high = np.quantile(drawn.var(axis=1), [0.025, 0.975])
    assert low <= values.var() * 1.01
    assert values.var() <= high
    assert drawn.mean(axis=1) == pytest.approx(values.mean(), rel=0.03)
    if name == "pareto":
        assert lines[0].var() < 0.8 * values.var()


def test_lower_tails_are_upper_ones_turned_round():
    """A list and its mirror image have mirrored tails."""
    _, centroids = centroids_of(DISTRIBUTIONS["exponential"])
    rows = np.tile(-centroids[::-1], (N_DRAWS, 1))
    drawn = with_tails(straight_lists(rows, ENDS, 480), rows, ENDS, ENDS, random_of("a"))
    assert np.median(drawn[:, 0]) < rows[0, 0] - 0.5
    assert np.all(np.isfinite(drawn))


def test_shapes_of_flat_ends_are_finite():
    """Steps of zero, which noise and isotonic regression make, give shapes within the range."""
    flat = np.tile([0.0, 1.0, 1.0, 1.0], (N_DRAWS, 1))
    steep = np.tile([0.0, 1.0, 1.0, 5.0], (N_DRAWS, 1))
    for each in (flat, steep, flat[:, :2]):
        shapes = drawn_shapes(each, 0.0, random_of("a"))
        assert np.all((shapes >= -2.6) & (shapes <= 0.6))


def test_noise_is_of_its_scale():
    """Centroids far apart get Laplace noise of the scale that was asked for, and counts keep their sum."""
    centroids = np.arange(0.0, 5000.0, 1000.0)
    drawn = noisy_centroids(centroids, 10.0, random_of("a"))
    assert (drawn - centroids).std() == pytest.approx(10 * 2**0.5, rel=0.15)
    _, counts = from_counts(np.array([900.0, 80.0, 20.0]), 5.0, random_of("a"), ordered=False, n_draws=200)
    assert counts.sum(axis=1) == pytest.approx(1000)
    assert np.all(counts >= 0)
    assert counts.std(axis=0).max() == pytest.approx(5 * 2**0.5, rel=0.4)


def test_likely_counts_are_nearer_to_the_original_ones():
    """Making counts not negative gives records to values that nobody has; a part of that is taken back."""
    counts, draw = np.append([2000.0, 900.0], np.zeros(40)), np.random.default_rng(4)
    released = [nearest_counts(counts + draw.laplace(0, 20, counts.size), counts.sum()) for _ in range(40)]
    likely = [from_counts(each, 20, draw, ordered=False, n_draws=1)[0] for each in released]
    beyond, left = (np.mean(found, axis=0)[2:].sum() for found in (released, likely))
    assert 0 <= left < 0.85 * beyond
    assert np.sum(likely, axis=1) == pytest.approx(counts.sum())


def test_rare_labels_that_noise_hid_are_held():
    """Draws hold small counts in nine of ten releases, also where noise left a count of 0."""
    counts, draw, held = np.array([5000.0, 300, 40, 20, 10, 5, 3]), np.random.default_rng(6), []
    for _ in range(60):
        released = nearest_counts(counts + draw.laplace(0, 20, counts.size), counts.sum())
        low, high = np.quantile(before_noise(released, 20, draw), [0.025, 0.975], axis=0)
        held.append((low <= counts) & (counts <= high))
    assert np.mean(held, axis=0).min() >= 0.85
    assert np.mean(held) >= 0.9


def test_draws_are_the_same_in_every_program():
    """An estimate has one interval, and attributes have draws of their own."""
    same = [random_of("age").random(3) for _ in range(2)]
    assert np.array_equal(same[0], same[1])
    assert not np.array_equal(same[0], random_of("sex").random(3))
