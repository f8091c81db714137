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
from owner_node.ledger.parts import Part

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
    """The owner's own schema of it, with the number of records that was sent for this release."""
    balance: Decimal
    """What remains of its budget."""
    today: date
    """The date."""
    rank_lost: Decimal = Decimal(0)
    """What charges to its budget have told about who got which entries."""

    @property
    def most(self) -> Part:
        """What the owner may come to lose: its shares, as often as the plan lets owners hold one person."""
        own, multiples = self.assignment, self.plan.most_multiples
        joint, ranks = own.epsilon_joint_at(multiples), own.rank_loss_at(multiples)
        return Part(own.epsilon_at(multiples), joint, ranks)

    @property
    def charge(self) -> Decimal | None:
        """What the ledger would reserve; None where the owner's accounting knows no bound."""
        return charge(self.policy.accounting, self.most.epsilon, self.most.epsilon_joint)


@dataclass(frozen=True, slots=True)
class Objection:
    """What a rule has against a plan."""

    rule: str
    """The rule in full, for the owner."""
    cause: type[TesseraError] = RefusedError
    """What kind of refusal it makes."""
