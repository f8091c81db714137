"""The linkage key's file and its way to another owner: who can open it, and what is noticed."""

import base64
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.canonical import canonical
from common.errors import ConfigurationError, IdentityError, IntegrityError, TesseraError, UsageError
from common.trust.identity import fingerprint, spoken
from common.trust.signing import Domain, Signer
from deploy.development_ca import DevelopmentCa
from owner_node.linking import key_exchange, linkage_key

AUTHORITY = DevelopmentCa("tests.example")


def _signer(owner: str, directory: Path) -> Signer:
    cert, key = AUTHORITY.owner(owner).write(directory, f"owner-{owner}")
    return Signer.load(key, cert)


@pytest.fixture
def sender(tmp_path: Path) -> tuple[Path, Signer]:
    """An owner that has the key."""
    state_dir = tmp_path / "sender"
    linkage_key.new(state_dir)
    return state_dir, _signer("a", tmp_path)


@pytest.fixture
def receiver(tmp_path: Path) -> tuple[Path, Path, str]:
    """An owner that wants it: its state directory, its recipient file, the fingerprint on the telephone."""
    state_dir, path = tmp_path / "receiver", tmp_path / "recipient.json"
    document, heard = key_exchange.recipient(state_dir)
    path.write_bytes(canonical(document))
    return state_dir, path, heard


@pytest.fixture
def sealed(tmp_path: Path, sender: tuple[Path, Signer], receiver: tuple[Path, Path, str]) -> Path:
    """An export on its way."""
    _, to, heard = receiver
    path = tmp_path / "export.json"
    path.write_bytes(canonical(key_exchange.export(*sender, to, heard)))
    return path


def test_new_key_is_private(tmp_path: Path) -> None:
    """The key is random, readable by its user alone, and never shown by accident."""
    made, other = linkage_key.new(tmp_path / "1"), linkage_key.new(tmp_path / "2")
    path = tmp_path / "1" / "linkage.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(made.key) == 32
    assert made.key != other.key
    assert repr(made.key) not in repr(made)
    assert linkage_key.load(tmp_path / "1") == made


def test_new_does_not_overwrite(tmp_path: Path) -> None:
    """Losing a key by a second `new` takes --replace, and counts the generation."""
    state_dir = tmp_path / "state"
    first = linkage_key.new(state_dir)
    with pytest.raises(UsageError, match="already"):
        linkage_key.new(state_dir)
    assert linkage_key.load(state_dir) == first
    second = linkage_key.new(state_dir, replace=True)
    assert second.generation == 2
    assert second.check != first.check == linkage_key.LinkageKey(first.key, 7).check
    assert first.check.replace(" ", "") not in first.key.hex()


def test_no_key(tmp_path: Path) -> None:
    """An owner without a linkage key is told how to get one."""
    with pytest.raises(ConfigurationError) as caught:
        linkage_key.load(tmp_path)
    assert "linkage-key new" in caught.value.hint


def test_key_open_to_others(tmp_path: Path) -> None:
    """A key that others can read is not used."""
    linkage_key.new(tmp_path / "state")
    (tmp_path / "state" / "linkage.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match="open to other users"):
        linkage_key.load(tmp_path / "state")


def test_recipient_stays_the_same(receiver: tuple[Path, Path, str]) -> None:
    """Printing the recipient again does not make the export on its way unreadable."""
    state_dir, _, heard = receiver
    assert key_exchange.recipient(state_dir)[1] == heard
    assert stat.S_IMODE((state_dir / "linkage-recipient.key").stat().st_mode) == 0o600


def test_exchange(sender: tuple[Path, Signer], receiver: tuple[Path, Path, str], sealed: Path) -> None:
    """The key arrives; importing it again changes nothing; the file does not show it."""
    state_dir, signer = sender
    done = key_exchange.import_export(receiver[0], sealed, spoken(signer.fingerprint).upper())
    assert (done.sender.name, done.changed) == ("a", True)
    key = linkage_key.load(receiver[0])
    assert key == linkage_key.load(state_dir)
    assert base64.b64encode(key.key) not in sealed.read_bytes()
    assert not key_exchange.import_export(receiver[0], sealed, signer.fingerprint).changed


def test_export_to_another_recipient(
    sender: tuple[Path, Signer], receiver: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """A recipient file that was exchanged on its way has another fingerprint and gets nothing."""
    _, to, heard = receiver
    intruder, _ = key_exchange.recipient(tmp_path / "intruder")
    to.write_bytes(canonical(intruder))
    with pytest.raises(IdentityError, match="fingerprint"):
        key_exchange.export(*sender, to, heard)


def test_export_from_another_sender(
    sender: tuple[Path, Signer], receiver: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """An intruder with a certificate of the same CA, even of the same name, cannot hand in its own key."""
    state_dir, to, heard = receiver
    linkage_key.new(tmp_path / "intruder")
    exported = tmp_path / "forged.json"
    forged = key_exchange.export(tmp_path / "intruder", _signer("a", tmp_path), to, heard)
    exported.write_bytes(canonical(forged))
    with pytest.raises(IdentityError, match="fingerprint"):
        key_exchange.import_export(state_dir, exported, sender[1].fingerprint)
    assert not (state_dir / "linkage.key").exists()


def test_sealed_key_cannot_be_signed_anew(
    receiver: tuple[Path, Path, str], sealed: Path, tmp_path: Path
) -> None:
    """Who intercepts an export cannot pass its sealed key on as one of their own."""
    intruder = _signer("mallory", tmp_path)
    body = json.loads(sealed.read_bytes())
    del body["signature"]
    body["certificate"] = intruder.chain_pem
    body["signature"] = base64.b64encode(intruder.sign_document(Domain.LINKAGE_EXPORT, body)).decode()
    sealed.write_bytes(canonical(body))
    with pytest.raises(IntegrityError, match="damaged"):
        key_exchange.import_export(receiver[0], sealed, intruder.fingerprint)


def test_wrong_recipient(sender: tuple[Path, Signer], sealed: Path, tmp_path: Path) -> None:
    """An export is useless to whom it was not made for, and says so."""
    with pytest.raises(UsageError, match="no recipient key"):
        key_exchange.import_export(tmp_path / "other", sealed, sender[1].fingerprint)
    key_exchange.recipient(tmp_path / "other")
    with pytest.raises(IdentityError, match="another recipient"):
        key_exchange.import_export(tmp_path / "other", sealed, sender[1].fingerprint)


def test_every_changed_byte_is_noticed(
    sender: tuple[Path, Signer], receiver: tuple[Path, Path, str], sealed: Path
) -> None:
    """Whatever byte of an export changes, it is refused with an error of the catalogue."""
    good = sealed.read_bytes()
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 1
        sealed.write_bytes(changed)
        with pytest.raises(TesseraError) as caught:
            key_exchange.import_export(receiver[0], sealed, sender[1].fingerprint)
        assert isinstance(caught.value, IntegrityError | IdentityError), position
    assert not (receiver[0] / "linkage.key").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 60_000,
        b"x" * 70_000,
        b'{"format":1}',
        b'{"format":"tessera/v1/linkage-key"}',
        b'{"format":"tessera/v1/linkage-export"}',
        b'{"format":"tessera/v1/linkage-export","certificate":"\\ud800"}',
    ],
)
def test_foreign_files(receiver: tuple[Path, Path, str], tmp_path: Path, content: bytes) -> None:
    """Any other file is refused as such, never with a fault."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((IntegrityError, IdentityError)):
        key_exchange.import_export(receiver[0], path, "0" * 64)


def test_recipient_of_small_order(sender: tuple[Path, Signer], tmp_path: Path) -> None:
    """A recipient key with which every agreement is the same known number is refused."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    path = tmp_path / "zero.json"
    path.write_bytes(
        canonical({"format": "tessera/v1/linkage-recipient", "key": base64.b64encode(bytes(32)).decode()})
    )
    with pytest.raises(IntegrityError):
        key_exchange.export(*sender, path, fingerprint(X25519PublicKey.from_public_bytes(bytes(32))))


def test_another_key_in_place(
    sender: tuple[Path, Signer], receiver: tuple[Path, Path, str], sealed: Path
) -> None:
    """An import does not silently replace a key under which other owners may be linking."""
    state_dir, (sender_dir, signer) = receiver[0], sender
    mine = linkage_key.new(state_dir)
    with pytest.raises(UsageError, match="another linkage key"):
        key_exchange.import_export(state_dir, sealed, signer.fingerprint)
    assert linkage_key.load(state_dir) == mine
    assert key_exchange.import_export(state_dir, sealed, signer.fingerprint, replace=True).changed
    assert linkage_key.load(state_dir) == linkage_key.load(sender_dir)


def test_half_a_fingerprint(sender: tuple[Path, Signer], receiver: tuple[Path, Path, str]) -> None:
    """The beginning of a fingerprint is not enough: it could be forged by trying."""
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        key_exchange.export(*sender, receiver[1], receiver[2][:16])


def test_expired_sender(receiver: tuple[Path, Path, str], tmp_path: Path) -> None:
    """The fingerprint names the sender; an export that lay around until its certificate ended still works."""
    ends = datetime.now(UTC) - timedelta(days=1)
    issued = AUTHORITY.owner("a", not_before=ends - timedelta(days=9), not_after=ends)
    signer = Signer(issued.key, [issued.certificate])
    linkage_key.new(tmp_path / "sender")
    path = tmp_path / "export.json"
    path.write_bytes(canonical(key_exchange.export(tmp_path / "sender", signer, receiver[1], receiver[2])))
    assert key_exchange.import_export(receiver[0], path, signer.fingerprint).changed


def test_aggregator_cannot_send(receiver: tuple[Path, Path, str], tmp_path: Path) -> None:
    """A key that comes with an aggregator's certificate is refused, whatever fingerprint was read out."""
    issued = AUTHORITY.aggregator("main", ["localhost"])
    signer = Signer(issued.key, [issued.certificate])
    linkage_key.new(tmp_path / "sender")
    path = tmp_path / "export.json"
    path.write_bytes(canonical(key_exchange.export(tmp_path / "sender", signer, receiver[1], receiver[2])))
    with pytest.raises(IdentityError, match="not an owner"):
        key_exchange.import_export(receiver[0], path, signer.fingerprint)
