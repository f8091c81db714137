"""The first files of an aggregator: a CA, a key and certificate, and a commented configuration."""

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from aggregator.ca.authority import BACKDATED, Authority, key_usage
from common.errors import ConfigurationError, UsageError
from common.files import RELEASE_DIRECTORY, private_directory, write_atomic
from common.trust.enrolment import key_pem, new_key
from common.trust.identity import Party, fingerprint
from common.trust.signing import load_chain

CONFIG_FILE = "aggregator.toml"
_PUBLIC_FILE = 0o644
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?")
_CONFIG = """\
# Made by aggregator init. Paths are relative to the folder of this file; unknown keys are refused.
# Every other option, with its default, in the folder of the installation:
# share/tessera/samples/aggregator.full.toml.

[aggregator]
# Who this is: {uri}
name = {name}
trust_domain = {trust_domain}
# The one port that owners connect to, by one of the names in the certificate: {hosts}
listen = {listen}
# Folder of its database, of the register of certificates, and of uploads under way. Back it up.
state_dir = "state"
# Folder in which every release gets a folder of its own.
release_dir = "releases"

# The aggregator's certificate is valid for 90 days, and renewed in time while the daemon runs.
[tls]
ca = "tls/ca.pem"
cert = "tls/aggregator.pem"
key = "tls/aggregator.key"

[enrolment]
# The CA's private key. Anyone who has it can pose as any party. Keep it here, and a copy in a safe.
# Without it, certificates are neither approved nor renewed here.
ca_key = {ca_key}
# Whether owners' certificates, and the aggregator's own, are renewed over the connections that stand.
auto_renew = true
"""


@dataclass(frozen=True, slots=True)
class Founded:
    """The first files of an aggregator."""

    config: Path
    party: Party
    ca: x509.Certificate
    certificate: x509.Certificate
    ca_key: Path
    """Where the CA's private key is."""

    @property
    def ca_fingerprint(self) -> str:
        """The fingerprint of the CA's key, which owners are given by telephone."""
        return fingerprint(self.ca.public_key())


def make_first_files(
    folder: Path,
    party: Party,
    hosts: tuple[str, ...],
    listen: str,
    now: datetime,
    own_ca: tuple[Path, Path] | None = None,
) -> Founded:
    """Make an aggregator's first files. No existing file is replaced.

    Args:
        folder: The folder for the files; created if absent.
        hosts: Names and addresses that owners dial.
        own_ca: Certificate and private key of a CA that exists; None makes one.

    Raises:
        UsageError: If a file is there already, or a name cannot be one of a host.
        ConfigurationError: If the CA's files cannot be used.
        IdentityError: If the CA may not issue certificates.
    """
    tls = folder / "tls"
    ca_key = own_ca[1].absolute() if own_ca else tls / "ca.key"
    names = (CONFIG_FILE, "tls/ca.pem", "tls/ca.key", "tls/aggregator.pem", "tls/aggregator.key")
    if there := [name for name in names if (folder / name).exists()]:
        raise UsageError(
            f"{folder} holds {', '.join(there)} already",
            "name an empty folder with --dir; nothing was changed",
        )
    _check_hosts(hosts)
    authority, ca_key_pem = _authority(party.trust_domain, own_ca, now)
    key = new_key()
    certificate = authority.issue(key.public_key(), party, now, hosts)
    try:
        # Whatever the umask: who can write here can replace the configuration.
        folder.mkdir(mode=RELEASE_DIRECTORY, parents=True, exist_ok=True)
        private_directory(tls)
        if ca_key_pem is not None:
            write_atomic(tls / "ca.key", ca_key_pem)
        write_atomic(tls / "ca.pem", authority.certificate.public_bytes(Encoding.PEM), _PUBLIC_FILE)
        write_atomic(tls / "aggregator.key", key_pem(key))
        write_atomic(tls / "aggregator.pem", certificate.public_bytes(Encoding.PEM), _PUBLIC_FILE)
        text = _config(party, hosts, listen, "tls/ca.key" if own_ca is None else str(ca_key))
        write_atomic(folder / CONFIG_FILE, text.encode(), _PUBLIC_FILE)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be written to: {error.strerror}", hint="name another folder with --dir"
        ) from None
    return Founded(folder / CONFIG_FILE, party, authority.certificate, certificate, ca_key)


def _check_hosts(hosts: tuple[str, ...]) -> None:
    if not hosts:
        raise UsageError("owners need a name to dial", "name it with --host; repeat it for several")
    for host in hosts:
        if not _HOST.fullmatch(host) and not _is_address(host):
            raise UsageError(f"{host!r} is no name of a host", "write it as owners dial it, without a port")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _authority(
    trust_domain: str, own_ca: tuple[Path, Path] | None, now: datetime
) -> tuple[Authority, bytes | None]:
    if own_ca is not None:
        return Authority.load(load_chain(own_ca[0]), own_ca[1]), None
    certificate, key = make_ca(f"{trust_domain} CA", now - BACKDATED, now + CA_LIFETIME)
    return Authority(certificate, key), key_pem(key)


def _config(party: Party, hosts: tuple[str, ...], listen: str, ca_key: str) -> str:
    # TOML's basic strings know every escape that JSON writes.
    quoted = {"name": party.name, "trust_domain": party.trust_domain, "listen": listen, "ca_key": ca_key}
    return _CONFIG.format(
        uri=party.uri, hosts=", ".join(hosts), **{key: json.dumps(text) for key, text in quoted.items()}
    )


CA_LIFETIME = timedelta(days=3650)
"""How long a CA is valid."""


def make_ca(
    name: str, begins: datetime, ends: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Make a CA: a P-256 key and its self-signed certificate."""
    key = new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key
