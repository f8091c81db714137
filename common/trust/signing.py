"""Signatures: ECDSA with SHA-256 over a domain line and canonical bytes (docs/architecture.md).

The domain line prevents a signature made for one purpose from being used for another: a signed receipt is
never a signed plan, even if some bytes are valid as both.
"""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from common.canonical import canonical
from common.errors import ConfigurationError, IdentityError, IntegrityError
from common.files import read_private
from common.trust.enrolment import key_pem
from common.trust.identity import (
    Party,
    check_key,
    check_validity,
    describe,
    fingerprint,
    load_certificates,
    party_of_certificate,
)
from common.trust.pem import CERTIFICATE, PRIVATE_KEY, read_blocks

_ALGORITHM = ec.ECDSA(hashes.SHA256())


class Domain(StrEnum):
    """What a signature is for; its first line."""

    PLAN = "tessera/v1/plan"
    ADDENDUM = "tessera/v1/addendum"
    CONSENT = "tessera/v1/consent"
    FRAGMENT = "tessera/v1/fragment"
    RECEIPT = "tessera/v1/receipt"
    MANIFEST = "tessera/v1/manifest"
    LEDGER_HEAD = "tessera/v1/ledger-head"
    ANSWER = "tessera/v1/answer"
    ROUND = "tessera/v1/round"
    SUM_KEY = "tessera/v1/sum-key"
    PARCEL = "tessera/v1/parcel"
    LINKAGE_EXPORT = "tessera/v1/linkage-export"


def signed_bytes(domain: Domain, payload: bytes) -> bytes:
    """Return the bytes that are signed: the domain line, a line feed, the payload."""
    return domain.encode() + b"\n" + payload


class SignerSource(Protocol):
    """Provides the signing key, which is renewed while a daemon runs."""

    def current_signer(self) -> "Signer":
        """Return the current key. Use one result for both signature and chain."""


class Signer:
    """A party's private key with the certificate chain that says whose it is.

    Args:
        chain: Its certificate first, then those between it and the CA.

    Raises:
        ConfigurationError: If the chain is empty or its first certificate is for another key.
        IdentityError: If the first certificate names no party.
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey, chain: list[x509.Certificate]) -> None:
        if not chain:
            raise ConfigurationError("a signer needs a certificate", hint="name the certificate's PEM file")
        if fingerprint(chain[0].public_key()) != fingerprint(key.public_key()):
            raise ConfigurationError(
                f"the certificate of {describe(chain[0])} is not for the given key",
                hint="name the key and the certificate that were made together",
            )
        self._key = key
        self.chain = tuple(chain)
        """The party's certificate first, then those between it and the CA."""
        self.party: Party = party_of_certificate(chain[0])
        """Who signs."""

    @classmethod
    def load(cls, key_file: Path, certificate_file: Path) -> "Signer":
        """Read a key and its certificate chain from PEM files.

        Raises:
            ConfigurationError: If a file is absent, open to others or of the wrong kind, or the two
                do not belong together.
            IdentityError: If the certificate names no party.
        """
        return cls(load_key(read_private(key_file), key_file), load_chain(certificate_file))

    def current_signer(self) -> Self:
        """Return itself: a key that is never renewed."""
        return self

    @property
    def certificate(self) -> x509.Certificate:
        """The signing party's own certificate."""
        return self.chain[0]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, 64 hexadecimal digits."""
        return fingerprint(self._key.public_key())

    @property
    def chain_pem(self) -> str:
        """The certificate chain as PEM text, as manifests carry it."""
        return chain_pem(self.chain).decode()

    @property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return key_pem(self._key)

    def check_validity(self, at: datetime) -> None:
        """Check that the own certificate is valid at a moment."""
        check_validity(self.certificate, at)

    def sign(self, domain: Domain, payload: bytes) -> bytes:
        """Sign bytes for a purpose; the signature is DER."""
        return self._key.sign(signed_bytes(domain, payload), _ALGORITHM)

    def sign_document(self, domain: Domain, document: Mapping[str, Any]) -> bytes:
        """Sign the canonical bytes of a document; see `sign`."""
        return self.sign(domain, canonical(document))


def verify(certificate: x509.Certificate, domain: Domain, payload: bytes, signature: bytes) -> None:
    """Check a signature.

    Whether the certificate may be believed is another question: `common.trust.identity.verify_chain`.

    Raises:
        IntegrityError: If the signature does not hold.
        IdentityError: If the certificate's key is not a P-256 key.
    """
    try:
        check_key(certificate).verify(signature, signed_bytes(domain, payload), _ALGORITHM)
    except InvalidSignature:
        raise IntegrityError(
            f"the signature of {describe(certificate)} under {domain} does not hold",
            "what was signed has changed, or another key signed it: get it again from where it came from",
            {"domain": str(domain), "fingerprint": fingerprint(certificate.public_key())},
        ) from None


def verify_document(
    certificate: x509.Certificate, domain: Domain, document: Mapping[str, Any], signature: bytes
) -> None:
    """Check a signature over the canonical bytes of a document; see `verify`."""
    verify(certificate, domain, canonical(document), signature)


def load_key(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a P-256 private key."""
    key = load_any_key(pem, path)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigurationError(f"{path} holds no P-256 key", hint="make a P-256 key and enrol it")
    return key


def load_any_key(pem: bytes, path: Path) -> PrivateKeyTypes:
    """Read a private key of whichever kind; see `load_key`."""
    with _naming(path):
        keys = read_blocks(pem, PRIVATE_KEY)
        if len(keys) > 1:
            raise IdentityError(f"holds {len(keys)} private keys", "leave the one that is to be used")
        try:
            return serialization.load_pem_private_key(keys[0].pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            hint = "copy the whole file again, or make a P-256 key and enrol it"
            raise IdentityError("holds a private key that is damaged, or of an unknown kind", hint) from None


def load_chain(path: Path) -> list[x509.Certificate]:
    """Read the certificates of a PEM file, in their order."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", hint="check the path and who may read the file"
        ) from None
    with _naming(path):
        blocks = read_blocks(data, CERTIFICATE)
        try:
            return [load_certificates(ssl.DER_cert_to_PEM_cert(block.der).encode())[0] for block in blocks]
        except IdentityError:
            hint = "copy the whole file again, or have the certificate issued again"
            raise IdentityError("holds a certificate that is damaged, or of an unknown kind", hint) from None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error of a file's content begin with the file."""
    try:
        yield
    except IdentityError as error:
        raise ConfigurationError(f"{path} {error.message}", hint=error.hint) from None


def chain_pem(chain: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as PEM, in the form that every library reads."""
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)
