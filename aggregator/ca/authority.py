"""The certificate authority: certificates as docs/enrolment.md states them, for the key of a request.

Owners get clientAuth and a SPIFFE ID alone, aggregators serverAuth, a SPIFFE ID and the hosts that owners
dial.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.errors import ConfigurationError, IdentityError
from common.files import read_private
from common.trust.identity import Party, PartyKind, fingerprint, verify_chain
from common.trust.signing import load_any_key

LIFETIME = timedelta(days=90)
"""How long a certificate is valid."""
BACKDATED = timedelta(minutes=5)
"""How far before its issue a certificate becomes valid: clocks differ."""
_USAGE = {
    PartyKind.OWNER: ExtendedKeyUsageOID.CLIENT_AUTH,
    PartyKind.AGGREGATOR: ExtendedKeyUsageOID.SERVER_AUTH,
}

CaKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage of a CA, or of a party."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def general_name(host: str) -> x509.GeneralName:
    """Return the name of a host as a certificate has it.

    Raises:
        ValueError: If it is neither an IP address nor a name of ASCII letters.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return x509.DNSName(host)
    return x509.IPAddress(address)


class Authority:
    """A CA with its key."""

    def __init__(self, certificate: x509.Certificate, key: CaKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def load(cls, certificates: Sequence[x509.Certificate], key_file: Path) -> "Authority":
        """Read a CA's key, and find its certificate among those that are trusted.

        Raises:
            ConfigurationError: If the key cannot be used, or belongs to none of them.
        """
        key = load_any_key(read_private(key_file), key_file)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ConfigurationError(f"{key_file} holds neither an elliptic-curve nor an RSA key")
        own = fingerprint(key.public_key())
        for certificate in certificates:
            if fingerprint(certificate.public_key()) == own:
                return cls(certificate, key)
        raise ConfigurationError(
            f"{key_file} is the key of none of the CA certificates",
            hint="name the CA's own certificate, and the key that belongs to it",
        )

    def has_issued(self, certificate: x509.Certificate) -> bool:
        """Whether a certificate was issued by this CA, and by its key."""
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError):
            return False
        except Exception:  # noqa: BLE001 - InvalidSignature, and whatever a strange algorithm leads to
            return False
        return True

    def issue(
        self, key: ec.EllipticCurvePublicKey, party: Party, now: datetime, hosts: Sequence[str] = ()
    ) -> x509.Certificate:
        """Issue a certificate.

        Args:
            hosts: DNS names and IP addresses; of an aggregator, and only of one.

        Raises:
            IdentityError: If no party would accept it: the CA has expired, or may not issue certificates.
        """
        names = [x509.UniformResourceIdentifier(party.uri), *map(general_name, hosts)]
        ends = min(now + LIFETIME, self.certificate.not_valid_after_utc)
        certificate = self.build(key, names, [_USAGE[party.kind]], now - BACKDATED, ends)
        verify_chain(
            certificate, (), (self.certificate,), now, "client" if party.kind is PartyKind.OWNER else "server"
        )
        return certificate

    def build(
        self,
        key: ec.EllipticCurvePublicKey,
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
        begins: datetime,
        ends: datetime,
    ) -> x509.Certificate:
        """Sign a certificate of any names and usages; `issue` makes those that are accepted."""
        if ends <= begins:
            raise IdentityError("the CA certificate has expired", "make a new CA and enrol all parties again")
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            # RFC 5280 §4.2.1.6: with an empty subject the alternative names are critical.
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(identifier, critical=False)
        )
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256())
