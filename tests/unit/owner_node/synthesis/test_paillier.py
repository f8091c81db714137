"""Paillier's cryptosystem: against another implementation, exhaustively for tiny keys, and with bad keys."""

from math import gcd
from secrets import randbelow, token_bytes

import phe
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gmpy2 import invert, is_prime, mpz, next_prime, powmod

from common.errors import IntegrityError
from common.model.rounds import CIPHERTEXT_BYTES
from owner_node.synthesis.paillier import (
    MODULUS_BITS,
    WIDE_BYTES,
    Encryption,
    PrivateKey,
    PublicKey,
    check_different,
    to_bytes,
)
from tests.fakes.bits import SeededBits
from tests.fakes.synthetic_owners import paillier_key


@pytest.fixture(scope="module")
def key():
    """A key."""
    return PrivateKey(paillier_key(0))


@pytest.fixture(scope="module")
def encryption(key):
    """Its tables."""
    return Encryption(key, SeededBits(1), 10)


@pytest.fixture(scope="module")
def theirs(key):
    """The same key in the other implementation."""
    public = phe.PaillierPublicKey(int(key.public.modulus))
    return phe.PaillierPrivateKey(public, *map(int, key.primes))


def numbers(key):
    """Some numbers from 0 to N - 1, the ends included."""
    modulus = key.public.modulus
    return [mpz(0), mpz(1), modulus - 1, *(mpz(randbelow(int(modulus))) for _ in range(3))]


def test_another_implementation_reads_our_ciphertexts(key, encryption, theirs):
    """And we read its ones."""
    some = numbers(key)
    for number, ours in zip(some, encryption.encrypt(some, SeededBits(2)), strict=True):
        assert theirs.raw_decrypt(int(ours)) == number
        assert key.decrypt(mpz(theirs.public_key.raw_encrypt(int(number)))) == number


def test_products_are_sums(key, encryption, theirs):
    """Sums wrap around at N; blinding changes the ciphertext and adds the number."""
    a, b = numbers(key)[-2:]
    one, other = encryption.encrypt([a, b], SeededBits(3))
    product = one * other % key.public.square
    unit = key.public.uniform_unit(SeededBits(4))
    blinded = key.public.blinded(product, mpz(-5), unit)
    assert key.decrypt(blinded) == theirs.raw_decrypt(int(blinded)) == (a + b - 5) % key.public.modulus
    assert key.public.blinded(product, mpz(-5), mpz(1)) != blinded


def test_the_same_bits_give_the_same_ciphertexts_and_others_give_others(key, encryption):
    """Rows can be computed again by an auditor, and equal numbers look different."""
    sevens = [mpz(7)] * 4
    made = encryption.encrypt(sevens, SeededBits(5))
    assert len(set(made)) == 4
    assert Encryption(key, SeededBits(1), 10).encrypt(sevens, SeededBits(5)) == made
    assert not set(made) & set(encryption.encrypt(sevens, SeededBits(6)))
    assert not set(made) & set(Encryption(key, SeededBits(2), 10).encrypt(sevens, SeededBits(5)))


@pytest.mark.parametrize("n_numbers", [0, 1, 20, 100, 300, 10_000])
def test_tables_of_every_size_give_the_same_ciphertexts(key, encryption, n_numbers):
    """How many numbers there are decides how fast they are encrypted, and nothing else."""
    other = Encryption(key, SeededBits(1), n_numbers)
    assert other.encrypt([mpz(7)] * 2, SeededBits(5)) == encryption.encrypt([mpz(7)] * 2, SeededBits(5))


def test_blinds_are_residues(key, encryption):
    """A ciphertext is (1 + m N) times an N-th residue: its power λ(N) is 1 only without m."""
    (made,) = encryption.encrypt([mpz(9)], SeededBits(7))
    blind = made * invert(1 + 9 * key.public.modulus, key.public.square) % key.public.square
    assert powmod(blind, key.order, key.public.square) == 1
    assert powmod(made, key.order, key.public.square) != 1


@pytest.mark.parametrize("n_numbers", [1, 10_000])
def test_ciphertexts_are_plain_powers(key, n_numbers):
    """By the definition: for the same bits, ciphertexts are (1 + m N) h^e modulo N² without any table."""
    some, public, of_base, of_rows = numbers(key), key.public, SeededBits(1), SeededBits(5)

    def drawn(bits):
        return mpz.from_bytes(bits.words(WIDE_BYTES // 8).tobytes())

    h = powmod(drawn(of_base) % public.modulus, public.modulus, public.square)
    plain = [
        (1 + each * public.modulus) * powmod(h, drawn(of_rows) % key.order, public.square) % public.square
        for each in some
    ]
    assert Encryption(key, SeededBits(1), n_numbers).encrypt(some, SeededBits(5)) == plain


def units(modulus):
    """All numbers without a common factor."""
    return [mpz(each) for each in range(1, modulus) if gcd(each, modulus) == 1]


def blindings(modulus, ciphertext, number):
    """All results of blinding a ciphertext, ascending."""
    key = PublicKey(mpz(modulus))
    return sorted(key.blinded(ciphertext, mpz(number), unit) for unit in units(modulus))


@pytest.mark.parametrize("modulus", [5 * 7, 3 * 11])
def test_blinding_leaves_nothing_but_the_number(modulus):
    """Exhaustively: all ciphertexts of a number have the same blindings, each once, and are all of them.

    So whatever an adder's ciphertext was made of, its holder gets a uniform one of the number alone.
    """
    assert gcd(modulus, len(units(modulus))) == 1
    by_number: dict[tuple, list] = {}
    for ciphertext in units(modulus**2):
        by_number.setdefault(tuple(blindings(modulus, ciphertext, 4)), []).append(ciphertext)
    assert len(by_number) == modulus
    for reached, ciphertexts in by_number.items():
        assert len(set(reached)) == len(reached) == len(ciphertexts)
        # The number that is added moves all of them to those of another number.
        assert set(reached) == {each * (1 + 4 * modulus) % modulus**2 for each in ciphertexts}


@pytest.mark.parametrize("modulus", [5 * 11, 3 * 7, 3 * 5 * 7])
def test_blinding_with_a_key_that_is_no_permutation_leaves_more(modulus):
    """Why keys come with a proof: here ciphertexts fall into more classes than there are numbers."""
    assert gcd(modulus, len(units(modulus))) > 1
    classes = {tuple(blindings(modulus, ciphertext, 0)) for ciphertext in units(modulus**2)}
    assert len(classes) > modulus


def test_few_numbers_have_roots_if_a_key_is_no_permutation():
    """What the proof rests on: a share below 2/f of the numbers, f the smallest factor."""
    tried = 0
    for modulus in range(15, 1200, 2):
        powers = {pow(each, modulus, modulus) for each in range(modulus)}
        smallest = next(each for each in range(3, modulus + 1, 2) if modulus % each == 0)
        order = len(units(modulus))
        assert (len(powers) == modulus) == (gcd(modulus, order) == 1)
        if len(powers) < modulus and not is_prime(modulus):
            tried += 1
            assert len(powers) / modulus < 2 / smallest
    assert tried > 100


def product_of(*bits):
    """A product of primes of some sizes."""
    found = mpz(1)
    for each in bits:
        found *= next_prime((mpz(3) << (each - 2)) | randbelow(2 ** (each - 2)))
    return found


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: product_of(1024, 1024), "has 2,048 bits, not 3,072"),
        (lambda: 3 * next_prime(mpz(10) << 3067), "has a factor below 65,536"),
        (lambda: next_prime(mpz(3) << (MODULUS_BITS - 2)), "is a prime number"),
        (lambda: product_of(1536, 1536), "does not come with the proof"),
    ],
)
def test_bad_keys_are_refused(key, make, fault):
    """Too short, easy to factor, no product, and one with the proof of another."""
    modulus = make()
    data = int(modulus).to_bytes(-(-modulus.bit_length() // 8), "big")
    with pytest.raises(IntegrityError, match=f"the key of owner a for counts {fault}"):
        PublicKey.checked(data, key.roots(), "a")


def test_changed_proofs_are_refused(key):
    """One root changed, missing, one more, or out of range; with the right ones a key is read."""
    good = key.roots()
    modulus = key.public.to_bytes()
    assert PublicKey.checked(modulus, good, "a").modulus == key.public.modulus
    for roots in (
        [*good[:-1], token_bytes(384)], good[:-1], [*good, good[0]], good[::-1],
        [*good[:-1], (mpz.from_bytes(good[-1]) + key.public.modulus).to_bytes(385)],
    ):  # fmt: skip
        with pytest.raises(IntegrityError, match="does not come with the proof"):
            PublicKey.checked(modulus, roots, "a")


def test_keys_with_a_common_factor_are_refused(key):
    """Two owners whose keys come from the same randomness."""
    own, other = PrivateKey(paillier_key(2)).public, PrivateKey(paillier_key(1))
    check_different({"a": key.public, "b": other.public}, own)
    with pytest.raises(IntegrityError, match="the key of owner b for counts has a factor of that of a"):
        check_different({"a": key.public, "b": key.public}, own)
    half = PublicKey(key.primes[0] * next_prime(key.primes[0]))
    with pytest.raises(IntegrityError, match="has a factor of that of a"):
        check_different({"a": key.public, "b": half}, own)
    # Whoever looks has not copied its own.
    with pytest.raises(IntegrityError, match="the key of owner b for counts has a factor of this owner's"):
        check_different({"b": half}, key.public)


def test_what_is_no_ciphertext_is_refused(key, encryption):
    """Zero, N² and more, a broken length; and factors of N, also inside a product."""
    good = encryption.encrypt([mpz(3)], SeededBits(8))
    assert key.public.parse(to_bytes(good)) == good
    for wrong in (mpz(0), key.public.square, mpz(2) ** (8 * CIPHERTEXT_BYTES) - 1):
        with pytest.raises(IntegrityError, match="out of range"):
            key.public.parse(to_bytes([*good, wrong]))
    with pytest.raises(IntegrityError, match="no whole number of ciphertexts"):
        key.public.parse(to_bytes(good)[:-1])
    key.public.check_units(good)
    with pytest.raises(IntegrityError, match="a factor of its key"):
        key.public.check_units([good[0] * key.primes[0] % key.public.square])


def stored(key):
    """The bytes in which an owner keeps a private key."""
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def test_a_key_of_another_kind_is_no_key():
    """A shorter RSA key, or none."""
    for wrong in (rsa.generate_private_key(65_537, 2048), ec.generate_private_key(ec.SECP256R1())):
        with pytest.raises(ValueError, match="no key of 3072 bits"):
            PrivateKey(stored(wrong))


def test_a_key_with_factors_that_are_no_primes_is_refused_by_others(key):
    """Nothing checks the stored key itself; what it shows others is no proof."""
    q, factor = key.primes[0], next_prime(2**768 * 9 // 10)
    p = factor * next_prime(factor)
    d = invert(65_537, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        int(p), int(q), int(d), int(d % (p - 1)), int(d % (q - 1)), int(invert(q, p)),
        rsa.RSAPublicNumbers(65_537, int(p * q)),
    )  # fmt: skip
    wrong = PrivateKey(stored(numbers.private_key(unsafe_skip_rsa_key_validation=True)))
    with pytest.raises(IntegrityError, match="does not come with the proof"):
        PublicKey.checked(wrong.public.to_bytes(), wrong.roots(), "b")


def test_units_are_drawn_below_the_modulus(key):
    """Always others, with all sizes that N has."""
    bits = SeededBits(9)
    drawn = [key.public.uniform_unit(bits) for _ in range(200)]
    assert len(set(drawn)) == 200
    assert all(0 < each < key.public.modulus for each in drawn)
    # Uniform: about half of them are below the half.
    assert 60 < sum(each < key.public.modulus // 2 for each in drawn) < 140
