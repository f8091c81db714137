"""A certificate authority for development and demonstrations, never for real data.

It makes certificates to the letter of DESIGN §8: P-256 keys; aggregators get serverAuth, their DNS and IP
names and a SPIFFE ID; owners get clientAuth and a SPIFFE ID alone. All private keys, the CA's included,
end up in one folder, which is exactly what a real deployment must not do: there, keys are made where they
are used and certificates come by enrolment or from the organisation's own CA.

    python -m deploy.development_ca --out DIR --trust-domain D --aggregator NAME --san localhost \
        --san 127.0.0.1 --owner a --owner b
"""

import argparse
import ipaddress
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.durable import private_directory, write_atomic
from common.errors import TesseraError, UsageError
from common.identity import Party, PartyKind, fingerprint, spoken

CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER_AUTH = ExtendedKeyUsageOID.SERVER_AUTH
_BACKDATED = timedelta(minutes=5)
_WARNING = "These keys and certificates are for development and demonstrations only."


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    """The certificate."""
    key: ec.EllipticCurvePrivateKey
    """Its private key."""

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write `name.pem` and `name.key` (0600); returns their paths."""
        certificate_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
        write_atomic(key_file, self.key_pem)
        write_atomic(certificate_file, self.certificate_pem, mode=0o644)
        return certificate_file, key_file


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class DevelopmentCa:
    """A CA that lives in memory until it is written.

    Args:
        trust_domain: The trust domain of every certificate it issues.
        not_before: Start of the CA certificate's validity; default five minutes ago.
        not_after: Its end; default ten years from now.
    """

    def __init__(
        self, trust_domain: str, not_before: datetime | None = None, not_after: datetime | None = None
    ) -> None:
        now = datetime.now(UTC)
        self.trust_domain = trust_domain
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{trust_domain} development CA")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before or now - _BACKDATED)
            .not_valid_after(not_after or now + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        self.issued = Issued(builder.sign(key, hashes.SHA256()), key)

    @property
    def certificate(self) -> x509.Certificate:
        """The CA's certificate."""
        return self.issued.certificate

    def owner(
        self,
        owner_id: str,
        *,
        hosts: Sequence[str] = (),
        usages: Sequence[x509.ObjectIdentifier] = (CLIENT_AUTH,),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Issued:
        """Issue an owner's certificate: clientAuth, URI name only; see `issue` for what tests may change."""
        party = Party(PartyKind.OWNER, owner_id, self.trust_domain)
        return self.issue(party.uri, hosts=hosts, usages=usages, not_before=not_before, not_after=not_after)

    def aggregator(
        self,
        name: str,
        hosts: Sequence[str],
        *,
        usages: Sequence[x509.ObjectIdentifier] = (SERVER_AUTH,),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Issued:
        """Issue an aggregator's certificate: serverAuth, URI, DNS and IP names; see `issue`."""
        party = Party(PartyKind.AGGREGATOR, name, self.trust_domain)
        return self.issue(party.uri, hosts=hosts, usages=usages, not_before=not_before, not_after=not_after)

    def issue(
        self,
        *uris: str,
        hosts: Sequence[str],
        usages: Sequence[x509.ObjectIdentifier],
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Issued:
        """Issue a certificate with a new key.

        Args:
            uris: URI names.
            hosts: DNS names and IP addresses.
            usages: Extended key usages; none leaves the extension out.
            not_before: Start of validity; default five minutes ago.
            not_after: End of validity; default 90 days from now.

        Returns:
            The certificate and its key.
        """
        now = datetime.now(UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.UniformResourceIdentifier, uris), *map(_general_name, hosts)]
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.issued.key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before or now - _BACKDATED)
            .not_valid_after(not_after or now + timedelta(days=90))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            # RFC 5280 §4.2.1.6: with an empty subject the alternative names are critical.
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(authority, critical=False)
        )
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return Issued(builder.sign(self.issued.key, hashes.SHA256()), key)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a CA and its certificates in a folder."""
    parser = argparse.ArgumentParser(prog="python -m deploy.development_ca", description=_WARNING)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files, made 0700")
    parser.add_argument("--trust-domain", required=True)
    parser.add_argument("--aggregator", required=True, help="the aggregator's name")
    parser.add_argument("--san", action="append", default=[], help="host name or address that owners dial")
    parser.add_argument("--owner", action="append", default=[], help="an owner's id; repeatable")
    parser.add_argument("--days", type=int, default=90, help="validity of the certificates (default: 90)")
    options = parser.parse_args(arguments)
    try:
        _make(options)
    except (TesseraError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _make(options: argparse.Namespace) -> None:
    """Issue everything first, then write, so that a wrong id leaves no half-made folder."""
    if not options.san:
        raise UsageError("the aggregator's certificate needs at least one --san")
    authority = DevelopmentCa(options.trust_domain)
    until = datetime.now(UTC) + timedelta(days=options.days)
    made = {"aggregator": authority.aggregator(options.aggregator, options.san, not_after=until)}
    made |= {f"owner-{each}": authority.owner(each, not_after=until) for each in options.owner}
    directory = private_directory(options.out)
    authority.issued.write(directory, "ca")
    print(_WARNING)
    for name, issued in made.items():
        certificate_file, _ = issued.write(directory, name)
        print(f"{certificate_file}  {spoken(fingerprint(issued.certificate.public_key()))}")


if __name__ == "__main__":
    sys.exit(main())
