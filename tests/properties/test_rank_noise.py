"""What rank noise promises, checked on all changes of one person's records, with exact probabilities.

Given the tie-breakers, the noisy positions are independent, each with a discrete Laplace distribution around
its record's position: the largest log-ratio of the vector is the sum of the largest of every position.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from common.model.privacy import rank_loss
from common.model.ranks import mean_move, odds_of_next
from common.model.schema import Attribute, AttributeType
from owner_node.masking import engine
from owner_node.masking import rank_noise as module
from owner_node.masking.arrays import Purpose
from owner_node.masking.noise import SharedScale
from owner_node.masking.order import rank, tie_breakers
from owner_node.masking.rank_noise import PositionNoise, noisy_order, with_rank_noise
from owner_node.masking.tasks import AttributeTask
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute, mask_table

BAD = 1e-4
HOPELESS = 1e-12
N_VALUES = 4
TABLES = st.lists(st.integers(0, N_VALUES - 1), min_size=2, max_size=12)


def changes(values: Sequence[int], g: int) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Every table that differs in the values of g records, and which records."""
    for places in combinations(range(len(values)), g):
        for replaced in product(range(N_VALUES), repeat=g):
            changed = list(values)
            for place, value in zip(places, replaced, strict=True):
                changed[place] = value
            yield places, changed


def positions(values: Sequence[int], ties: np.ndarray) -> np.ndarray:
    """The position of every record in the original order, as masking makes it."""
    order = rank(np.array(values), ties=ties).order
    found = np.empty(order.size, dtype=np.int64)
    found[order] = np.arange(order.size)
    return found


def probability(x: int, scale: int) -> Decimal:
    """P(Z = x) of the discrete Laplace distribution, to 28 digits."""
    q = (Decimal(-1) / scale).exp()
    return (1 - q) / (1 + q) * q ** abs(x)


def largest_log_ratio(before: np.ndarray, after: np.ndarray, scale: int) -> Decimal:
    """The largest log-ratio of the vector s: position by position, over all s from far below to far above."""
    total, farthest = Decimal(0), int(max(before.max(), after.max())) + 4
    for b, a in zip(before.tolist(), after.tolist(), strict=True):
        ratios = (probability(s - b, scale) / probability(s - a, scale) for s in range(-3, farthest))
        total += max(ratios).ln()
    return total


@settings(max_examples=25, deadline=None)
@given(TABLES, st.sampled_from(["0.03", "0.2", "1"]), st.integers(0, 2**32))
def test_the_loss_of_a_changed_record_is_twice_its_move_and_reached(values, rank_noise, seed):
    """Whatever is changed to whatever: exactly 2d/t, and never more than what is stated for all n."""
    n, ties = len(values), tie_breakers(len(values), SeededBits(seed))
    scale = PositionNoise.of(Decimal(rank_noise), n).scale
    before, stated = positions(values, ties), rank_loss(Decimal(rank_noise), 1)
    for (place,), changed in changes(values, 1):
        after = positions(changed, ties)
        moved = abs(int(after[place] - before[place]))
        loss = largest_log_ratio(before, after, scale)
        assert abs(loss - Decimal(2 * moved) / scale) < Decimal("1e-20")
        assert loss <= stated


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, N_VALUES - 1), min_size=3, max_size=6), st.integers(0, 2**32))
def test_two_records_of_a_person_lose_at_most_twice_as_much(values, seed):
    """With g = 2 both records together stay within 2g(n - 1)/t, and that within what is stated."""
    n, ties = len(values), tie_breakers(len(values), SeededBits(seed))
    rank_noise = Decimal("0.4")
    scale, before = PositionNoise.of(rank_noise, n).scale, positions(values, ties)
    worst = max(
        largest_log_ratio(before, positions(changed, ties), scale) for _, changed in changes(values, 2)
    )
    bound = Decimal(4 * (n - 1)) / scale
    assert worst <= bound <= rank_loss(rank_noise, 2)


def test_the_bound_is_reached_from_end_to_end():
    """The smallest of distinct values becomes the largest: 2(n - 1)/t, not a bit less."""
    values, ties = list(range(12)), np.zeros(12, dtype=np.uint16)
    before, after = positions(values, ties), positions([12, *values[1:]], ties)
    assert abs(largest_log_ratio(before, after, 3) - Decimal(22) / 3) < Decimal("1e-20")
    # Half the scale would be seen: the same change loses twice as much.
    assert largest_log_ratio(before, after, 1) > Decimal(2 * 11) / 3


@pytest.mark.parametrize(
    ("rank_noise", "n_records", "scale"),
    [("0.03", 1000, 30), ("0.03", 1001, 31), ("0.03", 1, 1), ("1e-9", 50, 1)],
)
def test_the_scale_is_rounded_up(rank_noise, n_records, scale):
    """A scale rounded down would lose more than is stated."""
    assert PositionNoise.of(Decimal(rank_noise), n_records).scale == scale


def test_the_stated_loss_is_rounded_up():
    """2/0.03 has no end: what is stated is above it, by less than the last place."""
    stated = rank_loss(Decimal("0.03"), 1)
    assert 0 < stated - Decimal(2) / Decimal("0.03") < Decimal("1e-12")
    assert rank_loss(Decimal("0.5"), 3) == 12


@pytest.mark.parametrize("n_values", [5, 2 * 10**6])
def test_ties_of_a_large_table_are_broken_at_random(n_values):
    """Of equal values beside each other the later record comes first half the time, few of them or many."""
    values = np.random.default_rng(3).integers(0, n_values, 2**17)
    found = rank(values, ties=tie_breakers(values.size, SeededBits(12)))
    assert np.array_equal(values[found.order], np.sort(values))
    assert np.array_equal(np.sort(found.order), np.arange(values.size))
    tied = found.values[1:] == found.values[:-1]
    turned = int(np.count_nonzero((found.order[1:] < found.order[:-1])[tied]))
    # Of many equal values most neighbours have one tie-breaker, and go by record: all but 255 of each value.
    expected, error = (0.5, 0.1) if n_values > 5 else (255 * 5 / 2**17, 0.001)
    assert abs(turned / np.count_nonzero(tied) - expected) < error


def displacements(rank_noise: str, seed: int, n: int = 40_000) -> np.ndarray:
    """By how much positions are moved, for every record."""
    return PositionNoise.of(Decimal(rank_noise), n).draw(SeededBits(seed))


def test_positions_carry_the_noise_that_is_stated():
    """Scale w n on every record's own position; a tenth less is seen."""
    assert stats.kstest(displacements("0.03", 1) / 1200, stats.laplace.cdf).pvalue > BAD
    assert stats.kstest(displacements("0.027", 1) / 1200, stats.laplace.cdf).pvalue < HOPELESS


@pytest.mark.parametrize("n_records", [4021, 40_021])
def test_a_position_has_noise_of_its_own(n_records):
    """Whoever draws for a position draws the same: alone, in a part, or with all; and never another's."""
    every = SharedScale(n_records, 700, np.int32)
    together = every.draw(SeededBits(17).of(Purpose.RANK_NOISE).take(n_records))
    for first, last in ((0, 1), (1, 1000), (1000, n_records)):
        alone = every.draw(SeededBits(17).of(Purpose.RANK_NOISE, first).take(last - first))
        assert np.array_equal(alone, together[first:last])
    assert np.unique(together).size > 1000


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_what_is_cut_forgets_its_position(integer):
    """Cut noise with the position added would tell the original order, however seldom."""
    largest = int(np.iinfo(integer).max)
    # Of scale 1 on seven positions: noisy positions end at -32 and at 38.
    noise, drawn = np.array([largest, largest, 36, 34, 0, -largest, -39], integer), PositionNoise(1, 7)
    orders = {
        tuple(noisy_order(np.arange(7), drawn, noise, tie_breakers(7, SeededBits(seed))).tolist())
        for seed in range(200)
    }
    assert orders == {(*low, 4, 3, *high) for low in permutations((5, 6)) for high in permutations((0, 1, 2))}


@pytest.mark.parametrize(("n_records", "scale", "n_bits"), [(100, 50, 32), (101, 10, 64), (100, 51, 64)])
def test_few_positions_with_little_noise_have_32_bits(monkeypatch, n_records, scale, n_bits):
    """Both: noise that is often cut would put records at one place."""
    monkeypatch.setattr(module, "MOST_NARROW", 100)
    monkeypatch.setattr(module, "LARGEST_NARROW", 50)
    drawn = PositionNoise(scale, n_records).draw(SeededBits(1))
    assert drawn.itemsize * 8 == n_bits


def test_32_bits_have_room_for_all_that_is_not_clipped():
    """Noise that leads to another place than an end is never cut."""
    assert PositionNoise(module.LARGEST_NARROW, module.MOST_NARROW).width < 2**31


@pytest.mark.parametrize("key_bits", [63, 20])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_the_new_order_is_that_of_the_noisy_positions(key_bits, data):
    """Nothing but s decides who gets which entry, then the fresh tie-breaker, then the record."""
    n = data.draw(st.integers(1, 60))
    order = np.array(data.draw(st.permutations(range(n))))
    noise = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n)))
    ties = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), dtype=np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEY_BITS", key_bits)
        found = noisy_order(order, PositionNoise(1, n), noise, ties).tolist()
    position = {record: place for place, record in enumerate(order.tolist())}
    places = [(position[i] + noise[position[i]], ties[position[i]], i) for i in range(n)]
    assert found == sorted(range(n), key=places.__getitem__)


def test_noise_that_another_thread_failed_to_draw_is_an_error(monkeypatch):
    """What stood in memory before is no noise."""
    monkeypatch.setattr(engine, "DRAWN_ASIDE", 1)

    def failing(*_):
        raise OSError("no random bits")

    monkeypatch.setattr(PositionNoise, "draw", failing)
    attribute = Attribute("age", AttributeType.INTEGER, 0, 10)
    task = AttributeTask(attribute, Decimal(1), 3, "idp-joint", rank_noise=Decimal("0.03"))
    with pytest.raises(OSError, match="no random bits"):
        mask_attribute(np.full(2000, 5), task, SeededBits(1))


@pytest.mark.parametrize("mechanism", ["idp-quantiles", "dp-hist", "dp"])
def test_the_same_key_gives_the_same_fragment(monkeypatch, mechanism):
    """In one thread or two: bits are found by the number of the record or place, not by who comes first."""
    attribute = Attribute("age", AttributeType.INTEGER, 0, 200)
    k = 20 if mechanism == "idp-quantiles" else None
    noise = Decimal(0) if mechanism == "dp" else Decimal("0.05")
    task = AttributeTask(attribute, Decimal(1), k, mechanism, rank_noise=noise)
    values = np.random.default_rng(7).integers(0, 201, 70_001)
    found = []
    for least in (1, 10**9):
        monkeypatch.setattr(engine, "DRAWN_ASIDE", least)
        found.append(mask_attribute(values, task, SeededBits(3)).by_record())
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], mask_attribute(values, task, SeededBits(4)).by_record())


def test_drawing_aside_gives_the_same_kind_of_table(monkeypatch):
    """Large tables draw in a thread of their own: the same records, as noisy as without."""
    attribute = Attribute("age", AttributeType.INTEGER, 0, 10**6)
    values = np.random.default_rng(7).permutation(4000) * 250
    task = AttributeTask(attribute, Decimal(1000), 4, "idp-joint", rank_noise=Decimal("0.05"))
    moved = {}
    for least in (1, 10**9):
        monkeypatch.setattr(engine, "DRAWN_ASIDE", least)
        masked = mask_table({"age": values}, [task])["age"]
        moved[least] = np.abs(masked - values).mean() / 10**6
    assert all(0.04 < each < 0.055 for each in moved.values()), moved


def test_equal_noisy_positions_are_in_a_random_order():
    """A tie says nothing about the original order: each of the two comes first half the time."""
    near = range(-40, 41)
    ahead = sum((probability(x, 1) * probability(y, 1) for x in near for y in near if y <= x), Decimal(0))
    tied = sum((probability(x, 1) * probability(x - 1, 1) for x in near), Decimal(0))
    # t = 1, positions 0 and 1: 0 comes first if Z_0 < Z_1 + 1, that is Z_0 <= Z_1, or by a tie that it wins.
    expected, order = float(ahead + tied / 2), np.arange(2)
    bits = SeededBits(6)
    first = sum(int(with_rank_noise(order, Decimal("1e-9"), bits)[0] == 0) for _ in range(4000))
    assert stats.binomtest(first, 4000, expected).pvalue > BAD
    assert stats.binomtest(first, 4000, float(ahead + tied)).pvalue < HOPELESS


def _moved_and_risen(seed: int) -> tuple[bool, bool]:
    attribute = Attribute("pay", AttributeType.INTEGER, 0, 10**6)
    task = AttributeTask(attribute, Decimal(20), 3, "idp-joint", rank_noise=Decimal("0.3"))
    masked = mask_attribute(np.arange(6) * 100_000, task, SeededBits(seed))
    return bool(np.flatnonzero(masked.assignment == 0)[0] > 2), bool(masked.released.values[0] > 100_000)


def test_list_and_assignment_are_drawn_independently():
    """What the noise of the list was tells nothing about who was moved; one source for both would be seen."""
    table = np.zeros((2, 2))
    for seed in range(3000):
        moved, risen = _moved_and_risen(seed)
        table[int(moved), int(risen)] += 1
    assert table.min() > 100
    assert stats.chi2_contingency(table).pvalue > BAD


@pytest.mark.parametrize("n_records", [5000, 40_000])
@pytest.mark.parametrize("mechanism", ["dp-ir", "idp-ls", "idp-cbls", "idp-joint", "dp-hist"])
def test_rank_noise_moves_records_and_leaves_the_list_a_list(mechanism, n_records):
    """Every mechanism with a list: the values of the list, at other records."""
    attribute = Attribute("age", AttributeType.INTEGER, -20, 99)
    values = np.random.default_rng(4).integers(-20, 100, n_records)
    task = AttributeTask(attribute, Decimal(1000), None if mechanism == "dp-hist" else 50, mechanism)
    noisy = AttributeTask(attribute, task.epsilon, task.k, mechanism, rank_noise=Decimal("0.1"))
    still = mask_table({"age": values}, [task])["age"]
    moved = mask_table({"age": values}, [noisy])["age"]
    assert np.abs(still - values).mean() < 2
    # Laplace noise of 12 values' width, less at the ends, where there is no room for it.
    assert 9 < np.abs(moved - values).mean() < 12
    assert np.abs(np.sort(still) - np.sort(moved)).max() <= 3


def test_equal_values_leave_in_no_order_of_their_own():
    """All values equal: with rank noise the first record gets any place, not the first."""
    attribute = Attribute("age", AttributeType.INTEGER, 0, 9)
    task = AttributeTask(attribute, Decimal(1), 3, "idp-joint", rank_noise=Decimal("0.001"))
    bits = SeededBits(5)
    found = [mask_attribute(np.full(9, 4), task, bits).assignment for _ in range(900)]
    places = [int(np.flatnonzero(each == 0)[0]) for each in found]
    assert stats.chisquare(np.bincount(places, minlength=9)).pvalue > BAD


@pytest.mark.parametrize("share", ["0.01", "0.03", "0.1", "0.3", "1"])
def test_records_move_as_far_as_plans_say(share):
    """By the share of all ranks that is stated, and from a value to the next one as often as is stated."""
    n_records, w = 60_000, Decimal(share)
    new = np.empty(n_records, dtype=np.int64)
    new[with_rank_noise(np.arange(n_records), w, SeededBits(3))] = np.arange(n_records)
    moves = np.abs(new - np.arange(n_records)) / n_records
    assert abs(moves.mean() - mean_move(w)) < 5 * moves.std() / n_records**0.5 + 0.002 * mean_move(w)
    for n_values in (2, 5):
        table = np.histogram2d(
            np.arange(n_records) * n_values // n_records, new * n_values // n_records, n_values
        )[0]
        odds = [
            table[a, a] / table[b, a] for a in range(n_values) for b in (a - 1, a + 1) if 0 <= b < n_values
        ]
        # The rarest counts are 300.
        assert max(odds) == pytest.approx(odds_of_next(n_values, w), rel=0.25)
        assert np.median(odds) < 1.1 * odds_of_next(n_values, w)


def test_little_rank_noise_has_numbers_too():
    """No division by nothing, and no more than a million."""
    assert mean_move(Decimal("0.000001")) == 0.000001
    assert odds_of_next(2, Decimal("0.000000000001")) == 10**6
