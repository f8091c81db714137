"""Counters in numbers: noisy sums are read back, and a holder sees nothing beside them, carries included."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from gmpy2 import mpz

from common.errors import UsageError
from common.synthesis import counters
from common.synthesis.accounting import Kind, Noise
from common.synthesis.counters import CAPACITY, GUARD_BITS, Place, counter_width
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.packing import Packing, uniform_number
from owner_node.synthesis.paillier import MODULUS_BITS
from tests.fakes.bits import SeededBits

MODULUS = mpz(5) << (MODULUS_BITS - 3)
SIZES = {0: 16, 1: 64, 3: 3}
TOGETHER = dict.fromkeys(range(14), (20, 21))


@pytest.mark.parametrize(
    ("sizes", "partners", "n_numbers"),
    [
        (SIZES, TOGETHER, 1),
        (dict.fromkeys(range(14), 40), TOGETHER, 5),
        (SIZES, {0: (20,), 1: (21,), 3: (20,)}, 2),
        ({1: 2}, TOGETHER, 1),
    ],
)
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_noisy_sums_are_read_back(sizes, partners, n_numbers, n):
    """Of one number or several: what a holder reads are the sums with their noise, negative ones included."""
    packing = Packing.of(sizes, partners, counter_width(n, Noise(Kind.LAPLACE, 2**14)))
    assert packing.n_numbers == n_numbers
    draw = np.random.default_rng(2)
    bins = {attribute: draw.integers(0, size, n) for attribute, size in sizes.items()}
    noise = {attribute: draw.integers(-(2**18), 2**18, size) for attribute, size in sizes.items()}
    numbers, found = packing.numbers(bins), dict[int, np.ndarray]()
    assert len(numbers) == n * n_numbers
    for number in range(n_numbers):
        addend = packing.addend(number, noise, MODULUS, SeededBits(3))
        found |= packing.read(number, (sum(numbers[number::n_numbers]) + addend) % MODULUS)
    assert found.keys() == sizes.keys()
    for attribute, size in sizes.items():
        expected = np.bincount(bins[attribute], minlength=size) + noise[attribute]
        assert found[attribute].tolist() == expected.tolist()


def test_counters_share_a_number_with_what_is_asked_for_with_them():
    """A number is full before the next one begins, and has no attribute that other partners are asked for."""
    partners = {0: (7, 8), 1: (7,), 2: (7, 8), 3: (7, 8), 4: (8,)}
    packing = Packing.of(dict.fromkeys(partners, 50), partners, 25)
    assert packing.places == {
        1: Place(0, 0, 50), 0: Place(1, 0, 50), 2: Place(1, 1250, 50), 3: Place(2, 0, 50), 4: Place(3, 0, 50),
    }  # fmt: skip
    assert 3 * 1250 + GUARD_BITS > CAPACITY > 2 * 1250 + GUARD_BITS


def test_no_counter_of_a_number_is_without_noise():
    """Whoever forgot one would send its exact count."""
    packing = Packing.of(SIZES, TOGETHER, 25)
    with pytest.raises(KeyError):
        packing.addend(0, {0: np.zeros(16, dtype=np.int64)}, MODULUS, SeededBits(1))


def test_five_attributes_of_a_million_persons_are_one_number():
    """What a person's row costs: five attributes of 20 bins are one ciphertext."""
    partners = dict.fromkeys(range(5), (5, 6))
    width = counter_width(10**6, Noise(Kind.LAPLACE, 192))
    assert Packing.of(dict.fromkeys(partners, 20), partners, width).n_numbers == 1


# --- what a holder sees ---------------------------------------------------------------------------------

N_PERSONS, WIDTH = 3, 3
TINY = 2**17 - 131
"""A modulus for two attributes of two counters and a guard of four bits; no multiple of 2^L."""


class Queued(BitSource):
    """Random bits that a test chooses."""

    def __init__(self, *words):
        super().__init__(bytearray(32))
        self._words = list(words)

    def words(self, n_words):
        """Return the next ones."""
        taken, self._words = self._words[:n_words], self._words[n_words:]
        return np.array(taken, dtype=np.uint64)


@pytest.fixture
def tiny(monkeypatch):
    """A layout in which everything can be tried."""
    monkeypatch.setattr(counters, "CAPACITY", 16)
    monkeypatch.setattr(counters, "GUARD_BITS", 4)
    return Packing.of({0: 2, 1: 2}, {0: (5,), 1: (5,)}, WIDTH)


def views(packing, value, noise, modulus=TINY):
    """Return how often a holder sees each number, over all R, where its plaintexts have some sum."""
    return Counter(
        int((value + packing.addend(0, noise, mpz(modulus), Queued(each))) % modulus)
        for each in range(modulus >> packing.n_bits(0))
    )


def views_of(packing, counts, noisy):
    """Return the same where the sum has some counts, and noise leads to some noisy numbers."""
    value = sum(
        count << (packing.places[attribute].start + i * WIDTH)
        for attribute, of_attribute in counts.items()
        for i, count in enumerate(of_attribute)
    )
    return views(packing, value, {each: np.array(noisy[each]) - np.array(counts[each]) for each in counts})


SUMS = [{0: (a, N_PERSONS - a), 1: (b, N_PERSONS - b)} for a, b in product(range(N_PERSONS + 1), repeat=2)]
"""All sums of rows that have one 1 for each attribute."""


@pytest.mark.parametrize(
    "noisy",
    [{0: one, 1: other} for one, other in product([(0, 3), (-4, 3), (-9, 1), (11, -2)], [(1, 2), (4, -90)])],
)
def test_a_holder_sees_the_noisy_numbers_and_nothing_else(tiny, noisy):
    """Exhaustively: all sums of rows and all R. Also noisy numbers that do not fit their counters, whose
    carries reach the neighbours, the part above the layout, and the other end of the modulus.
    """
    reached = [views_of(tiny, counts, noisy) for counts in SUMS]
    assert all(each == reached[0] for each in reached)
    # Above the layout every value is there once.
    assert set(reached[0].values()) == {1}
    assert len(reached[0]) == TINY >> tiny.n_bits(0)
    one_more = {**noisy, 1: (noisy[1][0] + 1, noisy[1][1])}
    assert views_of(tiny, SUMS[0], one_more) != reached[0]


def test_noisy_numbers_that_fit_are_read_from_every_number_that_is_seen(tiny):
    """Whatever R is: it stays above the counters and below the modulus."""
    for noisy in ({0: (0, 3), 1: (-4, 2)}, {0: (3, 3), 1: (-4, -4)}, {0: (3, 3), 1: (3, 3)}):
        for seen in views_of(tiny, SUMS[5], noisy):
            read = tiny.read(0, mpz(seen))
            assert {each: tuple(numbers.tolist()) for each, numbers in read.items()} == noisy


def test_what_is_above_the_layout_is_hidden(monkeypatch):
    """Of all plaintexts, whatever a holder encrypted: two that differ by h above the layout look the same but
    for h + 1 of all R. Without R, or with one that is half as large, they would not.
    """
    monkeypatch.setattr(counters, "CAPACITY", 9)
    monkeypatch.setattr(counters, "GUARD_BITS", 4)
    packing, modulus = Packing.of({0: 2}, {0: (5,)}, 2), 1021
    noise, size = {0: np.array([1, -2])}, modulus >> packing.n_bits(0)
    for value in range(modulus):
        above, within = divmod(value, 1 << packing.n_bits(0))
        one, other = views(packing, value, noise, modulus), views(packing, within, noise, modulus)
        assert sum((one - other).values()) <= above + 1
    assert size == 63


def test_random_numbers_are_uniform():
    """Each below the bound comes from one word, and words beyond it are drawn again."""
    for bound in (1, 5, 8, 11):
        size = 1 << mpz(bound).bit_length()
        drawn = Counter(uniform_number(mpz(bound), Queued(word, 0)) for word in range(size))
        assert drawn == Counter({0: size - bound}) + Counter(range(bound))
    large = [uniform_number(MODULUS, SeededBits(seed)) for seed in range(300)]
    assert 110 < sum(each < MODULUS // 2 for each in large) < 190


# --- bounds ---------------------------------------------------------------------------------------------


def test_noise_fits_its_counter():
    """Counters hold all counts, and noise that is drawn once in e^60 draws."""
    for noise, reach in ((Noise(Kind.LAPLACE, 100), 6_000), (Noise(Kind.GAUSSIAN, 10_000), 1_095)):
        for n in (1, 713, 48_842, 2**22):
            assert 2 ** (counter_width(n, noise) - 1) > n + reach


def test_what_does_not_fit_is_refused():
    """More persons than tables across owners are made of, and attributes of too many bins."""
    with pytest.raises(UsageError, match="4,194,305 persons, tables across owners count at most 4,194,304"):
        counter_width(2**22 + 1, Noise(Kind.LAPLACE, 10))
    with pytest.raises(UsageError, match="150 counters of 20 bits are too many"):
        Packing.of({0: 150}, {0: (1,)}, 20)
    assert CAPACITY == MODULUS_BITS - 1
