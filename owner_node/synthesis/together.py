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
from common.synthesis.roles import Roles, Terms
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns, noisy_answer
from owner_node.synthesis.crossed import (
    Sums,
    add_rows,
    encrypted_rows,
    noisy_sums,
    open_sums,
    vertical_answer,
)
from owner_node.synthesis.paillier import PrivateKey


def synthesise_together(
    design: Design, parts: Sequence[Columns], bits: Sequence[BitSource]
) -> SyntheticRelease:
    """Make all rounds of a release, its model and its records.

    Args:
        design: The release.
        parts: The records of every owner.
        bits: Each owner's source of random bits.
    """
    sums: list[Int64Array] = []
    while not isinstance(asked := next_round(design, sums), Measured):
        answers = [noisy_answer(asked, part, source) for part, source in zip(parts, bits, strict=True)]
        sums.append(np.sum(answers, axis=0, dtype=np.int64))
    return synthesise(design, asked)


@dataclass(frozen=True, slots=True)
class VerticalOwner:
    """An owner of some attributes of persons whom others know too."""

    columns: Mapping[int, Int64Array] = field(repr=False)
    """Codes of its persons in the order of their tokens, `(n_persons,)` by attribute."""
    seed: bytes = field(repr=False)
    """32 random bytes for this release alone."""
    key: bytes = field(repr=False)
    """As `paillier.new_key` made it, for this release alone."""


class Counting(Protocol):
    """How two owners count together."""

    def __call__(
        self, holder: int, adder: int, asked: Sequence[Question], opening: str, /
    ) -> list[Int64Array]:
        """Return the tables of two owners in the order of a round, with the noise of both."""
        ...


def encrypted_counting(
    roles: Roles, owners: Sequence[VerticalOwner], pool: Executor | None = None
) -> Counting:
    """Let owners count together as `owner_node.synthesis.crossed` says.

    Args:
        roles: The roles in the release.
        owners: All owners, by number.
        pool: Processes for the work.
    """
    sums: dict[tuple[int, int], Sums] = {}
    for holder, owner in enumerate(owners):
        for adder in roles.adders(holder):
            rows = encrypted_rows(roles, holder, owner.columns, owner.key, owner.seed, pool)
            sums[holder, adder] = add_rows(roles, holder, adder, owners[adder].columns, rows, pool)

    def tables(holder: int, adder: int, asked: Sequence[Question], opening: str) -> list[Int64Array]:
        owner, other = owners[holder], owners[adder]
        message = noisy_sums(roles, holder, adder, sums[holder, adder], asked, opening, other.seed)
        key = PrivateKey(owner.key)
        return open_sums(roles, holder, adder, message, asked, opening, key, owner.seed)

    return tables


def synthesise_across(
    terms: Terms,
    design: Design,
    owners: Sequence[VerticalOwner],
    counting: Callable[[Roles, Sequence[VerticalOwner]], Counting] = encrypted_counting,
) -> SyntheticRelease:
    """Make all rounds of a release of owners with different attributes, its model and its records.

    Args:
        terms: What the owners agree on.
        design: The release.
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
            if roles is not None and counted is not None:
                for adder in roles.adders(number):
                    tables = roles.tables(asked, number, adder)
                    counts = counted(number, adder, asked, opening)
                    across.update({table.pair: each for table, each in zip(tables, counts, strict=True)})
            answers.append(vertical_answer(design, number, asked, owner.columns, across, terms, owner.seed))
        sums.append(np.sum(answers, axis=0, dtype=np.int64))
    return synthesise(design, asked)
