"""Sums of owners' vectors whose summands nobody sees: pairwise masks that cancel when all are added.

Every two owners of a release share a secret that the aggregator does not have (X25519, from keys that the
owners sign). From it both derive the same masks, uniform modulo 2^64, one vector for every round. The owner
whose id comes first adds them to its vector, the other subtracts them. The vectors of all owners add up to
the sum. Those of fewer are uniform numbers, whatever the owners counted: a sum is had of all or not at all.

    answer_j = v_j + Σ_{i after j} mask_ij - Σ_{i before j} mask_ij  modulo 2^64

Masks depend on the document that opened the round: its digest covers release, plan, all keys, and the sums so
far. Owners with different documents have masks that do not cancel, and the aggregator learns nothing.

A mask is used for one vector only. So an owner answers a round once, and sends the same bytes again if it is
asked again (two answers under the same masks would show the difference of their vectors).

The ids of both owners are part of the derivation. X25519 ignores one bit of a public key, so equal secrets
cannot be recognised by equal keys: an owner that presented another's key, or that key with the bit changed,
would otherwise give a third owner two masks that cancel.

References:
    Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", without its
    recovery of owners that stay away.
    RFC 7748 (X25519), RFC 5869 (HKDF), NIST SP 800-38A (AES in counter mode).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.rounds import KEY_BYTES
from common.synthesis.sums import NUMBER

_NONCE = bytes(16)
"""Every key encrypts one vector of zeros, so it needs no other."""


def public_key(private_key: bytes) -> bytes:
    """Return the public half of a private key, which is 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()


@dataclass(frozen=True, slots=True)
class Masks:
    """One owner's masks in a release."""

    owner: str
    """Its id."""
    private_key: bytes = field(repr=False)
    """Its key for this release alone, 32 random bytes."""
    public_keys: Mapping[str, bytes]
    """Keys of all owners whose vectors are added, this one's included, by owner id."""
    release: str
    """Id of the release."""
    release_key: bytes = field(default=b"", repr=False)
    """The owners' key of the release's tokens, where it has one: with it, an aggregator that invented an
    owner could not compute that owner's masks either."""

    def __post_init__(self) -> None:
        if self.public_keys.get(self.owner) != public_key(self.private_key):
            raise IntegrityError(
                f"the key that stands for owner {self.owner} is not its own",
                "nothing was sent; start the release again, and ask the aggregator's operator",
            )
        by_key: dict[bytes, str] = {}
        for owner, key in sorted(self.public_keys.items()):
            other = by_key.setdefault(key, owner)
            if other != owner:
                raise _unusable(owner, f"is also that of {other}")
            if len(key) != KEY_BYTES:
                raise _unusable(owner, f"has {len(key)} bytes, not {KEY_BYTES}")

    def check(self) -> None:
        """Check the keys of the other owners, before anything is spent for an answer.

        Raises:
            IntegrityError: If one is unusable.
        """
        for other in self.public_keys.keys() - {self.owner}:
            self._secret(other)

    def answer(self, vector: Int64Array, document: str) -> bytes:
        """Return an owner's answer to a round: its vector under its masks.

        Args:
            vector: Its numbers with its noise, `(n_numbers,)`.
            document: Digest of what opened the round (`common.model.rounds`), hexadecimal; no other vector
                may be answered under it.

        Raises:
            IntegrityError: If another owner's key is unusable.
        """
        total = vector.astype(NUMBER)
        for other in self.public_keys.keys() - {self.owner}:
            mask = self._mask(other, document, vector.size)
            if self.owner < other:
                total += mask
            else:
                total -= mask
        return total.tobytes()

    def _mask(self, other: str, document: str, n_numbers: int) -> NDArray[np.uint64]:
        parties = (party.encode() for party in sorted((self.owner, other)))
        info = b"|".join((bytes.fromhex(document), *parties))
        derivation = HKDF(hashes.SHA256(), KEY_BYTES, salt=self.release.encode(), info=info)
        key = derivation.derive(self._secret(other) + self.release_key)
        stream = Cipher(algorithms.AES256(key), modes.CTR(_NONCE)).encryptor()
        return np.frombuffer(stream.update(bytes(n_numbers * NUMBER.itemsize)), dtype=NUMBER)

    def _secret(self, other: str) -> bytes:
        own = X25519PrivateKey.from_private_bytes(self.private_key)
        try:
            return own.exchange(X25519PublicKey.from_public_bytes(self.public_keys[other]))
        except ValueError:
            # A point of low order: everybody would know the secret.
            raise _unusable(other, "is weak") from None


def _unusable(owner: str, fault: str) -> IntegrityError:
    return IntegrityError(
        f"the key of owner {owner} for sums {fault}",
        "nothing was sent; ask that owner's administrator and the aggregator's operator",
        {"owner": owner},
    )
