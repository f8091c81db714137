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
from common.synthesis.roles import Roles, Terms
from common.synthesis.rounds import StructuralZero
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns, exact_answer
from owner_node.synthesis.crossed import table_noise
from owner_node.synthesis.paillier import new_key
from owner_node.synthesis.together import Counting, VerticalOwner, synthesise_across, synthesise_together

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
        len(parts), default_colluding(len(parts)), tuple(rules),
    )  # fmt: skip
    return synthesise_together(design, parts, bits)


def neighbouring(n_attributes: int, n_owners: int) -> tuple[int, ...]:
    """Return which of the owners of neighbouring attributes has each of them."""
    return tuple(place * n_owners // n_attributes for place in range(n_attributes))


def vertical_release(
    attributes: Sequence[Attribute], columns: Columns, n_owners: int, epsilon: str, delta: str
) -> SyntheticRelease:
    """Make a synthetic release of owners that have neighbouring attributes, without encryption."""
    design = Design(
        tuple(attributes), columns[0].size, Decimal(epsilon), Decimal(delta),
        holders=neighbouring(len(attributes), n_owners),
    )  # fmt: skip
    owners = vertical_owners(design, columns, token_bytes(32).hex())
    return synthesise_across(TERMS, design, owners, plain_counting)


@cache
def paillier_key(number: int) -> bytes:
    """Return one of some keys, which take a second to make."""
    return new_key()


def vertical_owners(design: Design, columns: Columns, seed: int | str) -> list[VerticalOwner]:
    """Return owners of an experiment, with the attributes that the design gives them."""
    return [
        VerticalOwner(
            {place: columns[place] for place, holder in enumerate(design.holders) if holder == number},
            sha256(f"{seed}, {number}".encode()).digest(),
            paillier_key(number),
        )
        for number in range(max(design.holders) + 1)
    ]


def plain_counting(roles: Roles, owners: Sequence[VerticalOwner]) -> Counting:
    """Count without encryption, with the same noise: for experiments, whose tables are in one hand anyway."""

    def tables(holder: int, adder: int, asked: Sequence[Question], _opening: str) -> list[Int64Array]:
        crossed = roles.tables(asked, holder, adder)
        columns = {**owners[holder].columns, **owners[adder].columns}
        noises = [
            table_noise(roles, crossed, "", partner, owners[owner].seed)
            for owner, partner in ((holder, adder), (adder, holder))
        ]
        exact = [exact_answer([table], columns) for table in crossed]
        return [np.sum(each, axis=0) for each in zip(exact, *noises, strict=True)]

    return tables
