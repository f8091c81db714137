"""The exponential mechanism over a taxonomy: one category per cluster, drawn with exact probabilities.

P(c) ∝ exp(-m(C, c)/t), where m is the sum of the distances of the cluster's records to category c on a public
grid, and the scale t is 2 g Δ / epsilon, rounded up, Δ the largest distance.

Proof that the draw is exact. Let x_c = (m(C, c) - min m)/t = w_c + r_c with w_c whole and 0 <= r_c < 1,
and j_c = min(w_c, J). A category is proposed with probability proportional to the integer 2^(J - j_c), and
kept if j_c coins of probability 2/e, w_c - j_c of probability 1/e and one of probability exp(-r_c) are all
true. So it is drawn with probability proportional to
2^(J - j_c) (2/e)^j_c e^(j_c - w_c) e^(-r_c) = 2^J exp(-x_c).
Proposing by powers of two keeps the number of proposals small, whatever the number of categories.

References:
    Sánchez et al. 2016, §3.4, Algorithm 2 and equation 6.
    McSherry and Talwar 2007 (the exponential mechanism).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from common.errors import UnusableDataError
from owner_node.masking.arrays import BitSource, BoolArray, Float64Array, Int64Array
from owner_node.masking.clusters import Clusters, Setting
from owner_node.masking.lists import Expectation, ListMechanism, ReleasedList, Statistics, counts_in
from owner_node.masking.noise import exponential_coin, two_over_e_coin, uniform_below
from owner_node.values.taxonomy import Taxonomy

GRID_BITS = 32
"""Distances are multiples of 2^-32."""
MOST_CATEGORIES = 2_000
"""Largest number of categories; the table of distances has the square of it."""
WIDEST_SCALE = 2**61
HALVINGS = 40
"""J: proposals fall by powers of two down to 2^-40."""
_BLOCK = 2**20
"""Entries of proposal tables at a time: times 2^J, they add up to less than 2^63."""


@dataclass(frozen=True, slots=True)
class TaxonomyMechanism(ListMechanism):
    """Draws the category of each cluster. Values are places in the order of the setting's taxonomy."""

    def check(self, setting: Setting) -> None:
        """Refuse a setting that cannot be drawn exactly."""
        details = {"attribute": setting.attribute, "categories": setting.n_values, "k": setting.k}
        if _taxonomy(setting).n_categories > MOST_CATEGORIES:
            raise UnusableDataError(
                f"attribute {setting.attribute!r}: the exponential method takes at most {MOST_CATEGORIES} "
                "categories",
                'declare method = "rank", or fewer categories',
                details,
            )
        # Distances are below 1, and a cluster has fewer than 2k records.
        if 2 * setting.k << GRID_BITS >= WIDEST_SCALE or _scale(1 << GRID_BITS, setting) >= WIDEST_SCALE:
            raise UnusableDataError(
                f"attribute {setting.attribute!r}: k is too large or epsilon too small for exact draws",
                "ask for a smaller k or a larger epsilon",
                details,
            )

    def release_from(
        self, statistics: Statistics, setting: Setting, bits: BitSource, _shuffles: BitSource
    ) -> ReleasedList:
        """Draw a category for every cluster, as a place in the taxonomy's order."""
        counted = counts_in(statistics)
        clusters = Clusters(int(counted.sum()), setting.k)
        values = np.empty(clusters.n_clusters, dtype=np.int64)
        for kinds in self.kinds(counted, setting):
            values[kinds.clusters] = draw(kinds.marginality, kinds.row_of, kinds.scale, bits)
        return ReleasedList(values, clusters.sizes)

    def kinds(self, counted: Int64Array, setting: Setting) -> Iterator["Kinds"]:
        """Return the distributions that categories are drawn from, for some clusters at a time.

        Args:
            counted: How many records have each category, `(V,)`.

        Yields:
            Consecutive clusters.
        """
        from scipy.sparse import csr_array

        table = distance_table(_taxonomy(setting))
        scale = _scale(int(table.max()), setting)
        clusters = Clusters(int(counted.sum()), setting.k)
        bounds = np.append(0, np.cumsum(counted))
        for numbers, rows in _alike(clusters, bounds[1:], _BLOCK // table.shape[0]):
            starts = rows * clusters.k
            ends = starts + clusters.sizes[rows]
            counts = np.maximum(
                np.minimum(bounds[1:], ends[:, None]) - np.maximum(bounds[:-1], starts[:, None]), 0
            )
            row_of = np.repeat(np.arange(rows.size), np.diff(np.append(rows, numbers.stop)))
            yield Kinds(slice(numbers.start, numbers.stop), row_of, counts, csr_array(counts) @ table, scale)

    def expect(
        self,
        sorted_values: Int64Array,
        assigned: Int64Array,
        setting: Setting,
        _bits: BitSource,
        _n_pairs: int,
    ) -> Expectation:
        """Sum over the probabilities of all categories; the difference of two is their semantic distance."""
        squared = squared_distances(_taxonomy(setting))
        clusters = Clusters(sorted_values.size, setting.k)
        starts = np.arange(clusters.n_clusters) * clusters.k
        unchanged, squares = np.empty(sorted_values.size), 0.0
        for kinds in self.kinds(np.bincount(sorted_values, minlength=setting.n_values), setting):
            above = kinds.marginality - kinds.marginality.min(axis=1, keepdims=True)
            weights = np.exp(-above / kinds.scale)
            weights /= weights.sum(axis=1, keepdims=True)
            expected = weights @ squared
            first, last = starts[kinds.clusters.start], kinds.clusters.stop - 1
            ranks = slice(first, starts[last] + clusters.sizes[last])
            rows = np.repeat(kinds.row_of, clusters.sizes[kinds.clusters])
            squares += float(expected[rows, assigned[ranks]].sum())
            unchanged[ranks] = weights[rows, assigned[ranks]]
        return Expectation(squares, unchanged, 0.0, 0)

    def spread(self, sorted_values: Int64Array, setting: Setting) -> float:
        """Return the sum of squared distances from the best single category."""
        squared = squared_distances(_taxonomy(setting))
        return float((np.bincount(sorted_values, minlength=len(squared)) @ squared).min())


def _taxonomy(setting: Setting) -> Taxonomy:
    if setting.taxonomy is None:
        raise ValueError(f"attribute {setting.attribute!r} has no taxonomy to draw from")
    return setting.taxonomy


@dataclass(frozen=True, slots=True)
class Kinds:
    """Consecutive clusters by their content: those of one kind hold the same categories equally often."""

    clusters: slice
    row_of: Int64Array
    """The kind of each, `(n_clusters,)`."""
    counts: Int64Array
    """Number of records of each category in a cluster of each kind, `(n_kinds, V)`."""
    marginality: Int64Array
    """m of each kind and category in 2^-32, `(n_kinds, V)`."""
    scale: int
    """t, in the same units."""


def distance_table(taxonomy: Taxonomy) -> Int64Array:
    """Return the semantic distances of all categories in 2^-32, `(V, V)`, in the taxonomy's order."""
    paths = [taxonomy.paths[index] for index in taxonomy.order()]
    depths = np.array([len(path) for path in paths])
    shared = np.zeros((len(paths), len(paths)), dtype=np.int64)
    for level in range(1, int(depths.max()) + 1):
        nodes = {node: number for number, node in enumerate(dict.fromkeys(path[:level] for path in paths))}
        there = depths >= level
        ids = np.array([nodes[path[:level]] for path in paths])
        shared += (ids[:, None] == ids) & there & there[:, None]
    union = depths[:, None] + depths - shared
    table: Int64Array = np.rint(np.log2(2 - shared / union) * 2**GRID_BITS).astype(np.int64)
    return table


def squared_distances(taxonomy: Taxonomy) -> Float64Array:
    """Return the squared semantic distances of all categories, `(V, V)`, in the taxonomy's order."""
    squared: Float64Array = np.square(distance_table(taxonomy) / 2.0**GRID_BITS)
    return squared


def draw(marginality: Int64Array, row_of: Int64Array, scale: int, bits: BitSource) -> Int64Array:
    """Draw columns c with P(c) ∝ exp(-m(row, c)/t), one for each entry of `row_of`.

    Args:
        marginality: m of every kind of cluster and category, `(n_kinds, V)`, at most 2^20 entries.
        row_of: The kind of each cluster, `(n_clusters,)`.
        scale: t, in the units of the marginality.

    Returns:
        The categories, `(n_clusters,)`.
    """
    n_columns = marginality.shape[1]
    whole, rest = np.divmod((marginality - marginality.min(axis=1, keepdims=True)).ravel(), scale)
    halved = np.minimum(whole, HALVINGS)
    upper = np.cumsum(np.int64(1) << (HALVINGS - halved))
    row_ends = upper[n_columns - 1 :: n_columns]
    row_starts = np.append(0, row_ends[:-1])
    values = np.empty(row_of.size, dtype=np.int64)
    pending = np.arange(row_of.size)
    while pending.size:
        rows = row_of[pending]
        places = row_starts[rows] + uniform_below(row_ends[rows] - row_starts[rows], bits)
        proposed = np.searchsorted(upper, places, side="right")
        kept = exponential_coin(rest[proposed], np.full(proposed.size, scale), bits)
        kept &= _all_true(halved[proposed], bits, two_over_e=True)
        kept &= _all_true(whole[proposed] - halved[proposed], bits, two_over_e=False)
        values[pending[kept]] = proposed[kept] % n_columns
        pending = pending[~kept]
    return values


def _scale(largest: int, setting: Setting) -> int:
    """Return t = ceil(2 g Δ / epsilon), at least 1: with g records per person each gets epsilon / g."""
    return max(1, ceil(2 * setting.g * largest / setting.exact_epsilon))


def _all_true(n_coins: Int64Array, bits: BitSource, *, two_over_e: bool) -> BoolArray:
    """Toss `n_coins` coins for each element; true where all of them are true."""
    result = np.ones(n_coins.size, dtype=np.bool_)
    running = np.flatnonzero(n_coins)
    done = 0
    while running.size:
        one = np.ones(running.size, dtype=np.int64)
        coins = two_over_e_coin(running.size, bits) if two_over_e else exponential_coin(one, one, bits)
        result[running[~coins]] = False
        done += 1
        running = running[coins & (n_coins[running] > done)]
    return result


def _alike(clusters: Clusters, ends: Int64Array, most_rows: int) -> Iterator[tuple[range, Int64Array]]:
    """Divide the clusters into at most 2V + 1 runs of the same content.

    If neighbouring clusters of one size have the same first and the same last value, all their values are
    equal.

    Args:
        ends: The rank after the last record of each category, `(V,)`.
        most_rows: Most runs of a block.

    Yields:
        Blocks of runs: the clusters of the block, and the first cluster of each of its runs.
    """
    starts = np.arange(clusters.n_clusters) * clusters.k
    first, last = (
        np.searchsorted(ends, ranks, side="right") for ranks in (starts, starts + clusters.sizes - 1)
    )
    new = np.append(True, (first[1:] != first[:-1]) | (last[1:] != last[:-1]))
    new[-1] = True
    runs = np.flatnonzero(new)
    for index in range(0, runs.size, most_rows):
        rows = runs[index : index + most_rows]
        after = index + most_rows
        yield range(int(rows[0]), int(runs[after]) if after < runs.size else clusters.n_clusters), rows
