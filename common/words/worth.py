"""Whether a result is worth its charge: one rule for plans, and for an owner's forecast on its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from common.model.plan import Plan
from common.words.numbers import count_text

BETTER = "more epsilon, fewer attributes or more records make a result that is worth its charge"


@dataclass(frozen=True, slots=True)
class Worth:
    """What is left of the attributes of a result."""

    lost: tuple[str, ...]
    """Attributes that their mean would represent as well: their expected error is 1 at least."""
    n_attributes: int
    """Number of attributes that vary."""
    relations: str = ""
    """Of a synthetic release: what hides the relations between its attributes; empty if nothing does."""

    @classmethod
    def of_errors(cls, errors: Mapping[str, Decimal | None]) -> Self:
        """Judge by expected errors.

        Args:
            errors: Squared error of every attribute relative to that of its mean; None if it does not vary.
        """
        known = {name: error for name, error in errors.items() if error is not None}
        return cls(tuple(name for name, error in known.items() if error >= 1), len(known))

    @property
    def worthless(self) -> bool:
        """Whether noise hides relations, or the mean would do as well for half of the attributes or more."""
        return bool(self.relations) or (bool(self.lost) and 2 * len(self.lost) >= self.n_attributes)

    @property
    def text(self) -> str:
        """What people read about a worthless result."""
        if self.relations:
            return f"the result is expected to be worthless: {self.relations}"
        return (
            f"the result is expected to be worthless: for {len(self.lost)} of "
            f"{count_text(self.n_attributes, 'attribute')} the mean would do as well ({', '.join(self.lost)})"
        )


def largest_errors(plan: Plan) -> dict[str, Decimal]:
    """Return the expected error of every attribute, at the owner where it is largest."""
    largest: dict[str, Decimal] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            largest[planned.name] = max(
                largest.get(planned.name, planned.expected_error), planned.expected_error
            )
    return largest
