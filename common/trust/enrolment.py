"""The files that an owner and the CA exchange: a request for a certificate, and the bundle in answer.

Both are untrusted input. A request only proves that its sender has the key it names. A bundle is trusted
because the fingerprint of its CA was compared on the telephone.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from common.canonical import canonical, parse_json
from common.errors import IdentityError, IntegrityError, ProtocolError
from common.trust.identity import Party, load_certificates
from common.trust.pem import REQUEST, read_blocks

_BUNDLE = "tessera-enrolment-bundle-1"
_LARGEST_REQUEST = 16 * 1024
_LARGEST_BUNDLE = 64 * 1024
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


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a CA answers to a request that it has approved."""

    party: Party
    chain_pem: str
    """The certificate chain, the party's own first."""
    ca_pem: str
    """The CA's own certificate."""

    def to_bytes(self) -> bytes:
        """Return the file: canonical JSON and a line feed."""
        document = {
            "kind": _BUNDLE,
            "party": self.party.uri,
            "certificates": self.chain_pem,
            "ca": self.ca_pem,
        }
        return canonical(document) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Bundle":
        """Read a bundle; what its certificates are worth is judged by who installs it.

        Raises:
            ProtocolError: If it is none, or unreasonably large.
            IdentityError: If a certificate in it cannot be read.
        """
        try:
            if len(data) > _LARGEST_BUNDLE:
                raise ValueError
            document = parse_json(data)
            if set(document) != {"kind", "party", "certificates", "ca"} or document["kind"] != _BUNDLE:
                raise ValueError
            texts = [document["certificates"], document["ca"]]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError
            bundle = cls(Party.parse(document["party"]), *texts)
        except (ValueError, TypeError):
            raise ProtocolError(
                "this is no enrolment bundle, or a damaged one",
                "use the file that aggregator enroll approve wrote, unchanged",
            ) from None
        bundle.chain()
        bundle.authority()
        return bundle

    def chain(self) -> list[x509.Certificate]:
        """Return the certificate chain."""
        return load_certificates(self.chain_pem.encode())

    def authority(self) -> x509.Certificate:
        """Return the CA's certificate."""
        certificates = load_certificates(self.ca_pem.encode())
        if len(certificates) != 1:
            raise ProtocolError(
                f"an enrolment bundle has one CA certificate, this one has {len(certificates)}"
            )
        return certificates[0]


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
