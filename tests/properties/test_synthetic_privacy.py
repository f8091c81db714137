"""Privacy of synthetic releases by brute force: all tables of a few persons, all neighbours, all transcripts.

A transcript is everything that is sent: noisy one-way counts, and noisy tables of pairs. Its privacy loss is
a sum over its numbers. One-way counts decide the second round through the bins alone: all possible bins are
tried. The loss of one number is the largest over all noisy values, by the exact probabilities of
the shares that are left when the colluding owners' are taken away.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import product

import numpy as np
import pytest

from common.model.events import number_attribute, slots_of
from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import Budget, Kind, Noise
from common.synthesis.binning import Binning
from common.synthesis.schedule import Design, Round, Table, attributes_of, next_round
from owner_node.synthesis.counts import exact_answer

YES_OR_NO = Attribute("x", AttributeType.BOOLEAN, 0, 1)
EVENT = (
    number_attribute("events", 1),
    *slots_of(Attribute("ward", AttributeType.CATEGORY, 0, 0, categories=("A",)), 1, 1),
)
"""One event at most, in a slot."""
Persons = tuple[tuple[int, ...], ...]
"""The values of each person."""
Loss = Callable[[int, Noise], float]
"""The largest loss of a number that differs by so much, with this noise."""


def neighbours(n_persons: int, n_attributes: int) -> Iterator[tuple[Persons, Persons]]:
    """Yield all tables, each with all in which one person is replaced."""
    persons = list(product((0, 1), repeat=n_attributes))
    for table in product(persons, repeat=n_persons):
        for who, other in product(range(n_persons), persons):
            if other != table[who]:
                yield table, (*table[:who], other, *table[who + 1 :])


def share(noise: Noise) -> np.ndarray:
    """Return the probabilities of one owner's share; the middle element is that of 0."""
    if noise.kind is Kind.GAUSSIAN:
        x = np.arange(-int(12 * noise.size**0.5), int(12 * noise.size**0.5) + 1)
        weights = np.exp(-(x**2) / (2 * noise.size))
        return weights / weights.sum()
    x = np.arange(40 * noise.size)
    q = np.exp(-1 / noise.size)
    ratios = q * (x[:-1] + 1 / noise.n_honest) / (x[:-1] + 1)
    one = (1 - q) ** (1 / noise.n_honest) * np.concatenate([[1.0], np.cumprod(ratios)])
    return np.convolve(one, one[::-1])


@cache
def epsilon_of(moved: int, noise: Noise, *, left: int | None = None) -> float:
    """Return the largest loss of a sum of shares, h unless so many are left, over all likely values."""
    summed = reduce(np.convolve, [share(noise)] * (noise.n_honest if left is None else left))
    middle, reach = summed.size // 2, 5 * noise.size
    near = np.log(summed[middle - reach - moved : middle + reach + moved + 1])
    return float(np.abs(near[moved:] - near[: near.size - moved]).max())


@cache
def rho_of(moved: int, noise: Noise) -> float:
    """Return the largest Rényi divergence of the sum of h shares, by its order."""
    summed = reduce(np.convolve, [share(noise)] * noise.n_honest)
    p, shifted = summed[moved:], summed[: summed.size - moved]
    kept = (p > 1e-200) & (shifted > 1e-200)
    p, ratio = p[kept], p[kept] / shifted[kept]
    orders = (1.5, 2.0, 4.0, 12.0)
    return max(float(np.log((p * ratio ** (a - 1)).sum()) / (a - 1) / a) for a in orders)


def possible_rounds(design: Design) -> tuple[list[Round], list[Round]]:
    """Return what can be asked: one-way counts, and then the tables of pairs in any bins."""
    first = next_round(design, [])
    assert isinstance(first, tuple)
    second = next_round(design, [np.zeros(2 * len(design.attributes), dtype=np.int64)])
    assert isinstance(second, tuple)
    assert [attributes_of(each) for each in second] == list(design.pairs)
    tables = [each for each in second if isinstance(each, Table)]
    # Two values have a bin each or share one.
    bins = [Binning(tables[0].binnings[0].histogram, np.array([0, last]), 1 + last) for last in (0, 1)]
    return [first], [
        tuple(replace(each, binnings=(own[each.pair[0]], own[each.pair[1]])) for each in tables)
        for own in product(bins, repeat=len(design.attributes))
    ]


def largest_loss(design: Design, loss: Loss, part: Fraction = Fraction(1)) -> float:
    """Return the largest loss of any transcript.

    Args:
        design: Of attributes of two values. Noise that an owner adds to its share is left out.
        loss: Of one number.
        part: The part of the noise's size that is drawn.
    """
    rounds = possible_rounds(design)

    @cache
    def answers(table: Persons) -> list[list[list[np.ndarray]]]:
        columns = [np.array(each) for each in zip(*table, strict=True)]
        return [[[exact_answer([each], columns) for each in asked] for asked in round_] for round_ in rounds]

    def spent(asked: Round, one: list[np.ndarray], other: list[np.ndarray]) -> float:
        noises = [replace(each.noise, size=int(each.noise.size * part), floor=0) for each in asked]
        moved = [np.abs(a - b) for a, b in zip(one, other, strict=True)]
        return sum(loss(m, noise) for each, noise in zip(moved, noises, strict=True) for m in each[each > 0])

    return max(
        sum(max(map(spent, *each)) for each in zip(rounds, answers(before), answers(after), strict=True))
        for before, after in neighbours(design.n_records, len(design.attributes))
    )


def designs(epsilon: str, delta: str) -> list[Design]:
    """Return releases of one owner, two and three, and of all pairs or of named ones."""
    promise = Decimal(epsilon), Decimal(delta)
    two, three = (YES_OR_NO,) * 2, (YES_OR_NO,) * 3
    return [
        Design(two, 3, *promise),
        Design(two, 3, *promise, owners=(2,), colluding=1),
        Design(two, 3, *promise, owners=(3,), colluding=1),
        Design(three, 2, *promise),
        Design(three, 2, *promise, named_pairs=((0, 2), (1, 2))),
    ]


@pytest.mark.parametrize("design", designs("1", "0"), ids=range(5))
def test_pure_epsilon(design):
    """No transcript loses more than ε, some lose nearly that much, and with less noise they lose more."""
    assert 0.9 < largest_loss(design, epsilon_of) <= 1 + 1e-9
    assert largest_loss(design, epsilon_of, Fraction(2, 3)) > 1.1


@pytest.mark.parametrize("real", [1, 2])
@pytest.mark.parametrize(
    ("colluding", "invented"),
    [(0, 1), (1, 0), (1, 1), (0, 2)],
    ids=["invented", "colluding", "both", "two invented"],
)
def test_owners_whose_noise_is_known(real, colluding, invented):
    """Noise and masks of an invented owner are the aggregator's: it counts as one that colludes, and the plan
    allows for one. With two of either kind the loss is above ε by far.
    """
    n_owners = real + colluding + invented
    of = Design((YES_OR_NO,) * 2, 3, Decimal(1), Decimal(0), owners=(n_owners,), colluding=1)
    found = largest_loss(of, partial(epsilon_of, left=real))
    assert 0.9 < found <= 1 + 1e-9 if colluding + invented == 1 else found > 1.4


@pytest.mark.parametrize("design", designs("0.3", "0.01"), ids=range(5))
def test_concentrated(design):
    """The divergence of no transcript is above ρ, at any order, and that of some is nearly ρ."""
    rho = float(Budget.of(design.epsilon, design.delta).amount)
    assert 0.9 * rho < largest_loss(design, rho_of) <= rho * (1 + 1e-6)
    assert largest_loss(design, rho_of, Fraction(2, 3)) > 1.1 * rho


def test_an_event_is_part_of_its_persons_record():
    """With weighted budgets, too: replacing a person and its event loses ε, or ρ, and hardly less."""
    pure = Design((YES_OR_NO, *EVENT), 2, Decimal(1))
    assert 0.85 < largest_loss(pure, epsilon_of) <= 1 + 1e-9
    assert largest_loss(pure, epsilon_of, Fraction(2, 3)) > 1.1
    gaussian = Design((YES_OR_NO, *EVENT), 2, Decimal("0.3"), Decimal("0.01"))
    rho = float(gaussian.budgets[0].amount + gaussian.budgets[1].amount)
    assert 0.85 * rho < largest_loss(gaussian, rho_of) <= rho * (1 + 1e-6)
    assert largest_loss(gaussian, rho_of, Fraction(2, 3)) > 1.1 * rho
