"""Attacks against naive definitions; right where nothing hides a record, at their baseline where all does."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from owner_node.masking.clusters import Clusters
from owner_node.risk.attacks import (
    ATTACKS,
    Ascending,
    Crowd,
    Intruder,
    MaskedRecords,
    Window,
    attack,
    inferred,
    places_of,
)
from owner_node.risk.links import (
    Candidates,
    codes,
    linked,
    linked_by_equality,
    match_rate,
    names_of,
    nearest_kind,
)
from owner_node.risk.measures import scale_of
from tests.oracles import explore as oracle

RECORDS = st.lists(st.tuples(*[st.integers(0, 5)] * 2), min_size=1, max_size=25)
N = 1200


@given(RECORDS, RECORDS, st.randoms(use_true_random=False))
def test_linkage_as_defined(people, released, random):
    """The nearest record by all pairs, with equal records and ties at one distance counted."""
    own = [random.randrange(len(released)) for _ in people]
    targets, records = np.array(people, dtype=float), np.array(released, dtype=float)
    found = linked(targets, np.array(own), Candidates.of(records))
    assert found == pytest.approx(oracle.linked(people, own, released))


def test_linkage_in_blocks(monkeypatch):
    """A table that needs many blocks gives the same as one that needs one."""
    draw = np.random.default_rng(1)
    records = draw.integers(0, 40, (300, 3)).astype(float)
    targets = records + draw.normal(0, 3, records.shape)
    whole = linked(targets, np.arange(300), Candidates.of(records))
    kinds = nearest_kind(targets, Candidates.of(records))
    monkeypatch.setattr("owner_node.risk.links.KINDS_PER_BLOCK", 7)
    monkeypatch.setattr("owner_node.risk.links.MULTIPLIED_PER_BLOCK", 1000)
    assert np.array_equal(linked(targets, np.arange(300), Candidates.of(records)), whole)
    assert np.array_equal(nearest_kind(targets, Candidates.of(records)), kinds)
    assert 0 < whole.mean() < 1


def test_linkage_beside_values_that_are_far_off():
    """Noise that throws some values to the end of a wide domain does not blur the others."""
    draw = np.random.default_rng(6)
    records = draw.normal(0, 1, (200, 2))
    thrown = records.copy()
    thrown[:60] = 1e7
    found = linked(records, np.arange(200), Candidates.of(thrown))
    assert found[60:].tolist() == [1.0] * 140
    assert not found[:60].any()


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.lists(st.integers(-3, 12), min_size=1, max_size=9),
)
def test_neighbourhoods_as_defined(originals, places):
    """So many ranks to either side of a place and its equals; the best single guess tries every place."""
    window = Window.around(np.array(places, dtype=float), np.sort(np.array(originals, dtype=float)), 0.2)
    expected = [oracle.neighbours(place, originals, 0.2) for place in places]
    assert list(zip(window.low, window.high, strict=True)) == expected
    within = [sum(low <= each <= high for each in originals) / len(originals) for low, high in expected]
    assert window.chance(np.sort(np.array(originals, dtype=float))) == pytest.approx(
        sum(within) / len(within)
    )
    guesses = [sum(low <= guess <= high for low, high in expected) for guess in {low for low, _ in expected}]
    assert window.best_guess() == pytest.approx(max(guesses) / len(expected))


@given(RECORDS, st.randoms(use_true_random=False))
def test_inference_as_defined(released, random):
    """What the records equal to the nearest one say, against a search through all of them."""
    wanted = [float(random.randrange(6)) for _ in released]
    people = [(random.randrange(6) + 0.25, random.randrange(6) + 0.1) for _ in range(5)]
    truth = Window(np.array([0.0, 1, 2, 3, 4]), np.array([1.0, 1, 3, 3, 5]))
    found = inferred(
        np.array(people), truth, Candidates.of(np.array(released, dtype=float)), np.array(wanted)
    )
    for number, share in enumerate(found):
        interval = (truth.low[number], truth.high[number])
        shares = oracle.inferred(people[number], interval, released, wanted)
        assert any(share == pytest.approx(each) for each in shares)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=15))
def test_refinement_as_defined(records):
    """Two records have the same name exactly if naming with whole histories gives them the same."""
    groups = [np.unique(column, return_inverse=True)[1] for column in np.array(records).T]
    names, expected = names_of(groups), oracle.refined([each.tolist() for each in groups], 12)
    same = [[a == b for b in expected] for a in expected]
    assert np.array_equal(names[:, None] == names, np.array(same))


def test_equality_needs_no_values():
    """Clusters are found by who shares them, whatever values noise gives them and in whatever order."""
    draw, n_records = np.random.default_rng(2), N - 5
    original = [draw.permutation(n_records).astype(float) for _ in range(3)]
    sizes = Clusters(n_records, 10).sizes
    groups = np.repeat(np.arange(sizes.size), sizes)
    released = [draw.permutation(sizes.size)[groups[column.astype(int)]] * 1e6 for column in original]
    ks = [10, 10, 10]
    assert linked_by_equality(original, released, ks).mean() > 0.95
    unrelated = [draw.permutation(column) for column in released]
    assert linked_by_equality(original, unrelated, ks).mean() < 0.01


def crowd(draw, masked_as):
    """Three attributes of two related and one independent one; what is released comes from `masked_as`."""
    first = draw.integers(0, 10_000, N)
    columns = [first, np.clip(first + draw.integers(-900, 900, N), 0, 9999), draw.integers(0, 5, N)]
    attributes = [
        Attribute("one", AttributeType.INTEGER, 0, 9999),
        Attribute("two", AttributeType.INTEGER, 0, 9999),
        Attribute("three", AttributeType.CATEGORY, 0, 4, categories=tuple("abcde")),
    ]
    scales = [scale_of(each, column) for each, column in zip(attributes, columns, strict=True)]
    inside, outside = [each[:1000] for each in columns], [each[1000:] for each in columns]
    masked = tuple(masked_as(each) for each in inside)
    carriers = (Ascending(Decimal(0)),) * 3
    release = MaskedRecords(masked, places_of(scales, masked), (10, 10, None), carriers)
    everything = np.arange(3)
    intruder = Intruder(everything, None, everything, np.arange(1000), np.arange(300), draw.permutation(1000))
    found = attack(ATTACKS, Crowd.of(scales, inside, outside), release, intruder)
    return {(each.attack, each.attribute): each for each in found}


def test_without_noise_everything_is_found():
    """Attacks recover what they must from original records: whole records, values, who is who."""
    found = crowd(np.random.default_rng(3), lambda column: column)
    for name in (
        *("unchanged-values", "unchanged-records", "interval"),
        *("linkage", "likelihood", "structure"),
        *("membership", "extremes"),
    ):
        assert found[name, None].rate > 0.98, name
    assert found["inference", "one"].rate > 0.95
    assert found["inference", "three"].rate > 0.98
    # People who are not in the release: a related attribute is told by others, an independent one is not.
    assert found["inference", "one"].control > 0.5
    assert found["inference", "three"].control < 0.4


def test_on_unrelated_records_attacks_fall_to_their_baselines():
    """Records that have nothing to do with the people tell no more than guessing does."""
    draw = np.random.default_rng(4)
    found = crowd(draw, draw.permutation)
    for (name, attribute), each in found.items():
        # Somebody who guesses wrongly can do worse than the best guess, never much better.
        assert each.rate <= each.baseline + 0.05, (name, attribute)
        if each.control is not None:
            assert abs(each.rate - each.control) < 0.12, (name, attribute)
    for name in ("unchanged-values", "unchanged-records", "interval"):
        assert found[name, None].rate == pytest.approx(found[name, None].baseline, abs=0.03)


def test_codes_of_equal_records():
    """Equal records have equal codes, unlike ones do not, and the rate of matches is that of all pairs."""
    draw = np.random.default_rng(5)
    first, second = draw.integers(0, 4, (2, 3, 60))
    one, other = codes(list(first)), codes(list(second))
    assert np.array_equal(one[:, None] == one, (first[:, :, None] == first[:, None]).all(axis=0))
    pairs = (first[:, :, None] == second[:, None]).all(axis=0)
    assert match_rate(one, other) == pytest.approx(pairs.mean())
    assert codes([np.array([1, 2])])[0] != codes([np.array([2, 1])])[0]
