"""Draws of an attribute's list of original values: a parametric bootstrap, from public numbers.

A released list differs from the sorted original values by the noise of its centroids or counts, and by what a
cluster does not show: how its values lie around their mean. Every draw adds noise once more to the released
centroids or counts, and makes them ascend or not negative, as masking does: that is how far noise moves a
list. Then it replaces the ends of the list by tails.

*Tails.* A line between centroids loses most of a heavy tail: more than half of the standard deviation of
chlorides of Wine Quality, with ten clusters. So the outermost cluster, and half of the next, follow a
generalised Pareto distribution. With s the share of the records that lie farther out, in clusters, the
distance from the centre is proportional to (s^-ξ - 1)/ξ: a line for ξ = -1, an exponential tail for 0, an
infinite variance from 0.5 on. Level and scale are those of the two outermost centroids, allowing for the
records that these leave out. The shape is that of the three outermost, whose two steps have the ratio

    (m_1 - m_2)/(m_2 - m_3),    m_i the mean of s^-ξ from i - 1 to i,

plus a number that is drawn: the shapes that fitted the tails of Wine Quality and Census best were larger by
0.3 on average, from 0.2 less to 0.8 more. Nothing public bounds a tail. These draws assume that it continues
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
from common.model.empty_regions import projected_counts

N_DRAWS = 200
_SHAPES = np.linspace(-2.5, 0.95, 70) + 1e-9
"""Shapes that ratios of steps are compared with; none is 0."""
_BELOW, _ABOVE = 0.2, 0.8
"""How far the shape of a tail may be from that of the centroids."""
_MOST_HEAVY = 0.6
_FEW_DRAWS = 40
"""Draws that a mean takes."""
WIDER_COUNTS = 1.25
"""How much farther draws of counts spread than noise alone: they start from released counts, not from the
original ones. With 1, means and log odds of Adult and flchain missed more often (four owners, ε = 1)."""


def random_of(name: str) -> np.random.Generator:
    """Return the source of an attribute's draws: the same in every program, other ones for each attribute."""
    return np.random.default_rng(list(name.encode()))


def mean_power(shapes: Float64Array, low: float, high: float) -> Float64Array:
    """Return the mean of s^-ξ from one s to another, for some shapes ξ."""
    power = 1 - shapes
    found: Float64Array = (high**power - low**power) / power / (high - low)
    return found


def step_ratio(shapes: Float64Array, left_out: float = 0.0) -> Float64Array:
    """Return the ratio of the outermost two steps between centroids, for shapes of a tail.

    Args:
        shapes: ξ; none is 0 or 1.
        left_out: Which share of the outermost cluster its centroid leaves out.
    """
    first, second, third = (mean_power(shapes, *ends) for ends in ((left_out, 1.0), (1.0, 2.0), (2.0, 3.0)))
    ratio: Float64Array = (first - second) / (second - third)
    return ratio


def drawn_shapes(noisy: Float64Array, left_out: float, random: np.random.Generator) -> Float64Array:
    """Draw the shape of the upper tail for draws of ascending centroids, `(N_DRAWS, n_clusters)`."""
    beside = random.uniform(-_BELOW, _ABOVE, N_DRAWS)
    if noisy.shape[1] < 3:
        return np.interp(beside, [-_BELOW, _ABOVE], [-1, _MOST_HEAVY])
    steps = np.diff(noisy[:, -3:], axis=1)
    ratios = np.divide(steps[:, 1], steps[:, 0], out=np.full(N_DRAWS, np.inf), where=steps[:, 0] > 0)
    own = np.interp(ratios, step_ratio(_SHAPES, left_out), _SHAPES)
    shapes: Float64Array = np.clip(own + beside, _SHAPES[0], _MOST_HEAVY)
    return shapes


def with_tail(
    lists: Float64Array, centroids: Float64Array, shapes: Float64Array, size: float, left_out: float
) -> None:
    """Replace the upper end of lists by a generalised Pareto tail.

    Args:
        lists: `(n_draws, n_bins)`; changed.
        centroids: `(N_DRAWS, n_clusters)`, two clusters at least.
        shapes: ξ, `(n_draws,)`.
        size: Size of the outermost cluster as a share of the records.
        left_out: Which share of it its centroid leaves out.
    """
    n_bins = lists.shape[1]
    first, second = mean_power(shapes, left_out, 1), mean_power(shapes, 1, 2)
    scale = (centroids[:, -1] - centroids[:, -2]) / (first - second)
    reach = size * (1.5 if centroids.shape[1] > 2 else 1.0)
    n_changed = int(reach * n_bins)
    if not n_changed:
        return
    edges = np.arange(n_changed + 1) / n_bins / size
    power = (1 - shapes)[:, None]
    of_bins = np.diff(edges**power / power, axis=1) * n_bins * size
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
    summed: Float64Array,
    random: np.random.Generator,
) -> Float64Array:
    """Return lists with generalised Pareto tails of drawn shapes, `(N_DRAWS, n_bins)`.

    Args:
        lists: Linear between the centroids, `(N_DRAWS, n_bins)`.
        centroids: Ascending, `(N_DRAWS, n_clusters)`.
        ends: Where clusters begin and end, as shares of the ranks, `(n_clusters + 1,)`.
        summed: The same without what the centroids leave out.
        random: Draws the shapes of the tails.
    """
    found = lists.copy()
    if centroids.shape[1] < 2:
        return found
    for turned, size, tail in (
        (False, ends[-1] - ends[-2], ends[-1] - summed[-1]),
        (True, ends[1] - ends[0], summed[0] - ends[0]),
    ):
        # The lower end of a list is the upper end of its mirror image.
        seen, own = (-found[:, ::-1], -centroids[:, ::-1]) if turned else (found, centroids)
        left_out = float(tail / size)
        with_tail(seen, own, drawn_shapes(own, left_out, random), float(size), left_out)
        found = -seen[:, ::-1] if turned else seen
    return found


def from_counts(
    counts: Float64Array, scale: float, random: np.random.Generator, *, ordered: bool, n_draws: int
) -> tuple[Float64Array, Float64Array]:
    """Return likely original counts, and draws of what is released of these.

    Making counts not negative gives records to values that nobody has. What it gives once more is taken from
    the released counts. With draws around the released counts themselves, log odds missed more often.

    Args:
        counts: Of an owner's records by value, as released, `(n_values,)`.
        scale: Laplace scale of the noise, in records.
        random: Draws the noise.
        ordered: Whether stray counts are left out, as masking does for values that have an order.
        n_draws: How many draws.

    Returns:
        `(n_values,)` and `(n_draws, n_values)`, not negative and of the same sum.
    """
    n_records = float(counts.sum())

    def released(of: Float64Array, number: int) -> Float64Array:
        noisy = of + random.laplace(0, scale, (number, of.size))
        return np.stack([projected_counts(draw, n_records, scale, ordered=ordered) for draw in noisy])

    added = released(counts, _FEW_DRAWS).mean(axis=0) - counts
    likely = nearest_counts(counts - added, n_records)
    return likely, released(likely, n_draws)


def before_noise(counts: Float64Array, scale: float, random: np.random.Generator) -> Float64Array:
    """Return counts of labels that released ones may come from, some negative, `(N_DRAWS, n_labels)`.

    A released count of 0 had noise, too: its draws spread as far as those of others. What making counts
    nonnegative adds to small counts and takes from others is taken back on average.
    """
    noise = random.laplace(0, WIDER_COUNTS * scale, (N_DRAWS, counts.size))
    made = np.stack([nearest_counts(counts + draw, float(counts.sum())) for draw in noise])
    return np.asarray(2 * counts - made.mean(axis=0) - noise, dtype=np.float64)


def noisy_centroids(centroids: Float64Array, scale: float, random: np.random.Generator) -> Float64Array:
    """Return ascending centroids with Laplace noise, `(N_DRAWS, n_clusters)`."""
    from scipy.optimize import isotonic_regression

    noisy = centroids + random.laplace(0, scale, (N_DRAWS, centroids.size))
    return np.stack([isotonic_regression(draw).x for draw in noisy])
