"""Synthetic releases of owners whose records are all here: an owner alone, or owners of an experiment."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

import numpy as np

from common.arrays import Int64Array
from common.synthesis.course import (
    CoarseTable,
    Design,
    Measured,
    Question,
    SyntheticRelease,
    next_round,
    synthesise,
)
from common.synthesis.roles import Roles, Shared, Terms
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns, noisy_answer
from owner_node.synthesis.crossed import (
    Sums,
    add_rows,
    encrypted_rows,
    group_answer,
    held_tables,
    noisy_counts,
    noisy_sums,
)
from owner_node.synthesis.paillier import PrivateKey


def synthesise_together(
    design: Design, parts: Sequence[Columns], bits: Sequence[BitSource]
) -> SyntheticRelease:
    """Make all rounds of a release, its model and its records.

    Args:
        bits: Each owner's source of random bits.
    """
    sums: list[Int64Array] = []
    while not isinstance(asked := next_round(design, sums), Measured):
        answers = [noisy_answer(asked, part, source) for part, source in zip(parts, bits, strict=True)]
        sums.append(np.sum(answers, axis=0, dtype=np.int64))
    return synthesise(design, asked)


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """An owner of some attributes of persons whom owners of other attributes know, too."""

    columns: Mapping[int, Int64Array] = field(repr=False)
    """Codes of its persons in the order of their tokens, `(n_persons,)` by attribute."""
    shared: Shared = field(repr=False)
    """Who has them, too."""
    seed: bytes = field(repr=False)
    """32 random bytes for this release alone."""
    key: bytes = field(repr=False)
    """As `paillier.new_key` made it, for this release alone."""


class Counting(Protocol):
    """How two owners count together."""

    def __call__(
        self, holder: int, adder: int, asked: Sequence[Question], opening: str, /
    ) -> list[Int64Array]:
        """Return what a holder learns of tables in the order of a round: counts with the adder's noise."""
        ...


def encrypted_counting(roles: Roles, owners: Sequence[GroupOwner], pool: Executor | None = None) -> Counting:
    """Let owners count together as `owner_node.synthesis.crossed` says.

    Args:
        owners: All owners, by number.
    """
    sums: dict[tuple[int, int], Sums] = {}
    for holder, own in enumerate(owners):
        for adder in roles.adders(holder):
            other = owners[adder]
            rows = encrypted_rows(roles, holder, own.columns, own.shared, own.key, own.seed, pool)
            sums[holder, adder] = add_rows(roles, holder, adder, other.columns, other.shared, rows, pool)

    def counts(holder: int, adder: int, asked: Sequence[Question], opening: str) -> list[Int64Array]:
        own, other = owners[holder], owners[adder]
        message = noisy_sums(
            roles, holder, adder, other.shared, sums[holder, adder], asked, opening, other.seed
        )
        return noisy_counts(roles, holder, adder, own.shared, message, asked, opening, PrivateKey(own.key))

    return counts


def synthesise_across(
    terms: Terms,
    design: Design,
    owners: Sequence[GroupOwner],
    counting: Callable[[Roles, Sequence[GroupOwner]], Counting] = encrypted_counting,
) -> SyntheticRelease:
    """Make all rounds of a release of groups of owners with different attributes, its model and its records.

    Args:
        owners: All owners, by number.
        counting: How they count together.
    """
    sums: list[Int64Array] = []
    roles, counted = None, None
    while not isinstance(asked := next_round(design, sums), Measured):
        opening = sha256(b"".join(each.tobytes() for each in sums)).hexdigest()
        if roles is None and any(isinstance(each, CoarseTable) for each in asked):
            roles = Roles(terms, design, asked, opening)
            counted = counting(roles, owners)
        answers = []
        for number, owner in enumerate(owners):
            across: dict[tuple[int, ...], Int64Array] = {}
            group = design.group_of(number)
            if roles is not None and counted is not None:
                for later in roles.adding(number):
                    tables = roles.tables(asked, group, later)
                    counts = [counted(number, adder, asked, opening) for adder in design.members(later)]
                    held = held_tables(roles, tables, counts, later, owner.seed)
                    across.update({table.pair: part for table, part in zip(tables, held, strict=True)})
            answers.append(group_answer(design, group, asked, owner.columns, across, terms, owner.seed))
        sums.append(np.sum(answers, axis=0, dtype=np.int64))
    return synthesise(design, asked)
