"""Lists that are linear between centroids, and the random order in which a cluster hands them out."""

from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import UsageError
from common.model.mechanisms import MECHANISMS
from common.model.schema import Attribute, AttributeType
from owner_node.masking.clusters import Clusters
from owner_node.masking.mechanisms import MECHANISMS as PRIVATE
from owner_node.masking.quantiles import (
    at_middles,
    joined,
    linear_list,
    rotated,
    shuffled_blocks,
    stretches_of,
)
from owner_node.masking.tasks import AttributeTask
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute
from tests.oracles import masking as oracle

PAY = Attribute("pay", AttributeType.INTEGER, 0, 10**6)
SPIKED = Attribute("pay", AttributeType.INTEGER, -5, 10**6, spikes=(-5, 100, 10**6))


@given(st.integers(1, 9), st.integers(1, 70), st.data())
def test_the_list_is_linear_between_knots(k, n_records, data):
    """Against plain Python: every place, the last cluster's remainder, tails and the ends of the domain."""
    if n_records < k:
        return
    clusters = Clusters(n_records, k)
    numbers = st.integers(-3000, 4000)
    centroids = sorted(data.draw(st.lists(numbers, min_size=n_records // k, max_size=n_records // k)))
    tail = data.draw(st.integers(0, (k - 1) // 2))
    values = at_middles(np.array(centroids, dtype=np.float64), clusters, tail)
    found = linear_list(values, clusters, 1001)
    # The two compute the same line from different knots: halves may be rounded either way.
    assert np.abs(found - oracle.linear_list(centroids, n_records, k, 1001, tail)).max() <= 1
    assert np.all(np.diff(found) >= 0)


def test_worked_list():
    """Three clusters of four: the slopes of the first and the last pair go on to the ends."""
    found = linear_list(np.array([15.0, 55.0, 135.0]), Clusters(12, 4), 1000)
    assert found.tolist() == [0, 10, 20, 30, 40, 50, 65, 85, 105, 125, 145, 165]


def test_the_outermost_knots_are_the_middles_of_what_is_left():
    """Two of six places are left out at each end: the means are those of the places 2 to 5 and 6 to 9."""
    found = at_middles(np.array([35.0, 75.0]), Clusters(12, 6), 2)
    assert linear_list(found, Clusters(12, 6), 1000).tolist() == list(range(0, 120, 10))


def shuffle_within_clusters(entries, clusters, bits):
    """Return entries with those of every cluster in random order."""
    blocks = (entries[places].reshape(shape) for _, places, shape in clusters.blocks(2**15))
    return joined(shuffled_blocks(blocks, clusters, bits), clusters)


@example(1500, 4000, 0)
@given(st.integers(1, 9), st.integers(1, 70), st.integers(0, 2**32))
def test_a_cluster_hands_out_its_own_entries(k, n_records, seed):
    """Neither a random order nor a rotation loses an entry or takes one to another cluster."""
    if n_records < k:
        return
    clusters, entries = Clusters(n_records, k), np.arange(n_records)
    for found in (
        shuffle_within_clusters(entries, clusters, SeededBits(seed)),
        rotated(entries, clusters, 3),
    ):
        for _, places, shape in clusters.blocks(1):
            assert np.sort(found[places].reshape(shape), axis=1).ravel().tolist() == list(entries[places])


def test_every_order_within_a_cluster_is_as_probable():
    """All six orders of three entries, in 60,000 clusters."""
    shuffled = shuffle_within_clusters(np.tile([0, 1, 2], 60_000), Clusters(180_000, 3), SeededBits(1))
    counts = Counter(map(tuple, shuffled.reshape(-1, 3).tolist()))
    assert len(counts) == 6
    # A standard deviation is 91.
    assert all(abs(count - 10_000) < 500 for count in counts.values())


@pytest.mark.parametrize("mechanism", ["idp-quantiles", "dp-quantiles"])
@pytest.mark.parametrize("rank_noise", ["0", "0.05"])
def test_released_values_follow_the_distribution(mechanism, rank_noise):
    """As many values as places, near the quantiles of the original ones, where one scale would say 20."""
    values = np.random.default_rng(1).permutation(np.linspace(0, 10**6, 2000).astype(np.int64) ** 2 // 10**6)
    task = AttributeTask(PAY, Decimal(10), 100, mechanism, rank_noise=Decimal(rank_noise))
    masked = np.sort(mask_attribute(values, task, SeededBits(2)).by_record())
    assert np.abs(masked - np.sort(values)).max() < 30_000
    assert np.unique(masked).size > 1500


def test_without_rank_noise_values_tell_ranks_to_the_width_of_a_cluster():
    """A cluster's records have its entries, in another order than their own."""
    values = np.arange(0, 10**6, 500)
    masked = mask_attribute(
        values, AttributeTask(PAY, Decimal(10), 100, "idp-quantiles"), SeededBits(3)
    ).by_record()
    rows = np.argsort(np.argsort(masked, kind="stable"), kind="stable").reshape(-1, 100) // 100
    assert np.array_equal(rows, np.repeat(np.arange(20)[:, None], 100, axis=1))
    assert np.count_nonzero(np.diff(masked) < 0) > 500


@pytest.mark.parametrize(("g", "least"), [(1, 5), (2, 7), (3, 9), (12, 27)])
def test_k_leaves_room_for_trimming_as_many_records_as_a_person_has(g, least):
    """Below it, fewer values would be trimmed than one person can change."""
    assert MECHANISMS["idp-quantiles"].smallest_k(g) == least
    values = np.arange(100)
    mask_attribute(values, AttributeTask(PAY, Decimal(1), least, "idp-quantiles", g), SeededBits(4))
    with pytest.raises(UsageError, match=f"takes k of at least {least}"):
        mask_attribute(values, AttributeTask(PAY, Decimal(1), least - 1, "idp-quantiles", g), SeededBits(4))


@given(st.integers(2, 9), st.integers(1, 70), st.data())
def test_spikes_have_as_many_places_as_they_are_given(k, n_records, data):
    """Wherever the list is: it ascends, stays in the domain, and nothing else is a spike."""
    if n_records < k:
        return
    clusters, n_values = Clusters(n_records, k), data.draw(st.integers(12, 60))
    ends = st.floats(-40, 100)
    centroids = sorted(data.draw(st.lists(ends, min_size=n_records // k, max_size=n_records // k)))
    places = data.draw(st.lists(st.integers(0, n_values - 1), min_size=1, max_size=3))
    spikes = [
        each
        for number, each in enumerate(sorted(places))
        if not number or each > sorted(places)[number - 1] + 1
    ]
    counts, left = [], n_records
    for _ in spikes:
        counts.append(data.draw(st.integers(0, left)))
        left -= counts[-1]
    numbers = np.array(centroids)
    stretches = stretches_of(spikes, np.array(counts), numbers, clusters, n_values)
    found = linear_list(numbers, clusters, n_values, stretches)
    assert [int(np.count_nonzero(found == each)) for each in spikes] == counts
    assert np.all(np.diff(found) >= 0)
    assert found.min() >= 0
    assert found.max() < n_values


def test_a_spike_takes_the_nearest_places():
    """In the list 0, 10, ... 110, three places are given to 52: those of 50, 60 and 40."""
    clusters, centroids = Clusters(12, 6), np.array([25.0, 85.0])
    stretches = stretches_of([52], np.array([3]), centroids, clusters, 1000)
    found = linear_list(centroids, clusters, 1000, stretches)
    assert found.tolist() == [0, 10, 20, 30, 52, 52, 52, 70, 80, 90, 100, 110]


@pytest.mark.parametrize("mechanism", ["idp-quantiles", "dp-quantiles"])
@pytest.mark.parametrize("rank_noise", ["0", "0.05"])
def test_the_share_of_declared_spikes_is_kept(mechanism, rank_noise):
    """Nine tenths at one end, a top code at the other, and a spike between: within a few records."""
    draw = np.random.default_rng(5)
    values = np.concatenate([[-5] * 9000, [100] * 300, draw.integers(-4, 10**6, 600), [10**6] * 100])
    task = AttributeTask(
        SPIKED, Decimal(10), 200, mechanism, rank_noise=Decimal(rank_noise), epsilon_spikes=Decimal(1)
    )
    masked = mask_attribute(values, task, SeededBits(6)).by_record()
    for spike in SPIKED.spikes:
        assert abs(np.count_nonzero(masked == spike) - np.count_nonzero(values == spike)) < 30
    assert masked.min() >= SPIKED.lower
    assert masked.max() <= SPIKED.upper


@pytest.mark.parametrize(
    ("spikes", "g", "scale"), [((300,), 1, 5), ((300,), 2, 10), ((0, 300), 1, 10), ((0, 300), 2, 20)]
)
def test_counts_of_spikes_have_the_stated_noise(spikes, g, scale):
    """Mean distance of a discrete Laplace variable, of scale g/ε of one spike and 2g/ε of several."""
    attribute = Attribute("pay", AttributeType.INTEGER, 0, 1000, spikes=spikes)
    task = AttributeTask(attribute, Decimal(100), 200, "dp-quantiles", g, epsilon_spikes=Decimal("0.2"))
    values = np.sort(np.concatenate([np.arange(1000), [300] * 1000]))
    mechanism = PRIVATE["dp-quantiles"]
    statistics = mechanism.statistics(values, task.setting)
    bits, counts = SeededBits(7), []
    for _ in range(1500):
        found = mechanism.release_from(statistics, task.setting, bits, bits)
        counts.append(np.count_nonzero(found.by_place == 300))
    away = np.abs(np.array(counts) - np.count_nonzero(values == 300))
    q = np.exp(-1 / scale)
    # The standard deviation of a distance is about the scale.
    assert abs(away.mean() - 2 * q / (1 - q * q)) < 4.5 * scale / 1500**0.5
