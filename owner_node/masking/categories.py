"""Other orders of categories than the declared one: maps of indices, and their inverses.

The order of a taxonomy is public. The frequency order is made from the fragment itself: one record can swap
two categories and so change every record's index, which no mechanism's joint bound covers (MECHANISMS §3-4).

References:
    Del Vasto-Terrientes et al. 2025, §5.1.1 (frequency).
    Sánchez et al. 2016, §3.4 (taxonomy).
"""

from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Int64Array
from owner_node.masking.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class IndexOrder:
    """An order of categories and how declared indices map to it."""

    place_of: Int64Array
    """Place of each category, `(n_categories,)`, by declared index."""
    category_at: Int64Array
    """Declared index at each place, `(n_categories,)`; the inverse of `place_of`."""


def taxonomy_order(taxonomy: Taxonomy) -> IndexOrder:
    """Order categories by their distance to the most marginal one, ties in declared order."""
    return _with_inverse(np.array(taxonomy.order(), dtype=np.int64))


def frequency_order(indices: Int64Array, n_categories: int) -> IndexOrder:
    """Order categories by frequency, the most frequent first, ties in declared order.

    Args:
        indices: Declared index of each record's category, `(n_records,)`, from 0 to n_categories - 1.
        n_categories: Number of declared categories; one that does not occur comes last.

    Returns:
        The order and its inverse.
    """
    counts = np.bincount(indices, minlength=n_categories)
    return _with_inverse(np.argsort(-counts, kind="stable"))


def _with_inverse(category_at: Int64Array) -> IndexOrder:
    place_of = np.empty_like(category_at)
    place_of[category_at] = np.arange(category_at.size)
    return IndexOrder(place_of, category_at)
