"""Enrolment of an owner: a certificate request for a key generated here, and installation of the CA's bundle.

The security of the bundle depends on one thing: that a person heard the fingerprint of its CA from the
aggregator's operator by telephone.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from common.clock import utc_now
from common.errors import ConfigurationError, IntegrityError, TesseraError, UsageError
from common.files import private_directory, read_private, write_atomic
from common.trust.bundle import Bundle
from common.trust.credentials import requested_key, switch_pair
from common.trust.enrolment import key_pem, make_request, new_key
from common.trust.identity import fingerprint, parse_fingerprint
from common.trust.signing import chain_pem, load_chain, load_key
from owner_node.config import OwnerConfig
from owner_node.connection.command_client import connected_client
from owner_node.connection.credentials import Renewal, check_issued, own_credentials, own_party

_PUBLIC_FILE = 0o644


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed certificate."""

    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...]
    """The CAs that are trusted from now on."""


def request(config: OwnerConfig, *, anew: bool) -> tuple[bytes, str]:
    """Return a request for a certificate.

    The new key is stored beside the present one, if any, which stays in use until the bundle is installed.

    Args:
        anew: Whether to generate a new key even if one waits for its certificate.

    Returns:
        PKCS #10 as PEM, and the fingerprint of its key.

    Raises:
        ConfigurationError: If the key cannot be written or read.
    """
    path = requested_key(config.tls.key)
    if path.exists() and not anew:
        key = load_key(read_private(path), path)
    else:
        key = new_key()
        if not path.parent.exists():
            private_directory(path.parent)
        _write(path, key_pem(key))
    return make_request(key, own_party(config)), fingerprint(key.public_key())


async def renew(config: OwnerConfig) -> x509.Certificate | None:
    """Renew the certificate through an aggregator, as the daemon does before its end.

    Returns:
        The new certificate, in place; None if the present one has expired, so that no aggregator takes it.

    Raises:
        ConfigurationError: If there is no certificate, no aggregator, or a file cannot be written.
        TesseraError: Of the last aggregator that was asked, if none renews it.
    """
    if config.tls.cert.exists() and utc_now() > load_chain(config.tls.cert)[0].not_valid_after_utc:
        return None
    credentials = own_credentials(config, utc_now)
    renewal = Renewal(credentials, config.tls, own_party(config), utc_now)
    refusal: TesseraError = ConfigurationError(
        "no aggregator is configured", hint="add an [[aggregator]] to owner.toml"
    )
    for aggregator in config.aggregators:
        try:
            async with connected_client(config, aggregator, credentials.current) as client:
                await renewal.renew_now(client)
        except TesseraError as error:
            refusal = error
        else:
            return credentials.current.signer.certificate
    raise refusal


def install(
    config: OwnerConfig, data: bytes, ca_fingerprint: str, now: datetime, *, add_ca: bool
) -> Installed:
    """Check a bundle, and install its certificate with the key that was generated for it.

    Args:
        ca_fingerprint: Fingerprint of the CA, as heard by telephone.

    Raises:
        UsageError: If the fingerprint is malformed.
        IntegrityError: If the bundle was made by another CA.
        ProtocolError, IdentityError: If it is damaged, for another key or owner, or not valid.
        ConfigurationError: If other CAs are trusted already, or a file cannot be written.
    """
    bundle = Bundle.from_bytes(data)
    authority = bundle.authority()
    _check_authority(authority, ca_fingerprint)
    chain = bundle.chain()
    key, requested = _key_of(config.tls.key, chain[0])
    pem = chain_pem(chain)
    certificate = check_issued(key.public_key(), pem, own_party(config), (authority,), now)
    authorities = _trust(config.tls.ca, authority, add_ca=add_ca)
    try:
        for folder in {config.tls.cert.parent, config.tls.key.parent}:
            if not folder.exists():
                private_directory(folder)
        switch_pair(config.tls.cert, config.tls.key, pem, key_pem(key))
        if requested:
            requested_key(config.tls.key).unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(config.tls.key, error) from None
    return Installed(certificate, authorities)


def _check_authority(authority: x509.Certificate, heard: str) -> None:
    try:
        expected = parse_fingerprint(heard)
    except ValueError as problem:
        raise UsageError(
            f"--ca-fingerprint: {problem}", "type it as the aggregator's operator reads it"
        ) from None
    actual = fingerprint(authority.public_key())
    if actual != expected:
        raise IntegrityError(
            "the bundle was made by another CA than the one with that fingerprint",
            "do not install it; ask the aggregator's operator for the file, and compare again",
            {"expected": expected, "found": actual},
        )


def _key_of(path: Path, certificate: x509.Certificate) -> tuple[ec.EllipticCurvePrivateKey, bool]:
    """Return the key that a certificate is for, and whether it is the one that waits for it."""
    wanted = fingerprint(certificate.public_key())
    for candidate in (requested_key(path), path):
        if candidate.exists():
            key = load_key(read_private(candidate), candidate)
            if fingerprint(key.public_key()) == wanted:
                return key, candidate != path
    raise IntegrityError(
        "the bundle is for a key that is not here",
        "install the bundle that answers the newest request of this owner",
        {"fingerprint": wanted},
    )


def _trust(path: Path, authority: x509.Certificate, *, add_ca: bool) -> tuple[x509.Certificate, ...]:
    """Write the file of trusted CAs; returns the trusted CAs."""
    known = tuple(load_chain(path)) if path.exists() else ()
    if authority in known:
        return known
    if known and not add_ca:
        names = ", ".join(fingerprint(certificate.public_key())[:16] for certificate in known)
        raise ConfigurationError(
            f"{path} trusts other CAs already ({names})",
            hint=f"add --add-ca to trust this one too; to trust it alone, move {path} away first",
        )
    trusted = (*known, authority)
    if not path.parent.exists():
        private_directory(path.parent)
    _write(path, chain_pem(trusted), _PUBLIC_FILE)
    return trusted


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    try:
        write_atomic(path, data, mode)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be written: {error.strerror}",
        hint="check [tls] in owner.toml, and the owner of the folder",
    )
