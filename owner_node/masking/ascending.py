"""The ascending list that is nearest to another one: isotonic regression by pooling.

Neighbours that do not ascend have one value in the nearest list, whichever are found first. So all of them
are pooled at once, and again as long as there are some, which is a few rounds. scipy does the same pair by
pair; to load its optimisation takes longer than masking a table of some ten thousand records.

References:
    Robertson, Wright and Dykstra 1988, Order Restricted Statistical Inference, section 1.2: violators may be
    pooled in any order.
"""

import numpy as np

from owner_node.masking.arrays import Float64Array, Int64Array

MOST_ROUNDS = 32
"""A round looks at all pools. Some lists take as many rounds as they are long; these are left to scipy."""


def nearest_ascending(sums: Int64Array, weights: Int64Array) -> Float64Array:
    """Return the ascending list with the least weighted squared distance from `sums / weights`.

    Args:
        sums: What each value is multiplied by its weight, `(n,)`.
        weights: Positive weights, `(n,)`.

    Returns:
        The list, `(n,)`.
    """
    pooled, weight = sums.astype(np.float64), weights.astype(np.float64)
    lengths = np.ones(sums.size, dtype=np.int64)
    for _ in range(MOST_ROUNDS):
        means = pooled / weight
        firsts = np.flatnonzero(np.append(True, means[1:] > means[:-1]))
        if firsts.size == means.size:
            return np.repeat(means, lengths)
        pooled, weight, lengths = (np.add.reduceat(each, firsts) for each in (pooled, weight, lengths))
    from scipy.optimize import isotonic_regression

    return np.repeat(isotonic_regression(pooled / weight, weights=weight).x, lengths)
