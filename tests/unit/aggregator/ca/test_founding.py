"""The first files of an aggregator, with a CA of its own or one that exists."""

import os
import stat
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aggregator.ca.authority import Authority
from aggregator.ca.founding import make_first_files
from aggregator.config import load
from common.errors import ConfigurationError, IdentityError, UsageError
from common.trust.credentials import Credentials
from common.trust.identity import Party, PartyKind, fingerprint, host_names, verify_chain
from common.trust.signing import load_chain
from deploy.development_ca import DevelopmentCa

HUB = Party(PartyKind.AGGREGATOR, "hub", "example.org")
# Later than any certificate that a test makes, however long after its import that is.
NOW = datetime.now(UTC) + timedelta(minutes=40)
HOSTS = ("hub.example.org", "127.0.0.1")


@pytest.fixture
def tmp_path():
    """A folder with a short path, which that of a Unix socket in it has to be."""
    with tempfile.TemporaryDirectory(prefix="hub-") as name:
        yield Path(name)


def test_what_is_made_is_used_as_it_is(tmp_path):
    """The configuration reads, the certificate serves, the CA's key is the CA's, and keys are private."""
    made = make_first_files(tmp_path / "hub", HUB, HOSTS, "0.0.0.0:8443", NOW)
    config = load(made.config)
    credentials = Credentials(config.tls, HUB, lambda: NOW)
    assert host_names(credentials.current_signer().certificate) == HOSTS
    verify_chain(made.certificate, (), (made.ca,), NOW, "server")
    assert config.enrolment.ca_key == made.ca_key
    assert made.ca_fingerprint == fingerprint(Authority.load([made.ca], made.ca_key).certificate.public_key())
    for key in (config.tls.key, made.ca_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


def test_nobody_else_can_write_to_what_is_made(tmp_path):
    """A folder that others can write to would let them replace the configuration and the certificates."""
    before = os.umask(0)
    try:
        make_first_files(tmp_path / "hub", HUB, HOSTS, "0.0.0.0:8443", NOW)
    finally:
        os.umask(before)
    made = [tmp_path / "hub", *(tmp_path / "hub").rglob("*")]
    assert len(made) > 5
    assert not any(path.stat().st_mode & 0o022 for path in made)


def test_nothing_is_replaced(tmp_path):
    """A second call, or one beside a file of an earlier life, changes nothing."""
    made = make_first_files(tmp_path, HUB, HOSTS, "0.0.0.0:8443", NOW)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"holds aggregator\.toml, tls/ca\.pem"):
        make_first_files(tmp_path, HUB, HOSTS, "0.0.0.0:8443", NOW)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    made.config.unlink()
    with pytest.raises(UsageError, match="holds tls"):
        make_first_files(tmp_path, HUB, HOSTS, "0.0.0.0:8443", NOW)


@pytest.mark.parametrize("hosts", [(), ("bücher.example",), ("",), ("localhost:8443",), ("*.example",)])
def test_hosts_that_nobody_can_dial(tmp_path, hosts):
    """A certificate without a name to dial would be refused by every owner."""
    with pytest.raises(UsageError):
        make_first_files(tmp_path / "hub", HUB, hosts, "0.0.0.0:8443", NOW)
    assert not (tmp_path / "hub").exists()


def authority_files(folder, key, *, ca: bool = True, days: int = 365):
    """Write a CA of an organisation."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Organisation")])
    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
         "key_agreement", "encipher_only", "decipher_only"), False,
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=400)).not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem, path = folder / "their.pem", folder / "their.key"
    pem.write_bytes(certificate.public_bytes(Encoding.PEM))
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return pem, path


@pytest.mark.parametrize("kind", ["P-384", "RSA"])
def test_a_ca_that_exists(tmp_path, kind):
    """An organisation's CA issues, whatever kind of key it has; its key is used where it is, not copied."""
    key = (
        ec.generate_private_key(ec.SECP384R1()) if kind == "P-384" else rsa.generate_private_key(65537, 2048)
    )
    files = authority_files(tmp_path, key)
    made = make_first_files(tmp_path / "hub", HUB, HOSTS, "0.0.0.0:8443", NOW, files)
    assert load(made.config).enrolment.ca_key == files[1]
    assert load_chain(tmp_path / "hub" / "tls" / "ca.pem") == load_chain(files[0])
    assert not (tmp_path / "hub" / "tls" / "ca.key").exists()
    verify_chain(made.certificate, (), (made.ca,), NOW, "server")


def test_a_ca_that_cannot_be_one(tmp_path):
    """One that may not issue, an expired one, and a key of another are refused before anything is made."""
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(IdentityError):
        make_first_files(tmp_path / "hub", HUB, HOSTS, "x:1", NOW, authority_files(tmp_path, key, ca=False))
    with pytest.raises(IdentityError):
        make_first_files(tmp_path / "hub", HUB, HOSTS, "x:1", NOW, authority_files(tmp_path, key, days=-1))
    certificate, _ = authority_files(tmp_path, key)
    _, other = DevelopmentCa("example.org").issued.write(tmp_path, "other")
    with pytest.raises(ConfigurationError, match="the key of none"):
        make_first_files(tmp_path / "hub", HUB, HOSTS, "x:1", NOW, (certificate, other))
    assert not (tmp_path / "hub").exists()
