"""The agreed release: a grid of attribute groups and record parts, and every owner's task in it.

A plan is plain data with one canonical form; its SHA-256 digest is its name. The aggregator makes and
signs it; every owner checks it as untrusted input (`owner_node.consent.judge`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from heapq import nlargest
from itertools import combinations
from typing import Any, ClassVar, Literal
from unicodedata import category

from common.canonical import OMITTED, Document, Positive, digest
from common.model.compatibility import NEWEST_PROTOCOL, check_needs, features_of
from common.model.events import EventTable, fault_of_events
from common.model.mechanisms import PublicNumbers, carrier_reason
from common.model.permit import DUO, LONGEST_PERMIT
from common.model.presence import derived_with_absence, presence_attribute, with_absence
from common.model.privacy import is_share, total, total_or_unbounded
from common.model.products import Product
from common.model.schema import (
    Attribute,
    AttributeType,
    IdentifierRules,
    MatchPass,
    excluded_values,
    fault_of_derived,
    fault_of_rules,
    with_derived,
)
from common.model.structural_zeros import StructuralZero
from common.model.task import Assignment, PlannedAttribute, Task
from common.model.together import fault_of_together, modelled, modelled_names, modelled_pairs

RELEASE_ID = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
"""What a release may be called: it names a folder, a database key and a path in messages."""
LONGEST_PURPOSE = 400
"""Most characters of a purpose: people read it before they approve."""
LARGEST_PLAN = 3 << 20
"""Most bytes of a plan: with what goes around it, it has to fit the largest message."""

OWNER_COLUMN = "owner"
"""Name of the column with the owner of every record; with several groups, the number of the group follows."""
LinkingFound = Literal["disjoint", "overlapping", "equal", "intersected", "united", "asserted"]
"""Possible results of linking: parts hold different persons, or share some; groups hold the same, or only
what they have in common is masked; or the release is of everybody; or nothing was compared."""

ON_MISMATCH = ("stop", "intersect", "union")
"""Consequences of token sets of two groups that differ: no release, or one of only the common persons, or of
everybody with presence as a value."""


def is_purpose(text: str) -> bool:
    """Whether a text can be the purpose of a release: one short line of words with single spaces.

    Letters, digits, punctuation, and signs of sums and money, each of them visible: nothing in it can pass
    for another line of what a person is shown, not even where a terminal breaks it.
    """
    return (
        len(text) <= LONGEST_PURPOSE
        and text == " ".join(text.split())
        and not _INVISIBLE.search(text)
        and not _PILED.search(text)
        and all(each == " " or category(each) in _SHOWN for each in text)
    )


_SHOWN = frozenset(
    ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po")
) | {"Sm", "Sc"}
"""Unicode categories: letters, marks, numbers, punctuation, mathematical signs, currencies."""
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks of these categories that are not drawn (Unicode: default ignorable code points)."""
_PILED = re.compile(
    r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4}|([^\w\s]|_)\1{3}"
)
"""Piles of combining marks, which reach into other lines, and rows of one sign, which draw a line."""


def is_permit(text: str) -> bool:
    """Return whether a text can be the id of a permit: a short line, or an empty one for no permit."""
    return len(text) <= LONGEST_PERMIT and is_purpose(text)


TRIAL = "trial-"
"""Beginning of the ids of trials."""


MOST_AUDIT_DAYS = 3650
"""Ten years, the longest duration of any setting."""
_COUNTED = 2
"""One-way counts, and tables of pairs."""
_PAIR = 2


def is_trial(release: str) -> bool:
    """Whether a release is a trial: owners simulate its records, and charge it to no budget.

    The id alone says it, so that nothing that names a release or is signed for one can hide it.
    """
    return release.startswith(TRIAL)


class Layout(StrEnum):
    """How the records and attributes of a release lie with its owners."""

    HORIZONTAL = "horizontal"
    VERTICAL = "vertical"
    MIXED = "mixed"


class BudgetSplit(StrEnum):
    """How the release's epsilon is divided among groups and attributes."""

    OWNER = "owner"
    """Every group gets an equal share, and divides it equally among its attributes."""
    ATTRIBUTE = "attribute"
    """Every attribute gets an equal share."""
    WEIGHTS = "weights"
    """Every attribute gets a share by its weight."""


@dataclass(frozen=True, slots=True)
class Linking(Document):
    """What linking will compare, and the bounds for what it may find."""

    tokens: bool
    """Whether owners send tokens; without, disjointness is asserted, not checked."""
    max_overlap: int = 1
    """Most owners of one group that may hold the same person."""
    on_mismatch: str = "stop"
    """The consequence of token sets of two groups that differ, of `ON_MISMATCH`."""
    min_common: int = 0
    """Fewest common persons to continue with; 0 where nothing is intersected."""
    min_match_quality: Decimal = field(default=Decimal(0), metadata=OMITTED)
    """Smallest share of right links of match keys to continue with, by the lower end of its estimate."""
    key_proofs: bool = field(default=False, metadata=OMITTED)
    """True if every owner proves to all others that it has the linkage key; in 0.1 none did."""

    @property
    def intersects(self) -> bool:
        """Whether groups that differ are reduced to the persons that all of them hold."""
        return self.on_mismatch == "intersect"

    @property
    def unites(self) -> bool:
        """True if the release is of everybody whom any group holds, with presence as a value."""
        return self.on_mismatch == "union"


@dataclass(frozen=True, slots=True)
class Synthesis(Document):
    """How a synthetic release is made: public numbers, from which all of its questions follow."""

    colluding: int
    """The most owners of a group that may collude with the aggregator while the noise of the others is
    whole."""
    split: tuple[Positive, ...]
    """What one-way counts and the tables of pairs get of ε."""
    delta: Decimal = field(default=Decimal(0), metadata=OMITTED)
    """δ of the whole record of a person; 0 for ε-differential privacy."""
    structural_zeros: tuple[StructuralZero, ...] = field(default=(), metadata=OMITTED)
    """What no record is, by the rules that the owners declare."""
    pairs: tuple[tuple[str, ...], ...] = field(default=(), metadata=OMITTED)
    """Names of the pairs of attributes whose tables are counted, in the order of the plan; empty: all."""
    together: tuple[tuple[str, ...], ...] = field(default=(), metadata=OMITTED)
    """Names of two attributes each that are counted as one, in the order of the plan by the first ones."""
    stated_zeros: tuple[StructuralZero, ...] = field(default=(), metadata=OMITTED)
    """What no record is, by facts that the operator states."""
    stated_following: tuple[str, ...] = field(default=(), metadata=OMITTED)
    """Names of the attributes that follow others by facts that the operator states."""
    audit_days: int = field(default=0, metadata=OMITTED)
    """For how many days after publication every owner keeps what its messages are computed again from."""

    def __post_init__(self) -> None:
        if not 0 <= self.audit_days <= MOST_AUDIT_DAYS:
            raise ValueError("owners keep their messages for an audit for some days, or not at all")
        if self.delta and not is_share(self.delta, Decimal(1)):
            raise ValueError("the delta of a synthetic release is a share")
        if self.colluding < 0 or len(self.split) != _COUNTED or sum(self.split) != 1:
            raise ValueError("the shares of a synthetic release are two, and sum to 1")


@dataclass(frozen=True)
class Plan(Document):
    """The agreed release. Everything that owners consent to is in here and under its digest.

    Derived values are cached: every poll reads them, also for a plan of a thousand owners.
    """

    release: str
    """Id of the release."""
    aggregator: str
    """SPIFFE ID of the aggregator."""
    created: str
    """ISO 8601 time, UTC."""
    version: str
    """Version of the software that made the plan; what it means follows from protocol and features."""
    purpose: str
    """What the release is for, in the operator's words."""
    layout: Layout
    """The requested layout."""
    epsilon: Positive
    """The budget of the release."""
    budget_split: BudgetSplit
    """How it is divided."""
    attributes: tuple[Attribute, ...]
    """Attributes of the release, with their settings, in the order of its columns."""
    identifier: IdentifierRules | None
    """How identifiers become comparable; None: the unit of privacy is the record."""
    max_records_per_person: int
    """g, the most records that one person has."""
    linking: Linking
    """What linking compares."""
    tasks: tuple[Task, ...]
    """Every owner's share, group by group."""
    owner_column: bool = field(default=False, metadata=OMITTED)
    """Whether the release states the owner of every record."""
    synthesis: Synthesis | None = field(default=None, metadata=OMITTED)
    """How its records are made of noisy counts; None where every record is masked."""
    following: tuple[Attribute, ...] = field(default=(), metadata=OMITTED)
    """Attributes that are derived from released values of others."""
    permit: str = field(default="", metadata=OMITTED)
    """Id of the data permit that the release is made under; empty for none."""
    duo: tuple[str, ...] = field(default=(), metadata=OMITTED)
    """Conditions of use, in codes of the Data Use Ontology."""
    described: bool = field(default=False, metadata=OMITTED)
    """True if the folder has a description for catalogues; owners of 0.1 refuse a folder with one."""
    protocol: int = NEWEST_PROTOCOL
    """Version of the protocol that everybody in the release speaks."""
    derived: ClassVar[tuple[str, ...]] = ("epsilon_joint", "epsilon_table", "features")

    def __post_init__(self) -> None:
        if not RELEASE_ID.fullmatch(self.release):
            raise ValueError("a release id is made of a-z, 0-9, '.', '_' and '-', 64 characters at most")
        cells = [(task.group, task.owner) for task in self.tasks]
        if not cells or len(set(cells)) != len(cells):
            raise ValueError("every owner has one task in a group")
        if self.n_groups > len(cells) or {group for group, _ in cells} != set(range(self.n_groups)):
            raise ValueError("groups are numbered from 0 without gaps")
        # Making them checks that every owner takes part with one data set.
        _ = self.assignments
        names = [attribute.name for attribute in self.attributes]
        by_group = {task.group: task.names for task in self.tasks}
        if any(task.names != by_group[task.group] for task in self.tasks):
            raise ValueError("the owners of a group have the same attributes")
        masks = self.synthesis is None
        if any(
            (task.modelled is None) is not masks or (task.attributes and not masks) for task in self.tasks
        ):
            raise ValueError("all owners mask, or all count for a model")
        masked = [name for group in sorted(by_group) for name in by_group[group]]
        if sorted(masked) != sorted(names) or len(set(masked)) != len(masked) or not all(by_group.values()):
            raise ValueError("every attribute belongs to exactly one group")
        if self.n_groups > 1 and not self.linking.tokens:
            raise ValueError("groups of attributes can only be aligned on tokens")
        if self.owner_column and not self.owner_columns:
            raise ValueError("where every attribute has one owner, no column states it")
        if fault := fault_of_derived(self.following, self.attributes):
            raise ValueError(fault)
        self._check_events(by_group)
        names += [each.name for each in self.following]
        added = [each.name for each in (*self.owner_columns.values(), *self.presence)]
        if any(name in names for name in added):
            raise ValueError("an attribute has the name of a column of owners, or of presence")
        if self.synthesis is not None:
            self._check_facts(self.synthesis)
        self._check_permit()
        self._check_linking()

    def _check_events(self, by_group: Mapping[int, Sequence[str]]) -> None:
        if fault := fault_of_events(self.attributes):
            raise ValueError(fault)
        if self.events is None:
            return
        if self.synthesis is None or self.linking.unites:
            raise ValueError("events go with synthetic releases of persons whom every group has")
        held = {self.attributes[p].name for places in self.events.slots.values() for p in places}
        number = self.attributes[self.events.number].name
        if not any({number, *held}.issubset(names) for names in by_group.values()):
            raise ValueError("one group of owners has all events")
        if any(each.base in held for each in self.following):
            raise ValueError("nothing follows from an event")

    def _check_facts(self, synthesis: Synthesis) -> None:
        if fault_of_rules(self.structural_zeros, self.attributes):
            raise ValueError("the structural zeros are about the attributes of the release")
        names = [each.name for each in self.attributes]
        if synthesis.pairs:
            # One order, in which noise and counters are laid out.
            named, every = set(synthesis.pairs), combinations(names, 2)
            if synthesis.pairs != tuple(pair for pair in every if pair in named):
                raise ValueError("pairs are of the release's attributes, in their order, and named once")
        if any(len(pair) != _PAIR for pair in synthesis.together):
            raise ValueError("two attributes each are counted together")
        group_of = {name: task.group for task in self.tasks for name in task.names}
        if fault := fault_of_together(synthesis.together, self.attributes, group_of, synthesis.pairs):
            raise ValueError(fault)
        firsts = [first for first, _ in synthesis.together]
        if firsts != [name for name in names if name in firsts]:
            raise ValueError("attributes are counted together in the order of the release")
        stated = synthesis.stated_following
        if len(set(stated)) != len(stated) or not {each.name for each in self.following}.issuperset(stated):
            raise ValueError("what follows by stated facts are attributes of the release, each named once")
        # Owners are shown these texts, which have one form.
        for values in (each for rule in synthesis.stated_zeros for each in rule.values):
            if excluded_values(self.attribute(values.attribute), values.ranges) != values:
                raise ValueError("a stated fact is not written as its attribute writes values")

    def _check_permit(self) -> None:
        known = set(self.duo) <= DUO.keys() and len(set(self.duo)) == len(self.duo)
        if not (is_permit(self.permit) and known):
            raise ValueError(
                "a permit is one short line, and its conditions are codes of DUO, each named once"
            )

    def _check_linking(self) -> None:
        linking, largest_group = self.linking, max(map(len, self.groups))
        if not 1 <= linking.max_overlap <= largest_group:
            raise ValueError("no more owners can hold a person than a group has")
        if linking.max_overlap > 1 and not linking.tokens:
            raise ValueError("how many owners hold a person is only known by tokens")
        if linking.on_mismatch not in ON_MISMATCH:
            raise ValueError("groups that differ stop a release, or are intersected or united")
        if linking.unites and (self.n_groups == 1 or self.synthesis is None):
            raise ValueError("several groups are united, and their persons counted")
        if linking.intersects and not (self.n_groups > 1 and linking.min_common > 0):
            raise ValueError("several groups are intersected, down to some persons at least")
        if not linking.intersects and linking.min_common != 0:
            raise ValueError("common persons are counted where groups are intersected")
        if not 0 <= linking.min_match_quality <= 1 or (linking.min_match_quality and not self.passes):
            raise ValueError("the quality of matches is a share, and goes with match keys")
        if self.passes and self.max_records_per_person > 1:
            raise ValueError("match keys link persons with one record at an owner")

    @property
    def delta(self) -> Decimal:
        """δ of a release that is (ε, δ)-differentially private; else 0."""
        return Decimal(0) if self.synthesis is None else self.synthesis.delta

    @property
    def audit_days(self) -> int:
        """For how many days after publication owners keep what an audit needs; 0 for none."""
        return 0 if self.synthesis is None else self.synthesis.audit_days

    @property
    def structural_zeros(self) -> tuple[StructuralZero, ...]:
        """What no synthetic record is, by rules of owners and stated facts; empty for masked records."""
        synthesis = self.synthesis
        return () if synthesis is None else (*synthesis.structural_zeros, *synthesis.stated_zeros)

    @property
    def counted_pairs(self) -> tuple[tuple[str, ...], ...]:
        """Names of the pairs of attributes whose tables are counted; none of a masked release."""
        if self.synthesis is None:
            return ()
        counted = modelled(self.attributes, self.synthesis.together)
        if self.events is not None and not self.synthesis.pairs:
            return tuple(tuple(counted[place].name for place in pair) for pair in self.events.pairs)
        at = [each.name for each in self.presence]
        # Of two groups, who is at both follows from their sizes.
        among = tuple(combinations(at, 2)) if len(at) > 2 else ()
        return modelled_pairs(counted, self.synthesis.pairs) + among

    @property
    def product(self) -> Product:
        """What the release is made of."""
        return Product.MASKED if self.synthesis is None else Product.SYNTHETIC

    @cached_property
    def _tasks_by_group(self) -> list[list[Task]]:
        by_group: list[list[Task]] = [[] for _ in range(self.n_groups)]
        for task in self.tasks:
            by_group[task.group].append(task)
        return by_group

    @property
    def has_partners(self) -> bool:
        """Whether owners count with the owners of other groups the persons that both have."""
        return self.product.rules.in_rounds and self.n_groups > 1 and max(map(len, self.groups)) > 1

    @property
    def n_groups(self) -> int:
        """Number of attribute groups."""
        return max(task.group for task in self.tasks) + 1

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Owner ids, each once, in the order of their tasks."""
        return tuple(dict.fromkeys(task.owner for task in self.tasks))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Owner ids by attribute group, in the order of their tasks."""
        return tuple(tuple(task.owner for task in tasks) for tasks in self._tasks_by_group)

    def owners_of(self, group: int) -> tuple[str, ...]:
        """Return the owners of one attribute group, in the order of their tasks."""
        return self.groups[group]

    @cached_property
    def owner_columns(self) -> dict[int, Attribute]:
        """By group: the released column with the owner of every record; empty unless it is planned.

        A group of one owner needs none.
        """
        several = [(group, owners) for group, owners in enumerate(self.groups) if len(owners) > 1]
        return {
            group: Attribute(
                OWNER_COLUMN if self.n_groups == 1 else f"{OWNER_COLUMN}_{group + 1}",
                AttributeType.CATEGORY, 0, len(owners) - 1, categories=owners,
            )
            for group, owners in (several if self.owner_column else ())
        }  # fmt: skip

    @cached_property
    def joined(self) -> tuple[Attribute, ...]:
        """The columns of joined records: owners, then attributes of fragments, or those that are counted."""
        return (*self.owner_columns.values(), *self.counted)

    @cached_property
    def presence(self) -> tuple[Attribute, ...]:
        """By group: the attribute that says who is present, where the release is of everybody; else empty."""
        return tuple(presence_attribute(owners[0]) for owners in self.groups if self.linking.unites)

    @cached_property
    def counted(self) -> tuple[Attribute, ...]:
        """The attributes as released records have them, but for derived ones: with presence as a value."""
        return (*map(with_absence, self.attributes), *self.presence) if self.presence else self.attributes

    @cached_property
    def events(self) -> EventTable | None:
        """The events of persons, which are released as a table of their own; None without events."""
        return EventTable.of(self.attributes)

    @cached_property
    def modelled(self) -> tuple[Attribute, ...]:
        """The attributes that are counted, two that are counted together as one."""
        return self.counted if self.synthesis is None else modelled(self.counted, self.synthesis.together)

    @cached_property
    def group_of(self) -> dict[str, int]:
        """The group of owners of every counted attribute, by name."""
        groups = {name: task.group for task in self.tasks for name in task.names}
        of_joint = {modelled_names(self.modelled)[name]: group for name, group in groups.items()}
        return of_joint | {each.name: group for group, each in enumerate(self.presence)}

    @cached_property
    def released(self) -> tuple[Attribute, ...]:
        """All attributes of released records, each followed by those that are derived from it."""
        if not self.presence:
            return with_derived([each for each in self.attributes if each.slot <= 0], self.following)
        derived = derived_with_absence(self.following, {each.name: each for each in self.attributes})
        return with_derived(self.counted, derived)

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The columns of the release after the number of the record: owners, then attributes."""
        return (*self.owner_columns.values(), *self.released)

    @cached_property
    def assignments(self) -> dict[str, Assignment]:
        """What every owner masks, by owner id, in the order of their tasks."""
        tasks: dict[str, list[Task]] = {}
        for task in self.tasks:
            tasks.setdefault(task.owner, []).append(task)
        return {owner: Assignment(tuple(own)) for owner, own in tasks.items()}

    @cached_property
    def most_multiples(self) -> tuple[int, ...]:
        """By group: how many of its owners may hold the same person, as far as the plan allows."""
        return tuple(min(self.linking.max_overlap, len(owners)) for owners in self.groups)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, the plan's name everywhere."""
        return digest(self.to_bytes())

    @cached_property
    def epsilon_joint(self) -> Decimal | None:
        """Joint bound for one person, held by as many owners of a group as the plan allows."""
        return self.epsilon_joint_of_person(self.most_multiples)

    def epsilon_joint_of_person(self, multiples: Sequence[int]) -> Decimal | None:
        """Return the joint bound for one person; None where there is none.

        Within a group the owners that hold it add up, so the largest bounds count, as many as there can be
        such owners: one where no person is shared (parallel composition). Groups add up (sequential).

        Args:
            multiples: By group: how many owners hold the same person at most.
        """
        return self._bound_of_person(lambda task: task.epsilon_joint, multiples)

    @cached_property
    def epsilon_table(self) -> Decimal | None:
        """Bound for one person on who has which value, composed as `epsilon_joint`; None if there is none."""
        return self.epsilon_table_of_person(self.most_multiples)

    def epsilon_table_of_person(self, multiples: Sequence[int]) -> Decimal | None:
        """Return the same for as many owners of each group as hold a person."""
        return self._bound_of_person(lambda task: task.epsilon_table, multiples)

    @cached_property
    def has_rank_noise(self) -> bool:
        """Whether any attribute has rank noise."""
        return any(task.has_rank_noise for task in self.tasks)

    def _bound_of_person(
        self, bound: Callable[[Task], Decimal | None], multiples: Sequence[int]
    ) -> Decimal | None:
        bounds = [[bound(task) for task in tasks] for tasks in self._tasks_by_group]
        by_group = [
            None if None in of_group else _of_largest((b for b in of_group if b is not None), most)
            for of_group, most in zip(bounds, multiples, strict=True)
        ]
        # The bound of whole records is one, at whichever owners their attributes are.
        return total_or_unbounded(by_group[:1] if self.product.rules.whole_records else by_group)

    def epsilon_of_person(self, multiples: Sequence[int]) -> Decimal:
        """Return the sum of epsilon for one person, as `epsilon_joint_of_person` does of the joint bounds."""
        by_group = [
            _of_largest((task.epsilon for task in tasks), most)
            for tasks, most in zip(self._tasks_by_group, multiples, strict=True)
        ]
        return max(by_group) if self.product.rules.whole_records else total(by_group)

    @property
    def passes(self) -> tuple[MatchPass, ...]:
        """The passes of match keys by which persons are linked; empty with one exact identifier, or none."""
        return self.identifier.passes if self.identifier is not None else ()

    @property
    def numbers_persons(self) -> bool:
        """Whether the aggregator numbers the persons, by which groups are aligned."""
        return self.n_groups > 1 and bool(self.passes)

    @property
    def possible_linking(self) -> tuple[LinkingFound, ...]:
        """What linking can find under this plan if nothing stops it."""
        if not self.linking.tokens:
            return ("asserted",)
        if self.n_groups == 1:
            return ("disjoint", "overlapping") if self.linking.max_overlap > 1 else ("disjoint",)
        if self.linking.unites:
            return ("united",)
        return ("equal", "intersected") if self.linking.intersects else ("equal",)

    def assignment_of(self, owner: str) -> Assignment:
        """Return everything that an owner masks.

        Raises:
            KeyError: If it has no task in this plan.
        """
        return self.assignments[owner]

    def attribute(self, name: str) -> Attribute:
        """Return the settings of one attribute, as its owners declare them."""
        return self._attributes_by_name[name]

    def counted_attribute(self, name: str) -> Attribute:
        """Return the settings of one attribute of released records that is not derived."""
        return {each.name: each for each in self.counted}[name] if self.presence else self.attribute(name)

    @cached_property
    def _attributes_by_name(self) -> dict[str, Attribute]:
        return {attribute.name: attribute for attribute in self.attributes}

    def carrier_reason(self, planned: PlannedAttribute) -> str:
        """Say what carries the values of a planned attribute, and why, from public numbers."""
        attribute, g = self.attribute(planned.name), self.max_records_per_person
        fewest = min(
            task.records_rounded
            for task in self.tasks
            if any(each.name == planned.name for each in task.attributes)
        )
        public = PublicNumbers(fewest, attribute.n_values, planned.epsilon, g)
        return carrier_reason(attribute, planned.mechanism, public)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it uses; an owner without one of them cannot take part."""
        return features_of(self)

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document, with the bounds and the features that follow from it."""
        bounds: dict[str, Decimal | None] = {"epsilon_joint": self.epsilon_joint}
        if self.has_rank_noise:
            bounds["epsilon_table"] = self.epsilon_table
        return Document.to_document(self) | bounds | {"features": list(self.features)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Plan":
        """Read it from its document.

        Raises:
            VersionError: If it needs what this version does not know.
            ValueError: If it is none; KeyError, TypeError or AttributeError if it has another form.
        """
        check_needs(document)
        return super().from_document(document)


def _of_largest(values: Iterable[Decimal], count: int) -> Decimal:
    return total(nlargest(count, values))
