"""Frequency order of categories: a map of indices made from the fragment itself, and its inverse.

It depends on the data: one record can swap two categories and so change every record's index, which no
mechanism's joint bound covers (MECHANISMS §3-4).

References:
    Del Vasto-Terrientes et al. 2025, §5.1.1.
"""

from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Int64Array


@dataclass(frozen=True, slots=True)
class FrequencyOrder:
    """Categories by how often they occur, the most frequent first, ties in declared order."""

    place_of: Int64Array
    """Place of each category, `(n_categories,)`, by declared index."""
    category_at: Int64Array
    """Declared index at each place, `(n_categories,)`; the inverse of `place_of`."""


def frequency_order(indices: Int64Array, n_categories: int) -> FrequencyOrder:
    """Order categories by frequency.

    Args:
        indices: Declared index of each record's category, `(n_records,)`, from 0 to n_categories - 1.
        n_categories: Number of declared categories; one that does not occur comes last.

    Returns:
        The order and its inverse.
    """
    counts = np.bincount(indices, minlength=n_categories)
    category_at = np.argsort(-counts, kind="stable")
    place_of = np.empty_like(category_at)
    place_of[category_at] = np.arange(n_categories)
    return FrequencyOrder(place_of, category_at)
