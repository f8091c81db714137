"""A certificate authority for development and demonstrations, never for real data.

Its certificates are those of docs/enrolment.md: P-256 keys; aggregators get serverAuth, their DNS and IP
names and a SPIFFE ID; owners get clientAuth and only a SPIFFE ID. All private keys, including the CA's, are
written to one folder, which a real deployment must never do: there, keys are generated where they are used,
and certificates come by enrolment or from the organisation's own CA.

    python -m deploy.development_ca --out DIR --trust-domain D --aggregator NAME --san localhost \
        --san 127.0.0.1 --owner a --owner b
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from aggregator.ca.authority import BACKDATED, LIFETIME, Authority, general_name
from aggregator.ca.founding import CA_LIFETIME, make_ca
from common.errors import TesseraError, UsageError
from common.files import private_directory, write_atomic
from common.trust.enrolment import key_pem, new_key
from common.trust.identity import Party, PartyKind, fingerprint, spoken

CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER_AUTH = ExtendedKeyUsageOID.SERVER_AUTH
_WARNING = "These keys and certificates are for development and demonstrations only."


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return key_pem(self.key)

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write `name.pem` and `name.key` (0600); returns their paths."""
        certificate_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
        write_atomic(key_file, self.key_pem)
        write_atomic(certificate_file, self.certificate_pem, mode=0o644)
        return certificate_file, key_file


class DevelopmentCa:
    """A CA that lives in memory until it is written.

    Args:
        not_before: Start of the CA certificate's validity; default five minutes ago.
        not_after: Its end; default ten years from now.
    """

    def __init__(
        self, trust_domain: str, not_before: datetime | None = None, not_after: datetime | None = None
    ) -> None:
        now = datetime.now(UTC)
        self.trust_domain = trust_domain
        begins, ends = not_before or now - BACKDATED, not_after or now + CA_LIFETIME
        certificate, key = make_ca(f"{trust_domain} development CA", begins, ends)
        self.issued = Issued(certificate, key)
        self._authority = Authority(certificate, key)

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
            usages: Extended key usages; none leaves the extension out.
            not_before: Start of validity; default five minutes ago.
            not_after: End of validity; default 90 days from now.
        """
        now, key = datetime.now(UTC), new_key()
        names = [*map(x509.UniformResourceIdentifier, uris), *map(general_name, hosts)]
        begins, ends = not_before or now - BACKDATED, not_after or now + LIFETIME
        certificate = self._authority.build(key.public_key(), names, usages, begins, ends)
        return Issued(certificate, key)


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
    """Issue everything first, then write, so that an invalid id leaves no partial folder."""
    if not options.san:
        raise UsageError("the aggregator's certificate needs at least one --san")
    authority = DevelopmentCa(options.trust_domain)
    until = datetime.now(UTC) + timedelta(days=options.days)
    made = {"aggregator": authority.aggregator(options.aggregator, options.san, not_after=until)}
    made |= {f"owner-{owner}": authority.owner(owner, not_after=until) for owner in options.owner}
    directory = private_directory(options.out)
    authority.issued.write(directory, "ca")
    print(_WARNING)
    for name, issued in made.items():
        certificate_file, _ = issued.write(directory, name)
        print(f"{certificate_file}  {spoken(fingerprint(issued.certificate.public_key()))}")


if __name__ == "__main__":
    sys.exit(main())
