"""What the words of every product are asked for, and what several of them say."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar

from common.model.plan import Plan
from common.model.schema import Attribute
from common.model.task import Assignment
from common.words.worth import Worth


class ProductWords(ABC):
    """What people read about the product of a plan. `common.words.guarantee` adds what all products share."""

    made: ClassVar[str]
    """What happens to records, as a participle."""

    @abstractmethod
    def promises(self, plan: Plan) -> tuple[str, ...]:
        """Say what is promised, one sentence or two per line, with the plan's numbers."""

    def trusted(self, _plan: Plan, _owner: str = "") -> tuple[str, ...]:
        """Say whom an owner has to trust with what; without an owner, for all owners of the plan."""
        return ()

    @abstractmethod
    def invariants(self, plan: Plan) -> tuple[str, ...]:
        """Say what is not hidden, whatever ε is, beside the records and their number."""

    @abstractmethod
    def composition(self, plan: Plan) -> str:
        """Say how the ε of attributes make that of a record."""

    @abstractmethod
    def condition(self, plan: Plan) -> str:
        """Return the condition of a bound over all attributes, to follow it; empty if there is none."""

    @abstractmethod
    def leaves(self, plan: Plan, assignment: Assignment) -> tuple[str, ...]:
        """Say what an owner sends that depends on values of its records."""

    @abstractmethod
    def keeps(self, plan: Plan) -> str:
        """Say what records keep, weaken and lose of the original ones, and what gives true intervals."""

    @abstractmethod
    def worth(self, plan: Plan) -> Worth:
        """Judge by public numbers whether the result is worth its charge."""


_BY_OWNERS = "by a declared table"
_BY_OPERATOR = "by a table that the operator states; no owner counts its own values"


def derived(following: Sequence[Attribute], stated: Collection[str] = ()) -> tuple[str, ...]:
    """Say which attributes follow others; `stated` names those that do by the operator's facts."""
    return tuple(
        f"{each.name} follows {each.base}: its released values are derived from those of "
        f"{each.base}, {_BY_OPERATOR if each.name in stated else _BY_OWNERS}. "
        "This costs no ε, and discloses nothing further."
        for each in following
    )
