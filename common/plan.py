"""The agreed release: a grid of attribute groups and record parts, and every owner's task in it.

A plan is plain data with one canonical form; its SHA-256 digest is its name. The aggregator makes and
signs it, every owner checks it as if it came from a stranger (`owner_node.consent.judge`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from common.canonical import canonical, digest
from common.privacy import largest_or_unbounded, total_or_unbounded
from common.schema import Attribute, IdentifierRules
from common.task import Assignment, Task, read_epsilon

RELEASE_ID = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
"""What a release may be called: it names a folder, a database key and a path in messages."""
LONGEST_PURPOSE = 400
"""Characters of what a release is for: people read it before they approve."""

LinkingFound = Literal["disjoint", "equal", "asserted"]
"""What linking can have found: groups were compared, only parts were, or nothing was."""


def is_purpose(text: str) -> bool:
    """Whether a text can be the purpose of a release: one short line of words with single spaces.

    Nothing in it can pass for another line of what a person is shown, not even where a terminal breaks it.
    """
    return len(text) <= LONGEST_PURPOSE and text.isprintable() and text == " ".join(text.split())


class Layout(StrEnum):
    """How the records and attributes of a release lie with its owners (DESIGN §2)."""

    HORIZONTAL = "horizontal"
    VERTICAL = "vertical"
    MIXED = "mixed"


class BudgetSplit(StrEnum):
    """How the release's epsilon is divided among groups and attributes (MECHANISMS §5)."""

    OWNER = "owner"
    """Every group gets an equal share, and divides it equally among its attributes."""
    ATTRIBUTE = "attribute"
    """Every attribute gets an equal share."""
    WEIGHTS = "weights"
    """Every attribute gets a share by its weight."""


@dataclass(frozen=True, slots=True)
class Linking:
    """What linking will compare, and the bounds for what it may find (DESIGN §4)."""

    tokens: bool
    """Whether owners send tokens; without, disjointness is asserted, not checked."""
    max_overlap: int = 1
    """Most owners of one group that may hold the same person."""
    on_mismatch: str = "stop"
    """What happens when the token sets of two groups differ."""
    min_common: int = 0
    """Fewest common records to go on with."""

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        return {
            "tokens": self.tokens,
            "max_overlap": self.max_overlap,
            "on_mismatch": self.on_mismatch,
            "min_common": self.min_common,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Linking":
        """Read it from its document."""
        overlap, common = int(document["max_overlap"]), int(document["min_common"])
        return cls(bool(document["tokens"]), overlap, str(document["on_mismatch"]), common)


@dataclass(frozen=True, slots=True)
class Plan:
    """The agreed release. Everything that owners consent to is in here and under its digest."""

    release: str
    """Release id."""
    aggregator: str
    """SPIFFE ID of the aggregator."""
    created: str
    """ISO 8601 time, UTC."""
    version: str
    """Version of the software that made the plan."""
    purpose: str
    """What the release is for, in the operator's words."""
    layout: Layout
    """Layout as asked for."""
    epsilon: Decimal
    """The release's epsilon."""
    budget_split: BudgetSplit
    """How it is divided."""
    attributes: tuple[Attribute, ...]
    """Attributes of the release, with their settings, in the order of its columns."""
    identifier: IdentifierRules | None
    """How identifiers become comparable; None: the unit of privacy is the record."""
    max_records_per_person: int
    """g."""
    linking: Linking
    """What linking compares."""
    tasks: tuple[Task, ...]
    """Every owner's share, group by group."""

    def __post_init__(self) -> None:
        if not RELEASE_ID.fullmatch(self.release):
            raise ValueError("a release id is made of a-z, 0-9, '.', '_' and '-', 64 characters at most")
        cells = [(task.group, task.owner) for task in self.tasks]
        if not cells or len(set(cells)) != len(cells):
            raise ValueError("every owner has one task in a group")
        if self.n_groups > len(cells) or {group for group, _ in cells} != set(range(self.n_groups)):
            raise ValueError("groups are numbered from 0 without gaps")
        for owner in self.owners:
            self.assignment_of(owner)
        names = [attribute.name for attribute in self.attributes]
        by_group = {task.group: tuple(attribute.name for attribute in task.attributes) for task in self.tasks}
        if any(tuple(a.name for a in task.attributes) != by_group[task.group] for task in self.tasks):
            raise ValueError("the owners of a group mask the same attributes")
        masked = [name for group in sorted(by_group) for name in by_group[group]]
        if sorted(masked) != sorted(names) or len(set(masked)) != len(masked) or not all(by_group.values()):
            raise ValueError("every attribute belongs to exactly one group")
        if self.n_groups > 1 and not self.linking.tokens:
            raise ValueError("groups of attributes can only be aligned on tokens")

    @property
    def n_groups(self) -> int:
        """Number of attribute groups."""
        return max(task.group for task in self.tasks) + 1

    @property
    def owners(self) -> tuple[str, ...]:
        """Owner ids, each once, in the order of their tasks."""
        return tuple(dict.fromkeys(task.owner for task in self.tasks))

    def owners_of(self, group: int) -> tuple[str, ...]:
        """Return the owners of one attribute group, in the order of their tasks."""
        return tuple(task.owner for task in self.tasks if task.group == group)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical plan, its name everywhere."""
        return digest(self.to_bytes())

    @property
    def epsilon_joint(self) -> Decimal | None:
        """Joint bound for one person: parallel within a group, sequential between groups."""
        parts = [[t.epsilon_joint for t in self.tasks if t.group == group] for group in range(self.n_groups)]
        return total_or_unbounded(largest_or_unbounded(bounds) for bounds in parts)

    @property
    def expected_linking(self) -> LinkingFound:
        """What linking finds under this plan if nothing stops it: "asserted", "disjoint" or "equal"."""
        if not self.linking.tokens:
            return "asserted"
        return "equal" if self.n_groups > 1 else "disjoint"

    def assignment_of(self, owner: str) -> Assignment:
        """Return everything that an owner masks.

        Raises:
            KeyError: If it has no task in this plan.
        """
        tasks = tuple(task for task in self.tasks if task.owner == owner)
        if not tasks:
            raise KeyError(owner)
        return Assignment(tasks)

    def attribute(self, name: str) -> Attribute:
        """Return the settings of one attribute."""
        return next(attribute for attribute in self.attributes if attribute.name == name)

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document."""
        return {
            "release": self.release,
            "aggregator": self.aggregator,
            "created": self.created,
            "version": self.version,
            "purpose": self.purpose,
            "layout": str(self.layout),
            "epsilon": self.epsilon,
            "epsilon_joint": self.epsilon_joint,
            "budget_split": str(self.budget_split),
            "attributes": [attribute.to_document() for attribute in self.attributes],
            "identifier": self.identifier.to_document() if self.identifier else None,
            "max_records_per_person": self.max_records_per_person,
            "linking": self.linking.to_document(),
            "tasks": [task.to_document() for task in self.tasks],
        }

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, which are what is signed."""
        return canonical(self.to_document())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Plan":
        """Read a plan, and refuse every byte string that is not exactly a plan's canonical form.

        Raises:
            ValueError: If it is not; the message holds nothing of the data.
        """
        try:
            plan = cls.from_document(json.loads(data))
        except (KeyError, TypeError, ArithmeticError, ValueError, RecursionError) as problem:
            raise ValueError(f"not a plan ({type(problem).__name__})") from None
        if plan.to_bytes() != data:
            raise ValueError("not the canonical form of a plan")
        return plan

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Plan":
        """Read a plan from its document."""
        identifier = document["identifier"]
        return cls(
            release=str(document["release"]),
            aggregator=str(document["aggregator"]),
            created=str(document["created"]),
            version=str(document["version"]),
            purpose=str(document["purpose"]),
            layout=Layout(document["layout"]),
            epsilon=read_epsilon(document["epsilon"]),
            budget_split=BudgetSplit(document["budget_split"]),
            attributes=tuple(Attribute.from_document(each) for each in document["attributes"]),
            identifier=IdentifierRules.from_document(identifier) if identifier else None,
            max_records_per_person=int(document["max_records_per_person"]),
            linking=Linking.from_document(document["linking"]),
            tasks=tuple(Task.from_document(each) for each in document["tasks"]),
        )
