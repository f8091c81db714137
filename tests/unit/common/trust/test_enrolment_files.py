"""Requests and bundles as strangers send them."""

import base64
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from common.errors import IdentityError, IntegrityError, ProtocolError
from common.trust.bundle import Bundle
from common.trust.enrolment import make_request, new_key, read_request
from common.trust.identity import Party, PartyKind, fingerprint
from deploy.development_ca import DevelopmentCa

NORTH = Party(PartyKind.OWNER, "north", "example.org")


def test_a_request_says_key_and_name():
    """What the CA reads is the key that the owner made, and the name it asks for."""
    key = new_key()
    read = read_request(make_request(key, NORTH))
    assert fingerprint(read.key) == fingerprint(key.public_key())
    assert read.party == NORTH


def signed(key, *names: x509.GeneralName) -> bytes:
    """Return a request of any key and names."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_a_request_may_leave_the_name_to_the_operator():
    """A request of another program names nobody; the operator does."""
    assert read_request(signed(new_key())).party is None


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())],
    ids=["RSA", "P-384"],
)
def test_a_key_of_another_kind(key):
    """Nobody is enrolled with a key that nobody else would accept."""
    with pytest.raises(IdentityError, match="not for a P-256 key"):
        read_request(signed(key))


@pytest.mark.parametrize(
    "names",
    [
        ["https://example.org/north"],
        ["spiffe://example.org/owner/north", "spiffe://example.org/owner/south"],
        ["spiffe://example.org/owner/../x"],
    ],
)
def test_names_that_name_no_party(names):
    """A request that asks for something strange is refused, not corrected."""
    with pytest.raises(IdentityError, match="something other than one party"):
        read_request(signed(new_key(), *map(x509.UniformResourceIdentifier, names)))


def test_a_request_that_was_changed():
    """No changed byte gets another key or name through: it no longer reads, or its signature fails."""
    key = new_key()
    pem = make_request(key, NORTH)
    der = x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER)
    refused = 0
    for position in range(len(der)):
        changed = bytearray(der)
        changed[position] ^= 1
        body = base64.encodebytes(bytes(changed)).decode()
        text = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
        try:
            read = read_request(text.encode())
        except (ProtocolError, IntegrityError, IdentityError):
            refused += 1
        else:
            assert (read.key, read.party) == (key.public_key(), NORTH)
    assert refused > len(der) - 5


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 100, b"x" * 20_000, "two", "certificate", b"-----BEGIN CERTIFICATE REQUEST-----\n!!\n"],
    ids=["empty", "binary", "large", "two", "certificate", "half"],
)
def test_what_is_no_request(data):
    """Whatever else is in the file is told as such."""
    if data == "two":
        data = make_request(new_key(), NORTH) * 2
    elif data == "certificate":
        data = DevelopmentCa("example.org").owner("north").certificate_pem
    with pytest.raises(ProtocolError):
        read_request(data)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """A bundle as the CA makes it."""
    ca = DevelopmentCa("example.org")
    certificate = ca.owner("north").certificate_pem.decode()
    return Bundle(NORTH, certificate, ca.issued.certificate_pem.decode())


def test_a_bundle_reads_as_it_was_written(bundle):
    """File and object are the same thing."""
    assert Bundle.from_bytes(bundle.to_bytes()) == bundle


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("ca"),
        lambda document: document.update(more="x"),
        lambda document: document.update(kind="other"),
        lambda document: document.update(party="north"),
        lambda document: document.update(certificates=7),
        lambda document: document.update(certificates="none"),
        lambda document: document.update(ca=document["ca"] * 2),
        lambda document: document.update(ca="x" * 70_000),
    ],
)
def test_a_bundle_of_another_form(bundle, change):
    """A bundle that is not exactly one is refused in words."""
    document = json.loads(bundle.to_bytes())
    change(document)
    with pytest.raises((ProtocolError, IdentityError)):
        Bundle.from_bytes(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"[" * 50_000, b"\xff\xfe"])
def test_what_is_no_bundle(data):
    """Neither garbage nor depth gets further than the first line."""
    with pytest.raises(ProtocolError, match="not an enrolment bundle"):
        Bundle.from_bytes(data)
