"""Tables of shared scales are exact, and what they leave open is settled by more bits."""

from decimal import Context, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owner_node.masking import shared_scale
from owner_node.masking.shared_scale import (
    LARGEST_MIXED_SCALE,
    LARGEST_SCALE,
    geometric_magnitudes,
    mixed_magnitudes,
)
from tests.fakes.bits import SeededBits
from tests.unit.masking.test_noise import QueuedBits

BASE = 2**shared_scale.BASE_BITS


def cumulative(scale: int, place: int, digit: int, *, is_last: bool) -> Decimal:
    """P(digit <= d), by the formula of a truncated geometric distribution, to 700 digits."""
    precise = Context(prec=700)
    powers = [
        precise.exp(precise.divide(Decimal(-n * BASE**place), Decimal(scale))) for n in (digit + 1, BASE)
    ]
    whole = Decimal(1) if is_last else precise.subtract(Decimal(1), powers[1])
    return precise.divide(precise.subtract(Decimal(1), powers[0]), whole)


@pytest.mark.parametrize("scale", [1, 63, 64, 65, 30_000, 2**30 + 7, 2**44 - 1, LARGEST_SCALE])
def test_thresholds_are_the_cumulative_probabilities_to_the_last_bit(scale):
    """A threshold that is off by one in 2^64 would show in no test of draws."""
    digits = shared_scale._digits(scale)
    for place, digit in enumerate(digits):
        is_last = place == len(digits) - 1
        for value in {0, 1, min(500, digit.law.size - 2), digit.law.size - 2}:
            exact = cumulative(scale, place, value, is_last=is_last)
            floor = int(Context(prec=700).multiply(exact, Decimal(2**64)))
            assert int(digit.thresholds[value]) == floor


@pytest.mark.parametrize("scale", [1, 5, 1000, 30_000])
def test_an_index_decides_only_where_no_threshold_lies_in_its_cell(scale):
    """Every 16-bit index means the digit of all U that begin with it, or asks for more bits."""
    for digit in shared_scale._digits(scale):
        cells = digit.thresholds >> np.uint64(48)
        for index in range(0, 2**16, 37):
            expected = int((cells < index).sum())
            assert digit.by_index[index] == (-1 if index in cells else expected)


def test_a_word_in_the_cell_of_a_threshold_takes_more_bits():
    """64 bits that equal a threshold's leave open on which side U lies: the next 64 decide."""
    digit = shared_scale._digits(1000)[0]
    value = 300
    threshold = int(digit.thresholds[value])
    finer = digit.law.thresholds(128)[value] & (2**64 - 1)
    index = threshold >> 48
    rest = (threshold & (2**48 - 1)) << 16
    for below, expected in ((finer - 1, value), (finer + 1, value + 1)):
        assert digit.draw(1, QueuedBits(index, rest, below)).tolist() == [expected]
    # 128 bits that leave it open once more.
    finest = digit.law.thresholds(192)[value] & (2**64 - 1)
    assert digit.draw(1, QueuedBits(index, rest, finer, finest + 1)).tolist() == [value + 1]


class Queue:
    """A digit that gives what was queued."""

    law = shared_scale._Law(2**57, 5, BASE, is_last=True)

    def __init__(self, *values: int) -> None:
        self._values = list(values)

    def draw(self, n_draws, _bits):
        """The next value, for all."""
        return np.full(n_draws, self._values.pop(0))


@pytest.mark.parametrize(
    ("top", "expected"),
    [([7], 7 << 50), ([BASE, BASE, 5], (2 * BASE + 5) << 50), ([BASE] * 8 + [0], 2**63 - 1)],
)
def test_beyond_63_bits_is_the_largest_number(monkeypatch, top, expected):
    """No draw wraps around: what passes 2^63 - 1 is told as that."""
    lower = [Queue(0) for _ in range(5)]
    monkeypatch.setattr(shared_scale, "_digits", lambda _scale: (*lower, Queue(*top)))
    assert geometric_magnitudes(1, 2**57, SeededBits(1)).tolist() == [expected]


UNIT = 2**57
SCALES = st.integers(1, LARGEST_MIXED_SCALE)


@given(st.lists(st.tuples(st.integers(0, 64 * UNIT - 1), SCALES), min_size=1, max_size=20))
def test_products_are_those_of_whole_numbers(pairs):
    """floor(t G / 2^57) and what is left, against Python's integers, up to the largest of both."""
    grid, scales = (np.array(each, dtype=np.int64) for each in zip(*pairs, strict=True))
    whole, rest = shared_scale._whole_products(grid, scales)
    expected = [divmod(g * t, UNIT) for g, t in pairs]
    assert list(zip(whole.tolist(), rest.tolist(), strict=True)) == expected


@given(grid=st.integers(0, 60 * UNIT), scale=SCALES, digits=st.lists(st.integers(0, BASE - 1), min_size=8))
def test_draws_of_own_scales_are_the_product_rounded_down(grid, scale, digits):
    """Where 57 bits leave it open what t E is rounded down, more digits decide, as many as it takes."""
    exact, n_bits, taken = grid, 57, 0
    while exact * scale >> n_bits != (exact + 1) * scale - 1 >> n_bits and taken < len(digits):
        exact, n_bits, taken = exact * BASE + digits[taken], n_bits + 10, taken + 1
    queue = Queue(*digits, *[0] * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_scale, "geometric_magnitudes", lambda *_: np.array([grid]))
        patch.setattr(shared_scale, "_finer_digit", lambda _n_bits: queue)
        assert mixed_magnitudes(np.array([scale]), SeededBits(1)).tolist() == [exact * scale >> n_bits]


def test_a_product_at_the_edge_takes_more_digits():
    """Where t E may lie on either side of an integer, one more digit says on which."""
    scale = 2**20 + 7
    grid = (5 * UNIT - 1) // scale
    assert grid * scale >> 57 == 4
    assert (grid + 1) * scale >> 57 == 5
    found = []
    for digit in (0, BASE - 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared_scale, "geometric_magnitudes", lambda *_: np.array([grid]))
            patch.setattr(shared_scale, "_finer_digit", lambda _n, digit=digit: Queue(digit, 0, 0, 0))
            found += mixed_magnitudes(np.array([scale]), SeededBits(1)).tolist()
    assert found == [4, 5]


def test_further_digits_have_their_own_tables():
    """The digit after 57 bits is that of scale 2^67, not of another."""
    digit = shared_scale._finer_digit(67)
    exact = cumulative(2**67, 0, 300, is_last=False)
    assert int(digit.thresholds[300]) == int(Context(prec=700).multiply(exact, Decimal(2**64)))


def test_beyond_sixty_four_scales_is_drawn_on(monkeypatch):
    """A draw that is cut is no draw: 64 scales and another draw."""
    drawn = [np.array([2**63 - 1, UNIT]), np.array([3 * UNIT])]
    monkeypatch.setattr(shared_scale, "geometric_magnitudes", lambda *_: drawn.pop(0))
    assert mixed_magnitudes(np.array([1000, 7]), SeededBits(1)).tolist() == [67_000, 7]
