"""Privacy of tables across groups of owners: what every coalition sees of one number, by exact probabilities.

Owners of two groups count a table together (`common.synthesis.accounting`). Every person is at one owner of
each group. A coalition gets the sum of all, and what each of its holders decrypts, and takes away all noise
that it knows itself. The rest decides what it learns of a person at two other owners, or at one other owner.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from itertools import chain, combinations, product

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import Kind, Noise
from common.synthesis.schedule import Design

YES_OR_NO = Attribute("x", AttributeType.BOOLEAN, 0, 1)
SIZES = [(1, 1), (2, 1), (1, 2), (2, 2), (3, 2)]
DELTAS = ["0", "0.01"]
Probabilities = np.ndarray


def design(sizes: Sequence[int], delta: str) -> Design:
    """A release of two attributes."""
    colluding = int(max(sizes) > 1)
    owner_groups = (0, 1)
    return Design(
        (YES_OR_NO,) * 2,
        9,
        Decimal("0.5"),
        Decimal(delta),
        tuple(sizes),
        colluding,
        owner_groups=owner_groups,
    )


def probabilities(noise: Noise) -> Probabilities:
    """Of one share of a noise without its floor; the middle element is that of 0."""
    if noise.kind is Kind.GAUSSIAN:
        x = np.arange(-int(14 * noise.size**0.5), int(14 * noise.size**0.5) + 1)
        shares = np.exp(-(x**2) / (2 * noise.size))
    else:
        x = np.arange(40 * noise.size)
        q = np.exp(-1 / noise.size)
        one = np.concatenate([[1.0], np.cumprod(q * (x[:-1] + 1 / noise.n_honest) / (x[:-1] + 1))])
        shares = np.convolve(one, one[::-1])
    return shares / shares.sum()


def loss(drawn: Sequence[Probabilities], kind: Kind) -> float:
    """What a sum of noises loses of a number that moves by 1: ε, or the ρ of order 2; all without any."""
    if not drawn:
        return float("inf")
    summed = reduce(np.convolve, drawn)
    p, moved = summed[1:], summed[:-1]
    if kind is Kind.GAUSSIAN:
        kept = (p > 1e-200) & (moved > 1e-200)
        return float(np.log((p[kept] ** 2 / moved[kept]).sum()) / 2)
    middle = summed.size // 2
    near = np.log(summed[middle - 60 : middle + 61])
    return float(np.abs(np.diff(near)).max())


def seen(
    of: Design, noise: Noise, coalition: frozenset[int], *, shares: bool = True
) -> dict[tuple[int, int], float]:
    """Return what a coalition learns at most of a number, by the holder and the adder that a person is at.

    Args:
        of: The release.
        noise: An adder's.
        coalition: Numbers of owners.
        shares: Whether holders add theirs.
    """
    holders, adders = (of.members(group) for group in of.order)
    whole, share = probabilities(noise), probabilities(of.held_noise(noise, (0, 1)))
    # What is left of the sum over the holders that do not look.
    left = [whole for _ in product({*holders} - coalition, {*adders} - coalition)]
    left += [share for _ in {*holders} - coalition] if shares else []
    learned = {}
    for holder, adder in product(holders, adders):
        if holder not in coalition:
            learned[holder, adder] = loss(left, noise.kind)
        elif adder not in coalition:
            # It has decrypted this table by itself.
            learned[holder, adder] = loss([whole], noise.kind)
    return learned


def coalitions(of: Design, most: int) -> list[frozenset[int]]:
    """Return all sets of at most so many owners."""
    owners = range(sum(of.n_owners))
    return [frozenset(each) for each in chain(*(combinations(owners, size) for size in range(most + 1)))]


def budgeted(of: Design) -> tuple[Noise, float]:
    """Return an adder's noise on the table of the pair, and what one number that moves by 1 may lose."""
    # Two numbers move by 1 each.
    return of.table_noise((0, 1)), float(of.budgets[1].amount) / 2


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_no_coalition_that_is_allowed_for_learns_more_than_a_table_costs(sizes, delta):
    """Whoever of so many owners look together with the aggregator; somebody learns nearly as much."""
    of = design(sizes, delta)
    noise, most = budgeted(of)
    # An owner that is alone in its group adds the whole: all others may look.
    n_others = of.colluding if max(sizes) > 1 else 1
    worst = max(max(seen(of, noise, each).values(), default=0.0) for each in coalitions(of, n_others))
    assert 0.8 * most < worst <= most * (1 + 1e-6)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("group", [0, 1], ids=["invented holder", "invented adder"])
def test_an_invented_owner_learns_no_more_than_a_table_costs(group, sizes, delta):
    """The aggregator adds an owner to a group: it knows its noise, and decrypts what a holder gets."""
    of = design([size + (place == group) for place, size in enumerate(sizes)], delta)
    noise, most = budgeted(of)
    worst = max(seen(of, noise, frozenset({of.members(group)[-1]})).values())
    assert 0.8 * most * (group == of.order[0]) < worst <= most * (1 + 1e-6)


@pytest.mark.parametrize("delta", DELTAS)
def test_too_little_noise_and_too_many_that_look_are_seen(delta):
    """Two thirds of the noise; more owners than it allows for; and holders that leave their shares out."""
    of = design((3, 2), delta)
    noise, most = budgeted(of)
    smaller = Noise(noise.kind, noise.size * 2 // 3)
    assert max(max(seen(of, smaller, each).values()) for each in coalitions(of, 1)) > 1.1 * most
    worst = max(max(seen(of, noise, each).values(), default=0.0) for each in coalitions(of, 4))
    assert worst > 1.1 * most
    alone = design((3, 1), delta)
    (adder,) = alone.members(alone.order[-1])
    assert set(seen(alone, noise, frozenset({adder}), shares=False).values()) == {float("inf")}
