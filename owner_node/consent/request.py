"""What the rules of consent look at, and what they answer."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from common.errors import RefusedError, TesseraError
from common.plan import Plan
from common.privacy import charge
from common.schema import Schema
from common.task import Assignment

if TYPE_CHECKING:
    from owner_node.config import DatasetConfig, PolicyConfig


@dataclass(frozen=True, slots=True)
class Request:
    """What the rules look at."""

    plan: Plan
    """The plan."""
    assignment: Assignment
    """What the owner masks in it."""
    owner_id: str
    """This owner's id."""
    aggregator_name: str
    """The aggregator that sent it, by its certificate."""
    trust_domain: str
    """The configured trust domain."""
    policy: "PolicyConfig"
    """The owner's policy."""
    dataset: "DatasetConfig"
    """The data set that it names."""
    schema: Schema
    """The owner's own schema of it."""
    balance: Decimal
    """What remains of its budget."""
    today: date
    """The date."""

    @property
    def charge(self) -> Decimal | None:
        """What the ledger would take; None where the owner's accounting knows no bound."""
        return charge(self.policy.accounting, self.assignment.epsilon, self.assignment.epsilon_joint)


@dataclass(frozen=True, slots=True)
class Objection:
    """What a rule has against a plan."""

    rule: str
    """The rule in full, for the owner."""
    cause: type[TesseraError] = RefusedError
    """What kind of refusal it makes."""
