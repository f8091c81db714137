"""What one owner masks in a release, and how: attribute by attribute, group by group.

Parts of a plan (`common.plan`), with its canonical form.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.privacy import MECHANISMS, total, total_or_unbounded

_DECIMAL = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?")


@dataclass(frozen=True, slots=True)
class PlannedAttribute:
    """How one owner masks one attribute."""

    name: str
    """Attribute name."""
    mechanism: str
    """Mechanism id."""
    epsilon: Decimal
    """The attribute's share of the budget."""
    k: int | None
    """Minimum cluster size; None where the mechanism makes no clusters."""
    epsilon_joint: Decimal | None
    """Bound on the whole rank-ordered list of released values; None where there is none."""
    expected_error: Decimal
    """Expected squared error as a share of the variance of a uniform attribute; 1: its mean would do."""

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "epsilon": self.epsilon,
            "k": self.k,
            "epsilon_joint": self.epsilon_joint,
            "expected_error": self.expected_error,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "PlannedAttribute":
        """Read it from its document."""
        if document["mechanism"] not in MECHANISMS:
            raise ValueError("the plan names an unknown mechanism")
        if (document["k"] is None) is MECHANISMS[document["mechanism"]].clustered:
            raise ValueError("k goes with mechanisms that make clusters, and only with them")
        return cls(
            str(document["name"]),
            str(document["mechanism"]),
            read_epsilon(document["epsilon"]),
            None if document["k"] is None else int(document["k"]),
            read_bound(document["epsilon_joint"]),
            read_decimal(document["expected_error"]),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One owner's share of a release in one group."""

    owner: str
    """Owner id."""
    dataset: str
    """Name of the data set at that owner."""
    group: int
    """Index of the attribute group."""
    records_rounded: int
    """The owner's number of records, rounded down to its leading digit."""
    attributes: tuple[PlannedAttribute, ...]
    """What to mask and how, in release order."""

    @property
    def epsilon(self) -> Decimal:
        """Sum of the attributes' epsilon (sequential composition)."""
        return total(attribute.epsilon for attribute in self.attributes)

    @property
    def epsilon_joint(self) -> Decimal | None:
        """Sum of the attributes' joint bounds; None where one has none."""
        return total_or_unbounded(attribute.epsilon_joint for attribute in self.attributes)

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        return {
            "owner": self.owner,
            "dataset": self.dataset,
            "group": self.group,
            "records_rounded": self.records_rounded,
            "epsilon": self.epsilon,
            "epsilon_joint": self.epsilon_joint,
            "attributes": [attribute.to_document() for attribute in self.attributes],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Task":
        """Read it from its document."""
        return cls(
            str(document["owner"]),
            str(document["dataset"]),
            int(document["group"]),
            int(document["records_rounded"]),
            tuple(PlannedAttribute.from_document(each) for each in document["attributes"]),
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that one owner masks in a release: its tasks in all groups.

    However many groups it is in, it has one data set, so it sends one token list and one fragment, with the
    attributes of all its tasks.
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

    @property
    def groups(self) -> tuple[int, ...]:
        """Indices of the attribute groups that the owner is in."""
        return tuple(task.group for task in self.tasks)

    @property
    def attributes(self) -> tuple[PlannedAttribute, ...]:
        """What to mask and how; the columns of the fragment, in this order."""
        return tuple(attribute for task in self.tasks for attribute in task.attributes)

    @property
    def largest_k(self) -> int:
        """The fewest records that all of it can be masked with."""
        return max((each.k for each in self.attributes if each.k is not None), default=1)

    @property
    def epsilon(self) -> Decimal:
        """Sum of the attributes' epsilon (sequential composition)."""
        return total(task.epsilon for task in self.tasks)

    @property
    def epsilon_joint(self) -> Decimal | None:
        """Sum of the attributes' joint bounds; None where one has none."""
        return total_or_unbounded(task.epsilon_joint for task in self.tasks)


def read_decimal(text: Any) -> Decimal:
    """Read a decimal of a document: plain digits only, an exponent is short to write and long to write out.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise ValueError("a decimal number was expected")
    return Decimal(text)


def read_epsilon(text: Any) -> Decimal:
    """Read a positive decimal of a document.

    Raises:
        ValueError: If it is none.
    """
    value = read_decimal(text)
    if value <= 0:
        raise ValueError("an epsilon must be positive")
    return value


def read_bound(text: Any) -> Decimal | None:
    """Read a joint bound of a document; None stands for none.

    Raises:
        ValueError: If it is neither.
    """
    return None if text is None else read_epsilon(text)
