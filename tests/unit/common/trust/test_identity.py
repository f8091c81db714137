"""Who a certificate names, and whether it may: parsing, chains, purposes and times."""

import base64
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from common.errors import IdentityError
from common.trust.identity import (
    Party,
    PartyKind,
    check_key,
    describe,
    fingerprint,
    host_names,
    load_certificates,
    parse_fingerprint,
    party_of_certificate,
    spoken,
    verify_chain,
)
from deploy.development_ca import CLIENT_AUTH, SERVER_AUTH, DevelopmentCa, Issued, main

# Later than any certificate that a test makes, however long after its import that is.
NOW = datetime.now(UTC) + timedelta(minutes=40)
DAY = timedelta(days=1)
AUTHORITY = DevelopmentCa("tests.example")


@pytest.mark.parametrize(
    ("uri", "party"),
    [
        ("spiffe://h.example/owner/a", Party(PartyKind.OWNER, "a", "h.example")),
        ("spiffe://h/aggregator/m-1_x.y", Party(PartyKind.AGGREGATOR, "m-1_x.y", "h")),
        (f"spiffe://h/owner/{'a' * 64}", Party(PartyKind.OWNER, "a" * 64, "h")),
    ],
)
def test_spiffe_ids(uri: str, party: Party) -> None:
    """What is written is what is read."""
    assert Party.parse(uri) == party
    assert party.uri == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "https://h/owner/a",
        "SPIFFE://h/owner/a",
        "spiffe:///owner/a",
        "spiffe://h/owner/",
        "spiffe://h/owner/A",
        "spiffe://h/owner/a/b",
        "spiffe://h/owner/a/",
        "spiffe://h/owner/a\n",
        "spiffe://h/owner/.a",
        "spiffe://h/owner/a%62",
        "spiffe://h/owner/é",
        f"spiffe://h/owner/{'a' * 65}",
        "spiffe://h/operator/a",
        "spiffe://H/owner/a",
        "spiffe://h:443/owner/a",
        "spiffe://u@h/owner/a",
        "spiffe://h/owner/a?x",
        "spiffe://h/owner/a#x",
    ],
)
def test_other_uris(uri: str) -> None:
    """Nothing that only resembles a SPIFFE ID of a party is taken for one."""
    with pytest.raises(ValueError):
        Party.parse(uri)


def test_party_of_certificate() -> None:
    """The development CA names parties as the project reads them."""
    assert party_of_certificate(AUTHORITY.owner("a").certificate).uri == "spiffe://tests.example/owner/a"
    aggregator = AUTHORITY.aggregator("main", ["localhost", "::1"]).certificate
    assert party_of_certificate(aggregator).kind is PartyKind.AGGREGATOR
    assert host_names(aggregator) == ("localhost", "::1")


@pytest.mark.parametrize("uris", [(), ("spiffe://h/owner/a", "spiffe://h/owner/b"), ("https://h/owner/a",)])
def test_one_uri_only(uris: tuple[str, ...]) -> None:
    """A certificate with no URI name, two of them or a foreign one names nobody."""
    issued = AUTHORITY.issue(*uris, hosts=["localhost"], usages=[CLIENT_AUTH])
    with pytest.raises(IdentityError):
        party_of_certificate(issued.certificate)


def test_fingerprints() -> None:
    """A fingerprint is the same read aloud or typed with any grouping; a part of it is none."""
    digits = fingerprint(AUTHORITY.certificate.public_key())
    assert spoken(digits).count(" ") == 15
    assert parse_fingerprint(spoken(digits).upper()) == digits
    assert parse_fingerprint(":".join(digits[i : i + 2] for i in range(0, 64, 2))) == digits
    for wrong in (digits[:-1], digits + "0", "g" * 64, ""):
        with pytest.raises(ValueError):
            parse_fingerprint(wrong)


def test_development_certificates() -> None:
    """Owners get clientAuth and no host names, aggregators serverAuth; P-256 and 90 days for both."""
    owner, aggregator = AUTHORITY.owner("a").certificate, AUTHORITY.aggregator("m", ["localhost"]).certificate
    assert host_names(owner) == ()
    for certificate, usage in ((owner, CLIENT_AUTH), (aggregator, SERVER_AUTH)):
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usages) == [usage]
        assert check_key(certificate).curve.name == "secp256r1"
        assert certificate.not_valid_after_utc - NOW < 90 * DAY + timedelta(minutes=1)


def test_good_chains() -> None:
    """Certificates are accepted for their own purpose, at any moment of their validity."""
    for issued, purpose in (
        (AUTHORITY.owner("a"), "client"),
        (AUTHORITY.aggregator("m", ["localhost"]), "server"),
    ):
        for at in (NOW, NOW + 89 * DAY):
            verify_chain(issued.certificate, [], [AUTHORITY.certificate], at, purpose)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("issue", "at", "says"),
    [
        (lambda: AUTHORITY.owner("a"), NOW + 91 * DAY, "expired on"),
        (lambda: AUTHORITY.owner("a"), NOW - DAY, "not valid before"),
        (lambda: AUTHORITY.aggregator("m", ["localhost"]), NOW, "not for a client"),
        (lambda: AUTHORITY.owner("a", usages=()), NOW, "not for a client"),
        (lambda: DevelopmentCa("tests.example").owner("a"), NOW, "not issued under the given CA"),
    ],
)
def test_bad_chains(issue: Callable[[], Issued], at: datetime, says: str) -> None:
    """Each reason for which a certificate does not count is named."""
    with pytest.raises(IdentityError, match=says):
        verify_chain(issue().certificate, [], [AUTHORITY.certificate], at, "client")


def test_expired_ca() -> None:
    """A CA that is no longer valid vouches for nobody, even if the leaf still is."""
    old = DevelopmentCa("tests.example", NOW - 9 * DAY, NOW - DAY)
    with pytest.raises(IdentityError, match="no CA certificate is valid"):
        verify_chain(old.owner("a").certificate, [], [old.certificate], NOW, "client")


def test_no_ca() -> None:
    """Without a CA nothing is trusted."""
    with pytest.raises(IdentityError, match="no CA certificate"):
        verify_chain(AUTHORITY.owner("a").certificate, [], [], NOW, "client")


def _under(issuer: Issued, *, is_ca: bool, path_length: int | None = None) -> Issued:
    """Issue a certificate under any other, as a CA would or as a thief of an owner's key might."""
    key, uri = ec.generate_private_key(ec.SECP256R1()), "spiffe://tests.example/owner/a"
    own = issuer.certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    usage = (
        own
        if is_ca
        else AUTHORITY.owner("x").certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    )
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "between")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name if is_ca else x509.Name([]))
        .issuer_name(issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(is_ca, path_length), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False
        )
    )
    if is_ca:
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
    else:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
        builder = builder.add_extension(names, critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([CLIENT_AUTH]), critical=False)
    return Issued(builder.sign(issuer.key, hashes.SHA256()), key)


def _root(path_length: int) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    template = AUTHORITY.certificate
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), NOW - DAY, NOW + DAY
    )
    usage = template.extensions.get_extension_for_class(x509.KeyUsage).value
    builder = builder.add_extension(x509.BasicConstraints(True, path_length), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return Issued(builder.sign(key, hashes.SHA256()), key)


def test_intermediate_certificates() -> None:
    """An organisation's own CA may stand between, as far as the root allows it."""
    for path_length, allowed in ((1, True), (0, False)):
        root = _root(path_length)
        between = _under(root, is_ca=True, path_length=0)
        leaf = _under(between, is_ca=False)
        chain = (leaf.certificate, [between.certificate], [root.certificate], NOW, "client")
        if allowed:
            verify_chain(*chain)  # type: ignore[arg-type]
        else:
            with pytest.raises(IdentityError, match="not issued under"):
                verify_chain(*chain)  # type: ignore[arg-type]


def test_owner_is_no_ca() -> None:
    """An owner cannot issue certificates with its own key."""
    owner = AUTHORITY.owner("b")
    forged = _under(owner, is_ca=False)
    with pytest.raises(IdentityError, match="not issued under"):
        verify_chain(forged.certificate, [owner.certificate], [AUTHORITY.certificate], NOW, "client")


def test_other_keys() -> None:
    """Signing takes P-256 keys; others are refused by name."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - DAY, NOW + DAY)
    certificate = builder.sign(key, hashes.SHA256())
    with pytest.raises(IdentityError, match="no P-256 key"):
        check_key(certificate)
    assert describe(certificate).startswith("key ")


def _armoured(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


def _judge(der: bytes) -> None:
    [certificate] = load_certificates(_armoured(der))
    party_of_certificate(certificate)
    verify_chain(certificate, [], [AUTHORITY.certificate], NOW, "client")


def test_any_changed_byte_of_a_certificate() -> None:
    """Whatever a stranger's certificate holds, it ends in an identity error, never in a fault.

    Behind what the CA signed, one bit of the encoding (unused bits of the signature) may mean nothing.
    """
    issued = AUTHORITY.owner("a").certificate
    good, signed = issued.public_bytes(Encoding.DER), issued.tbs_certificate_bytes
    _judge(good)
    signed_until = good.index(signed) + len(signed)
    for position in range(len(good)):
        for bits in (0x01, 0x80):
            changed = bytearray(good)
            changed[position] ^= bits
            may_pass = position >= signed_until
            with suppress(IdentityError) if may_pass else pytest.raises(IdentityError):
                _judge(bytes(changed))


@pytest.mark.parametrize("warned", ["error", "ignore"])
def test_serial_number_below_one(warned: Literal["error", "ignore"]) -> None:
    """A certificate whose serial number is negative is refused, whether its library's warning is an error or
    not.
    """
    good = AUTHORITY.owner("a").certificate
    number = good.serial_number
    changed = bytearray(good.public_bytes(Encoding.DER))
    changed[changed.index(number.to_bytes(number.bit_length() // 8 + 1))] |= 0x80
    with warnings.catch_warnings():
        warnings.simplefilter(warned)
        with pytest.raises(IdentityError):
            load_certificates(_armoured(bytes(changed)))


@pytest.mark.parametrize(
    "pem", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_no_certificate(pem: bytes) -> None:
    """A text without a certificate is an identity error."""
    with pytest.raises(IdentityError):
        load_certificates(pem)


def test_development_ca_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes private keys for this user alone, says what it is for, and prints fingerprints."""
    out = tmp_path / "certificates"
    arguments = [
        "--out",
        str(out),
        "--trust-domain",
        "d.example",
        "--aggregator",
        "main",
        "--san",
        "localhost",
    ]
    assert main([*arguments, "--owner", "a", "--days", "7"]) == 0
    printed = capsys.readouterr().out
    assert "development and demonstrations only" in printed
    assert {path.name for path in out.iterdir()} == {
        f"{name}.{kind}" for name in ("ca", "aggregator", "owner-a") for kind in ("pem", "key")
    }
    assert {path.stat().st_mode & 0o777 for path in out.glob("*.key")} == {0o600}
    [owner] = load_certificates((out / "owner-a.pem").read_bytes())
    assert spoken(fingerprint(owner.public_key())) in printed
    assert owner.not_valid_after_utc < NOW + 8 * DAY
    verify_chain(owner, [], load_certificates((out / "ca.pem").read_bytes()), NOW, "client")


@pytest.mark.parametrize("wrong", [["--owner", "A"], ["--trust-domain", "a b"], ["--aggregator", ""]])
def test_development_ca_refuses_ids(
    tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that no party can have is refused before a file is written."""
    out = tmp_path / "certificates"
    right = ["--out", str(out), "--trust-domain", "d", "--aggregator", "main", "--san", "localhost"]
    assert main([*right, *wrong]) == 2
    assert "error: " in capsys.readouterr().err
    assert not out.exists()
