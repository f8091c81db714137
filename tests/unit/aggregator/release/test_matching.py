"""The match report: counts against plain Python sets, and the sentences made of them."""

import tracemalloc
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.release.linking import MOST_GROUPS, link, match_groups
from common.arrays import sortable
from common.errors import ConflictError
from common.model.fragment import Addendum
from common.model.matches import Match, describe_mismatches, fit, likely_cause
from common.model.schema import Attribute, AttributeType
from tests.fakes.releases import by_token, make_plan


def tokens(numbers):
    """Tokens made of numbers, sorted."""
    made = np.zeros((len(numbers), 16), dtype=np.uint8)
    for place, number in enumerate(numbers):
        made[place, 0], made[place, 15] = divmod(number, 256)
    return made[by_token(made)]


people = st.sets(st.integers(0, 300), max_size=25)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(people, min_size=1, max_size=3), min_size=1, max_size=4))
def test_matches_are_those_of_sets(held):
    """Every count of every pair of groups is the naive sets', parts that overlap and empty ones included."""
    groups = {
        place: [(f"g{place}o{at}", sortable(tokens(sorted(part)))) for at, part in enumerate(parts)]
        for place, parts in enumerate(held)
    }
    unions = [set().union(*parts) for parts in held]
    found = {match.groups: match for match in match_groups(groups)}
    assert len(found) == len(held) * (len(held) - 1) // 2
    for first in range(len(held)):
        for second in range(first + 1, len(held)):
            names = [tuple(f"g{g}o{at}" for at in range(len(held[g]))) for g in (first, second)]
            match = found[names[0], names[1]]
            assert match.both == len(unions[first] & unions[second])
            assert match.only == {
                name: len(part - unions[other])
                for g, other in ((first, second), (second, first))
                for name, part in zip(names[0 if g == first else 1], held[g], strict=True)
            }


def test_report_does_not_grow_with_the_square_of_the_groups():
    """Of very many groups the smallest are compared: a report has to fit a message."""
    n = MOST_GROUPS + 9
    attributes = [Attribute(f"x{place}", AttributeType.INTEGER, 0, 9) for place in range(n)]
    grid = [([each.name], [f"o{place:02}"]) for place, each in enumerate(attributes)]
    plan = make_plan(grid, attributes=attributes)
    records = {f"o{place:02}": 100 - place for place in range(n)}
    with pytest.raises(ConflictError) as caught:
        link(plan, records, {owner: tokens(range(count)) for owner, count in records.items()})
    found = caught.value.details["matches"]
    assert len(found) == MOST_GROUPS * (MOST_GROUPS - 1) // 2
    assert found[0]["groups"] == [["o09"], ["o10"]]


def test_written_differently():
    """Owners of which no record matches are named, with what probably is the cause and what would cure it."""
    plan = make_plan([(["age"], ["a"]), (["income"], ["b"])], k=3)
    with pytest.raises(ConflictError) as caught:
        link(plan, {"a": 5, "b": 4}, {"a": tokens(range(5)), "b": tokens(range(100, 104))})
    assert "a against b: no record matches, 5 only at a, 4 only at b" in caught.value.message
    assert "no record of a is at b" in caught.value.hint
    assert all(each in caught.value.hint for each in ("normalise", "007", "strip-leading-zeros", "casefold"))
    assert caught.value.details["matches"] == [
        {"groups": [["a"], ["b"]], "both": 0, "only": {"a": 5, "b": 4}}
    ]


def test_a_few_records_more():
    """Where nearly all match, the hint speaks of the records, not of how identifiers are written."""
    plan = make_plan([(["age"], ["a"]), (["income"], ["b"])], k=3)
    with pytest.raises(ConflictError) as caught:
        link(plan, {"a": 9, "b": 8}, {"a": tokens(range(9)), "b": tokens(range(8))})
    assert "a against b: 8 records match, 1 only at a" in caught.value.message
    assert "bring the data sets to the same persons" in caught.value.hint
    assert "strip-leading-zeros" not in caught.value.hint


def test_all_match():
    """Groups that are equal are reported as such; one group alone has nothing to be matched with."""
    plan = make_plan([(["age"], ["a", "b"]), (["income"], ["c"])], k=3)
    lists = {"a": tokens(range(4)), "b": tokens(range(4, 7)), "c": tokens(range(7))}
    linked = link(plan, {"a": 4, "b": 3, "c": 7}, lists)
    assert linked.matches == (Match((("a", "b"), ("c",)), 7, {"a": 0, "b": 0, "c": 0}),)
    alone = make_plan([(["age"], ["a", "b"])], k=3)
    assert link(alone, {"a": 4, "b": 3}, {key: lists[key] for key in list(lists)[:2]}).matches == ()


def test_an_addendum_with_matches_is_read_back():
    """Counts survive the canonical form; an addendum without them is the one that older versions signed."""
    match = Match((("a",), ("b",)), 7, {"a": 0, "b": 0})
    digest = "ab" * 32
    addendum = Addendum("r", digest, "equal", {"a": 7, "b": 7}, (match,))
    assert Addendum.from_bytes(addendum.to_bytes()) == addendum
    assert "matches" not in Addendum("r", digest, "equal", {"a": 7, "b": 7}).to_document()
    with pytest.raises(ValueError, match="owners of the release"):
        Addendum("r", digest, "equal", {"a": 7}, (match,))


@pytest.mark.parametrize(
    "lie",
    [
        Match((("a",), ("c",)), 7, {"a": 0, "c": 0}),
        Match((("b",), ("a",)), 7, {"a": 0, "b": 0}),
        Match((("a",), ("b",)), 6, {"a": 0, "b": 0}),
        Match((("a",), ("b",)), 7, {"a": 1, "b": 0}),
    ],
)
def test_matches_that_cannot_be(lie):
    """What an aggregator says about other groups, or against what linking must have found, does not fit."""
    plan = make_plan([(["age"], ["a"]), (["income"], ["b"])])
    true = Match((("a",), ("b",)), 7, {"a": 0, "b": 0})
    assert fit((true,), plan, {"a": 7, "b": 7})
    assert not fit((lie,), plan, {"a": 7, "b": 7})
    assert not fit((true, true), plan, {"a": 7, "b": 7})


def test_the_same_owners_in_several_groups():
    """Matches fit by the groups' own order, where some owners hold several groups of attributes."""
    grid = [(["age"], ["a", "b"]), (["income"], ["c"]), (["ward"], ["a", "b"]), (["stay"], ["c"])]
    attributes = tuple(Attribute(names[0], AttributeType.INTEGER, 0, 9) for names, _ in grid)
    plan = make_plan(grid, attributes=attributes)
    records = {"a": 4, "b": 3, "c": 7}
    orders = set(combinations(plan.groups, 2))
    assert len(orders) == 4
    for one, other in product([("a", "b"), ("c",), ("a",)], repeat=2):
        match = Match((one, other), 7, dict.fromkeys(one + other, 0))
        assert fit((match,), plan, records) is ((one, other) in orders)


def test_matches_of_very_many_groups():
    """Every owner and every verifier does this: it makes no pairs of groups that nothing is said about."""
    names = [f"x{number}" for number in range(400)]
    attributes = tuple(Attribute(name, AttributeType.INTEGER, 0, 9) for name in names)
    plan = make_plan([([name], [f"o{name}"]) for name in names], attributes=attributes)
    match = Match((("ox0",), ("ox399",)), 7, {"ox0": 0, "ox399": 0})
    tracemalloc.start()
    try:
        assert fit((match,), plan, {"ox0": 7, "ox399": 7})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Match((("a",), ()), 1, {"a": 0}),
        lambda: Match((("a",), ("b",)), 1, {"a": 0}),
        lambda: Match((("a",), ("b",)), -1, {"a": 0, "b": 0}),
        lambda: Match((("a",), ("b",)), 1, {"a": 0, "b": -1}),
    ],
)
def test_impossible_matches_cannot_be_made(wrong):
    """Counts below zero and owners of no group are refused when they are read."""
    with pytest.raises(ValueError):
        wrong()


def test_words():
    """The worst pairs come first, the others are counted; most records without a match point at a cause."""
    names = "abcde"
    matches = [
        Match(((first,), (second,)), 10 * place, {first: 12, second: 0})
        for place, (first, second) in enumerate(pairwise(names), 1)
    ]
    assert describe_mismatches(matches).startswith(
        "a against b: 10 records match, 12 only at a; b against c: 20 "
    )
    assert describe_mismatches(matches).endswith("; and 1 more pairs")
    assert likely_cause(matches).startswith("most records of a match nothing")
    assert (
        describe_mismatches([Match((("a",), ("b",)), 1, {"a": 0, "b": 2})])
        == "a against b: 1 record matches, 2 only at b"
    )
    assert describe_mismatches([Match((("a",), ("b",)), 1, {"a": 0, "b": 0})]) == ""
