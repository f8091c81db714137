"""The party that a certificate names, and whether the certificate is valid for it (docs/enrolment.md).

Parties are named by SPIFFE IDs in a URI SAN: `spiffe://TRUST-DOMAIN/owner/ID` and
`spiffe://TRUST-DOMAIN/aggregator/NAME`. A certificate with two URI names, or none, names no party. Nothing
here reads a clock or a file: time and certificates are arguments.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.errors import IdentityError

Purpose = Literal["client", "server"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_TRUST_DOMAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,254}\Z")
_URI = re.compile(r"spiffe://([^/?#]+)/([^/?#]+)/([^/?#]+)\Z")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}\Z")
_USAGE = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}
_USAGE_NAME = {"client": "clientAuth", "server": "serverAuth"}
_RENEWED_BEFORE = timedelta(days=30)


class PartyKind(StrEnum):
    """The two kinds of parties."""

    OWNER = "owner"
    AGGREGATOR = "aggregator"


@dataclass(frozen=True, slots=True)
class Party:
    """A participant of the system, as its certificate names it."""

    kind: PartyKind
    name: str
    """The owner's id or the aggregator's name."""
    trust_domain: str
    """The trust domain that the name belongs to."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", PartyKind(self.kind))
        if not is_name(self.name):
            raise ValueError(f"{self.name!r} is no id: {NAME_RULE}")
        if not _TRUST_DOMAIN.match(self.trust_domain):
            raise ValueError(
                f"{self.trust_domain!r} is no trust domain: lower-case letters, digits, '.', '-', '_'"
            )

    @property
    def uri(self) -> str:
        """The SPIFFE ID."""
        return f"spiffe://{self.trust_domain}/{self.kind}/{self.name}"

    @classmethod
    def parse(cls, uri: str) -> "Party":
        """Read a SPIFFE ID."""
        match = _URI.match(uri)
        if match is None:
            raise ValueError(f"{uri!r} is not spiffe://TRUST-DOMAIN/owner/ID or …/aggregator/NAME")
        trust_domain, kind, name = match.groups()
        return cls(PartyKind(kind), name, trust_domain)


NAME_RULE = "lower-case letters, digits, '.', '-' and '_', at most 64, the first a letter or a digit"


def is_name(text: str) -> bool:
    """Whether a text can be the id of an owner or the name of an aggregator."""
    return _NAME.match(text) is not None


def party_of_certificate(certificate: x509.Certificate) -> Party:
    """Return the party that a certificate names.

    Raises:
        IdentityError: If it has not exactly one URI name, or that is no party's.
    """
    names = _alternative_names(certificate)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    if len(uris) != 1:
        raise IdentityError(
            f"a certificate names {len(uris)} URIs, exactly one SPIFFE ID is needed",
            "have the certificate issued with one URI name, spiffe://TRUST-DOMAIN/owner/ID",
            {"fingerprint": fingerprint(certificate.public_key())},
        )
    try:
        return Party.parse(uris[0])
    except ValueError as error:
        raise IdentityError(
            f"a certificate names no party: {error}",
            "have the certificate issued with one URI name, spiffe://TRUST-DOMAIN/owner/ID",
            {"fingerprint": fingerprint(certificate.public_key())},
        ) from None


def host_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS and IP names of a certificate, which are what a server is recognised by."""
    names = _alternative_names(certificate)
    if names is None:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    except ValueError:
        raise IdentityError(
            "a certificate's names cannot be read", "have the certificate issued again"
        ) from None


def fingerprint(key: PublicKeyTypes) -> str:
    """Return the SHA-256 of a public key's SubjectPublicKeyInfo, 64 lower-case hexadecimal digits.

    It names the key, not the certificate: a renewed certificate over the same key keeps it.
    """
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def spoken(digits: str) -> str:
    """Group a fingerprint by four digits, as two people read it to each other on the telephone."""
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def parse_fingerprint(text: str) -> str:
    """Read a fingerprint as typed by a person: groups, colons and capitals are accepted."""
    digits = re.sub(r"[\s:-]", "", text).lower()
    if not _FINGERPRINT.match(digits):
        raise ValueError("a fingerprint has 64 hexadecimal digits")
    return digits


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read the certificates of a PEM text, which are untrusted input."""
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    # What the library only warns of is as damaged where warnings are errors.
    except (ValueError, x509.InvalidVersion, CryptographyDeprecationWarning):
        raise IdentityError(
            "no certificate can be read from the PEM text", "it begins with -----BEGIN CERTIFICATE-----"
        ) from None
    for certificate in certificates:
        _check_readable(certificate)
    return certificates


def _check_readable(certificate: x509.Certificate) -> None:
    """Read every part of a certificate once: the library reads them late, and would fail anywhere later."""
    try:
        key = certificate.public_key()
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        _ = (certificate.extensions, certificate.subject, certificate.issuer)
        _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
        if certificate.serial_number <= 0:
            raise ValueError
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension):
        raise IdentityError(
            "a certificate is damaged, or its key is of an unknown kind", "have the certificate issued again"
        ) from None


OWNER_RENEWS = "the owner renews it: owner-node enroll renew"
"""How an owner's certificate is renewed from 30 days before its end on, even after it."""


def check_validity(certificate: x509.Certificate, at: datetime) -> None:
    """Check that a certificate is valid at a moment."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if at > ends:
        raise IdentityError(
            f"the certificate of {describe(certificate)} expired on {ends:%Y-%m-%d %H:%M} UTC",
            _renewal_hint(certificate),
        )
    if at < begins:
        raise IdentityError(
            f"the certificate of {describe(certificate)} is not valid before {begins:%Y-%m-%d %H:%M} UTC",
            "compare the clocks of both machines",
        )


def _renewal_hint(certificate: x509.Certificate) -> str:
    """Return how the holder of a certificate renews it."""
    try:
        owner = party_of_certificate(certificate).kind is PartyKind.OWNER
    except IdentityError:
        owner = False
    if owner:
        return OWNER_RENEWS
    return "its holder renews it; an aggregator that is its own authority does so when it starts"


def valid_moment(certificate: x509.Certificate, since: datetime, until: datetime) -> datetime:
    """Return the last moment of a period at which a certificate was valid.

    What was signed during a release is judged so: a key that was renewed meanwhile signed while it was valid.
    """
    moment = max(since, min(until, certificate.not_valid_after_utc))
    check_validity(certificate, moment)
    return moment


def renewal_begins(certificate: x509.Certificate) -> datetime:
    """Return when to renew a certificate: 30 days before its end, or in its last third if that is shorter."""
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - min(_RENEWED_BEFORE, lifetime / 3)


def check_purpose(certificate: x509.Certificate, purpose: Purpose) -> None:
    """Check that a certificate may be used as a client or as a server.

    Raises:
        IdentityError: If its extended key usage does not say so; one without any says nothing.
    """
    try:
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        usages = set()
    if _USAGE[purpose] not in usages:
        raise IdentityError(
            f"the certificate of {describe(certificate)} is not for a {purpose} "
            f"(extended key usage {_USAGE_NAME[purpose]} is missing)",
            "owners use clientAuth certificates, the aggregator a serverAuth certificate",
        )


def check_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """Return a certificate's P-256 key."""
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(
            f"the certificate of {describe(certificate)} has no P-256 key", "make a P-256 key and enrol it"
        )
    return key


def describe(certificate: x509.Certificate) -> str:
    """Say whose certificate it is in a few words: its URI name, else its host names, else its key."""
    names = _alternative_names(certificate)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    return ", ".join(uris or host_names(certificate)) or f"key {fingerprint(certificate.public_key())[:16]}"


def verify_chain(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    ca_certificates: Sequence[x509.Certificate],
    at: datetime,
    purpose: Purpose,
) -> None:
    """Check offline that a certificate was issued under a CA and was valid at a moment.

    Path building, signatures, basic constraints, key usage, path lengths and validity of every
    certificate of the chain are cryptography's X.509 verifier's (RFC 5280); the purpose of the leaf is
    checked here, because that verifier knows host names for servers only.

    Args:
        at: The moment to judge, with a time zone; now, or the manifest's time.
        purpose: What the leaf must be allowed to be.
    """
    check_validity(leaf, at)
    check_purpose(leaf, purpose)
    if not ca_certificates:
        raise IdentityError("there is no CA certificate to check against", "name the CA's PEM file")
    leaf_policy = verification.ExtensionPolicy.permit_all().require_present(
        x509.SubjectAlternativeName, verification.Criticality.AGNOSTIC, None
    )
    ca_policy = verification.ExtensionPolicy.webpki_defaults_ca()
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(ca_certificates)))
        .time(at)
        .extension_policies(ee_policy=leaf_policy, ca_policy=ca_policy)
        .build_client_verifier()
    )
    try:
        verifier.verify(leaf, list(intermediates))
    except verification.VerificationError:
        raise _not_issued(leaf, ca_certificates, at) from None


def _not_issued(
    leaf: x509.Certificate, ca_certificates: Sequence[x509.Certificate], at: datetime
) -> IdentityError:
    """Say why no chain leads to a CA; the library's own words quote whole certificates."""
    expired = [ca for ca in ca_certificates if not ca.not_valid_before_utc <= at <= ca.not_valid_after_utc]
    if len(expired) == len(ca_certificates):
        ends = max(ca.not_valid_after_utc for ca in expired)
        return IdentityError(
            f"no CA certificate is valid at {at:%Y-%m-%d %H:%M} UTC (the last ends {ends:%Y-%m-%d %H:%M})",
            "get the CA's current certificate",
        )
    return IdentityError(
        f"the certificate of {describe(leaf)} was not issued under the given CA",
        "check that both sides use the same CA file, and that the chain holds its intermediate certificates",
        {"ca_fingerprints": [fingerprint(ca.public_key()) for ca in ca_certificates]},
    )
