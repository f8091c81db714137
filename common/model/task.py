"""What one owner masks in a release, and how: attribute by attribute, group by group.

Parts of a plan (`common.model.plan`), with its canonical form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

from common.canonical import OMITTED, Document, Positive
from common.model.mechanisms import MECHANISMS, Mechanism, PublicNumbers, rules_of
from common.model.privacy import LARGEST_COUNT, NO_RANK_NOISE, total, total_or_unbounded
from common.model.schema import Attribute, most_records


@dataclass(frozen=True, slots=True)
class PlannedAttribute(Document):
    """How one owner masks one attribute."""

    name: str
    """Name of the attribute."""
    mechanism: str
    """Id of the mechanism."""
    epsilon: Positive
    """The attribute's share of the budget."""
    k: int | None
    """Minimum cluster size; None where the mechanism makes no clusters."""
    epsilon_joint: Positive | None
    """Bound on the whole rank-ordered list of released values; None where there is none."""
    expected_error: Decimal
    """Expected squared error as a share of the variance of a uniform attribute; at 1, its mean is as good."""
    rank_noise: Decimal = field(default=NO_RANK_NOISE, metadata=OMITTED)
    """w, the scale of the noise on ranks as a share of the number of records; 0 for none."""
    rank_loss: Decimal | None = field(default=NO_RANK_NOISE, metadata=OMITTED)
    """2g/w, the bound on the privacy loss of the record-to-rank assignment; 0 without rank noise, None where
    the order of the values comes from the data, so that there is no bound."""
    epsilon_spikes: Decimal = field(default=Decimal(0), metadata=OMITTED)
    """The part of ε that the noisy counts of declared spikes get; 0 where they are not counted."""
    derived: ClassVar[tuple[str, ...]] = ("epsilon_table",)

    @property
    def rules(self) -> Mechanism:
        """The public half of its mechanism."""
        return rules_of(self.mechanism)

    @property
    def epsilon_list(self) -> Decimal:
        """The part of ε that its list gets: all, but for the counts of spikes."""
        return self.epsilon - self.epsilon_spikes

    @property
    def counts_clusters(self) -> bool:
        """Whether its joint bound is a multiple of the number of clusters, which more records exceed."""
        return self.epsilon_joint is not None and self.rules.joint_factor is None

    @property
    def epsilon_table(self) -> Decimal | None:
        """Bound on who has which value; None where there is none.

        The values of a mechanism without a list are bounded record by record anyway.
        """
        if self.epsilon_joint is None or not self.rules.listed:
            return self.epsilon_joint
        return total_or_unbounded([self.epsilon_joint, self.assignment_loss])

    @property
    def assignment_loss(self) -> Decimal | None:
        """Privacy loss of the record-to-rank assignment: 0 where there is no list, None if unbounded."""
        return self.rank_loss if self.rank_noise or not self.rules.listed else None

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document, with rank noise only where there is some."""
        document = Document.to_document(self)
        return document | {"epsilon_table": self.epsilon_table} if self.rank_noise else document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "PlannedAttribute":
        """Read it from its document.

        Raises:
            ValueError: If it is malformed, or plans what its mechanism does not accept.
        """
        found = super(PlannedAttribute, cls).from_document(document)
        if found.mechanism not in MECHANISMS:
            raise ValueError("the plan names an unknown mechanism")
        if (found.k is None) is MECHANISMS[found.mechanism].clustered:
            raise ValueError("k goes with mechanisms that make clusters, and only with them")
        if found.k is not None and not 0 < found.k < LARGEST_COUNT:
            raise ValueError("k is a positive number of records")
        if not 0 <= found.epsilon_spikes < found.epsilon:
            raise ValueError("the counts of spikes get a part of epsilon")
        if bool(found.rank_noise) is (found.rank_loss == 0):
            raise ValueError("a rank loss goes with rank noise, and only with it")
        return found


@dataclass(frozen=True, slots=True)
class Modelled(Document):
    """What an owner counts for a synthetic release."""

    attributes: tuple[str, ...]
    """Names of the attributes, in release order."""
    epsilon: Positive
    """ε for the whole record of a person, whatever attributes it has."""


@dataclass(frozen=True, slots=True)
class Task(Document):
    """One owner's share of a release in one group."""

    owner: str
    """Id of the owner."""
    dataset: str
    """Name of the data set at that owner."""
    group: int
    """Number of the group of attributes, from 0."""
    records_rounded: int
    """The owner's number of records, rounded down to its leading digit."""
    attributes: tuple[PlannedAttribute, ...]
    """What to mask and how, in release order; empty where nothing is masked."""
    modelled: Modelled | None = field(default=None, metadata=OMITTED)
    """What to count in a synthetic release; None where records are masked."""
    derived: ClassVar[tuple[str, ...]] = ("epsilon", "epsilon_joint", "epsilon_table", "rank_loss")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes that it is about, in release order."""
        return self.modelled.attributes if self.modelled else tuple(each.name for each in self.attributes)

    @property
    def epsilon(self) -> Decimal:
        """Sum of the attributes' epsilon (sequential composition), or that of the whole record."""
        return self.modelled.epsilon if self.modelled else total(each.epsilon for each in self.attributes)

    @property
    def epsilon_joint(self) -> Decimal | None:
        """Sum of the attributes' joint bounds; None where one has none. A model has no lists: its epsilon."""
        if self.modelled:
            return self.modelled.epsilon
        return total_or_unbounded(attribute.epsilon_joint for attribute in self.attributes)

    @property
    def epsilon_table(self) -> Decimal | None:
        """Sum of the attributes' bounds on who has which value; None where one has none."""
        return total_or_unbounded(attribute.epsilon_table for attribute in self.attributes)

    @property
    def rank_loss(self) -> Decimal | None:
        """Sum of the privacy losses of the record-to-rank assignments; None where one is unbounded."""
        return total_or_unbounded(attribute.assignment_loss for attribute in self.attributes)

    @property
    def has_rank_noise(self) -> bool:
        """Whether any of its attributes has rank noise."""
        return any(attribute.rank_noise for attribute in self.attributes)

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document with its sums; with rank noise only where there is some."""
        sums = {"epsilon": self.epsilon, "epsilon_joint": self.epsilon_joint}
        if self.has_rank_noise:
            sums |= {"epsilon_table": self.epsilon_table, "rank_loss": self.rank_loss}
        return Document.to_document(self) | sums


@dataclass(frozen=True)
class Assignment:
    """Everything that one owner masks in a release: its tasks in all groups.

    However many groups it is in, it has one data set, so it sends one token list and one fragment, with the
    attributes of all its tasks. What follows from the tasks is cached: a view of a release shows it for every
    owner.
    """

    tasks: tuple[Task, ...]
    """The owner's tasks, group by group."""

    def __post_init__(self) -> None:
        if len({(task.owner, task.dataset, task.records_rounded) for task in self.tasks}) != 1:
            raise ValueError("an owner takes part with one data set")

    @property
    def owner(self) -> str:
        """Owner id."""
        return self.tasks[0].owner

    @property
    def dataset(self) -> str:
        """Name of the data set at that owner."""
        return self.tasks[0].dataset

    @property
    def records_rounded(self) -> int:
        """The owner's number of records, rounded down to its leading digit."""
        return self.tasks[0].records_rounded

    @cached_property
    def most_records(self) -> int | None:
        """The most records that its joint bounds hold for; None where they do not depend on the number.

        Records that lack a value of an attribute may be left out, so an owner can have more records for some
        of its attributes than for all of them, which its rounded number counts.
        """
        if any(each.counts_clusters for each in self.attributes):
            return most_records(self.records_rounded)
        return None

    @property
    def groups(self) -> tuple[int, ...]:
        """Indices of the attribute groups that the owner is in."""
        return tuple(task.group for task in self.tasks)

    @cached_property
    def attributes(self) -> tuple[PlannedAttribute, ...]:
        """What to mask and how; the columns of the fragment, in this order."""
        return tuple(attribute for task in self.tasks for attribute in task.attributes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of its attributes, in this order."""
        return tuple(name for task in self.tasks for name in task.names)

    @cached_property
    def largest_k(self) -> int:
        """The smallest number of records with which all its attributes can be masked."""
        return max((each.k for each in self.attributes if each.k is not None), default=1)

    def epsilon_at(self, multiples: Sequence[int]) -> Decimal:
        """Return the sum of the epsilon of all tasks where persons are shared.

        The epsilons of all owners that hold the same person add up (sequential composition).

        Args:
            multiples: By group of the plan: how many of its owners hold the same person at most.
        """
        return total(task.epsilon for task in self.tasks for _ in range(multiples[task.group]))

    def epsilon_joint_at(self, multiples: Sequence[int]) -> Decimal | None:
        """Return the same for the joint bounds; None where there is none."""
        return total_or_unbounded(
            task.epsilon_joint for task in self.tasks for _ in range(multiples[task.group])
        )

    def rank_loss_at(self, multiples: Sequence[int]) -> Decimal | None:
        """Return the same for the privacy loss of the record-to-rank assignment; None where unbounded."""
        return total_or_unbounded(task.rank_loss for task in self.tasks for _ in range(multiples[task.group]))

    @cached_property
    def epsilon(self) -> Decimal:
        """Sum of the attributes' epsilon (sequential composition)."""
        return total(task.epsilon for task in self.tasks)

    @property
    def epsilon_joint(self) -> Decimal | None:
        """Sum of the attributes' joint bounds; None where one has none."""
        return total_or_unbounded(task.epsilon_joint for task in self.tasks)

    @property
    def epsilon_table(self) -> Decimal | None:
        """Sum of the attributes' bounds on who has which value; None where one has none."""
        return total_or_unbounded(task.epsilon_table for task in self.tasks)

    @property
    def rank_loss(self) -> Decimal | None:
        """Sum of the privacy losses of the record-to-rank assignments; None where one is unbounded."""
        return total_or_unbounded(task.rank_loss for task in self.tasks)


def planned_attribute(
    attribute: Attribute,
    mechanism: Mechanism,
    k: int | None,
    public: PublicNumbers,
    rank_noise: Decimal = NO_RANK_NOISE,
) -> PlannedAttribute:
    """Return an attribute with every bound and the expected error that its plan has to state.

    Args:
        attribute: Its settings.
        mechanism: Its mechanism.
        k: Minimum cluster size; None where the mechanism makes no clusters.
        public: Its public numbers.
        rank_noise: w.
    """
    by_frequency = attribute.by_frequency
    spikes = mechanism.epsilon_of_spikes(attribute, public.epsilon)
    of_list = replace(public, epsilon=public.epsilon - spikes)
    return PlannedAttribute(
        attribute.name,
        mechanism.id,
        public.epsilon,
        k,
        mechanism.epsilon_joint(public.epsilon, k, public.n_records, frequency_order=by_frequency),
        mechanism.expected_error(k, of_list, rank_noise),
        rank_noise,
        mechanism.rank_loss(rank_noise, public.g, frequency_order=by_frequency),
        spikes,
    )
