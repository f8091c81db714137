"""Local sensitivities of cluster sums: how far a sum of the actual data can move, in exact integers."""

import numpy as np

from owner_node.masking.arrays import Int64Array


def rise(rows: Int64Array, g: int = 1) -> Int64Array:
    """Return E_up, the largest rise of each trimmed sum when g records change.

    The trimmed sum is monotone in the order statistics, so its largest rise is reached by removing the g
    smallest values and adding g values above the largest: W_g(v_(g+1) … v_q, then v_q g times) - W_g(v).
    All values that both have in common cancel; for g = 1 what is left is
    (M1 - m2) + (m3 - m2) + (M1 - M2).

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, size at least 2g + 1, in
            resolution units.
        g: The most records that one person has.

    Returns:
        The rises, `(n_clusters,)`, in resolution units of the sum.

    References:
        Soria-Comas et al. 2025, Proposition 9 (the two terms of the cluster-based local sensitivity).
    """
    size = rows.shape[1]
    ends = rows[:, 2 * g] + rows[:, -1] - rows[:, g] - rows[:, size - g - 1]
    moved: Int64Array = g * ends + rows[:, size - g :].sum(axis=1) - rows[:, g : 2 * g].sum(axis=1)
    return moved


def fall(rows: Int64Array, g: int = 1) -> Int64Array:
    """Return E_down, the largest fall of each trimmed sum when g records change.

    Mirrors `rise`: W_g(v) - W_g(v_1 g times, then v_1 … v_(q-g)); for g = 1 this is
    (M2 - m1) + (M2 - M3) + (m2 - m1).

    Args:
        rows: As in `rise`.
        g: The most records that one person has.

    Returns:
        The falls, `(n_clusters,)`, in resolution units of the sum, as numbers of at least 0.

    References:
        Soria-Comas et al. 2025, Proposition 9.
    """
    size = rows.shape[1]
    ends = rows[:, g] + rows[:, size - g - 1] - rows[:, 0] - rows[:, size - 2 * g - 1]
    moved: Int64Array = g * ends + rows[:, size - 2 * g : size - g].sum(axis=1) - rows[:, :g].sum(axis=1)
    return moved


def reach(rows: Int64Array, n_values: int) -> Int64Array:
    """Return max(U - min, max - L), how far one value of each cluster can move within the domain.

    Args:
        rows: Sorted values of clusters of equal size, `(n_clusters, size)`, in resolution units above L.
        n_values: V; the domain is 0 to V - 1.

    Returns:
        The local sensitivities of the plain sums, `(n_clusters,)`, in resolution units.

    References:
        Soria-Comas et al. 2025, Proposition 8.
    """
    return np.maximum(n_values - 1 - rows[:, 0], rows[:, -1])
