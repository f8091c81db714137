"""Attributes sorted once and masked many times, with draws that are for nothing else.

Whatever the setting, the order of an attribute's original values is the same; only clusters, noise and what
comes after them differ. A setting's error needs no record: with z the released value of cluster C,
Σ (z - x)² = Σ_C (|C| z² - 2 z Σ_C x) + Σ x², and the sums of x between any two ranks are kept.

References:
    Del Vasto-Terrientes et al. 2025, Algorithm 1 (individual ranking), equation 5.
"""

from dataclasses import dataclass

import numpy as np

from owner_node.explore.scales import Scale, scale_of
from owner_node.masking.arrays import Float64Array, Int64Array, PositionArray
from owner_node.masking.bits import BitSource
from owner_node.masking.categories import IndexOrder
from owner_node.masking.clusters import Clusters
from owner_node.masking.exponential import GRID_BITS, distance_table
from owner_node.masking.mask import AttributeTask, MaskedAttribute, mechanism_of, own_order
from owner_node.masking.ranking import rank
from owner_node.masking.released import ReleasedList
from owner_node.masking.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class SortedAttribute:
    """One attribute of some records, sorted as it is masked."""

    scale: Scale
    """How its values are compared."""
    original: Int64Array
    """Values by record, `(n_records,)`, in resolution units."""
    order: IndexOrder | None
    """The order of its categories, where it is not the declared one."""
    positions: PositionArray
    """The record at each rank, `(n_records,)`."""
    ascending: Int64Array
    """The values in order, `(n_records,)`, from 0 to V - 1."""
    centre: int
    """About their mean: sums are of differences from it, so that they stay exact."""
    sums: Float64Array
    """Sum of the first q differences, `(n_records + 1,)`."""
    squares: float
    """Sum of all squared differences."""

    @classmethod
    def of(cls, values: Int64Array, task: AttributeTask) -> "SortedAttribute":
        """Sort an attribute.

        Args:
            values: `(n_records,)`, in resolution units.
            task: Any way of masking it: order and scale are the same for all.
        """
        order = own_order(values, task)
        distances = None if task.taxonomy is None else semantic_distances(task.taxonomy, order)
        scale = scale_of(task.attribute, values, order, distances)
        ranking = rank(values if order is None else order.place_of[values])
        ascending = ranking.values - task.attribute.lower if order is None else ranking.values
        centre = round(float(ascending.mean()))
        differences = (ascending - centre).astype(np.float64)
        sums = np.concatenate([np.zeros(1), np.cumsum(differences)])
        squares = float(np.square(differences).sum())
        return cls(scale, values, order, ranking.order, ascending, centre, sums, squares)

    def draw(self, task: AttributeTask, bits: BitSource) -> ReleasedList:
        """Mask the attribute; values of the list are from 0 to V - 1, in the order that it is masked in."""
        return mechanism_of(task).release(self.ascending, task.setting, bits)

    def error(self, released: ReleasedList) -> float | None:
        """Return Σ d²/(n σ²) of a list whose entries went to the records at their ranks.

        Of categories that were drawn from a taxonomy the difference is their semantic distance.
        """
        if self.scale.is_drawn:
            masked = self.by_record(released)
            return self.scale.sse(float(self.scale.squared(self.original, masked).sum()), masked.size)
        moved = (released.values - self.centre).astype(np.float64)
        ends = np.cumsum(released.sizes)
        within = self.sums[ends] - self.sums[ends - released.sizes]
        squares = self.squares + float((moved * (released.sizes * moved - 2 * within)).sum())
        # What is left after three sums of this size have cancelled is rounding.
        rounding = 1e-12 * (self.squares + float((released.sizes * moved * moved).sum()))
        return self.scale.sse(squares if squares > rounding else 0.0, self.ascending.size)

    def by_record(self, released: ReleasedList) -> Int64Array:
        """Return the masked value of every record, `(n_records,)`, in resolution units."""
        if self.order is not None:
            values = self.order.category_at[released.values]
        else:
            values = released.values + self.scale.attribute.lower
        return MaskedAttribute(ReleasedList(values, released.sizes), self.positions).by_record()

    def without_noise(self, k: int) -> float | None:
        """Return the error of plain individual ranking: the same clusters' rounded means, without noise."""
        clusters = Clusters(self.ascending.size, k)
        sizes = clusters.sizes
        ends = np.cumsum(sizes)
        means = (self.sums[ends] - self.sums[ends - sizes]) / sizes
        return self.error(ReleasedList(np.rint(means).astype(np.int64) + self.centre, sizes))


def semantic_distances(taxonomy: Taxonomy, order: IndexOrder | None) -> Float64Array:
    """Return the semantic distances of all categories by declared index, `(V, V)`."""
    table = distance_table(taxonomy) / 2.0**GRID_BITS
    return table if order is None else table[np.ix_(order.place_of, order.place_of)]
