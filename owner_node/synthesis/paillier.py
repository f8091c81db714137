"""Paillier's cryptosystem: sums of numbers that only one owner can read, and nobody else.

N = pq, with primes p and q of half its size. A ciphertext of m is (1 + N)^m r^N modulo N². As
(1 + N)^m = 1 + m N, the product of ciphertexts is one of the sum of their numbers modulo N.

Encryption. The owner that has the key encrypts with blinds h^e: h = x^N for one random x, and e uniform below
φ(N), anew for every number. Powers of one h are fast by tables, modulo p² and q² apart. Nothing beyond
Paillier's own assumption, that N-th residues modulo N² look like any units, is needed for this, whatever
the order of h is. If h were a random unit (1 + N)^a y^N instead, then h^e with e uniform below N φ(N) would
contain (1 + N)^(a e). N and φ(N) have no common factor, so e mod N is uniform and independent of e mod φ(N),
and m is hidden perfectly. For a residue h it is the same whether e is uniform below N φ(N) or below φ(N).
Short exponents (Damgård, Jurik, Nielsen 2010) would take a fifth of the time, and one more assumption.

Blinding. Another owner adds numbers up by multiplication, adds a number z, and blinds the result with r^N, r
uniform among the units modulo N: c (1 + z N) r^N. If N and φ(N) have no common factor, every unit modulo N²
is a ciphertext of exactly one number, and the result is a uniform one among all ciphertexts of its number:
the owner with the key learns that number and nothing else, however the ciphertexts were made.

Checks of another owner's key. It shows N-th roots of nine numbers that are digests of N. If x → x^N permutes
the numbers modulo N, then N and φ(N) have no common factor. If it does not, a share of less than 2/f of the
numbers has roots, f the smallest factor of N. As f is above 2^16, nine roots exist by chance with a
probability below 2^-128. N is also no prime and has exactly 3,072 bits. Not checked, since nobody but the
owner of the key can: that N is hard to factor. A weak N betrays this owner's own rows, and nobody else's.

3,072 bits are as strong as keys of 128 bits (NIST SP 800-57, table 2). 2,048 bits (112) would be recommended
until 2030 only, and what an aggregator stores today should be safe for longer than that.

References:
    Paillier 1999, "Public-key cryptosystems based on composite degree residuosity classes", 3, 6 and 7.
    Goldberg, Reyzin, Sagga, Baldimtsi 2019, "Efficient noninteractive certification of RSA moduli and
    beyond", section 3 (roots as a proof of a permutation).
    Brickell, Gordon, McCurley, Wilson 1992 (tables of powers).
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import shake_256
from itertools import combinations

import numpy as np
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from gmpy2 import f_divmod, gcd, invert, is_prime, mpz, powmod, powmod_sec, primorial

from common.errors import IntegrityError
from common.model.rounds import CIPHERTEXT_BYTES
from owner_node.masking.arrays import BitSource

MODULUS_BYTES = CIPHERTEXT_BYTES // 2
MODULUS_BITS = 8 * MODULUS_BYTES
N_ROOTS = 9
_LEAST_FACTOR = 2**16
_EXPONENT = 65_537
"""Of RSA, which the library makes keys for; nothing uses it."""
WIDE_BYTES = MODULUS_BYTES + 16
"""A number of so many random bytes modulo one of 3,072 bits is uniform but for 2^-128."""
_DOMAIN = b"tessera/v1/paillier roots|"


class PublicKey:
    """What others compute with.

    Args:
        modulus: N.
    """

    def __init__(self, modulus: mpz) -> None:
        self.modulus, self.square = modulus, modulus * modulus

    @classmethod
    def checked(cls, modulus: bytes, roots: Sequence[bytes], owner: str) -> "PublicKey":
        """Return another owner's key after all checks that are possible.

        Args:
            modulus: N, big-endian.
            roots: Its roots, as `PrivateKey.roots` returns them.

        Raises:
            IntegrityError: If it is no usable key.
        """
        number = mpz.from_bytes(modulus)
        if len(modulus) != MODULUS_BYTES or number.bit_length() != MODULUS_BITS:
            raise _unusable(owner, f"has {number.bit_length():,} bits, not {MODULUS_BITS:,}")
        if gcd(number, primorial(_LEAST_FACTOR)) != 1:
            raise _unusable(owner, f"has a factor below {_LEAST_FACTOR:,}")
        if is_prime(number):
            raise _unusable(owner, "is a prime number")
        shown = [mpz.from_bytes(each) for each in roots]
        if len(shown) != N_ROOTS or any(
            not 0 < root < number or powmod(root, number, number) != challenge
            for root, challenge in zip(shown, _challenges(number), strict=False)
        ):
            raise _unusable(owner, "does not come with the proof that it is a permutation")
        return cls(number)

    def to_bytes(self) -> bytes:
        """Return N, big-endian."""
        return bytes(self.modulus.to_bytes(MODULUS_BYTES))

    def parse(self, data: bytes | memoryview) -> list[mpz]:
        """Return the ciphertexts of some bytes.

        That they have no factor in common with N is not checked here: `check_units` does for their products.

        Raises:
            IntegrityError: If they are no ciphertexts.
        """
        if len(data) % CIPHERTEXT_BYTES:
            raise IntegrityError(f"{len(data):,} bytes are no whole number of ciphertexts")
        numbers = [
            mpz.from_bytes(data[start : start + CIPHERTEXT_BYTES])
            for start in range(0, len(data), CIPHERTEXT_BYTES)
        ]
        if not all(0 < each < self.square for each in numbers):
            raise IntegrityError("a ciphertext is out of range", "it was changed, or made with another key")
        return numbers

    def check_units(self, ciphertexts: Sequence[mpz]) -> None:
        """Check that ciphertexts, and all those that they are products of, have no factor of N.

        Raises:
            IntegrityError: If one has.
        """
        if any(gcd(each, self.modulus) != 1 for each in ciphertexts):
            raise IntegrityError("a ciphertext has a factor of its key", "it was changed, or never one")

    def blinded(self, ciphertext: mpz, number: mpz, unit: mpz) -> mpz:
        """Return a ciphertext with a number added, blinded.

        Args:
            ciphertext: c.
            number: z.
            unit: r, as `uniform_unit` draws it, used for nothing else.
        """
        blind = powmod(unit, self.modulus, self.square)
        return ciphertext * (1 + number % self.modulus * self.modulus) % self.square * blind % self.square

    def uniform_unit(self, bits: BitSource) -> mpz:
        """Draw a unit modulo N, all with equal probability."""
        while True:
            drawn = mpz.from_bytes(bits.words(MODULUS_BYTES // 8).tobytes())
            if drawn < self.modulus and gcd(drawn, self.modulus) == 1:
                return drawn


def to_bytes(ciphertexts: Sequence[mpz]) -> bytes:
    """Return ciphertexts as bytes, big-endian, one after the other."""
    return b"".join(each.to_bytes(CIPHERTEXT_BYTES) for each in ciphertexts)


def check_different(keys: Mapping[str, PublicKey], own: PublicKey) -> None:
    """Check that other owners' keys have no factor in common, nor with this owner's own.

    Raises:
        IntegrityError: If two have: at least one was made with bad randomness, or copied.
    """
    for owner, key in sorted(keys.items()):
        if gcd(key.modulus, own.modulus) != 1:
            raise _unusable(owner, "has a factor of this owner's")
    for (one, key), (other, its) in combinations(sorted(keys.items()), 2):
        if gcd(key.modulus, its.modulus) != 1:
            raise _unusable(other, f"has a factor of that of {one}")


def _unusable(owner: str, fault: str) -> IntegrityError:
    return IntegrityError(
        f"the key of owner {owner} for counts {fault}",
        "nothing was sent; ask that owner's administrator and the aggregator's operator",
        {"owner": owner},
    )


def _challenges(modulus: mpz) -> Iterator[mpz]:
    for number in range(N_ROOTS):
        drawn = shake_256(_DOMAIN + modulus.to_bytes(MODULUS_BYTES) + bytes([number])).digest(WIDE_BYTES)
        yield mpz.from_bytes(drawn) % modulus


def new_key() -> bytes:
    """Make a key, in the form that `PrivateKey` takes; it is to be stored like the data."""
    key = generate_private_key(_EXPONENT, MODULUS_BITS)
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


class PrivateKey:
    """The key itself.

    Args:
        encoded: As `new_key` made it.

    Raises:
        ValueError: If it is malformed.
    """

    def __init__(self, encoded: bytes) -> None:
        # It comes from this owner's own database. Checking each time that p and q are primes takes 0.1 s.
        # With other factors its roots are no proof, and whoever gets the key refuses it.
        loaded = load_der_private_key(encoded, None, unsafe_skip_rsa_key_validation=True)
        if not isinstance(loaded, RSAPrivateKey) or loaded.key_size != MODULUS_BITS:
            raise ValueError(f"no key of {MODULUS_BITS} bits")
        numbers = loaded.private_numbers()
        self.primes = mpz(numbers.p), mpz(numbers.q)
        self.squares = tuple(each * each for each in self.primes)
        p, q = self.primes
        self.public = PublicKey(p * q)
        self.order = (p - 1) * (q - 1)
        self._inverse, self._square_inverse = invert(p, q), invert(self.squares[0], self.squares[1])
        modulus = self.public.modulus
        self._scales = [
            invert((powmod(1 + modulus, prime - 1, square) - 1) // prime, prime)
            for prime, square in zip(self.primes, self.squares, strict=True)
        ]

    def roots(self) -> list[bytes]:
        """Return N-th roots of the digests of N, the proof that `PublicKey.checked` wants."""
        modulus = self.public.modulus
        exponent = invert(modulus, self.order)
        found = [powmod_sec(each, exponent, modulus) for each in _challenges(modulus)]
        return [each.to_bytes(MODULUS_BYTES) for each in found]

    def decrypt(self, ciphertext: mpz) -> mpz:
        """Return the number of a ciphertext, from 0 to N - 1."""
        p, q = self.primes
        of_p, of_q = (
            (powmod_sec(ciphertext % square, prime - 1, square) - 1) // prime * scale % prime
            for prime, square, scale in zip(self.primes, self.squares, self._scales, strict=True)
        )
        return of_p + p * ((of_q - of_p) * self._inverse % q)

    def join(self, of_p: mpz, of_q: mpz) -> mpz:
        """Return the number modulo N² of its remainders modulo p² and q²."""
        p_square, q_square = self.squares
        return of_p + p_square * ((of_q - of_p) * self._square_inverse % q_square)


class Encryption:
    """Encrypts many numbers.

    Args:
        base: Random bits that h is made of; always the same for one message.
        n_numbers: About how many it will encrypt: the more, the larger its tables.
    """

    def __init__(self, key: PrivateKey, base: BitSource, n_numbers: int) -> None:
        self._key = key
        # Multiplications, of tables and of what they are for, are proportional to this. Digits of more than 8
        # bits would have tables of over 90 MB.
        self._digit_bits = min(range(1, 9), key=lambda each: (2**each + n_numbers) / each)
        drawn = mpz.from_bytes(base.words(WIDE_BYTES // 8).tobytes()) % key.public.modulus
        residue = powmod(drawn, key.public.modulus, key.public.square)
        self._tables = [
            _tables(residue % square, -(-prime.bit_length() // self._digit_bits), self._digit_bits, prime)
            for prime, square in zip(key.primes, key.squares, strict=True)
        ]

    def encrypt(self, numbers: Sequence[mpz], bits: BitSource) -> list[mpz]:
        """Return ciphertexts.

        Args:
            numbers: From 0 to N - 1.
            bits: Random bits, used for nothing else; every number takes equally many.
        """
        drawn = bits.words(len(numbers) * (WIDE_BYTES // 8)).reshape(len(numbers), -1)
        modulus, square = self._key.public.modulus, self._key.public.square
        exponents = [mpz.from_bytes(words.tobytes()) % self._key.order for words in drawn]
        blinds = map(self._key.join, *(self._powers(exponents, i) for i in range(2)))
        return [
            (1 + number * modulus) * blind % square for number, blind in zip(numbers, blinds, strict=True)
        ]

    def _powers(self, exponents: Sequence[mpz], i: int) -> Iterator[mpz]:
        """Yield powers of h modulo the square of a prime."""
        prime, square, tables = self._key.primes[i], self._key.squares[i], self._tables[i]
        reduced = b"".join((each % (prime - 1)).to_bytes(MODULUS_BYTES // 2, "little") for each in exponents)
        bits = np.unpackbits(
            np.frombuffer(reduced, dtype=np.uint8).reshape(len(exponents), -1),
            axis=1,
            count=len(tables) * self._digit_bits,
            bitorder="little",
        )
        digits = bits.reshape(len(exponents), len(tables), -1) @ (1 << np.arange(self._digit_bits))
        for of_exponent in digits.tolist():
            product, quotient = mpz(1), mpz(0)
            for table, digit in zip(tables, of_exponent, strict=True):
                remainder, more = table[digit]
                product = product * remainder % square
                quotient += more
            yield product * (1 + quotient * prime) % square


def _tables(base: mpz, n_digits: int, digit_bits: int, prime: mpz) -> list[list[tuple[mpz, mpz]]]:
    """Return the powers of a base to every digit d times 2^(digit_bits i), a list for each place i.

    Modulo p², the (p - 1)-th power of an N-th residue g is 1. So g = t (1 + f p) for its remainder t modulo p
    and the Fermat quotient f of t, both below p. The product of such numbers is that of their t, times
    1 + p times the sum of their f: one factor of every multiplication has half of the size.
    """
    tables = []
    remainder = base % prime
    quotient = base // prime * invert(remainder, prime) % prime
    for _ in range(n_digits):
        inverse, powers = invert(remainder, prime), [(mpz(1), mpz(0))]
        inverse_power = mpz(1)
        for _ in range(2**digit_bits):
            # t g = t' + k p, and the quotient of t' is that of t g, and k / t'.
            carry, power = f_divmod(powers[-1][0] * remainder, prime)
            inverse_power = inverse_power * inverse % prime
            powers.append((power, (powers[-1][1] + quotient + carry * inverse_power) % prime))
        remainder, quotient = powers.pop()
        tables.append(powers)
    return tables
