"""Counts made of noisy counts: not negative, whole, of a sum that is known. Free post-processing.

Everything here, and in `empty_regions`, is a function of noisy counts and of public numbers: their number,
the number of records and the scale of the noise. It never sees a record. So whatever ε the noisy counts
have, the result has (Dwork and Roth 2014, Proposition 2.1: f(M(x)) of an ε-differentially private M is
ε-differentially private for every f).
Doubles are safe here, because the exact noise has already been added. They are added, multiplied, divided and
rooted one by one in a fixed order, and logarithms are rounded to six digits: the same bits everywhere.

References:
    Balinski and Young 1982, "Fair Representation" (largest remainders).
    Duchi, Shalev-Shwartz, Singer, Chandra 2008, "Efficient projections onto the l1-ball", Figure 1.
    Dwork and Roth 2014, "The Algorithmic Foundations of Differential Privacy", Proposition 2.1.
"""

import numpy as np

from common.arrays import Float64Array, Int64Array


def nearest_counts(noisy: Float64Array, n_records: float) -> Float64Array:
    """Project noisy counts onto those that are not negative and sum to a number of records.

    Args:
        noisy: Noisy counts, `(V,)`.
        n_records: What they are to sum to.

    Returns:
        The nearest such counts in squared distance, `(V,)`, not whole yet.

    References:
        Duchi et al. 2008, Figure 1.
    """
    falling = np.sort(noisy)[::-1]
    beyond = np.cumsum(falling) - n_records
    places = np.arange(1, noisy.size + 1)
    above = np.flatnonzero(falling * places > beyond)
    # The first place is among them for every positive number of records; for none, it makes all counts 0.
    last = int(above[-1]) if above.size else 0
    nearest: Float64Array = np.maximum(noisy - beyond[last] / places[last], 0)
    return nearest


def whole_counts(counts: Float64Array, n_records: int) -> Int64Array:
    """Round counts to whole numbers that sum to a number of records, largest remainders up.

    Args:
        counts: Not negative, of that sum, `(V,)`.

    Returns:
        Whole counts, `(V,)`; of equal remainders the first ones are rounded up.
    """
    whole = np.floor(counts).astype(np.int64)
    missing = n_records - int(whole.sum())
    whole[np.argsort(whole - counts, kind="stable")[:missing]] += 1
    return whole
