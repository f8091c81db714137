"""Who gets which entry of a list: what sorting all records would give, without sorting them."""

from decimal import Decimal
from functools import cache
from itertools import accumulate, pairwise, permutations, product
from math import exp, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from common.model.schema import Attribute, AttributeType
from owner_node.masking import order as original_order
from owner_node.masking import rank_noise
from owner_node.masking import rank_noise as module
from owner_node.masking.arrays import BitSource, Int64Array, NoisyPositionArray, PositionArray
from owner_node.masking.order import CountedRecords, SortedRecords, count_with_random_ties, tie_breakers
from owner_node.masking.rank_noise import (
    PositionNoise,
    add_positions,
    by_noisy_position,
    by_rank,
    noise_scale,
)
from tests.fakes.bits import SeededBits

BAD = 1e-4
HOPELESS = 1e-12
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def given_in_turn(records: list[int], sizes: list[int]) -> list[int]:
    """The entry of every record if the records get the entries of a list in turn."""
    ends = list(accumulate(sizes))
    entry_of = {record: sum(rank >= end for end in ends) for rank, record in enumerate(records)}
    return [entry_of[record] for record in range(len(records))]


@given(SIZES, st.randoms(use_true_random=False))
def test_without_rank_noise_records_get_entries_in_turn(sizes, random):
    """The record at rank q gets the q-th entry."""
    order = random.sample(range(sum(sizes)), sum(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "POSITIONS_PER_BLOCK", 7)
        assert by_rank(np.array(order), np.array(sizes)).tolist() == given_in_turn(order, sizes)


def uncounted(n: int) -> CountedRecords:
    """Records as they are where they were counted, whose noisy positions are known already."""
    return CountedRecords(np.empty(n, np.uint16), np.empty(0, np.int32), np.empty(0, np.int64))


@pytest.mark.parametrize("are_sorted", [True, False])
@pytest.mark.parametrize("spread", [0, 3, 1000, 2**61])
@pytest.mark.parametrize("bins_per_entry", [1, 4, 256])
@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, random=st.randoms(use_true_random=False))
def test_entries_are_those_of_a_sort_of_all_records(bins_per_entry, spread, are_sorted, sizes, random):
    """Whatever the noise, the list and the tie-breakers are, and into however few bins positions fall."""
    n = sum(sizes)
    order = random.sample(range(n), n) if are_sorted else list(range(n))
    noisy = [place + random.randint(-spread, spread) for place in range(n)]
    tie_of = np.array([random.randint(0, 1) for _ in range(n)])

    def sorted_by_given_ties(records: PositionArray, some: Int64Array, _bits: BitSource) -> PositionArray:
        return records[np.lexsort((records, tie_of[records], some))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "in_noisy_order", sorted_by_given_ties)
        patch.setattr(module, "BINS_PER_ENTRY", bins_per_entry)
        patch.setattr(module, "POSITIONS_PER_BLOCK", 7)
        original = SortedRecords(np.array(order)) if are_sorted else uncounted(n)
        positions: NoisyPositionArray = np.array(noisy, dtype=np.int64)
        if spread < 2**31:
            positions = positions.astype(np.int32)
        found = by_noisy_position(original, positions, np.array(sizes), SeededBits(1))
    s_of = dict(zip(order, noisy, strict=True))
    in_order = sorted(range(n), key=lambda record: (s_of[record], tie_of[record], record))
    assert found.tolist() == given_in_turn(in_order, sizes)


@pytest.mark.parametrize(
    ("n_entries", "rank_noise_text"), [(1, "0.03"), (37, "0.03"), (6666, "0.3"), (20_000, "0.03")]
)
def test_large_tables_with_ties_by_record(monkeypatch, n_entries, rank_noise_text):
    """The sizes and the noise of real tables, by the code that runs there but for what ties draw."""
    n = 20_000
    sizes = np.full(n_entries, n // n_entries)
    sizes[-1] += n - sizes.sum()
    order = np.random.default_rng(8).permutation(n)
    original = SortedRecords(order)
    noisy = add_positions(
        PositionNoise(n, noise_scale(Decimal(rank_noise_text), n), SeededBits(9)).draw(), original
    )
    expected = np.empty(n, dtype=np.int64)
    expected[order[np.lexsort((order, noisy))]] = np.repeat(np.arange(n_entries), sizes)
    monkeypatch.setattr(rank_noise, "tie_breakers", lambda m, bits: tie_breakers(m, bits) & np.uint8(0))
    assert np.array_equal(by_noisy_position(original, noisy, sizes, SeededBits(3)), expected)


@cache
def order_probabilities(scale: int, positions: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """The exact probability of every order of three records at some positions before the noise."""
    reach = range(-10 * scale, 10 * scale + 1)
    weight = {z: exp(-abs(z) / scale) for z in reach}
    total, found = sum(weight.values()) ** 3, dict.fromkeys(permutations(range(3)), 0.0)
    for noise in product(reach, repeat=3):
        noisy = [place + z for place, z in zip(positions, noise, strict=True)]
        orders = [order for order in found if all(noisy[a] <= noisy[b] for a, b in pairwise(order))]
        for order in orders:
            found[order] += prod(weight[z] for z in noise) / total / len(orders)
    return found


def probabilities(
    sizes: list[int], scale: int, positions: tuple[int, ...] = (0, 1, 2)
) -> dict[tuple[int, ...], float]:
    """The exact probability of every assignment of the entries of a list to those records."""
    found: dict[tuple[int, ...], float] = {}
    for order, share in order_probabilities(scale, positions).items():
        entries = tuple(given_in_turn(list(order), sizes))
        found[entries] = found.get(entries, 0.0) + share
    return found


@pytest.mark.parametrize("sizes", [[1, 2], [1, 1, 1], [2, 1]])
def test_assignments_have_the_probabilities_of_sorted_noisy_positions(sizes):
    """Records 0, 1, 2 in this order, t = 1: every assignment as often as it should be; t = 2 is seen."""
    bits, times, original = SeededBits(21), 3000, SortedRecords(np.arange(3))
    exact, wider = (probabilities(sizes, scale) for scale in (1, 2))
    counts = dict.fromkeys(exact, 0)
    for _ in range(times):
        noisy = add_positions(PositionNoise(3, 1, bits).draw(), original)
        counts[tuple(by_noisy_position(original, noisy, np.array(sizes), bits).tolist())] += 1
    found = list(counts.values())
    assert stats.chisquare(found, [times * exact[each] for each in counts]).pvalue > BAD
    assert stats.chisquare(found, [times * wider[each] for each in counts]).pvalue < HOPELESS


def test_counted_records_have_the_probabilities_of_their_shared_positions(monkeypatch):
    """Of one value, two with one number, a third behind: as often as they should be; apart is seen.

    In halves, with t = 1 for each: the first two are at 1, in the middle of 0 and 2, the third at 4.
    """
    monkeypatch.setattr(original_order, "tie_breakers", lambda _n, _bits: np.array([7, 7, 9], dtype=np.uint8))
    attribute, bits, times = Attribute("a", AttributeType.INTEGER, 5, 9), SeededBits(22), 8000
    original = count_with_random_ties(np.full(3, 6), attribute, bits)
    exact, apart = (probabilities([1, 1, 1], 1, at) for at in ((1, 1, 4), (0, 2, 4)))
    counts = dict.fromkeys(exact, 0)
    for _ in range(times):
        noisy = add_positions(PositionNoise(3, 1, bits).draw(), original)
        counts[tuple(by_noisy_position(original, noisy, np.ones(3, dtype=np.int64), bits).tolist())] += 1
    found = list(counts.values())
    assert stats.chisquare(found, [times * exact[each] for each in counts]).pvalue > BAD
    assert stats.chisquare(found, [times * apart[each] for each in counts]).pvalue < HOPELESS


def test_tied_records_get_either_entry():
    """Of two records at one noisy position each gets the first entry half the time."""
    bits, original = SeededBits(4), SortedRecords(np.array([1, 0]))
    first = sum(
        int(by_noisy_position(original, np.zeros(2, dtype=np.int64), np.array([1, 1]), bits)[0] == 0)
        for _ in range(2000)
    )
    assert stats.binomtest(first, 2000, 0.5).pvalue > BAD
