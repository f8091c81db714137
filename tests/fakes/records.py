"""Masking of a column that a test has at hand, with a source of random bits that it brings along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from owner_node.masking import mask
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.masking.clusters import Clusters, ClusterStatistics
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import MaskedAttribute
from owner_node.masking.tasks import AttributeTask


@dataclass(frozen=True, slots=True)
class MaskedColumn(MaskedAttribute):
    """A masked column whose records can be asked for."""

    records: MemoryEngine

    def by_record(self) -> Int64Array:
        """The masked value of every record."""
        return self.records.write(self.released.values, self.entries)


def mask_attribute(values: Int64Array, task: AttributeTask, bits: BitSource) -> MaskedColumn:
    """Check and mask one column."""
    records = MemoryEngine({task.attribute.name: values})
    records.check([task])
    masked = mask.mask_attribute(records, task, bits)
    return MaskedColumn(masked.released, masked.entries, records)


def mask_table(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask]) -> dict[str, Int64Array]:
    """Mask columns."""
    return mask.mask_table(MemoryEngine(columns), tasks)


def statistics_of(values: Sequence[int] | Int64Array, k: int, h: int = 0, g: int = 1) -> ClusterStatistics:
    """Sort values, and compute what mechanisms that trim h of them and protect g records look at."""
    ordered = np.sort(np.array(values, dtype=np.int64))
    return ClusterStatistics.of(ordered, Clusters(ordered.size, k), h + g + 1 if h else 1)
