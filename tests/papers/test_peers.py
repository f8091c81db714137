"""What Tessera is compared with, on cases that can be checked by hand or by a slow way."""

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from tests.papers import comparison
from tests.papers.comparison import QUALITY, RISKS, distances, drawn_by, found_persons, metrics
from tests.papers.peers import mdav, microaggregated, rank_swapped
from tests.papers.synthetic import Records

AGE = Attribute("age", AttributeType.INTEGER, 0, 100)
TOWN = Attribute("town", AttributeType.CATEGORY, 0, 3, categories=tuple("abcd"))
ILL = Attribute("ill", AttributeType.BOOLEAN, 0, 1)


def people(n_records=90):
    """Records of three attributes."""
    draw = np.random.default_rng(2)
    age = draw.integers(0, 101, n_records)
    return Records((AGE, TOWN, ILL), (age, (age + draw.integers(0, 9, n_records)) // 30, age % 2))


def slow_mdav(points, k):
    """MDAV record by record, as its paper states it."""
    left, clusters = list(range(len(points))), []

    def center():
        return np.mean([points[each] for each in left], axis=0)

    def apart(each, place):
        return float(np.square(points[each] - place).sum())

    def take(place):
        chosen = sorted(left, key=lambda each: apart(each, place))[:k]
        clusters.append(frozenset(chosen))
        for each in chosen:
            left.remove(each)

    while len(left) >= 3 * k:
        first = points[max(left, key=lambda each: apart(each, center()))]
        second = points[max(left, key=lambda each: apart(each, first))]
        take(first)
        take(second)
    if len(left) >= 2 * k:
        take(points[max(left, key=lambda each: apart(each, center()))])
    return {*clusters, frozenset(left)}


@pytest.mark.parametrize(("n_records", "k"), [(40, 3), (44, 5), (9, 3), (5, 3), (3, 3)])
def test_clusters_are_those_of_the_paper(n_records, k):
    """The same clusters as the slow way finds, where no two distances are equal; of k to 2k - 1 records."""
    points = np.random.default_rng(1).normal(size=(n_records, 2))
    clusters = mdav(points, k)
    found = {frozenset(np.flatnonzero(clusters == each).tolist()) for each in range(clusters.max() + 1)}
    assert found == slow_mdav(points, k)
    assert all(k <= len(each) < 2 * k for each in found)


def test_microaggregated_records_are_centroids():
    """Two clusters that nobody can mistake get the mean of their numbers and their most frequent label."""
    columns = [np.array([1, 2, 3, 90, 92, 93]), np.array([0, 0, 1, 3, 3, 2]), np.array([1, 1, 1, 0, 0, 0])]
    ages, towns, ill = microaggregated((AGE, TOWN, ILL), columns, 3)
    assert ages.tolist() == [2, 2, 2, 92, 92, 92]
    assert towns.tolist() == [0, 0, 0, 3, 3, 3]
    assert ill.tolist() == columns[2].tolist()


def test_every_combination_of_microaggregated_records_has_k_of_them():
    """What the table says of it: k-anonymity of all attributes together."""
    records = people()
    made = microaggregated(records.attributes, records.columns, 5)
    _, counts = np.unique(np.column_stack(made), axis=0, return_counts=True)
    assert counts.min() >= 5


def test_swapped_values_stay_within_reach():
    """The values are the same, in pairs; none is farther than its share of the ranks; most have moved."""
    column = np.random.default_rng(1).permutation(1000)
    swapped = rank_swapped(column, 0.05, np.random.default_rng(2))
    assert sorted(swapped) == sorted(column)
    assert np.abs(swapped - column).max() <= 50
    assert np.abs(swapped - column).mean() > 15
    assert (swapped != column).mean() > 0.95
    place_of = np.argsort(column)
    assert (swapped[place_of[swapped]] == column).all()


def test_ranks_of_equal_values_are_drawn():
    """Labels of equal rank are swapped with each other like values: not in the order of the records."""
    column = np.repeat([0, 1], 500)
    swapped = rank_swapped(column, 0.1, np.random.default_rng(3))
    moved = np.flatnonzero(swapped != column)
    assert np.bincount(swapped).tolist() == [500, 500]
    assert 20 < moved.size < 100
    assert moved.min() < 450
    assert moved.max() > 549


def test_distances_by_their_definition():
    """Numbers in standard deviations of the originals, labels one apart."""
    records = people()
    released = [column[::-1] for column in records.released]
    apart = distances(records, released, records.columns)
    spread = records.released[0].std()
    for person, record in ((0, 3), (70, 12)):
        by_hand = abs(records.columns[0][person] - released[0][record]) / spread
        by_hand += sum(records.columns[each][person] != released[each][record] for each in (1, 2))
        assert apart[person, record] == pytest.approx(by_hand)


def test_persons_of_originals_are_found(monkeypatch):
    """Everybody with a combination of one's own is linked to the originals; nobody to shuffled records."""
    monkeypatch.setattr(comparison, "N_PERSONS", 30)
    records = people()
    linked, auc = found_persons(records, records.released, 1, in_order=True)
    table = np.column_stack(records.released)
    _, inverse, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    members = np.random.default_rng(1).choice(records.n_released, 30, replace=False)
    assert linked == pytest.approx((1 / counts[inverse.ravel()[members]]).mean())
    assert auc > 0.6
    shuffled = [np.random.default_rng(4).permutation(each) for each in records.released]
    assert found_persons(records, shuffled, 1, in_order=True)[0] < 0.2
    assert np.isnan(found_persons(records, shuffled, 1, in_order=False)[0])


@pytest.mark.needs("peers")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["AIM", "MST"])
def test_records_of_other_mechanisms(monkeypatch, method):
    """At a large ε the records that AIM and MST draw are near the originals, attribute by attribute."""
    small = {"iterations": 100, "rounds": 6}
    monkeypatch.setattr(comparison, "AIM_AND_MST", {**comparison.AIM_AND_MST, **small})
    records = people(900)
    for attribute, original, drawn in zip(
        records.attributes,
        records.released,
        drawn_by(records, 1, method, epsilon=20, delta=1e-6),
        strict=True,
    ):
        counts = [np.bincount(each, minlength=attribute.n_values) for each in (original, drawn)]
        assert counts[0].sum() == counts[1].sum()
        assert np.abs(counts[0] - counts[1]).sum() / 2 < 0.1 * original.size


@pytest.mark.needs("peers")
@pytest.mark.timeout(600)
def test_metrics_of_originals_and_of_noise():
    """The originals themselves have the best quality, other numbers have less; risks are shares."""
    records, draw = people(600), np.random.default_rng(4)
    noise = [draw.integers(0, each.n_values, records.n_released) // 2 for each in records.attributes]
    itself, other = (metrics(records, released, 1) for released in (records.released, noise))
    assert set(itself) == {QUALITY, *RISKS} == set(other)
    assert itself[QUALITY] == pytest.approx(1)
    assert other[QUALITY] < 0.9
    assert all(0 <= found[each] <= 1 for found in (itself, other) for each in RISKS)
