"""Counters in numbers: noisy sums are read back, hidden counters leave nothing behind, carries included."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from gmpy2 import mpz

from common.errors import UsageError
from common.synthesis.accounting import Kind, Noise
from common.synthesis.counters import GUARD_BITS, counter_width
from common.synthesis.roles import Counters
from owner_node.synthesis import packing as packing_module
from owner_node.synthesis.packing import CAPACITY, Packing
from tests.fakes.bits import SeededBits

SIZES = {
    Counters(0, coarse=False): 16,
    Counters(2, coarse=False): 3,
    Counters(0, coarse=True): 6,
    Counters(2, coarse=True): 2,
}
LARGE = {Counters(i, coarse): 6 if coarse else 16 for i in range(14) for coarse in (True, False)}


def persons(sizes, n, seed=1):
    """Random bins of persons."""
    draw = np.random.default_rng(seed)
    return {group: draw.integers(0, size, n) for group, size in sizes.items()}


@pytest.mark.parametrize(
    ("sizes", "n_numbers"), [(SIZES, 1), (LARGE, 3), ({Counters(1, coarse=False): 2}, 1)]
)
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_noisy_sums_are_read_back(sizes, n_numbers, n):
    """Whatever groups are asked for: the sums of these with their noise, negative ones included."""
    width = counter_width(n, [Noise(Kind.LAPLACE, 2**14)])
    packing = Packing.of(sizes, width)
    assert packing.n_numbers == n_numbers
    bins = persons(sizes, n)
    numbers = packing.numbers(bins)
    sums = [sum(numbers[place :: packing.n_numbers]) for place in range(packing.n_numbers)]
    assert len(numbers) == n * n_numbers
    draw = np.random.default_rng(2)
    fine = [group for group in sizes if not group.coarse]
    for asked in ([group for group in sizes if group.coarse], fine, fine[:1], fine[1::2]):
        noise = {group: draw.integers(-(2**18), 2**18, sizes[group]) for group in asked}
        found: dict[Counters, np.ndarray] = {}
        for number in packing.needed(asked):
            value = sums[number] + packing.addend(number, noise, SeededBits(3))
            assert 0 <= value < mpz(1) << CAPACITY
            assert packing.fits(number, value)
            found |= packing.read(number, value, asked)
        assert found.keys() == noise.keys()
        for group, added in noise.items():
            expected = np.bincount(bins[group], minlength=sizes[group]) + added
            assert found[group].tolist() == expected.tolist()


def test_groups_do_not_touch_each_other():
    """Every group has its bits, a guard follows it, and coarse ones share one."""
    packing = Packing.of(LARGE, 22)
    ends: dict[int, tuple[int, bool]] = {}
    for group, place in packing.places.items():
        end, coarse = ends.get(place.number, (0, True))
        if place.start:
            assert place.start - end == (0 if coarse and group.coarse else GUARD_BITS)
        ends[place.number] = place.start + place.n_counters * 22, group.coarse
        assert ends[place.number][0] + GUARD_BITS <= CAPACITY
    assert set(packing.places) == set(LARGE)


def test_five_attributes_of_a_million_persons_are_one_number():
    """What a person's row costs: five attributes of 16 bins with their merged ones are one ciphertext."""
    sizes = {group: size for group, size in LARGE.items() if group.attribute < 5}
    assert Packing.of(sizes, counter_width(10**6, [Noise(Kind.LAPLACE, 192)])).n_numbers == 1


class Queued:
    """Random bits that a test chooses: those of the first hidden run, then those of the second one."""

    def __init__(self, *numbers):
        self._numbers = list(numbers)

    def words(self, n_words):
        """Return them."""
        return np.frombuffer(self._numbers.pop(0).to_bytes(8 * n_words, "little"), dtype=np.uint64)


WIDTH = 2
FIRST, MIDDLE, LAST = (Counters(each, coarse=False) for each in range(3))
TINY = {FIRST: 2, MIDDLE: 1, LAST: 1}
FIRST_BITS, LAST_BITS = 2 * WIDTH + 3, WIDTH + 3
"""Of u, with a guard of 4 bits."""


def views(packing, counts, noisy, first_bits=FIRST_BITS):
    """Return how often the holder sees each number, over all random bits; it asked for the middle group."""
    value = sum(
        count << (packing.places[group].start + i * packing.width)
        for group, of_group in counts.items()
        for i, count in enumerate(of_group)
    )
    # The noise that leads to the same noisy number.
    noise = {MIDDLE: np.array([noisy - counts[MIDDLE][0]])}
    return Counter(
        int(value + packing.addend(0, noise, Queued(*drawn)))
        for drawn in product(range(2**first_bits), range(2**LAST_BITS))
    )


def variation(one, other):
    """Total variation of two distributions."""
    total = sum(one.values())
    return sum(abs(one[each] - other[each]) for each in one | other) / (2 * total)


@pytest.fixture
def short_guard(monkeypatch):
    """A guard so short that all random bits can be tried."""
    monkeypatch.setattr(packing_module, "GUARD_BITS", 4)


@pytest.mark.usefixtures("short_guard")
@pytest.mark.parametrize("noisy", [-9, -2, 0, 1, 11])
def test_a_holder_sees_the_noisy_numbers_and_nothing_else(noisy):
    """Exhaustively: hidden groups before and after the one that is asked for, their counts, and all bits.

    Also noisy numbers that do not fit their counter, whose carries reach the neighbours.
    """
    packing = Packing.of(TINY, WIDTH)
    reached = [
        views(packing, {FIRST: hidden, MIDDLE: own, LAST: last}, noisy)
        for hidden, own, last in product([(0, 0), (3, 3), (1, 2)], [(0,), (3,)], [(0,), (3,)])
    ]
    apart = max(variation(reached[0], each) for each in reached)
    # The bound of both runs, which is no empty one: with so short a guard a difference is there.
    assert 0.1 < apart <= 2 * 2**-3
    own_alone = [views(packing, {FIRST: (1, 1), MIDDLE: (own,), LAST: (1,)}, noisy) for own in range(4)]
    assert all(each == own_alone[0] for each in own_alone)


def test_numbers_that_are_not_hidden_would_be_seen(short_guard, monkeypatch):
    """The same test notices a run that is hidden by too few bits, and one that is not hidden."""
    packing = Packing.of(TINY, WIDTH)

    def apart(first_bits):
        counts = [{FIRST: hidden, MIDDLE: (2,), LAST: (0,)} for hidden in ((0, 0), (3, 3))]
        return variation(*(views(packing, each, 1, first_bits) for each in counts))

    assert apart(FIRST_BITS) <= 2**-3
    assert apart(FIRST_BITS - 3) > 0.9
    monkeypatch.setattr(Packing, "_runs", lambda *_: iter(()))
    assert apart(0) == 1


def test_coarse_counters_are_asked_for_together():
    """They share a guard, so that one of them cannot be hidden beside another."""
    packing = Packing.of(SIZES, 20)
    with pytest.raises(ValueError, match="asked for together"):
        packing.addend(0, {Counters(0, coarse=True): np.zeros(6, dtype=np.int64)}, SeededBits(1))


def test_noise_fits_its_counter():
    """Counters hold all counts, and noise that is drawn once in e^60 draws."""
    for noise, reach in ((Noise(Kind.LAPLACE, 100), 6_000), (Noise(Kind.GAUSSIAN, 10_000), 1_095)):
        for n in (1, 713, 48_842, 2**22):
            assert 2 ** (counter_width(n, [noise, Noise(Kind.LAPLACE, 1)]) - 1) > n + reach


def test_what_does_not_fit_is_refused():
    """More persons than tables across owners are made of, and attributes of too many bins."""
    with pytest.raises(UsageError, match="4,194,305 persons, tables across owners count at most 4,194,304"):
        counter_width(2**22 + 1, [Noise(Kind.LAPLACE, 10)])
    with pytest.raises(UsageError, match="150 counters of 20 bits are too many"):
        Packing.of({Counters(0, coarse=False): 150}, 20)


def test_a_number_with_more_bits_is_none_of_ours():
    """What another key's ciphertext decrypts to."""
    packing = Packing.of(SIZES, 20)
    assert not packing.fits(0, mpz(1) << CAPACITY)
