"""Signatures hold for exactly one key, one purpose and one content; key files are private."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ConfigurationError, IdentityError, IntegrityError
from common.trust.identity import load_certificates
from common.trust.signing import Domain, Signer, load_chain, verify, verify_document
from deploy.development_ca import DevelopmentCa

AUTHORITY = DevelopmentCa("tests.example")
ISSUED = AUTHORITY.owner("a")
SIGNER = Signer(ISSUED.key, [ISSUED.certificate])


@given(st.binary(max_size=200), st.sampled_from(Domain), st.sampled_from(Domain))
def test_domains_separate(payload: bytes, signed_for: Domain, shown_as: Domain) -> None:
    """A signature made for one purpose does not hold for another."""
    signature = SIGNER.sign(signed_for, payload)
    if shown_as is signed_for:
        verify(SIGNER.certificate, shown_as, payload, signature)
    else:
        with pytest.raises(IntegrityError):
            verify(SIGNER.certificate, shown_as, payload, signature)


def test_bytes_that_are_signed() -> None:
    """Anybody with a standard tool can check a signature: domain line, line feed, payload, ECDSA-SHA256."""
    signature = SIGNER.sign_document(Domain.PLAN, {"b": 1, "a": "x"})
    key, signed = ISSUED.key.public_key(), b'tessera/v1/plan\n{"a":"x","b":"1"}'
    key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        key.verify(signature, signed + b"\n", ec.ECDSA(hashes.SHA256()))


@pytest.mark.parametrize("change", ["payload", "signature", "key", "empty"])
def test_what_does_not_hold(change: str) -> None:
    """Another content, signature or key, or none, is an integrity error that names purpose and key."""
    document, certificate = {"release": "r"}, SIGNER.certificate
    signature = SIGNER.sign_document(Domain.CONSENT, document)
    if change == "payload":
        document = {"release": "s"}
    elif change == "signature":
        signature = signature[:-1] + bytes([signature[-1] ^ 1])
    elif change == "key":
        certificate = AUTHORITY.owner("a").certificate
    else:
        signature = b""
    with pytest.raises(IntegrityError) as caught:
        verify_document(certificate, Domain.CONSENT, document, signature)
    assert caught.value.details["domain"] == "tessera/v1/consent"


def test_load(tmp_path: Path) -> None:
    """A signer read from files is the party of its certificate and carries the whole chain."""
    cert, key = ISSUED.write(tmp_path, "owner")
    cert.write_bytes(cert.read_bytes() + AUTHORITY.issued.certificate_pem)
    signer = Signer.load(key, cert)
    assert signer.party.name == "a"
    assert signer.fingerprint == SIGNER.fingerprint
    assert load_certificates(signer.chain_pem.encode()) == [ISSUED.certificate, AUTHORITY.certificate]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_key_open_to_others(tmp_path: Path, mode: int) -> None:
    """A key that group or others could use is refused, with the command that closes it."""
    cert, key = ISSUED.write(tmp_path, "owner")
    key.chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        Signer.load(key, cert)
    assert caught.value.hint == f"close it: chmod 600 {key}"


def test_key_and_certificate_belong_together(tmp_path: Path) -> None:
    """A certificate for another key is found when it is loaded, not when a signature fails elsewhere."""
    cert, _ = ISSUED.write(tmp_path, "owner")
    _, other = AUTHORITY.owner("a").write(tmp_path, "other")
    with pytest.raises(ConfigurationError, match="not for the given key"):
        Signer.load(other, cert)
    with pytest.raises(ConfigurationError, match="needs a certificate"):
        Signer(ISSUED.key, [])


def test_absent_files(tmp_path: Path) -> None:
    """An absent file is named, key or certificate."""
    cert, key = ISSUED.write(tmp_path, "owner")
    for key_file, cert_file in ((tmp_path / "absent", cert), (key, tmp_path / "absent")):
        with pytest.raises(ConfigurationError, match="absent cannot be read"):
            Signer.load(key_file, cert_file)
    with pytest.raises(ConfigurationError, match="no certificate"):
        load_chain(key)


def test_own_expiry() -> None:
    """A signer knows when its own certificate has ended."""
    SIGNER.check_validity(datetime.now(UTC))
    with pytest.raises(IdentityError, match="expired"):
        SIGNER.check_validity(datetime.now(UTC) + timedelta(days=91))
