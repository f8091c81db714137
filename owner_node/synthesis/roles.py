"""Who encrypts, who adds, and which tables, where groups of owners hold attributes of the same persons.

Functions of the plan and of the sums of earlier rounds: all owners compute them alike.
Owners are numbered group by group, in the order of the plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from common.arrays import Int64Array, UInt8Array
from common.errors import IntegrityError
from common.synthesis.binning import Binning
from common.synthesis.plausible import Counted, counted_rounds, fault_of_counts, one_way_counts
from common.synthesis.schedule import Design, Question, Table


@dataclass(frozen=True, slots=True)
class MessageContext:
    """What an owner's messages and noise are about."""

    release: str
    """Id of the release."""
    plan_digest: str
    """SHA-256 of its plan, hexadecimal."""
    persons: str = ""
    """Keyed digest of the tokens of this owner's persons in their order, hexadecimal; empty where there is
    one group: nobody else has them."""
    round: int = 0
    """Number of the round where there is one group."""

    def document(self) -> dict[str, Any]:
        """Return the terms."""
        return {"release": self.release, "plan_digest": self.plan_digest, "persons": self.persons}


@dataclass(frozen=True, slots=True)
class Shared:
    """Which of an owner's persons the owners of other groups have."""

    partners: UInt8Array
    """By person in the order of tokens, and by group: the number of the group's owner that has it, in the
    group; `(n_persons, n_groups)`."""
    digests: Mapping[int, str]
    """By owner of another group: keyed digest of the tokens of the persons of both in their order."""

    @classmethod
    def everybody(cls, n_persons: int, n_groups: int, digest: str) -> "Shared":
        """Return that one owner in each group has all of them."""
        partners = np.broadcast_to(np.zeros(n_groups, dtype=np.uint8), (n_persons, n_groups))
        return cls(partners, dict.fromkeys(range(n_groups), digest))

    @property
    def n_persons(self) -> int:
        """How many persons the owner has."""
        return len(self.partners)


@dataclass(frozen=True)
class Roles:
    """Who encrypts and who adds, and what; a function of the plan and of the sums of one-way counts."""

    terms: MessageContext
    design: Design
    asked: Sequence[Question]
    """The round in which tables of pairs are asked for."""
    opening: str
    """SHA-256 of what opened that round, hexadecimal; it stands for all sums before."""
    owners: Sequence[str] = ()
    """Ids of the owners by number; empty where they have none."""

    def name(self, owner: int) -> str:
        """Return the id of an owner, or else its number."""
        return self.owners[owner] if self.owners else str(owner)

    @cached_property
    def binnings(self) -> dict[int, Binning]:
        """Bins of every attribute that is counted with one of another group."""
        return {
            attribute: binning
            for question in self.asked
            if isinstance(question, Table) and self.design.is_across(question.pair)
            for attribute, binning in zip(question.pair, question.binnings, strict=True)
        }

    def adding(self, holder: int) -> tuple[int, ...]:
        """Return the groups whose owners are adders for a holder, in their order."""
        order = self.design.order
        return order[order.index(self.design.group_of(holder)) + 1 :]

    def adders(self, holder: int) -> tuple[int, ...]:
        """Return the owners that are adders for a holder, in their order."""
        return tuple(owner for group in self.adding(holder) for owner in self.design.members(group))

    def holders(self, adder: int) -> tuple[int, ...]:
        """Return the owners that are holders for an adder, in their order."""
        order = self.design.order
        before = order[: order.index(self.design.group_of(adder))]
        return tuple(owner for group in before for owner in self.design.members(group))

    def place(self, owner: int) -> int:
        """Return the number of an owner in its group."""
        return owner - self.design.members(self.design.group_of(owner)).start

    def positions(self, owner: int, shared: Shared, other: int) -> Int64Array:
        """Return which of an owner's persons another one of another group has, `(n_shared,)`."""
        return np.flatnonzero(shared.partners[:, self.design.group_of(other)] == self.place(other))

    def has_attribute(self, owner: int, attribute: int) -> bool:
        """Whether an owner has an attribute."""
        return self.design.home(attribute) == self.design.group_of(owner)

    def bins(self, owner: int, columns: Mapping[int, Int64Array], n_persons: int) -> dict[int, Int64Array]:
        """Return the bins of an owner's persons, `(n_persons,)` by attribute.

        Raises:
            IntegrityError: If there are not as many as were linked.
        """
        for column in columns.values():
            if column.size != n_persons:
                raise IntegrityError(
                    f"{column.size:,} records are not those of the {n_persons:,} persons",
                    "the data changed since linking; start the release again",
                )
        return {
            attribute: binning.bins(columns[attribute])
            for attribute, binning in self.binnings.items()
            if self.has_attribute(owner, attribute)
        }

    def tables(self, one: int, other: int) -> list[Table]:
        """Return the tables of two groups of owners, in the order of the round."""
        return [
            question
            for question in self.asked
            if isinstance(question, Table)
            and {self.design.home(place) for place in question.pair} == {one, other}
        ]


def fault_of_tables(
    roles: Roles,
    holder: int,
    adder: int,
    shared: Shared,
    counts: Sequence[Int64Array],
    sums: Sequence[Int64Array],
) -> str:
    """Return what an adder's noise does not explain of its tables with a holder; empty if it explains all.

    Args:
        shared: Which of the holder's persons adders have.
        counts: Of their tables, `(n_numbers,)` each.
        sums: Of the rounds before, `(n_numbers,)` each.
    """
    design, n_persons = roles.design, roles.positions(holder, shared, adder).size
    # One-way counts are those of all persons.
    rounds = counted_rounds(design, sums) if n_persons == design.n_records else ()
    one_way = {place: each for counted in rounds for place, each in one_way_counts(counted).items()}
    tables = roles.tables(*map(design.group_of, (holder, adder)))
    counted = [
        Counted(table, of_table, table.noise.variance(1))
        for table, of_table in zip(tables, counts, strict=True)
    ]
    return fault_of_counts(design, counted, n_persons, one_way)
