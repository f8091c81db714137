"""Masking of a column that a test has at hand, with a source of random bits that it brings along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from owner_node.masking import mask
from owner_node.masking.arrays import BitSource, Int64Array, PositionArray
from owner_node.masking.clusters import Clusters, ClusterStatistics
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.lists import ReleasedList
from owner_node.masking.tasks import AttributeTask


@dataclass(frozen=True, slots=True)
class MaskedColumn:
    """A masked column, and what it was made from."""

    column: Int64Array
    product: mask.MaskedAttribute | None = None

    @property
    def released(self) -> ReleasedList:
        """The list, of a mechanism that has one."""
        assert self.product is not None
        return self.product.released

    @property
    def assignment(self) -> PositionArray:
        """The record at every place of the list."""
        assert self.product is not None
        return self.product.assignment

    def by_record(self) -> Int64Array:
        """The masked value of every record."""
        return self.column


def mask_attribute(values: Int64Array, task: AttributeTask, bits: BitSource) -> MaskedColumn:
    """Check and mask one column, with a key that the source has not given before."""
    records, key = MemoryEngine({task.attribute.name: values}), bits.spawn()
    records.check([task])
    if not task.rules.listed:
        return MaskedColumn(mask.mask_each(records, task, key))
    masked = mask.mask_attribute(records, task, key)
    return MaskedColumn(masked.column, masked)


def mask_table(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask]) -> dict[str, Int64Array]:
    """Mask columns."""
    return mask.mask_table(MemoryEngine(columns), tasks)


def statistics_of(
    values: Sequence[int] | Int64Array, k: int, h: int = 0, g: int = 1, tail: int = 0
) -> ClusterStatistics:
    """Sort values, and compute what mechanisms that trim h of them and protect g records look at."""
    ordered = np.sort(np.array(values, dtype=np.int64))
    return ClusterStatistics.of(ordered, Clusters(ordered.size, k), h + g + 1 if h else 1, tail)
