"""Who encrypts, who adds, and which tables, where owners hold different attributes of the same persons.

Functions of the plan and of the sums of earlier rounds: owners and the aggregator compute them alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.synthesis.course import CoarseTable, Design, Question, Table
from common.synthesis.rounds import Coding

CrossTable = CoarseTable | Table


class Group(NamedTuple):
    """Counters of one attribute."""

    attribute: int
    """Number of the attribute."""
    coarse: bool
    """Whether they count merged bins."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What both owners agree on before they count."""

    release: str
    """Id of the release."""
    plan_digest: str
    """SHA-256 of its plan, hexadecimal."""
    persons: str
    """SHA-256 of the tokens of the persons in their order, hexadecimal."""

    def document(self) -> dict[str, Any]:
        """Return the terms as every header has them."""
        return {"release": self.release, "plan_digest": self.plan_digest, "persons": self.persons}


@dataclass(frozen=True)
class Roles:
    """Who encrypts and who adds, and what; a function of the plan and of the sums of one-way counts."""

    terms: Terms
    design: Design
    asked: Sequence[Question]
    """The round in which coarse tables are asked for."""
    opening: str
    """SHA-256 of what opened that round, hexadecimal; it stands for all sums before."""
    owners: Sequence[str] = ()
    """Ids of the owners by number; empty where they have none."""

    def name(self, owner: int) -> str:
        """Return the id of an owner, or else its number."""
        return self.owners[owner] if self.owners else str(owner)

    def document(self) -> dict[str, Any]:
        """Return what every header has."""
        return {
            **self.terms.document(),
            "number_of_persons": self.design.n_records,
            "roles": self.opening,
        }

    @cached_property
    def codings(self) -> dict[Group, Coding]:
        """Bins and merged bins of every attribute."""
        codings = {}
        for question in self.asked:
            if isinstance(question, CoarseTable):
                for attribute, fine, merged in zip(
                    question.pair, question.fine, question.codings, strict=True
                ):
                    codings[Group(attribute, coarse=False)] = fine
                    codings[Group(attribute, coarse=True)] = merged
        return codings

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The owners: of two, the earlier one is the holder. Those with fewer bins are holders for others."""
        n_bins = dict.fromkeys(self.design.holders, 0)
        for group, coding in self.codings.items():
            n_bins[self.design.holders[group.attribute]] += coding.n_bins
        return tuple(sorted(n_bins, key=lambda owner: (n_bins[owner], owner)))

    def is_holder(self, owner: int, other: int) -> bool:
        """Whether an owner is the holder of tables with another one."""
        return self.order.index(owner) < self.order.index(other)

    def adders(self, owner: int) -> tuple[int, ...]:
        """Return the owners that an owner is the holder for."""
        return self.order[self.order.index(owner) + 1 :]

    def bins(self, owner: int, columns: Mapping[int, Int64Array], *, coarse: bool) -> dict[Group, Int64Array]:
        """Return the bins of an owner's persons, with the merged ones or without, `(n_persons,)` by group.

        Raises:
            IntegrityError: If there are not as many as were linked.
        """
        for column in columns.values():
            if column.size != self.design.n_records:
                raise IntegrityError(
                    f"{column.size:,} records are not those of the {self.design.n_records:,} persons",
                    "the data changed since linking; start the release again",
                )
        return {
            group: coding.bins(columns[group.attribute])
            for group, coding in self.codings.items()
            if self.design.holders[group.attribute] == owner and (coarse or not group.coarse)
        }

    def tables(self, asked: Sequence[Question], holder: int, adder: int) -> list[CrossTable]:
        """Return the tables of two owners that a round asks for, in its order."""
        tables = []
        for question in asked:
            if isinstance(question, CrossTable):
                owners = {self.design.holders[place] for place in question.pair}
                if owners == {holder, adder}:
                    tables.append(question)
        return tables
