"""Membership by brute force, where a release is of everybody whom any owner holds: persons and neighbours.

A person is a value or an absence at every owner, and present at one at least. A neighbour replaces one
person, presence included. An owner, or several, see their places, their own records, and noisy counts.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations, product

import numpy as np
import pytest

from aggregator.release import linking
from common.model.presence import presence_attribute, with_absence
from common.synthesis.binning import Binning
from common.synthesis.presence import presence_pairs, presence_rules
from common.synthesis.schedule import Design, Round, Table, next_round
from owner_node.linking.places import placed_columns
from owner_node.synthesis.counts import exact_answer
from tests.fakes.releases import make_plan
from tests.properties.test_synthetic_privacy import YES_OR_NO, epsilon_of

ABSENT = 2
Person = tuple[int, ...]
"""At each owner: 0, 1, or `ABSENT`."""


def design(n_owners: int, n_persons: int) -> Design:
    """Return the design of a release of owners of one attribute each."""
    names = "abc"[:n_owners]
    attributes = (
        *(with_absence(replace(YES_OR_NO, name=name)) for name in names),
        *map(presence_attribute, names),
    )
    owner_groups = (*range(n_owners), *range(n_owners))
    presence, alone = tuple(range(n_owners, 2 * n_owners)), tuple(range(n_owners))
    return Design(
        attributes, n_persons, Decimal(1), Decimal(0), owner_groups=owner_groups, presence=presence,
        absent_alone=alone, rules=tuple(presence_rules(attributes, owner_groups, presence, alone)),
        named_pairs=(*combinations(range(n_owners), 2), *presence_pairs(presence)),
    )  # fmt: skip


def persons(n_owners: int) -> list[Person]:
    """Return all kinds of persons."""
    return [each for each in product(range(3), repeat=n_owners) if set(each) != {ABSENT}]


def columns_of(people: tuple[Person, ...], of: Design) -> list[np.ndarray]:
    """Return what the owners count, in the order of the places."""
    found: dict[int, np.ndarray] = {}
    for owner, codes in enumerate(np.array(people).T):
        places = np.flatnonzero(codes != ABSENT)
        found |= placed_columns({owner: codes[places]}, of, owner, places)
    return [found[place] for place in range(len(of.attributes))]


def rounds(of: Design) -> list[list[Round]]:
    """Return what can be asked, by round: values have a bin each or share one, absence has its own."""
    first = next_round(of, [])
    assert isinstance(first, tuple)
    second = next_round(of, [np.zeros(sum(each.n_numbers for each in first), dtype=np.int64)])
    assert isinstance(second, tuple)
    n_owners = len(of.presence)
    labels = [(0, 0, 1), (0, 1, 2)]
    choices: list[Round] = []
    for chosen in product(labels, repeat=n_owners):
        made = []
        for table in second:
            assert isinstance(table, Table)
            one, other = (
                Binning(own.histogram, np.array(chosen[place]), max(chosen[place]) + 1)
                if place < n_owners
                else own
                for place, own in zip(table.pair, table.binnings, strict=True)
            )
            made.append(replace(table, binnings=(one, other)))
        choices.append(tuple(made))
    return [[first], choices]


def loss(of: Design, before: list[np.ndarray], after: list[np.ndarray], part: Fraction) -> float:
    """Return the largest loss of a transcript; of tables across owners the noise of one of both is there."""
    total = 0.0
    for asked in rounds(of):
        spent = []
        for round_ in asked:
            of_round = 0.0
            for question in round_:
                moved = np.abs(exact_answer([question], before) - exact_answer([question], after))
                noise = replace(question.noise, size=int(question.noise.size * part), floor=0)
                of_round += sum(epsilon_of(int(each), noise) for each in moved[moved > 0])
            spent.append(of_round)
        total += max(spent)
    return total


def neighbours(n_owners: int, n_persons: int) -> Iterator[tuple[tuple[Person, ...], tuple[Person, ...]]]:
    """Yield tables with one person replaced; counts are sums over persons, so the first is as any other."""
    for people in product(persons(n_owners), repeat=n_persons):
        for other in persons(n_owners):
            if other != people[0]:
                yield people, (other, *people[1:])


@pytest.mark.parametrize(("n_owners", "n_persons"), [(2, 1), (2, 2), (3, 1)])
def test_values_and_presence_are_within_epsilon(n_owners, n_persons):
    """Whoever sees the counts, or is an owner and takes its own noise out, learns at most ε of presence."""
    of = design(n_owners, n_persons)
    pairs = list(neighbours(n_owners, n_persons))
    if len(pairs) > 300:
        pairs = pairs[:: len(pairs) // 300]
    found = [loss(of, columns_of(a, of), columns_of(b, of), Fraction(1)) for a, b in pairs]
    assert 0.85 < max(found) <= 1 + 1e-9
    less = [loss(of, columns_of(a, of), columns_of(b, of), Fraction(2, 3)) for a, b in pairs[:40]]
    assert max(less) > 1.1


def test_a_person_with_two_places_is_within_twice_epsilon():
    """An aggregator that gives a person's records two places makes tables across owners count both."""
    of = design(2, 2)
    found = []
    for one, other, new_one, new_other in product(range(2), repeat=4):
        before, after = ((one, ABSENT), (ABSENT, other)), ((new_one, ABSENT), (ABSENT, new_other))
        found.append(loss(of, columns_of(before, of), columns_of(after, of), Fraction(1)))
    assert 1.2 < max(found) <= 2 + 1e-9


MEMBERS = [frozenset(each) for size in (1, 2, 3) for each in combinations("abc", size)]


@pytest.mark.parametrize("coalition", ["a", "b", "ab", "bc"])
def test_places_say_nothing_about_others(coalition, monkeypatch):
    """For every order of the places: whatever others hold, some owners' places have one distribution."""
    plan = make_plan(
        [([name], [owner]) for name, owner in zip(("age", "income", "admitted"), "abc", strict=True)]
    )
    tokens = np.array([b"%016d" % each for each in range(3)], dtype="S16")
    views: dict[tuple[tuple[int, ...], ...], list[Counter[tuple[bytes, ...]]]] = {}
    for held in product(MEMBERS, repeat=3):
        lists = {owner: tokens[[owner in each for each in held]] for owner in "abc"}
        seen: Counter[tuple[bytes, ...]] = Counter()
        for order in permutations(range(3)):
            monkeypatch.setattr(linking, "random_order", lambda _, order=order: np.array(order))
            found = linking._unite(plan, partial(iter, [lists]), 3)
            assert dict(found.records) == dict.fromkeys("abc", 3)
            seen[tuple(found.selections[owner] for owner in coalition)] += 1
        own = tuple(tuple(lists[owner].tolist()) for owner in coalition)
        views.setdefault(own, []).append(seen)
    assert all(each == of_own[0] for of_own in views.values() for each in of_own)
    assert any(len(of_own) > 1 for of_own in views.values())
