"""What can be made of data, and what of it everybody asks.

Rules elsewhere ask the entry of a product; ids are compared only where a product is chosen or made. What a
product does stands in files of its name: its words in `common.words`, its part at an owner in
`owner_node.release`, at the aggregator in `aggregator.release` (`docs/architecture.md` has the list).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from common.errors import UsageError


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


def check_countable(groups: Sequence[Sequence[str]], max_overlap: int) -> None:
    """Check that groups of owners can count the same persons together, in one order.

    Args:
        groups: Owner ids by group.
        max_overlap: The most owners of a group that may hold one person.

    Raises:
        UsageError: If they cannot.
    """
    if len(groups) == 1:
        return
    if max_overlap > 1:
        raise UsageError(
            "a synthetic release of groups of owners counts each person at one owner of a group",
            "leave --max-overlap out, or choose --product masked",
        )
    owners = [owner for group in groups for owner in group]
    if several := [owner for owner in owners if owners.count(owner) > 1]:
        raise UsageError(
            f"owner {several[0]} is in several groups, and a synthetic release counts with one of each owner",
            "name every owner in one group: --groups, or choose --product masked",
        )
