"""What the list of an attribute's original values may have been: a parametric bootstrap, from public numbers.

A released list differs from the sorted original values by the noise of its centroids or counts, and by what a
cluster does not show: how its values lie around their mean. Every draw adds noise once more to the released
centroids or counts, and makes them ascend or not negative, as masking does: that is how far noise moves a
list. Then it replaces the ends of the list by tails.

*Tails.* A line between centroids loses most of a heavy tail: more than half of the standard deviation of
chlorides of Wine Quality, with ten clusters. So the outermost cluster, and half of the next, follow a
generalised Pareto distribution. With s the share of the records that lie farther out, in clusters, the
distance from the centre is proportional to (s^-ξ - 1)/ξ: a line for ξ = -1, an exponential tail for 0, an
infinite variance from 0.5 on. Level and scale are those of the two outermost centroids, allowing for what was
trimmed. The shape is that of the three outermost, whose two steps have the ratio

    (m_1 - m_2)/(m_2 - m_3),    m_i the mean of s^-ξ from i - 1 to i,

plus a number that is drawn: the shapes that fitted the tails of Wine Quality and Census best were larger by
0.3 on average, from 0.2 less to 0.8 more. Nothing public bounds a tail. These draws assume that it goes on
like those of such data; beyond ξ = 0.6 they allow for nothing.

*Noise.* Where noise is calibrated to the values, its scale is not public, but follows their range. Three
times the range of the centroids was enough for all attributes of Wine Quality but chlorides (4.3).

References:
    Efron 1979, Bootstrap methods: another look at the jackknife (parametric bootstrap).
    Pickands 1975, Statistical inference using extreme order statistics (generalised Pareto tails).
"""

import numpy as np

from common.arrays import Float64Array
from common.model.counts import nearest_counts

N_DRAWS = 200
_SHAPES = np.linspace(-2.5, 0.95, 70) + 1e-9
"""Shapes that ratios of steps are compared with; none is 0."""
_BELOW, _ABOVE = 0.2, 0.8
"""How far the shape of a tail may be from that of the centroids."""
_MOST_HEAVY = 0.6


def random_of(name: str) -> np.random.Generator:
    """Return the source of an attribute's draws: the same in every program, other ones for each attribute."""
    return np.random.default_rng(list(name.encode()))


def step_ratio(shapes: Float64Array) -> Float64Array:
    """Return the ratio of the outermost two steps of the means of clusters, for shapes of a tail."""
    power = 1 - shapes
    means = np.diff(np.arange(4.0)[:, None] ** power, axis=0) / power
    found: Float64Array = (means[0] - means[1]) / (means[1] - means[2])
    return found


_RATIOS = step_ratio(_SHAPES)


def drawn_shapes(noisy: Float64Array, random: np.random.Generator) -> Float64Array:
    """Draw the shape of the upper tail for draws of ascending centroids, `(N_DRAWS, n_clusters)`."""
    beside = random.uniform(-_BELOW, _ABOVE, N_DRAWS)
    if noisy.shape[1] < 3:
        return np.interp(beside, [-_BELOW, _ABOVE], [-1, _MOST_HEAVY])
    steps = np.diff(noisy[:, -3:], axis=1)
    ratios = np.divide(steps[:, 1], steps[:, 0], out=np.full(N_DRAWS, np.inf), where=steps[:, 0] > 0)
    shapes: Float64Array = np.clip(np.interp(ratios, _RATIOS, _SHAPES) + beside, _SHAPES[0], _MOST_HEAVY)
    return shapes


def with_tail(
    lists: Float64Array, centroids: Float64Array, shapes: Float64Array, size: float, trimmed: float
) -> None:
    """Replace the upper end of lists by a generalised Pareto tail.

    Args:
        lists: `(n_draws, n_bins)`; changed.
        centroids: `(N_DRAWS, n_clusters)`, two clusters at least.
        shapes: ξ, `(n_draws,)`.
        size: Size of the outermost cluster as a share of the records.
        trimmed: Which share of it was trimmed at each end.
    """
    n_bins = lists.shape[1]
    power = (1 - shapes)[:, None]

    def integral(ends: Float64Array) -> Float64Array:
        found: Float64Array = ends**power / power
        return found

    def mean(low: float, high: float) -> Float64Array:
        values = integral(np.array([low, high]))
        return (values[:, 1] - values[:, 0]) / (high - low)

    # Of s^-ξ; what was trimmed counts as the value beside it.
    low = min(trimmed, 0.5)
    first = mean(low, 1 - low) * (1 - 2 * low) + low * ((low or 1) ** -shapes + (1 - low) ** -shapes)
    second = mean(1, 2)
    scale = (centroids[:, -1] - centroids[:, -2]) / (first - second)
    reach = size * (1.5 if centroids.shape[1] > 2 else 1.0)
    n_changed = int(reach * n_bins)
    if not n_changed:
        return
    edges = np.arange(n_changed + 1) / n_bins / size
    of_bins = np.diff(integral(edges), axis=1) * n_bins * size
    tail = centroids[:, -2, None] + (of_bins - second[:, None]) * scale[:, None]
    lists[:, n_bins - n_changed :] = tail[:, ::-1]


def straight_lists(centroids: Float64Array, ends: Float64Array, n_bins: int) -> Float64Array:
    """Return lists, `(..., n_bins)`, that are linear between centroids, `(..., n_clusters)`.

    Beyond the outermost centroids the outermost slopes go on, as in a released list of quantiles.
    """
    if ends.size == 2:
        return np.repeat(centroids, n_bins, axis=-1)
    middles, places = (ends[:-1] + ends[1:]) / 2, (np.arange(n_bins) + 0.5) / n_bins
    after = np.clip(np.searchsorted(middles, places), 1, middles.size - 1)
    part = (places - middles[after - 1]) / (middles[after] - middles[after - 1])
    found: Float64Array = centroids[..., after - 1] * (1 - part) + centroids[..., after] * part
    return found


def with_tails(
    lists: Float64Array,
    centroids: Float64Array,
    ends: Float64Array,
    trimmed: float,
    random: np.random.Generator,
) -> Float64Array:
    """Return lists with generalised Pareto tails of drawn shapes, `(N_DRAWS, n_bins)`.

    Args:
        lists: Linear between the centroids, `(N_DRAWS, n_bins)`.
        centroids: Ascending, `(N_DRAWS, n_clusters)`.
        ends: Where clusters begin and end, as shares of the ranks, `(n_clusters + 1,)`.
        trimmed: Which share of a cluster was trimmed at each end.
        random: Draws the shapes of the tails.
    """
    found = lists.copy()
    if centroids.shape[1] < 2:
        return found
    for turned, size in ((False, ends[-1] - ends[-2]), (True, ends[1] - ends[0])):
        # The lower end of a list is the upper end of its mirror image.
        seen, own = (-found[:, ::-1], -centroids[:, ::-1]) if turned else (found, centroids)
        with_tail(seen, own, drawn_shapes(own, random), float(size), trimmed)
        found = -seen[:, ::-1] if turned else seen
    return found


def from_counts(counts: Float64Array, scale: float, random: np.random.Generator) -> Float64Array:
    """Return counts with noise, `(N_DRAWS, n_different)`, not negative and of the same sum.

    Args:
        counts: Of an owner's records by released value, `(n_different,)`.
        scale: Laplace scale of the noise, in records.
        random: Draws the noise.
    """
    noisy = counts + random.laplace(0, scale, (N_DRAWS, counts.size))
    return np.stack([nearest_counts(each, float(counts.sum())) for each in noisy])


def noisy_centroids(centroids: Float64Array, scale: float, random: np.random.Generator) -> Float64Array:
    """Return ascending centroids with Laplace noise, `(N_DRAWS, n_clusters)`."""
    from scipy.optimize import isotonic_regression

    noisy = centroids + random.laplace(0, scale, (N_DRAWS, centroids.size))
    return np.stack([isotonic_regression(each).x for each in noisy])
