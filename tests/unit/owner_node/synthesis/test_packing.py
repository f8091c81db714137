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

MODULI = [mpz(1) << (MODULUS_BITS - 1), mpz(5) << (MODULUS_BITS - 3), (mpz(1) << MODULUS_BITS) - 1]
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
@pytest.mark.parametrize(("n", "modulus"), [*zip([1, 2, 1000], MODULI, strict=True)])
def test_noisy_sums_are_read_back(sizes, partners, n_numbers, n, modulus):
    """Of one number or several, the least and the largest modulus: a holder reads sums with their noise."""
    packing = Packing.of(sizes, partners, counter_width(n, Noise(Kind.LAPLACE, 2**14)))
    assert packing.n_numbers == n_numbers
    draw = np.random.default_rng(2)
    bins = {attribute: draw.integers(0, size, n) for attribute, size in sizes.items()}
    noise = {attribute: draw.integers(-(2**18), 2**18, size) for attribute, size in sizes.items()}
    numbers, found = packing.numbers(bins), dict[int, np.ndarray]()
    assert len(numbers) == n * n_numbers
    for number in range(n_numbers):
        addend = packing.addend(number, noise, modulus, SeededBits(3))
        found |= packing.read(number, (sum(numbers[number::n_numbers]) + addend) % modulus, modulus)
    assert found.keys() == sizes.keys()
    for attribute, size in sizes.items():
        expected = np.bincount(bins[attribute], minlength=size) + noise[attribute]
        assert found[attribute].tolist() == expected.tolist()


def test_counters_share_a_number_with_what_is_asked_for_with_them():
    """A number is full before the next one begins, and has no attribute that other partners are asked for."""
    partners = {0: (7, 8), 1: (7,), 2: (7, 8), 3: (7, 8), 4: (8,)}
    packing = Packing.of(dict.fromkeys(partners, 50), partners, 25)
    assert packing.places == {
        1: Place(0, 961, 50), 0: Place(1, 336, 50), 2: Place(1, 336 + 1250, 50),
        3: Place(2, 961, 50), 4: Place(3, 961, 50),
    }  # fmt: skip
    assert 3 * 1250 + GUARD_BITS > CAPACITY > 2 * 1250 + GUARD_BITS


@pytest.mark.parametrize("n_bits", [1, 2, 1250, 1251, CAPACITY - GUARD_BITS - 1])
def test_a_number_has_room_for_what_hides_the_rest(n_bits):
    """Of any counters and modulus: t, by which a wrap moves them, is far below the filler."""
    first, end = Packing.of({0: n_bits}, {0: (5,)}, 1).span(0)
    assert end - first == n_bits
    for modulus in MODULI:
        top = modulus >> end
        assert modulus // top >= 1 << end
        assert top << GUARD_BITS <= mpz(1) << first


def test_no_counter_of_a_number_is_without_noise():
    """Whoever forgot one would send its exact count."""
    packing = Packing.of(SIZES, TOGETHER, 25)
    with pytest.raises(KeyError):
        packing.addend(0, {0: np.zeros(16, dtype=np.int64)}, MODULI[0], SeededBits(1))


def test_five_attributes_of_a_million_persons_are_one_number():
    """What a person's row costs: five attributes of 20 bins are one ciphertext."""
    partners = dict.fromkeys(range(5), (5, 6))
    width = counter_width(10**6, Noise(Kind.LAPLACE, 192))
    assert Packing.of(dict.fromkeys(partners, 20), partners, width).n_numbers == 1


# --- what a holder sees ---------------------------------------------------------------------------------

N_PERSONS, WIDTH = 3, 3
TINY = 2**20 - 131
"""A modulus for two attributes of two counters and a guard of four bits."""


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
    monkeypatch.setattr(counters, "CAPACITY", 19)
    monkeypatch.setattr(counters, "GUARD_BITS", 4)
    return Packing.of({0: 2, 1: 2}, {0: (5,), 1: (5,)}, WIDTH)


def addends(packing, noise, modulus, fillers=None):
    """Return what is added to a number, over all F, or some, and all u."""
    first, end = packing.span(0)
    return [
        int(packing.addend(0, noise, mpz(modulus), Queued(filler, top)))
        for filler in (range(1 << first) if fillers is None else fillers)
        for top in range(modulus >> end)
    ]


def views_of(packing, counts, noisy):
    """Return how often a holder sees each number where a sum has some counts, and noise leads to others."""
    value = sum(
        count << (packing.places[attribute].start + i * WIDTH)
        for attribute, of_attribute in counts.items()
        for i, count in enumerate(of_attribute)
    )
    noise = {each: np.array(noisy[each]) - np.array(counts[each]) for each in counts}
    return Counter((value + each) % TINY for each in addends(packing, noise, TINY))


SUMS = [{0: (a, N_PERSONS - a), 1: (b, N_PERSONS - b)} for a, b in product(range(N_PERSONS + 1), repeat=2)]
"""All sums of rows that have one 1 for each attribute."""


@pytest.mark.parametrize(
    "noisy",
    [{0: one, 1: other} for one, other in product([(0, 3), (-4, 3), (-9, 1), (11, -2)], [(1, 2), (4, -90)])],
)
def test_a_holder_sees_the_noisy_numbers_and_nothing_else(tiny, noisy):
    """Exhaustively: all sums of rows, all F and u. Also noisy numbers that do not fit their counters, whose
    carries reach the neighbours, the part above the layout, and the other end of the modulus.
    """
    reached = [views_of(tiny, counts, noisy) for counts in SUMS]
    assert all(each == reached[0] for each in reached)
    # Above and below the counters every value is there once.
    first, end = tiny.span(0)
    assert set(reached[0].values()) == {1}
    assert len(reached[0]) == (TINY >> end) << first
    one_more = {**noisy, 1: (noisy[1][0] + 1, noisy[1][1])}
    assert views_of(tiny, SUMS[0], one_more) != reached[0]


def test_noisy_numbers_that_fit_are_read_from_every_number_that_is_seen(tiny):
    """Whatever F and u are: they stay below and above the counters, and above is uniform."""
    for noisy in ({0: (0, 3), 1: (-4, 2)}, {0: (3, 3), 1: (-4, -4)}, {0: (3, 3), 1: (3, 3)}):
        seen = views_of(tiny, SUMS[5], noisy)
        for each in seen:
            read = tiny.read(0, mpz(each), mpz(TINY))
            assert {each: tuple(numbers.tolist()) for each, numbers in read.items()} == noisy
        first, end = tiny.span(0)
        top = TINY >> end
        assert Counter(each // (TINY // top) for each in seen) == dict.fromkeys(range(top), 1 << first)


def seen(values, modulus):
    """Return how often each number is seen, `(modulus,)`."""
    return np.bincount(np.asarray(values) % modulus, minlength=modulus)


def moved(one, other):
    """Return how many of all numbers differ: the total variation distance, times their number."""
    return int(np.abs(one - other).sum()) // 2


DRAWS = [[(1, -2)], [(-3, 5)], [(-1, 0), (0, 0), (0, 0), (1, 0), (0, 1), (-1, -1)]]
"""Noise on both counters: one that is known, one that does not fit, and a distribution."""


@pytest.mark.parametrize("modulus", [4096, 4099, 6143, 7168, 8189])
@pytest.mark.parametrize("draws", DRAWS)
def test_every_plaintext_shows_its_noisy_counters_alone(monkeypatch, modulus, draws):
    """All plaintexts, valid or not, all F and u: what is seen is as the theorem of the module says, but for
    a·t of all M·2^g numbers. With t = 0 nothing is left, and with the largest t less than 2^-s.
    """
    monkeypatch.setattr(counters, "CAPACITY", 12)
    monkeypatch.setattr(counters, "GUARD_BITS", 3)
    packing = Packing.of({0: 2}, {0: (5,)}, 2)
    first, end = packing.span(0)
    filler, top = 1 << first, modulus >> end
    low, rest = modulus // top, modulus % top
    noises = [{0: np.array(each)} for each in draws]
    added = np.array([each for noise in noises for each in addends(packing, noise, modulus)])
    assert added.size == len(draws) * top * filler
    assert 8 * rest < filler
    uniform = np.arange(filler) + low * np.arange(top)[:, None]
    for value in range(modulus):
        above, within = divmod(value, low)
        counted, fraction = divmod(within, filler)
        expected = np.zeros(modulus, dtype=np.int64)
        for one, other in draws:
            noisy = (one + 2) + 4 * (other + 2) + counted + (np.arange(filler) < fraction)
            expected += seen((filler * noisy + uniform).ravel(), modulus)
        assert moved(seen(value + added, modulus), expected) <= len(draws) * above * rest


def test_without_filler_a_wrap_is_seen(monkeypatch):
    """Random numbers above the counters alone leave more than the bound of the test before."""
    monkeypatch.setattr(counters, "CAPACITY", 12)
    monkeypatch.setattr(counters, "GUARD_BITS", 3)
    packing, modulus = Packing.of({0: 2}, {0: (5,)}, 2), 8189
    added = np.array(addends(packing, {0: np.array([1, -2])}, modulus, [0]))
    assert added.size == 7
    low = modulus // 7
    assert [moved(seen(h * low + added, modulus), seen(added, modulus)) for h in range(8)] == list(range(8))


def test_random_numbers_are_uniform():
    """Each below the bound comes from one word, and words beyond it are drawn again."""
    for bound in (1, 5, 8, 11):
        size = 1 << (bound - 1).bit_length()
        drawn = Counter(uniform_number(mpz(bound), Queued(word, 0)) for word in range(size))
        assert drawn == Counter({0: size - bound}) + Counter(range(bound))
    large = [uniform_number(MODULI[1], SeededBits(seed)) for seed in range(300)]
    assert 110 < sum(each < MODULI[1] // 2 for each in large) < 190


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
