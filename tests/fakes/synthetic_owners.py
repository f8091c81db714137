"""Owners of an experiment, who take their budgets as texts."""

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from hashlib import sha256
from secrets import token_bytes

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute
from common.synthesis.accounting import default_colluding
from common.synthesis.course import Design, Question, SyntheticRelease
from common.synthesis.roles import Roles, Shared, Terms
from common.synthesis.rounds import StructuralZero
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns, exact_answer
from owner_node.synthesis.crossed import table_noise
from owner_node.synthesis.paillier import new_key
from owner_node.synthesis.together import Counting, GroupOwner, synthesise_across, synthesise_together

TERMS = Terms("flu", "ab" * 32, "cd" * 32)
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


def neighbouring(n_attributes: int, n_groups: int) -> tuple[int, ...]:
    """Return which of the groups of neighbouring attributes has each of them."""
    return tuple(place * n_groups // n_attributes for place in range(n_attributes))


def across_design(
    attributes: Sequence[Attribute], n_records: int, owners: Sequence[int], epsilon: str, delta: str
) -> Design:
    """Return the design of a release of groups of so many owners that have neighbouring attributes."""
    return Design(
        tuple(attributes), n_records, Decimal(epsilon), Decimal(delta), tuple(owners),
        default_colluding(max(owners)), homes=neighbouring(len(attributes), len(owners)),
    )  # fmt: skip


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


@cache
def paillier_key(number: int) -> bytes:
    """Return one of some keys, which take a second to make."""
    return new_key()


def plain_counting(roles: Roles, owners: Sequence[GroupOwner]) -> Counting:
    """Count without encryption, with the same noise: for experiments, whose tables are in one hand anyway."""

    def counts(holder: int, adder: int, asked: Sequence[Question], _opening: str) -> list[Int64Array]:
        group, later = (roles.design.group_of(each) for each in (holder, adder))
        columns = shared_columns(roles, owners, holder, adder)
        tables = roles.tables(asked, group, later)
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
