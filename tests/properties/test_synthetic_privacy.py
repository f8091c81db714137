"""Privacy of synthetic releases by brute force: all tables of a few persons, all neighbours, all transcripts.

A transcript is everything that is sent: noisy one-way counts, noisy scores, noisy tables. Its privacy loss is
a sum over its numbers. What is asked in later rounds depends on earlier answers only through the bins and the
chosen pairs; all of those that answers can lead to are tried. The loss of one number is the largest over all
noisy values, by the exact probabilities of the shares that are left when the colluding owners' are taken
away.
"""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import reduce
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import ROUNDS, SCORE, TABLE, Budget, Kind, Noise
from common.synthesis.course import Score
from common.synthesis.rounds import (
    UNIT,
    Coding,
    all_pairs,
    attribute_weights,
    choose_pairs,
    coding_of,
    first_edges,
    leaves_of,
)
from owner_node.synthesis.counts import exact_answer, one_way_counts, pair_counts

YES_OR_NO = Attribute("x", AttributeType.BOOLEAN, 0, 1)
REACH = 12
"""Noisy counts up to so far from 0 are tried, in deviations of one record."""
Table = tuple[tuple[int, ...], ...]
"""The values of each person."""
Loss = Callable[[int, Noise], float]
"""What noise loses at most about a number that moves so far."""


def neighbours(n_persons: int, n_attributes: int) -> Iterator[tuple[Table, Table]]:
    """Yield all tables, each with all in which one person is replaced."""
    persons = list(product((0, 1), repeat=n_attributes))
    for table in product(persons, repeat=n_persons):
        for who, other in product(range(n_persons), persons):
            if other != table[who]:
                yield table, (*table[:who], other, *table[who + 1 :])


def columns(table: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return a table attribute by attribute."""
    return [np.array(each, dtype=np.int64) for each in zip(*table, strict=True)]


def pure_loss(moved: int, noise: Noise) -> float:
    """The largest privacy loss of the sum of h shares, over all noisy values that are not very unlikely."""
    x = np.arange(40 * noise.size)
    q = np.exp(-1 / noise.size)
    ratios = q * (x[:-1] + 1 / noise.honest) / (x[:-1] + 1)
    one = (1 - q) ** (1 / noise.honest) * np.concatenate([[1.0], np.cumprod(ratios)])
    summed = reduce(np.convolve, [np.convolve(one, one[::-1])] * noise.honest)
    middle = summed.size // 2
    near = np.log(summed[middle - 5 * noise.size - moved : middle + 5 * noise.size + moved + 1])
    return float(np.abs(near[moved:] - near[: near.size - moved]).max()) if moved else 0.0


def rho(moved: int, noise: Noise) -> float:
    """The largest Rényi divergence of the sum of h shares, by its order."""
    x = (
        np.arange(-60, 61)
        if noise.size < 9
        else np.arange(-int(12 * noise.size**0.5), int(12 * noise.size**0.5) + 1)
    )
    one = np.exp(-(x**2) / (2 * noise.size))
    summed = reduce(np.convolve, [one / one.sum()] * noise.honest)
    p, shifted = summed[moved:], summed[: summed.size - moved]
    kept = (p > 1e-200) & (shifted > 1e-200)
    orders = (1.5, 2.0, 4.0, 12.0)
    divergences = [
        np.log((p[kept] * (p[kept] / shifted[kept]) ** (order - 1)).sum()) / (order - 1) / order
        for order in orders
    ]
    return max(float(each) for each in divergences)


def cached(loss: Loss) -> Loss:
    """Remember what has been computed."""
    known: dict[tuple[int, Noise], float] = {}

    def remembered(moved: int, noise: Noise) -> float:
        if (moved, noise) not in known:
            known[moved, noise] = loss(moved, noise)
        return known[moved, noise]

    return remembered


def codings(n_persons: int, noise: Noise, variance: float) -> list[Coding]:
    """Return all bins and margins that any noisy counts of an attribute lead to."""
    edges = first_edges(YES_OR_NO, n_persons, variance, 1)
    found = {}
    for noisy in product(range(-REACH, REACH + 1), repeat=2):
        leaves = leaves_of(YES_OR_NO, edges, np.array(noisy), n_persons, noise.variance(1) / 1e4)
        coding = coding_of(YES_OR_NO, leaves, 3, variance / 1e4)
        found[tuple(coding.counts), tuple(coding.labels)] = coding
    return list(found.values())


def largest_loss(
    budget: Budget,
    loss: Loss,
    owners: Sequence[int],
    n_attributes: int,
    changed: Callable[[Noise], Noise] = lambda noise: noise,
    most_codings: int = 10**6,
) -> float:
    """Return the largest loss of any transcript.

    Args:
        budget: Of the release.
        loss: Of one number.
        owners: Number of persons of each owner; all owners but one keep their shares to themselves.
        n_attributes: How many attributes of two values each.
        changed: What is done to the noise; it is to be noticed.
        most_codings: Bins and margins of an attribute that are tried.
    """
    honest = max(len(owners) - 1, 1)
    ends = [0, *np.cumsum(owners).tolist()]
    ones, choice, tables = budget.divide(ROUNDS)
    attributes = [YES_OR_NO] * n_attributes
    noises = [
        changed(each.noise(TABLE, 1, honest, floor=False))
        for each in ones.divide(attribute_weights(attributes))
    ]
    pairs = all_pairs(n_attributes)
    score_noise = changed(choice.noise(SCORE, len(pairs), honest, UNIT, floor=False))
    table_noises = {k: changed(tables.noise(TABLE, k, honest, floor=False)) for k in range(1, len(pairs) + 1)}
    reached = [codings(sum(owners), noise, 1.0)[:most_codings] for noise in noises]
    assert all(len(each) > 1 for each in reached)
    cached_scores: dict[tuple[Table, tuple[int, ...]], np.ndarray] = {}

    def scored(table: Table, which: tuple[int, ...]) -> np.ndarray:
        if (table, which) not in cached_scores:
            chosen = [each[i] for each, i in zip(reached, which, strict=True)]
            parts = [columns(table[start:end]) for start, end in pairwise(ends)]
            asked = [Score((i, j), (chosen[i], chosen[j]), score_noise) for i, j in pairs]
            cached_scores[table, which] = np.sum([exact_answer(asked, part) for part in parts], axis=0)
        return cached_scores[table, which]

    def moved(before: np.ndarray, after: np.ndarray, noise: Noise) -> float:
        return sum(loss(abs(int(each)), noise) for each in before - after)

    worst = 0.0
    for table, other in neighbours(sum(owners), n_attributes):
        one, two = columns(table), columns(other)
        edges = np.array([0, 1, 2])
        first = sum(
            moved(one_way_counts(a, edges), one_way_counts(b, edges), noise)
            for a, b, noise in zip(one, two, noises, strict=True)
        )
        by_pair = {
            pair: [pair_counts(each[pair[0]], each[pair[1]], (2, 2)) for each in (one, two)] for pair in pairs
        }
        # Any pairs that a choice can be: trees, and more than a tree.
        third = max(
            sum(moved(by_pair[pair][0], by_pair[pair][1], table_noises[k]) for pair in chosen)
            for k in table_noises
            if k >= n_attributes - 1
            for chosen in combinations(pairs, k)
        )
        second = max(
            moved(scored(table, which), scored(other, which), score_noise)
            for which in product(*(range(len(each)) for each in reached))
        )
        worst = max(worst, first + second + third)
    return worst


FORMS = [((3,), 2, 10**6), ((2, 1), 2, 10**6), ((1, 1, 1), 2, 6), ((2,), 3, 3)]
"""Persons of each owner, attributes, and how many bins and margins of an attribute are tried."""


@pytest.mark.parametrize(("owners", "n_attributes", "most_codings"), FORMS)
def test_pure_epsilon(owners, n_attributes, most_codings):
    """No transcript loses more than ε, some lose nearly that much, and with less noise they lose more."""
    budget, loss = Budget(Kind.LAPLACE, Decimal(1)), cached(pure_loss)
    found = largest_loss(budget, loss, owners, n_attributes, most_codings=most_codings)
    assert 0.8 < found <= 1 + 1e-9

    def too_little(noise: Noise) -> Noise:
        return Noise(noise.kind, noise.size * 2 // 3, noise.honest)

    assert largest_loss(budget, loss, owners, n_attributes, too_little, most_codings) > 1.1


def test_a_lost_share_is_seen():
    """With the share of one owner missing the loss is above ε by far."""

    def without_one(moved: int, noise: Noise) -> float:
        x = np.arange(60 * noise.size)
        q = np.exp(-1 / noise.size)
        one = np.concatenate([[1.0], np.cumprod(q * (x[:-1] + 0.5) / (x[:-1] + 1))])
        share = np.log(np.convolve(one, one[::-1]))
        near = share[share.size // 2 - 50 : share.size // 2 + 51]
        return float(np.abs(near[moved:] - near[: near.size - moved]).max()) if moved else 0.0

    budget = Budget(Kind.LAPLACE, Decimal(1))
    assert largest_loss(budget, cached(without_one), (1, 1, 1), 2, most_codings=3) > 2


@pytest.mark.parametrize(("owners", "n_attributes", "most_codings"), FORMS)
def test_concentrated(owners, n_attributes, most_codings):
    """The divergence of no transcript is above ρ, at any order, and that of some is nearly ρ."""
    budget, loss = Budget.of(Decimal("0.3"), Decimal("0.01")), cached(rho)
    amount = float(budget.amount)
    found = largest_loss(budget, loss, owners, n_attributes, most_codings=most_codings)
    assert 0.8 * amount < found <= amount * (1 + 1e-6)

    def too_little(noise: Noise) -> Noise:
        return Noise(noise.kind, noise.size * 2 // 3, noise.honest)

    assert largest_loss(budget, loss, owners, n_attributes, too_little, most_codings) > amount


def test_choices_are_of_those_pairs():
    """A choice is a tree or more, as the enumeration of pairs above takes for granted."""
    for seed in range(50):
        draw = np.random.default_rng(seed)
        pairs = all_pairs(3)
        values = {pair: int(draw.integers(-99, 99)) for pair in pairs}
        assert 2 <= len(choose_pairs(values, dict.fromkeys(pairs, 1.0), [2, 2, 2], 3)) <= 3
