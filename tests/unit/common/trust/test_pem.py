"""PEM files in every form that people have them in: read, or refused for what they are."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, pkcs7, pkcs12

from common.errors import ConfigurationError, ProtocolError
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.enrolment import make_request, read_request
from common.trust.identity import Party, PartyKind
from deploy.development_ca import DevelopmentCa

CA, OTHER_CA = DevelopmentCa("example.org"), DevelopmentCa("example.org")
OWNER = CA.owner("north")
REQUEST = make_request(OWNER.key, Party(PartyKind.OWNER, "north", "example.org"))
KEY_PEM, CERTIFICATE_PEM, CA_PEM = OWNER.key_pem, OWNER.certificate_pem, CA.issued.certificate_pem


def changed(change: Callable[[str], str], encoding: str = "utf-8") -> Callable[[bytes], bytes]:
    """Return a change of bytes."""
    return lambda pem: change(pem.decode()).encode(encoding)


def traditional(pem: bytes) -> bytes:
    """Return a private key in the form of older programs, with parameters before it; others as they are."""
    if b"PRIVATE KEY" not in pem:
        return pem
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    key = serialization.load_pem_private_key(pem, None)
    return parameters + key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def joined_lines(text: str) -> str:
    """Return every block with all its digits in one line."""
    return re.sub(r"(?<=[^-])\n(?=[^-])", "", text)


READ = {
    "as it is": lambda pem: pem,
    "byte order mark": changed(lambda text: text, "utf-8-sig"),
    "CRLF": changed(lambda text: text.replace("\n", "\r\n")),
    "CR": changed(lambda text: text.replace("\n", "\r")),
    "mark and CRLF": changed(lambda text: text.replace("\n", "\r\n"), "utf-8-sig"),
    "indented": changed(lambda text: textwrap.indent(text, "    ")),
    "tabs": changed(lambda text: textwrap.indent(text, "\t")),
    "trailing blanks": changed(lambda text: text.replace("\n", " \n")),
    "blank lines": changed(lambda text: text.replace("\n", "\n\n")),
    "UTF-16 LE": changed(lambda text: "\ufeff" + text, "utf-16-le"),
    "UTF-16 BE": changed(lambda text: "\ufeff" + text, "utf-16-be"),
    "no last line break": bytes.rstrip,
    "line breaks as two characters": changed(lambda text: text.replace("\n", "\\n")),
    "one long line": changed(joined_lines),
    "text around": changed(lambda text: f"Bag Attributes\n  name: ä\n{text}# end\n"),
    "text around, latin-1": changed(lambda text: f"Schlüssel\n{text}", "latin-1"),
    "older labels": changed(
        lambda text: (
            text.replace("N CERTIFICATE-", "N X509 CERTIFICATE-")
            .replace("D CERTIFICATE-", "D X509 CERTIFICATE-")
            .replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")
        )
    ),
    "traditional key": traditional,
    "key and certificate": lambda pem: pem + (CERTIFICATE_PEM if b"PRIVATE" in pem else b""),
    "certificate and key": lambda pem: (CERTIFICATE_PEM if b"PRIVATE" in pem else b"") + pem,
}


def written(folder: Path, **content: bytes) -> TlsSection:
    """Write the files of `[tls]`."""
    for name, usual in (("ca", CA_PEM), ("cert", CERTIFICATE_PEM), ("key", KEY_PEM)):
        path = folder / name
        path.touch(0o600)
        path.write_bytes(content.get(name, usual))
    return TlsSection(folder / "ca", folder / "cert", folder / "key")


def usual(folder: Path) -> Identity:
    """Return what is read of files as this program writes them."""
    return read_identity(written(folder))


@pytest.mark.parametrize("form", READ)
def test_forms_that_are_read(tmp_path, form):
    """TLS gets the same bytes, whatever the form of all three files; so does who approves a request."""
    expected = usual(tmp_path)
    change = READ[form]
    read = read_identity(
        written(tmp_path, ca=change(CA_PEM), cert=change(CERTIFICATE_PEM), key=change(KEY_PEM))
    )
    assert read.files == expected.files
    assert read_request(change(REQUEST)).party == expected.signer.party


@pytest.mark.parametrize("between", [b"", b"\n", b"\r\n", b"\n\n# the other one\n", b" "])
def test_two_authorities_in_one_file(tmp_path, between):
    """`cat a.pem b.pem`, where the first has no line break at its end."""
    both = CA_PEM.rstrip() + between + OTHER_CA.issued.certificate_pem
    read = read_identity(written(tmp_path, ca=both))
    assert len(read.authorities) == 2
    assert read.ca_pem == CA_PEM + OTHER_CA.issued.certificate_pem


def test_key_and_certificate_may_be_one_file(tmp_path):
    """The key goes to nobody: what is sent and trusted are the certificates alone."""
    one = written(tmp_path, key=KEY_PEM + CERTIFICATE_PEM).key
    read = read_identity(TlsSection(tmp_path / "ca", one, one))
    assert b"PRIVATE" not in read.chain_pem
    assert read.files == usual(tmp_path).files


LEAF = x509.load_pem_x509_certificate(CERTIFICATE_PEM)
PASSPHRASE = serialization.BestAvailableEncryption(b"Geheim7")
PKCS12 = pkcs12.serialize_key_and_certificates(b"n", OWNER.key, LEAF, None, PASSPHRASE)
PUBLIC = OWNER.key.public_key().public_bytes(Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


TRUSTED = CERTIFICATE_PEM.replace(b" CERTIFICATE-", b" TRUSTED CERTIFICATE-")


def key_as(form: PrivateFormat, encryption=None, encoding=Encoding.PEM, key=OWNER.key) -> bytes:
    """Return a key in another form."""
    return key.private_bytes(encoding, form, encryption or serialization.NoEncryption())


CERTIFICATE_FAULTS = {
    "empty": (b"", "is empty"),
    "white space": (b" \r\n", "is empty"),
    "no PEM": (b"<html>sign in</html>", "holds no certificate"),
    "four dashes": (CERTIFICATE_PEM.replace(b"-----", b"----"), "holds no certificate"),
    "dashes of a word processor": (
        CERTIFICATE_PEM.decode().replace("-----", "\u2014\u2014-").encode(), "holds no certificate",
    ),
    "DER": (LEAF.public_bytes(Encoding.DER), r"is binary \(DER or PKCS #12\), not PEM"),
    "PKCS #12": (PKCS12, r"is binary \(DER or PKCS #12\), not PEM"),
    "PKCS #7": (pkcs7.serialize_certificates([LEAF], Encoding.PEM), "holds a block 'PKCS7'"),
    "trusted": (TRUSTED, "holds a block 'TRUSTED CERTIFICATE'"),
    "a trusted one beside": (CERTIFICATE_PEM + TRUSTED, "holds a block 'TRUSTED CERTIFICATE'"),
    "UTF-16 without a mark": (CERTIFICATE_PEM.decode().encode("utf-16-le"), "is UTF-16 without a byte"),
    "key": (KEY_PEM, "holds a private key, and no certificate"),
    "encrypted key": (key_as(PrivateFormat.PKCS8, PASSPHRASE), "holds a private key, and no certificate"),
    "request": (REQUEST, "holds a certificate request, and no certificate"),
    "public key": (PUBLIC, "holds public key, and no certificate"),
    "cut off": (CERTIFICATE_PEM[:200], "a line -----END CERTIFICATE----- is missing"),
    "second one cut off": (CERTIFICATE_PEM + CA_PEM[:200], "a line -----END CERTIFICATE----- is missing"),
    "first one cut off": (CERTIFICATE_PEM[:200] + CA_PEM, "a line -----END CERTIFICATE----- is missing"),
    "beginning missing": (CERTIFICATE_PEM[40:], "a line -----BEGIN CERTIFICATE----- is missing"),
    "no base64": (CERTIFICATE_PEM.replace(b"MII", b"M!I"), "certificate 1 of 1 is no base64"),
    "a digit missing": (CA_PEM + CERTIFICATE_PEM.replace(b"MII", b"MI"), "certificate 2 of 2 is no base64"),
    "changed": (CERTIFICATE_PEM.replace(b"MII", b"AAA"), "holds a certificate that is damaged"),
}  # fmt: skip

KEY_FAULTS = {
    "empty": (b"", "is empty"),
    "no PEM": (b"Geheim7", "holds no private key"),
    "DER": (key_as(PrivateFormat.PKCS8, encoding=Encoding.DER), r"is binary \(DER or PKCS #12\), not PEM"),
    "DER, traditional": (key_as(PrivateFormat.TraditionalOpenSSL, encoding=Encoding.DER), "is binary"),
    "PKCS #12": (PKCS12, "is binary"),
    "encrypted": (key_as(PrivateFormat.PKCS8, PASSPHRASE), "encrypted with a passphrase"),
    "encrypted, traditional": (
        key_as(PrivateFormat.TraditionalOpenSSL, PASSPHRASE), "encrypted with a passphrase",
    ),
    "encrypted, with a mark": (
        b"\xef\xbb\xbf" + key_as(PrivateFormat.PKCS8, PASSPHRASE), "encrypted with a passphrase",
    ),
    "OpenSSH": (key_as(PrivateFormat.OpenSSH), "holds a block 'OPENSSH PRIVATE KEY'"),
    "certificate": (CERTIFICATE_PEM, "holds a certificate, and no private key"),
    "public key": (PUBLIC, "holds public key, and no private key"),
    "two keys": (KEY_PEM + DevelopmentCa("x.org").issued.key_pem, "holds 2 private keys"),
    "UTF-16 without a mark": (KEY_PEM.decode().encode("utf-16-le"), "is UTF-16 without a byte order mark"),
    "cut off": (KEY_PEM[:100], "a line -----END PRIVATE KEY----- is missing"),
    "changed": (KEY_PEM.replace(b"MI", b"AA"), "private key that is damaged"),
    "another kind": (key_as(PrivateFormat.PKCS8, key=ed25519.Ed25519PrivateKey.generate()), "holds no P-256"),
    "another curve": (key_as(PrivateFormat.PKCS8, key=ec.generate_private_key(ec.SECP384R1())), "no P-256"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, each) for name in ("ca", "cert") for each in CERTIFICATE_FAULTS]
    + [("key", each) for each in KEY_FAULTS],
)
def test_forms_that_are_refused(tmp_path, name, fault):
    """The file is named, and what is wrong with it; nothing of what it holds is shown."""
    content, says = (KEY_FAULTS if name == "key" else CERTIFICATE_FAULTS)[fault]
    tls = written(tmp_path, **{name: content})
    with pytest.raises(ConfigurationError, match=f"/{name} .*{says}") as caught:
        read_identity(tls)
    assert caught.value.hint
    assert "Geheim7" not in str(caught.value)
    assert KEY_PEM.splitlines()[1].decode()[:20] not in f"{caught.value}{caught.value.hint}"


REQUEST_FAULTS = {
    "empty": b"",
    "certificate": CERTIFICATE_PEM,
    "two": REQUEST + REQUEST,
    "cut off": REQUEST[:100],
    "DER": x509.load_pem_x509_csr(REQUEST).public_bytes(Encoding.DER),
    "changed": REQUEST.replace(b"MI", b"AA"),
}


@pytest.mark.parametrize("fault", REQUEST_FAULTS)
def test_requests_that_are_refused(fault):
    """They are a stranger's, and no fault of the configuration."""
    with pytest.raises(ProtocolError, match="certificate request"):
        read_request(REQUEST_FAULTS[fault])
