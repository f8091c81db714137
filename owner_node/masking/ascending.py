"""The ascending list that is nearest to another one: isotonic regression by pooling.

Neighbours that do not ascend have one value in the nearest list, whichever are found first. So all of them
are pooled at once, and again as long as there are some, which is a few rounds. scipy does the same pair by
pair; to load its optimisation takes longer than masking a table of some ten thousand records.

References:
    Robertson, Wright and Dykstra 1988, Order Restricted Statistical Inference, section 1.2: violators may be
    pooled in any order.
"""

import numpy as np

from owner_node.masking.arrays import BoolArray, Float64Array, Int64Array

MOST_ROUNDS = 32
"""A round looks at all pools. Some lists take as many rounds as they are long; these are left to scipy."""


def nearest_ascending(sums: Int64Array, weights: Int64Array, begins: BoolArray | None = None) -> Float64Array:
    """Return the ascending list with the least weighted squared distance from `sums / weights`.

    Args:
        sums: What each value is multiplied by its weight, `(n,)`.
        weights: Positive weights, `(n,)`, whose sum fits into 63 bits.
        begins: Where a list begins if there are several, one after the other, `(n,)`; the first always does.

    Returns:
        The list, or each list by itself, `(n,)`.
    """
    pooled, weight = sums.astype(np.float64), weights.astype(np.float64)
    edges, reached = np.arange(sums.size + 1), np.append(0, np.cumsum(weights))
    if begins is None:
        begins = edges[:-1] == 0
    for _ in range(MOST_ROUNDS):
        means = pooled / weight
        ascends = begins.copy()
        ascends[1:] |= means[1:] > means[:-1]
        firsts = np.flatnonzero(ascends)
        if firsts.size == means.size:
            break
        pooled = np.add.reduceat(pooled, firsts)
        edges, begins = edges[np.append(firsts, means.size)], begins[firsts]
        weight = np.diff(reached[edges]).astype(np.float64)
    else:
        means = _by_pairs(pooled / weight, weight, begins)
    return np.repeat(means, np.diff(edges))


def _by_pairs(means: Float64Array, weights: Float64Array, begins: BoolArray) -> Float64Array:
    from scipy.optimize import isotonic_regression

    starts = np.flatnonzero(begins)[1:]
    lists = zip(np.split(means, starts), np.split(weights, starts), strict=True)
    return np.concatenate([isotonic_regression(each, weights=weight).x for each, weight in lists])
