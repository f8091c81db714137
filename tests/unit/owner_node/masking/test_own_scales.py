"""Draws of own scales are what integers say; where 55 bits of E leave it open, more bits decide."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from owner_node.masking import noise as own_scales
from owner_node.masking.noise import (
    LARGEST_DOUBLE_SCALE,
    LARGEST_SCALE,
    GeometricDraws,
    mixed_draws,
    own_laplace,
    whole_products,
)
from tests.fakes.bits import QueuedWords, SeededBits

UNIT = 2**55
SCALES = st.integers(1, LARGEST_DOUBLE_SCALE) | st.integers(1, LARGEST_SCALE)


@st.composite
def near_integers(draw):
    """A scale, and G for which t G / 2^55 is near an integer."""
    scale = draw(SCALES)
    integer = draw(st.integers(0, 16 * scale - 1))
    grid = integer * UNIT // scale + draw(st.integers(-(2**12), 2**12))
    return min(max(grid, 0), 16 * UNIT - 1), scale


PAIRS = st.lists(st.tuples(st.integers(0, 16 * UNIT - 1), SCALES) | near_integers(), min_size=1, max_size=50)


@given(PAIRS)
@example([(grid, t) for grid in (0, 16 * UNIT - 1) for t in (1, LARGEST_DOUBLE_SCALE, LARGEST_SCALE)])
def test_the_double_decides_nothing_that_integers_would_decide_otherwise(pairs):
    """Where no integer is said to be near, all E that begin with G give the same Y, and that is it."""
    grid, scales = (np.array(each, dtype=np.int64) for each in zip(*pairs, strict=True))
    values, near = own_scales._nearly(grid, scales)
    for place in set(range(len(pairs))) - set(near.tolist()):
        g, t = pairs[place]
        assert g * t // UNIT == ((g + 1) * t - 1) // UNIT == values[place]


def test_an_integer_is_near_as_seldom_as_the_proof_says():
    """Once in 64 times; if all were near, everything would be exact and slow."""
    rng = np.random.default_rng(1)
    _, near = own_scales._nearly(rng.integers(0, 4 * UNIT, 10**5), rng.integers(2**40, 2**47, 10**5))
    assert abs(near.size / 10**5 - 1 / 64) < 0.002


@given(st.lists(st.tuples(st.integers(0, 2**62 - 1), SCALES), min_size=1, max_size=20), st.integers(50, 62))
def test_products_are_those_of_whole_numbers(pairs, n_bits):
    """floor(t F / 2^n) and what is left, against Python's integers, up to the largest of both."""
    pairs = [(f % 2**n_bits, t) for f, t in pairs]
    fraction, scales = (np.array(each, dtype=np.int64) for each in zip(*pairs, strict=True))
    whole, rest = whole_products(fraction, n_bits, scales)
    assert list(zip(whole.tolist(), rest.tolist(), strict=True)) == [
        divmod(f * t, 2**n_bits) for f, t in pairs
    ]


def drawn_with(grid: int, scale: int, seven: int, further: list[int]) -> int:
    """Y of one element whose digits are given: 55 after the point, 7 more, and 64 more at a time."""
    # The word after the first seven digits makes their first trial fail: they are kept.
    queue = QueuedWords(seven << 57, 2**62 - 1, *further, *[0] * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_scales, "_kept", lambda *_: True)
        return int(own_scales._exactly(np.array([grid]), np.array([scale]), queue)[0])


@given(
    pair=near_integers(),
    seven=st.integers(0, 127),
    further=st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3),
)
def test_draws_are_the_product_rounded_down(pair, seven, further):
    """With as many digits of E as it takes, Y is floor(t E)."""
    grid, scale = pair
    exact, n_bits = grid << 7 | seven, 62
    for digit in further:
        exact, n_bits = exact << 64 | digit, n_bits + 64
    assert drawn_with(grid, scale, seven, further) == exact * scale >> n_bits


def test_a_product_at_the_edge_takes_more_digits():
    """Where t E may lie on either side of an integer, further digits say on which, seven or many more."""
    scale = 2**20 + 7
    grid = 5 * UNIT // scale
    assert (grid * scale // UNIT, (grid + 1) * scale // UNIT) == (4, 5)
    seven = (5 * 2**62 // scale) - (grid << 7)
    assert [drawn_with(grid, scale, digit, []) for digit in (seven - 1, seven + 1)] == [4, 5]
    long = (5 * 2**126 // scale) - (((grid << 7) | seven) << 64)
    assert [drawn_with(grid, scale, seven, [digit]) for digit in (long - 1, long + 1)] == [4, 5]
    longer = (5 * 2**190 // scale) - (((((grid << 7) | seven) << 64) | long) << 64)
    assert [drawn_with(grid, scale, seven, [long, digit]) for digit in (longer - 1, longer + 1)] == [4, 5]


@pytest.mark.parametrize(("digit", "n_bits"), [(1, 1), (3, 2), (8, 3)])
def test_digits_are_kept_with_their_probability(digit, n_bits):
    """exp(-d/2^n), as for elements in arrays; without later trials it would be 1 - d/2^n."""
    bits, n_trials = SeededBits(digit), 20_000
    gamma = digit / 2**n_bits
    true = sum(own_scales._kept(digit, n_bits, bits) for _ in range(n_trials))
    assert abs(true / n_trials - np.exp(-gamma)) < 0.015
    assert np.exp(-gamma) - (1 - gamma) > 0.02


def test_digits_that_are_not_kept_are_drawn_anew():
    """A digit of E is drawn until one is kept."""
    lost = QueuedWords(100 << 57, 0, 2**64 - 1, 55 << 57, 2**62 - 1)
    assert own_scales._more_digits(1, lost).tolist() == [55]


def test_beyond_sixteen_scales_is_drawn_on(monkeypatch):
    """E of 16 or more is 16 and another E, whatever was drawn of the first beyond."""
    none = np.zeros(2, dtype=np.int8)
    drawn = [np.array([2**63 - 1, UNIT]), np.array([16 * UNIT + 3 * UNIT]), np.array([3 * UNIT + UNIT // 2])]

    class Queue:
        """Gives what was queued."""

        def draw_anew(self, n_draws, _bits):
            """The next draws."""
            return GeometricDraws(drawn.pop(0), none[:n_draws])

    monkeypatch.setattr(own_scales, "_exponential_table", Queue)
    first = Queue().draw_anew(2, None)
    assert mixed_draws(np.array([1001, 7]), first, SeededBits(1)).magnitudes.tolist() == [32 * 1001 + 3503, 7]


def test_larger_scales_are_multiplied_in_integers():
    """Doubles are not exact there: every such draw is looked at, whatever its double says."""
    _, near = own_scales._nearly(
        np.full(2, UNIT // 3), np.array([LARGEST_DOUBLE_SCALE, LARGEST_DOUBLE_SCALE + 1])
    )
    assert near.tolist() == [1]


def test_a_scale_that_noise_is_not_exact_for_is_refused():
    """Products of larger scales do not fit into 63 bits."""
    with pytest.raises(ValueError, match="no noise of a scale above"):
        own_laplace(np.array([1, LARGEST_SCALE + 1]), SeededBits(1).take(2))


def test_what_passes_63_bits_is_the_largest_number(monkeypatch):
    """No draw wraps around; the largest scale passes 2^63 - 1 with E = 64."""
    drawn = [
        np.array([16 * UNIT]),
        np.array([16 * UNIT]),
        np.array([16 * UNIT]),
        np.array([16 * UNIT]),
        np.array([UNIT]),
    ]

    class Queue:
        """Gives what was queued."""

        def draw_anew(self, n_draws, _bits):
            """The next draws."""
            return GeometricDraws(drawn.pop(0), np.zeros(n_draws, dtype=np.int8))

    monkeypatch.setattr(own_scales, "_exponential_table", Queue)
    first = Queue().draw_anew(1, None)
    assert mixed_draws(np.array([LARGEST_SCALE]), first, SeededBits(1)).magnitudes.tolist() == [2**63 - 1]


def test_the_table_is_that_of_the_unit():
    """G has scale 2^55 and 47 low bits, as the proof says, and its table ends at 16 scales."""
    law = own_scales._exponential_table().law
    assert (law.scale, law.low_bits) == (UNIT, 47)
    assert law.size << 47 == 16 * UNIT
    precise = Decimal(1) - (Decimal(-1) / 256).exp()
    assert law.thresholds(64)[0] == int(precise * 255 * 2**56)
