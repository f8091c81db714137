"""Owners of an experiment, who take their budgets as texts."""

from collections.abc import Sequence
from decimal import Decimal

from common.model.schema import Attribute
from common.synthesis.accounting import default_colluding
from common.synthesis.course import Design, SyntheticRelease
from common.synthesis.rounds import StructuralZero
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns
from owner_node.synthesis.together import synthesise_together


def synthetic_release(
    attributes: Sequence[Attribute],
    parts: Sequence[Columns],
    epsilon: str,
    delta: str,
    bits: Sequence[BitSource],
    rules: Sequence[StructuralZero] = (),
) -> SyntheticRelease:
    """Make a synthetic release of the records of some owners."""
    design = Design(
        tuple(attributes), sum(part[0].size for part in parts), Decimal(epsilon), Decimal(delta),
        len(parts), default_colluding(len(parts)), tuple(rules),
    )  # fmt: skip
    return synthesise_together(design, parts, bits)
