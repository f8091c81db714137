"""Requests for certificates, answered with a bundle (`common.trust.bundle`).

They are untrusted input: a request only proves that its sender has the key it names.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import IdentityError, IntegrityError, ProtocolError
from common.trust.identity import Party
from common.trust.pem import REQUEST, read_blocks

_LARGEST_REQUEST = 16 * 1024
_AGAIN = "make it again with owner-node enroll request, and copy the file unchanged"


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make a P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as unencrypted PKCS #8 PEM; it belongs in a file of mode 0600 and nowhere else."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A request for a certificate, its signature checked."""

    key: ec.EllipticCurvePublicKey
    """The key that the certificate is for; the sender has its private half."""
    party: Party | None
    """The party that the sender wants to be, if it names one: a wish, not a fact."""


def make_request(key: ec.EllipticCurvePrivateKey, party: Party) -> bytes:
    """Return a PKCS #10 request as PEM."""
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(party.uri)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.add_extension(names, critical=True).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(data: bytes) -> CertificateRequest:
    """Read a request that a stranger sent.

    Raises:
        ProtocolError: If it is none, or unreasonably large.
        IntegrityError: If its signature does not hold.
        IdentityError: If its key is not a P-256 key, or its names are not one SPIFFE ID.
    """
    if len(data) > _LARGEST_REQUEST:
        raise ProtocolError(f"a certificate request of {len(data)} bytes is not accepted", _AGAIN)
    try:
        blocks = read_blocks(data, REQUEST)
    except IdentityError as fault:
        raise ProtocolError(f"the file of the certificate request {fault.message}", _AGAIN) from None
    try:
        if len(blocks) != 1:
            raise ValueError
        request = x509.load_der_x509_csr(blocks[0].der)
        key, holds = request.public_key(), request.is_signature_valid
        uris = _uris(request)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion):
        raise ProtocolError("this is no certificate request, or a damaged one", _AGAIN) from None
    if not holds:
        raise IntegrityError("the signature of the certificate request does not hold", _AGAIN)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("the certificate request is not for a P-256 key", _AGAIN)
    try:
        parties = [Party.parse(uri) for uri in uris]
        if len(parties) > 1:
            raise ValueError
    except ValueError:
        raise IdentityError("the certificate request names something other than one party", _AGAIN) from None
    return CertificateRequest(key, parties[0] if parties else None)


def _uris(request: x509.CertificateSigningRequest) -> list[str]:
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


WARNED_BEFORE = timedelta(days=30)
"""How long before its end a certificate is warned of."""


def expiry_warning(
    whose: str,
    ends: datetime,
    now: datetime,
    warned_before: timedelta = WARNED_BEFORE,
    *,
    how: str = "renew it",
) -> str:
    """Say that a certificate has ended or ends soon; empty if there is time.

    Args:
        warned_before: How long before its end it should have been renewed.
        how: What to do once it has ended.
    """
    if now > ends:
        return f"the certificate of {whose} expired on {ends:%Y-%m-%d}: {how}"
    left = ends - now
    if left >= warned_before:
        return ""
    days = "today" if left.days < 1 else "tomorrow" if left.days < 2 else f"in {left.days} days"
    return f"the certificate of {whose} ends {days}, on {ends:%Y-%m-%d}, and was not renewed yet"
