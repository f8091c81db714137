"""The bundle that answers a request for a certificate.

It is untrusted input, and trusted because the fingerprint of its CA was compared on the telephone.
"""

from dataclasses import dataclass

from cryptography import x509

from common.canonical import canonical, parse_json
from common.errors import ProtocolError
from common.trust.identity import Party, load_certificates

_BUNDLE = "tessera-enrolment-bundle-1"
_LARGEST_BUNDLE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Bundle:
    """The answer of a CA to a request that it has approved."""

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
            ProtocolError: If it is not a bundle, or unreasonably large.
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
                "this is not an enrolment bundle, or it is damaged",
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
