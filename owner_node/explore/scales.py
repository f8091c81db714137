"""How values of one attribute are compared: as places on a line, or by their distances in a taxonomy.

References:
    Del Vasto-Terrientes et al. 2025, §5.1.1 and equation 5 (categories by frequency).
    Sánchez et al. 2016, §3.4 (semantic distance).
"""

from dataclasses import dataclass

import numpy as np

from common.schema import Attribute, TaxonomyMethod
from owner_node.masking.arrays import Float64Array, Int64Array
from owner_node.masking.categories import IndexOrder


@dataclass(frozen=True, slots=True)
class Scale:
    """Compares values of one attribute."""

    attribute: Attribute
    """The attribute."""
    spread: float
    """σ², the sample variance of the original places; of categories that are drawn from a taxonomy, the mean
    squared distance from the best single category."""
    place_of: Int64Array | None
    """Place of each category, `(V,)`, where they are not in declared order."""
    distances: Float64Array | None
    """Semantic distances of categories by declared index, `(V, V)`, where there is a taxonomy."""

    @property
    def is_drawn(self) -> bool:
        """Whether categories are drawn from a taxonomy, so that no line holds them."""
        return self.attribute.method is TaxonomyMethod.EXPONENTIAL

    def places(self, values: Int64Array) -> Float64Array:
        """Return places on a line, `(n_records,)`, in resolution units above the domain's lower end."""
        if self.place_of is not None:
            return self.place_of[values].astype(np.float64)
        return (values - self.attribute.lower).astype(np.float64)

    def squared(self, original: Int64Array, masked: Int64Array) -> Float64Array:
        """Return squared differences, `(n_records,)`."""
        if self.is_drawn and self.distances is not None:
            return np.square(self.distances[original, masked])
        return np.square(self.places(masked) - self.places(original))

    def sse(self, squares: float, n_records: int) -> float | None:
        """Return Σ d²/(n σ²): 1 is as bad as the best single value, up to the factor (n-1)/n.

        Args:
            squares: Sum of the squared differences of all records.
            n_records: Number of records.

        Returns:
            The error; 0 for an attribute without variation that is unchanged, None if it was changed.
        """
        if self.spread > 0:
            return squares / (n_records * self.spread)
        return 0.0 if squares == 0 else None


def scale_of(
    attribute: Attribute,
    original: Int64Array,
    order: IndexOrder | None = None,
    distances: Float64Array | None = None,
) -> Scale:
    """Return how values of an attribute are compared.

    Args:
        attribute: The attribute.
        original: Original values of all records, `(n_records,)`, in resolution units.
        order: The order its categories are masked in, made from the same values; None: as declared.
        distances: Semantic distances by declared index, `(V, V)`, if it has a taxonomy.
    """
    place_of = None if order is None else order.place_of
    scale = Scale(attribute, 0.0, place_of, distances)
    if scale.is_drawn and distances is not None:
        counts = np.bincount(original, minlength=attribute.n_values)
        spread = float((counts @ np.square(distances)).min()) / max(original.size - 1, 1)
    else:
        spread = float(np.var(scale.places(original), ddof=1)) if original.size > 1 else 0.0
    return Scale(attribute, spread, place_of, distances)
