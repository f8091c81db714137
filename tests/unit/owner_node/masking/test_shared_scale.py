"""Tables of shared scales are exact, and what they leave open is settled by more bits."""

from bisect import bisect_left
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from owner_node.masking.arrays import ElementBits
from owner_node.masking.noise import (
    LARGEST_NARROW_SCALE,
    LARGEST_SCALE,
    GeometricDraws,
    Law,
    NoiseTable,
    exponential_coin,
    table_of,
)
from tests.fakes.bits import QueuedWords, SeededBits

PRECISE = Context(prec=700)


def exp(exponent: Fraction) -> Decimal:
    """The exponential function of a fraction, to 700 digits."""
    return PRECISE.exp(PRECISE.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))


def threshold(law: Law, place: int) -> Decimal:
    """C_h, or 1 - κ behind the last one, by their formulas."""
    step = Fraction(1 << law.low_bits, law.scale)
    left = 1 - step if law.low_bits else Fraction(1)
    within = Decimal(1) if place == law.size else PRECISE.subtract(Decimal(1), exp(-(place + 1) * step))
    return PRECISE.divide(
        PRECISE.multiply(within, Decimal(left.numerator)),
        Decimal(left.denominator),
    )


def index_and_rest(position: int) -> tuple[int, int]:
    """The index of a number of 64 bits, and the word that the other 48 are taken from."""
    return position >> 48, (position & (2**48 - 1)) << 16


SCALES = [1, 63, 255, 256, 257, 30_000, 2**30 + 7, 2**44 - 1, LARGEST_SCALE - 1, LARGEST_SCALE]


@pytest.mark.parametrize("scale", SCALES)
def test_thresholds_are_the_cumulative_probabilities_to_the_last_bit(scale):
    """A threshold that is off by one in 2^64 would show in no test of draws."""
    table = table_of(scale, np.int64)
    law = table.law
    assert table.thresholds.size == law.size + (law.low_bits > 0)
    for place in {0, 1, law.size // 3, law.size - 1, table.thresholds.size - 1}:
        assert int(table.thresholds[place]) == int(PRECISE.multiply(threshold(law, place), Decimal(2**64)))


@pytest.mark.parametrize("scale", [0, LARGEST_SCALE + 1])
def test_a_scale_that_no_table_is_exact_for_is_refused(scale):
    """A wider table would not fit into 63 bits, and 0 means no noise."""
    with pytest.raises(ValueError, match=f"no noise of scale {scale}"):
        Law(scale, 0)


def test_thresholds_of_more_bits_are_exact_too():
    """What settles a draw in the end is computed by the same formula."""
    law = table_of(30_000, np.int64).law
    for n_bits in (128, 192):
        assert law.thresholds(n_bits)[300] == int(PRECISE.multiply(threshold(law, 300), Decimal(2**n_bits)))


@pytest.mark.parametrize("scale", [1, 5, 1000, 30_000, 2**50])
def test_an_index_settles_only_where_no_threshold_lies_in_its_cell(scale):
    """Every 16-bit index means the high part of all U that begin with it, or asks for more bits."""
    table = table_of(scale, np.int64)
    cells = table.thresholds >> np.uint64(48)
    for index in [*range(0, 2**16, 37), 2**16 - 1]:
        passed = int((cells < index).sum())
        settled = index not in cells and passed < table.law.size
        expected = passed << table.law.low_bits if settled else -(2**63)
        assert table.by_index[index] == expected


@pytest.mark.parametrize(("scale", "low_bits"), [(1000, 2), (30_000, 7), (300, 5), (77, 0), (9, 3)])
def test_the_thresholds_make_the_distribution(scale, low_bits):
    """Proof 2 with the thresholds in use: if new draws have the stated distribution, so has every draw."""
    table = NoiseTable.of(Law(scale, low_bits), np.int64)
    ends = np.append(0, table.thresholds / 2.0**64)
    on = 1 - ends[-1] if low_bits else 0.0  # P(U >= 1 - κ)
    high = -np.diff(np.exp(-np.arange(table.law.size + 1) * 2.0**low_bits / scale))
    low = np.exp(-np.arange(2**low_bits) / scale)
    stated = np.outer(high, low / low.sum())
    # All trials together keep L with probability exp(-L/t), the first part of the first one in 1 - κ.
    kept, lost = (low - (1 - on)) / 2**low_bits, 1 - low.mean()
    found = np.diff(ends)[: table.law.size, None] / 2**low_bits + np.outer(high, kept) + lost * stated
    assert np.allclose(found, stated, rtol=1e-9, atol=1e-15)


def test_a_number_in_the_cell_of_a_threshold_takes_more_bits():
    """64 bits that equal a threshold's leave open on which side U lies: the next 64 decide."""
    table = table_of(30_000, np.int64)
    place = 300
    index, rest = index_and_rest(int(table.thresholds[place]))
    finer = table.law.thresholds(128)[place] & (2**64 - 1)
    for below, expected in ((finer - 1, place), (finer + 1, place + 1)):
        assert table._closer(np.array([index]), QueuedWords(rest, below)).tolist() == [expected]
    # 128 bits that leave it open once more.
    finest = table.law.thresholds(192)[place] & (2**64 - 1)
    assert table._closer(np.array([index]), QueuedWords(rest, finer, finest + 1)).tolist() == [place + 1]


def test_every_number_takes_further_bits_of_its_own():
    """Two numbers in one cell can lie on either side of its threshold."""
    table = table_of(30_000, np.int64)
    index, rest = index_and_rest(int(table.thresholds[300]))
    decided = table._closer(np.array([index] * 3), QueuedWords(rest - 2**16, rest + 2**16, rest - 2**16))
    assert decided.tolist() == [300, 301, 300]


@pytest.mark.parametrize(("scale", "low_bits"), [(1, 0), (30_000, 7), (2**40, 33), (10, 3), (8, 3)])
def test_wherever_a_number_lies_it_is_decided_by_its_own_thresholds(monkeypatch, scale, low_bits):
    """Below, at and above every threshold, at both ends of its cell, and where a cell has several or none."""
    table = NoiseTable.of(Law(scale, low_bits), np.int64)
    thresholds = table.thresholds.tolist()
    cells = {each >> 48 for each in thresholds} | {0, 2**16 - 1}
    ends = {end for cell in cells for end in (cell << 48, (cell + 1 << 48) - 1)}
    positions = sorted(ends | {each + off for each in thresholds for off in (-1, 0, 1) if each + off >= 0})
    monkeypatch.setattr(NoiseTable, "_to_the_end", lambda *_: -1)
    indices, rests = zip(*map(index_and_rest, positions), strict=True)
    found = table._closer(np.array(indices), QueuedWords(*rests)).tolist()
    taken = set(thresholds)
    assert found == [-1 if each in taken else bisect_left(thresholds, each) for each in positions]


def word_of(index: int, low: int, *, minus: bool) -> int:
    """The word of 64 bits that an index, a sign and a low part are taken from."""
    return minus << 63 | low << 16 | index


def test_a_word_is_index_sign_and_low_part():
    """Where the index settles it, nothing else is drawn."""
    table = table_of(2**40, np.int64)
    index = int(np.flatnonzero(table.by_index == 57 << table.law.low_bits)[0])
    for minus in (False, True):
        drawn = table.draw_anew(1, QueuedWords(word_of(index, 12345, minus=minus)))
        assert drawn.magnitudes.tolist() == [57 << table.law.low_bits | 12345]
        assert drawn.signs.tolist() == [-minus]


@pytest.mark.parametrize(
    ("low_bits", "kind", "integer"),
    [
        (0, np.int8, np.int32), (7, np.int8, np.int32), (8, np.int16, np.int32), (15, np.int16, np.int64),
        (17, np.int32, np.int64), (31, np.int32, np.int64), (32, np.uint64, np.int64),
    ],
)  # fmt: skip
def test_few_low_bits_have_a_small_place_of_their_own(low_bits, kind, integer):
    """Sign and low part come from the highest and the lowest bits of as few bytes as have room for both."""
    table, asked = NoiseTable.of(Law(2 ** (low_bits + 5), low_bits), integer), []
    index = int(np.flatnonzero(table.by_index == 3 << low_bits)[0])
    low, n_bits = 0x55AA55AA & (2**low_bits - 1), 8 * np.dtype(kind).itemsize

    class OneElement(ElementBits):
        """Gives what a word of 64 bits would say."""

        def integers(self, wanted: type[Any], lane: int = 0, _block: slice = slice(None)) -> Any:
            asked.append((wanted, lane))
            if wanted is np.uint64:
                return np.array([word_of(index, low, minus=True)], dtype=np.uint64)
            value = index if lane == 0 else (1 << (n_bits - 1)) | low
            return np.array([value], dtype=np.uint64).astype(wanted)

    drawn = table.draw(OneElement(SeededBits(1), 0, 1))
    assert drawn.magnitudes.tolist() == [3 << low_bits | low]
    assert drawn.magnitudes.dtype == integer
    assert drawn.signs.tolist() == [-1]
    assert asked == ([(np.uint64, 0)] if kind is np.uint64 else [(np.uint16, 0), (kind, 1)])


def test_signs_are_of_one_draw_each():
    """As many minuses as there should be, and neighbours have nothing to do with each other."""
    drawn = table_of(60_000, np.int32).draw(SeededBits(8).take(2**18 + 5))
    assert table_of(60_000, np.int32).law.low_bits == 8
    minus = -drawn.signs.astype(np.int64)
    for which in (minus, *(minus[apart:] ^ minus[:-apart] for apart in (1, 8, 64, 2**17))):
        assert abs(which.mean() - 0.5) < 2 / which.size**0.5
    for place in range(8):
        assert abs(np.corrcoef(minus, drawn.magnitudes >> place & 1)[0, 1]) < 0.01


@pytest.mark.parametrize("scale", [1, 300, 30_000, 60_000, LARGEST_NARROW_SCALE])
def test_draws_of_32_bits_are_those_of_64(scale):
    """The same random bits make the same numbers, whatever these are kept in."""
    narrow = table_of(scale, np.int32).draw(SeededBits(5).take(10**5))
    wide = table_of(scale, np.int64).draw(SeededBits(5).take(10**5))
    assert np.array_equal(narrow.magnitudes, wide.magnitudes)
    assert np.array_equal(narrow.signs, wide.signs)
    assert (narrow.magnitudes.itemsize, wide.magnitudes.itemsize) == (4, 8)


def test_beyond_31_bits_is_the_largest_number():
    """Of so large a scale, draws of 32 bits are cut where those of 64 are not."""
    table = NoiseTable.of(Law(LARGEST_NARROW_SCALE, 19), np.int32)
    settled = int(np.flatnonzero(table.by_index == 57 << 19)[0])
    beyond = index_and_rest((int(table.thresholds[-2]) + int(table.thresholds[-1])) // 2)
    # Twice 16 scales are 2^31: each time the index leaves it open, and what it takes says beyond.
    again = word_of(beyond[0], 5, minus=False)
    queue = QueuedWords(again, beyond[1], again, beyond[1], word_of(settled, 5, minus=False))
    assert table.draw_anew(1, queue).magnitudes.tolist() == [2**31 - 1]


def test_beyond_the_table_is_drawn_on():
    """M or more is M and the high part of a new draw; the low part stays, which is uniform here."""
    table = table_of(2**40, np.int64)
    s, size = table.law.low_bits, table.law.size
    between = (int(table.thresholds[size - 1]) + int(table.thresholds[size])) // 2
    index, rest = index_and_rest(between)
    settled = int(np.flatnonzero(table.by_index == 57 << s)[0])
    queue = QueuedWords(word_of(index, 99, minus=True), rest, word_of(settled, 12345, minus=False), 0)
    drawn = table.draw_anew(1, queue)
    assert drawn.magnitudes.tolist() == [(size + 57) << s | 99]
    assert drawn.signs.tolist() == [-1]


FAILS, SUCCEEDS = 2**64 - 1, 0


@pytest.mark.parametrize(
    ("uniform", "trials", "kept"),
    [
        (1000, [], True),
        (999, [], True),
        (998, [FAILS], False),
        (998, [SUCCEEDS, FAILS], False),
        (998, [SUCCEEDS, SUCCEEDS, FAILS], True),
    ],
)
def test_the_low_part_goes_through_its_trials(uniform, trials, kept):
    """From 1 - κ on a uniform number that is not below L keeps it; else the trials from the second say."""
    table = table_of(2**40, np.int64)
    s = table.law.low_bits
    settled = int(np.flatnonzero(table.by_index == 57 << s)[0])
    words = [
        word_of(2**16 - 1, 999, minus=False),
        (2**48 - 1) << 16,  # U is above all thresholds
        word_of(settled, 12345, minus=False),
        uniform << (64 - s),
        *trials,
    ]
    drawn = table.draw_anew(1, QueuedWords(*words)).magnitudes.tolist()
    assert drawn == [57 << s | (999 if kept else 12345)]


@pytest.mark.parametrize(("short", "expected"), [(0, 2**63 - 1), (1, 2**63 - 2**47 + 5)])
def test_beyond_63_bits_is_the_largest_number(monkeypatch, short, expected):
    """No draw wraps around: what passes 2^63 - 1 is told as that."""
    table = table_of(LARGEST_SCALE, np.int64)
    beyond = table.law.size << table.law.low_bits
    new = GeometricDraws(np.array([2**63 - beyond - short]), np.zeros(1, dtype=np.int8))
    monkeypatch.setattr(NoiseTable, "draw_anew", lambda *_: new)
    magnitudes = np.array([5 - 2**63])
    index, rest = index_and_rest((int(table.thresholds[-2]) + int(table.thresholds[-1])) // 2)
    table._settle(magnitudes, np.array([0]), np.array([index]), QueuedWords(rest))
    assert magnitudes.tolist() == [expected]


@pytest.mark.parametrize(
    ("integer", "scale", "low_bits"), [(np.int64, LARGEST_SCALE, 47), (np.int32, LARGEST_NARROW_SCALE, 19)]
)
@pytest.mark.parametrize(("coin", "keeps"), [([1], False), ([0, 1], True), ([0, 0, 0, 1], False)])
def test_a_low_part_goes_with_no_number_that_was_cut(monkeypatch, integer, scale, low_bits, coin, keeps):
    """2^63 - 1 stands for all that is larger, too: of those the whole draw is 2^63 - 1, whatever L is."""
    table, info = table_of(scale, integer), np.iinfo(integer)
    magnitudes = np.array([999 + int(info.min)], dtype=integer)
    assert table.law.low_bits == low_bits
    cut = GeometricDraws(np.array([info.max], dtype=integer), np.zeros(1, dtype=np.int8))
    monkeypatch.setattr(NoiseTable, "draw_anew", lambda *_: cut)
    queue = QueuedWords((2**48 - 1) << 16, 999 << (64 - low_bits), *coin)
    table._settle(magnitudes, np.array([0]), np.array([2**16 - 1]), queue)
    assert magnitudes.tolist() == [int(info.max) - 2**low_bits + 1000 if keeps else info.max]


def test_the_trials_go_on_where_the_first_one_succeeded():
    """Given the first success, exp(-γ) is what is left: (exp(-γ) - 1 + γ)/γ, not exp(-γ) itself."""
    n_coins, gamma = 400_000, 0.8
    one = np.ones(n_coins, dtype=np.int64)
    true = int(np.count_nonzero(exponential_coin(4 * one, 5 * one, SeededBits(6), trial=2)))
    left = (np.exp(-gamma) - 1 + gamma) / gamma
    assert abs(true / n_coins - left) < 0.003
    assert abs(left - np.exp(-gamma)) > 0.1


def test_low_parts_lean_to_small_values_as_they_should():
    """Ten million draws: as many are even as exp(-L/t) says, L below 2; half of them would be too few."""
    table = table_of(256, np.int64)
    assert table.law.low_bits == 1
    n_draws = 10**7
    lower = n_draws - int(
        np.count_nonzero(table_of(256, np.int64).draw(SeededBits(3).take(n_draws)).magnitudes & 1)
    )
    deviation = n_draws**0.5 / 2
    assert abs(lower - n_draws / (1 + np.exp(-1 / 256))) < 4 * deviation
    assert abs(lower - n_draws / 2) > 5 * deviation
