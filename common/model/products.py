"""What can be made of data, and what of it everybody asks.

Rules elsewhere ask the entry of a product; ids are compared only where a product is chosen or made. What a
product does stands in files of its name: its words in `common.words`, its part at an owner in
`owner_node.release`, at the aggregator in `aggregator.release` (`docs/architecture.md` has the list).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ProductRules:
    """What a product is like."""

    by_record: bool
    """Whether every record is made of one original record, value by value, and can be linked to it."""
    in_rounds: bool
    """Whether owners answer rounds of questions with counts, instead of sending their records masked."""
    whole_records: bool
    """Whether ε is that of the whole record of a person, and not divided among its attributes."""


class Product(StrEnum):
    """What is made of data."""

    MASKED = "masked"
    """Every record, each attribute masked."""
    SYNTHETIC = "synthetic"
    """Records made of noisy counts."""

    @property
    def rules(self) -> ProductRules:
        """What it is like."""
        return _PRODUCTS[self]


_PRODUCTS: Mapping[Product, ProductRules] = {
    Product.MASKED: ProductRules(by_record=True, in_rounds=False, whole_records=False),
    Product.SYNTHETIC: ProductRules(by_record=False, in_rounds=True, whole_records=True),
}
