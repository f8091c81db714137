"""Owners of an experiment, who take their budgets as texts."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from hashlib import sha256
from secrets import token_bytes
from typing import TypeAlias

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute
from common.synthesis.accounting import default_colluding
from common.synthesis.binning import StructuralZero
from common.synthesis.records import SyntheticRelease, synthesise
from common.synthesis.schedule import Design, Round, run_rounds
from owner_node.masking.arrays import BitSource
from owner_node.synthesis import paillier
from owner_node.synthesis.counts import Columns, exact_answer
from owner_node.synthesis.crossed import (
    Member,
    Sums,
    add_rows,
    encrypted_rows,
    group_answer,
    held_tables,
    noisy_counts,
    noisy_sums,
    table_noise,
)
from owner_node.synthesis.own_table import synthesise_together
from owner_node.synthesis.paillier import PrivateKey, new_key
from owner_node.synthesis.roles import MessageContext, Roles, Shared

TERMS = MessageContext("flu", "ab" * 32, "cd" * 32)
OPENING = "12" * 32
"""What opened a round."""


def synthetic_release(
    attributes: Sequence[Attribute],
    parts: Sequence[Columns],
    epsilon: str,
    delta: str,
    bits: Sequence[BitSource],
    rules: Sequence[StructuralZero] = (),
) -> SyntheticRelease:
    """Make a synthetic release of the records of some owners."""
    design = Design(
        tuple(attributes), sum(part[0].size for part in parts), Decimal(epsilon), Decimal(delta),
        (len(parts),), default_colluding(len(parts)), tuple(rules),
    )  # fmt: skip
    return synthesise_together(design, parts, bits)


def across_design(
    attributes: Sequence[Attribute], n_records: int, owners: Sequence[int], epsilon: str, delta: str
) -> Design:
    """Return the design of a release of groups of so many owners that have neighbouring attributes."""
    owner_groups = tuple(place * len(owners) // len(attributes) for place in range(len(attributes)))
    return Design(
        tuple(attributes), n_records, Decimal(epsilon), Decimal(delta), tuple(owners),
        default_colluding(max(owners)), owner_groups=owner_groups,
    )  # fmt: skip


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


Counting: TypeAlias = Callable[[int, int], list[Int64Array]]
"""What a holder learns of tables with an adder, in the order of the round: counts with the adder's noise."""


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

    def counts(holder: int, adder: int) -> list[Int64Array]:
        own, other = owners[holder], owners[adder]
        message = noisy_sums(roles, holder, adder, other.shared, sums[holder, adder], other.seed)
        return noisy_counts(roles, holder, adder, own.shared, message, PrivateKey(own.key))

    return counts


def synthesise_across(
    terms: MessageContext,
    design: Design,
    owners: Sequence[GroupOwner],
    counting: Callable[[Roles, Sequence[GroupOwner]], Counting] = encrypted_counting,
) -> SyntheticRelease:
    """Make all rounds of a release of groups of owners with different attributes, and its records.

    Args:
        owners: All owners, by number.
        counting: How they count together.
    """

    def answer(asked: Round) -> Int64Array:
        roles, answers = Roles(terms, design, asked, OPENING), []
        counted = counting(roles, owners) if design.counts_across(asked) else None
        for number, owner in enumerate(owners):
            across: dict[tuple[int, ...], Int64Array] = {}
            group = design.group_of(number)
            if counted is not None:
                for later in roles.adding(number):
                    tables = roles.tables(group, later)
                    counts = [counted(number, adder) for adder in design.members(later)]
                    held = held_tables(roles, tables, counts, later, owner.seed)
                    across.update({table.pair: part for table, part in zip(tables, held, strict=True)})
            member = Member(design, group, owner.columns, terms, owner.seed)
            answers.append(group_answer(member, asked, across))
        sums: Int64Array = np.sum(answers, axis=0, dtype=np.int64)
        return sums

    return synthesise(run_rounds(design, answer))


def release_across(
    attributes: Sequence[Attribute], columns: Columns, owners: Sequence[int], epsilon: str, delta: str
) -> SyntheticRelease:
    """Make a synthetic release of groups of so many owners, without encryption."""
    design = across_design(attributes, columns[0].size, owners, epsilon, delta)
    made = group_owners(design, columns, token_bytes(32).hex())
    return synthesise_across(TERMS, design, made, plain_counting)


def group_owners(design: Design, columns: Columns, seed: int | str) -> list[GroupOwner]:
    """Return owners of an experiment, with the attributes that the design gives them.

    Persons have no order: in group g the owner of person i is (i // 2**g) mod m.
    """
    persons = np.arange(columns[0].size)
    partners = np.stack(
        [(persons // 2**group) % n_owners for group, n_owners in enumerate(design.n_owners)], axis=1
    ).astype(np.uint8)
    owners: list[GroupOwner] = []
    for group, n_owners in enumerate(design.n_owners):
        for place in range(n_owners):
            own = partners[:, group] == place
            digests = {
                other: sha256(persons[own & (partners[:, later] == number)].tobytes()).hexdigest()
                for later in range(design.n_groups)
                for number, other in enumerate(design.members(later))
            }
            number = len(owners)
            owners.append(
                GroupOwner(
                    {i: columns[i][own] for i in range(len(columns)) if design.home(i) == group},
                    Shared(partners[own], digests),
                    sha256(f"{seed}, {number}".encode()).digest(),
                    paillier_key(number),
                )
            )
    return owners


def paillier_key(number: int) -> bytes:
    """Return one of some keys, which take a second to make."""
    return _made_key(number, paillier.MODULUS_BITS)


@cache
def _made_key(number: int, n_bits: int) -> bytes:
    return new_key()


def plain_counting(roles: Roles, owners: Sequence[GroupOwner]) -> Counting:
    """Count without encryption, with the same noise: for experiments, whose tables are in one hand anyway."""

    def counts(holder: int, adder: int) -> list[Int64Array]:
        group, later = (roles.design.group_of(each) for each in (holder, adder))
        columns = shared_columns(roles, owners, holder, adder)
        tables = roles.tables(group, later)
        noise = table_noise(roles, tables, "", holder, owners[adder].seed)
        return [exact_answer([table], columns) + added for table, added in zip(tables, noise, strict=True)]

    return counts


def shared_columns(
    roles: Roles, owners: Sequence[GroupOwner], holder: int, adder: int
) -> dict[int, Int64Array]:
    """Return the joined columns of the persons that two owners have."""
    return {
        place: column[roles.positions(owner, owners[owner].shared, other)]
        for owner, other in ((holder, adder), (adder, holder))
        for place, column in owners[owner].columns.items()
    }
