"""Sums of clusters, from which centroids come: plain and trimmed, exact integers.

Sums and not means: noise is added to the sum and the division comes after it (MECHANISMS §6).
"""

from owner_node.masking.arrays import Int64Array


def plain_sums(rows: Int64Array) -> Int64Array:
    """Return the sum of each cluster.

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, in resolution units.

    Returns:
        The sums, `(n_clusters,)`, in resolution units.
    """
    # Adding up rows of one value each takes numpy many times as long as taking the values.
    sums: Int64Array = rows.sum(axis=1) if rows.shape[1] > 1 else rows[:, 0]
    return sums


def trimmed_sums(rows: Int64Array, g: int = 1) -> Int64Array:
    """Return W_g, the trimmed sum of each cluster.

    The g smallest values are replaced by the (g+1)-th smallest, the g largest by the (g+1)-th largest
    (order statistics with repetition), so that the sum depends on no single extreme value.

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, size at least 2g + 1, in
            resolution units.
        g: The most records that one person has.

    Returns:
        The trimmed sums, `(n_clusters,)`, in resolution units.

    References:
        Soria-Comas et al. 2025, §3.2.2, for g = 1; the general form W_g is in MECHANISMS §4.
    """
    size = rows.shape[1]
    low, high = rows[:, g], rows[:, size - g - 1]
    # W_g = (g+1)(v_(g+1) + v_(q-g)) + what is strictly between, written so that q = 2g + 1 is no exception.
    sums: Int64Array = g * (low + high) + rows[:, g : size - g].sum(axis=1)
    return sums
