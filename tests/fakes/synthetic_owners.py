"""Owners of an experiment, who take their budgets as texts."""

from collections.abc import Sequence
from decimal import Decimal

from owner_node.masking.arrays import BitSource
from owner_node.synthesis.together import Columns, Together


class SyntheticOwners(Together):
    """Owners of the same attributes whose noisy answers are added up."""

    def __init__(
        self,
        parts: Sequence[Columns],
        epsilon: str,
        delta: str,
        bits: Sequence[BitSource],
        colluding: int | None = None,
    ) -> None:
        """Take the records of some owners, as `Together` does."""
        super().__init__(parts, Decimal(epsilon), Decimal(delta), bits, colluding)
