"""The array types that both sides hand to each other."""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
"""Values of one attribute in resolution units, or positions of records; shape (n_records,)."""
TokenArray = NDArray[np.uint8]
"""Linkage tokens; shape (n_records, 16)."""
SortableArray = NDArray[np.bytes_]
"""Tokens as single elements; shape (n_records,)."""


def sortable(tokens: TokenArray) -> SortableArray:
    """View tokens as elements that numpy sorts and compares; all sixteen bytes count, zeros too.

    Args:
        tokens: Shape (n_records, 16).

    Returns:
        The same bytes, shape (n_records,).
    """
    return np.ascontiguousarray(tokens).view(f"S{tokens.shape[1]}").ravel()
