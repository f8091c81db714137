"""The owners' linkage key: stored in a private file, sent between owners sealed and signed (docs/linking.md).

Only the recipient's private key can open an export, and the export names the owner key that signed it. Owners
compare the fingerprints of both keys on the telephone: certificates are not trusted here, so neither the
aggregator nor its CA can impersonate an owner to another.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.canonical import canonical, parse_json
from common.errors import ConfigurationError, IdentityError, IntegrityError, UsageError
from common.files import private_directory, read_private, write_atomic
from common.trust.identity import (
    Party,
    PartyKind,
    fingerprint,
    load_certificates,
    parse_fingerprint,
    party_of_certificate,
    spoken,
)
from common.trust.signing import Domain, Signer, verify_document
from owner_node.linking.tokens import KEY_SIZE

_KEY_FILE = "linkage.key"
_RECIPIENT_FILE = "linkage-recipient.key"
_KEY_FORMAT = "tessera/v1/linkage-key"
_PRIVATE_FORMAT = "tessera/v1/linkage-recipient-key"
_RECIPIENT_FORMAT = "tessera/v1/linkage-recipient"
_EXPORT_FORMAT = str(Domain.LINKAGE_EXPORT)
_CHECK_INFO = b"tessera/v1/linkage-key-check"
_CHECK_BYTES = 4
_LARGEST_FILE = 64 * 1024
# The sealing key is derived from a fresh key agreement and used once, so its nonce may be constant.
_NONCE = bytes(12)


class NoLinkageKeyError(ConfigurationError):
    """This owner has no linkage key yet; this may be reported to others, so that they know the reason."""


@dataclass(frozen=True, slots=True)
class LinkageKey:
    """The owners' secret."""

    key: bytes = field(repr=False)
    """32 random bytes."""
    generation: int = 1
    """Number of the key in the sequence of replacements; owners that differ must exchange keys again."""

    @property
    def check(self) -> str:
        """Eight hexadecimal digits for comparing keys by people; they disclose nothing else about the key.

        They are never sent: in a release, owners compare a value of that release alone.
        """
        derived = HKDF(hashes.SHA256(), _CHECK_BYTES, salt=None, info=_CHECK_INFO).derive(self.key)
        return derived.hex(" ", 2)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    sender: Party
    """The owner that made the export, according to its certificate."""
    key: LinkageKey
    """The key that is now in place."""
    changed: bool
    """False if the same key was in place already."""


def exists(state_dir: Path) -> bool:
    """Return whether there is a linkage key, readable or not."""
    return (state_dir / _KEY_FILE).exists()


def load(state_dir: Path) -> LinkageKey:
    """Read the linkage key.

    Raises:
        NoLinkageKeyError: If there is none.
        ConfigurationError: If its file is open to others or damaged.
    """
    path = state_dir / _KEY_FILE
    if not path.exists():
        raise NoLinkageKeyError(
            f"there is no linkage key in {state_dir}",
            hint="one owner makes it (owner-node linkage-key new), the others import it from there",
        )
    document = _read_document(read_private(path), path, _KEY_FORMAT)
    return LinkageKey(_bytes(document, "key", path, KEY_SIZE), _generation(document, path))


def new(state_dir: Path, *, replace: bool = False) -> LinkageKey:
    """Create a linkage key.

    Args:
        replace: Replace an existing key; every other owner then needs the new one.

    Returns:
        The key, of the next generation.

    Raises:
        UsageError: If there is a key and `replace` is not set.
    """
    generation = 1
    if exists(state_dir):
        if not replace:
            raise UsageError(
                f"there is a linkage key in {state_dir} already",
                "--replace creates a new one; all other owners must then import it",
            )
        generation = load(state_dir).generation + 1
    made = LinkageKey(os.urandom(KEY_SIZE), generation)
    _store(state_dir, made)
    return made


def _store(state_dir: Path, key: LinkageKey) -> None:
    document = {"format": _KEY_FORMAT, "generation": key.generation, "key": _text(key.key)}
    write_atomic(private_directory(state_dir) / _KEY_FILE, canonical(document) + b"\n")


def recipient(state_dir: Path) -> tuple[dict[str, str], str]:
    """Return this owner's public key for receiving linkage keys; it is created on first use.

    Its private part stays in the state directory, mode 0600.

    Returns:
        The document to hand to the sender, and the fingerprint to read to the sender on the telephone.

    Raises:
        ConfigurationError: If the private part's file is open to others or damaged.
    """
    path = private_directory(state_dir) / _RECIPIENT_FILE
    if not path.exists():
        document = {"format": _PRIVATE_FORMAT, "key": _text(X25519PrivateKey.generate().private_bytes_raw())}
        write_atomic(path, canonical(document) + b"\n")
    public = _recipient_key(state_dir).public_key()
    return {"format": _RECIPIENT_FORMAT, "key": _text(public.public_bytes_raw())}, fingerprint(public)


def _recipient_key(state_dir: Path) -> X25519PrivateKey:
    path = state_dir / _RECIPIENT_FILE
    if not path.exists():
        raise UsageError(
            "this owner has no recipient key yet",
            "create it with owner-node linkage-key recipient, and have the linkage key exported to it",
        )
    document = _read_document(read_private(path), path, _PRIVATE_FORMAT)
    return X25519PrivateKey.from_private_bytes(_bytes(document, "key", path, 32))


def export(state_dir: Path, signer: Signer, to: Path, expected: str) -> dict[str, Any]:
    """Seal the linkage key to one recipient and sign it.

    Args:
        to: The recipient's file, with the document of `recipient`.
        expected: The recipient key's fingerprint, as read out on the telephone.

    Returns:
        The document to hand to the recipient.

    Raises:
        ConfigurationError: If there is no linkage key.
        IntegrityError: If it is not a recipient's file.
        IdentityError: If its key has another fingerprint.
    """
    document = _read_document(_read_foreign(to), to, _RECIPIENT_FORMAT)
    public = X25519PublicKey.from_public_bytes(_bytes(document, "key", to, 32))
    _check_fingerprint("the recipient key in this file", fingerprint(public), expected)
    key = load(state_dir)
    ephemeral = X25519PrivateKey.generate()
    body: dict[str, Any] = {
        "format": _EXPORT_FORMAT,
        "generation": str(key.generation),
        "recipient": _text(public.public_bytes_raw()),
        "ephemeral": _text(ephemeral.public_key().public_bytes_raw()),
        "certificate": signer.chain_pem,
    }
    # The seal authenticates the header, too: nobody can sign the sealed key as their own.
    try:
        seal = ChaCha20Poly1305(_sealing_key(ephemeral, public, body))
    except ValueError:  # a point of small order: no agreement with it is secret
        raise _damaged_file(to) from None
    body["sealed"] = _text(seal.encrypt(_NONCE, key.key, canonical(body)))
    return body | {"signature": _text(signer.sign_document(Domain.LINKAGE_EXPORT, body))}


def _sealing_key(own: X25519PrivateKey, other: X25519PublicKey, header: Mapping[str, Any]) -> bytes:
    """Derive the sealing key from the key agreement and both public keys (RFC 7748 §6.1, RFC 5869)."""
    salt = base64.b64decode(header["ephemeral"]) + base64.b64decode(header["recipient"])
    derivation = HKDF(hashes.SHA256(), KEY_SIZE, salt=salt, info=_EXPORT_FORMAT.encode())
    return derivation.derive(own.exchange(other))


def import_export(state_dir: Path, path: Path, expected: str, *, replace: bool = False) -> Imported:
    """Check an export, open it and store its linkage key.

    It does not matter whether the sender's certificate has expired, or which CA issued it: the fingerprint
    compared on the telephone identifies the key, and the certificate only adds a name.

    Args:
        expected: The fingerprint of the sender's owner key, as read out on the telephone.

    Raises:
        IdentityError: If another key signed it, or it is sealed to another recipient.
        IntegrityError: If any byte was changed.
        UsageError: If another key exists and `replace` is not set, or there is no recipient key.
    """
    document = _read_document(_read_foreign(path), path, _EXPORT_FORMAT)
    body = {name: value for name, value in document.items() if name != "signature"}
    sender, certificate = _sender(body, path)
    _check_fingerprint("the key that signed this export", fingerprint(certificate.public_key()), expected)
    verify_document(certificate, Domain.LINKAGE_EXPORT, body, _bytes(document, "signature", path))
    received = LinkageKey(_open(state_dir, body, path), _generation(body, path))
    present = load(state_dir) if exists(state_dir) else None
    if present is not None and present != received and not replace:
        raise UsageError(
            f"another linkage key (generation {present.generation}) is in place; "
            f"the export holds generation {received.generation}",
            "--replace replaces it by the imported key",
        )
    if present != received:
        _store(state_dir, received)
    return Imported(sender, received, changed=present != received)


def _sender(body: Mapping[str, Any], path: Path) -> tuple[Party, x509.Certificate]:
    certificates = load_certificates(str(body.get("certificate", "")).encode())
    party = party_of_certificate(certificates[0])
    if party.kind is not PartyKind.OWNER:
        raise IdentityError(f"{path} was made by {party.uri}, which is no owner", "exports come from owners")
    return party, certificates[0]


def _open(state_dir: Path, body: Mapping[str, Any], path: Path) -> bytes:
    own = _recipient_key(state_dir)
    if _bytes(body, "recipient", path, 32) != own.public_key().public_bytes_raw():
        raise IdentityError(
            "the export is sealed to another recipient",
            "print this owner's recipient file (owner-node linkage-key recipient) and have the key "
            "exported to that one",
        )
    header = {name: value for name, value in body.items() if name != "sealed"}
    try:
        ephemeral = X25519PublicKey.from_public_bytes(_bytes(body, "ephemeral", path, 32))
        seal = ChaCha20Poly1305(_sealing_key(own, ephemeral, header))
        key = seal.decrypt(_NONCE, _bytes(body, "sealed", path), canonical(header))
    except (InvalidTag, ValueError):
        raise _damaged_file(path) from None
    if len(key) != KEY_SIZE:
        raise _damaged_file(path)
    return key


def _check_fingerprint(what: str, seen: str, expected: str) -> None:
    try:
        wanted = parse_fingerprint(expected)
    except ValueError as error:
        raise UsageError(str(error), "type all of it, as it was read to you; blanks do not matter") from None
    if seen != wanted:
        raise IdentityError(
            f"{what} has the fingerprint {spoken(seen)}, not {spoken(wanted)}",
            "compare fingerprints on the telephone; if they differ, somebody exchanged the file on its way",
            {"expected": wanted, "seen": seen},
        )


def _read_foreign(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path") from None
    if len(data) > _LARGEST_FILE:
        raise _damaged_file(path)
    return data


def _read_document(data: bytes, path: Path, kind: str) -> dict[str, str]:
    """Parse a flat JSON document of texts; this program writes no other form."""
    try:
        document = parse_json(data)
    except ValueError:
        raise _damaged_file(path) from None
    if not isinstance(document, dict):
        raise _damaged_file(path)
    if not all(isinstance(text, str) and text.isascii() for text in (*document, *document.values())):
        raise _damaged_file(path)
    if document.get("format") != kind:
        raise IntegrityError(f"{path} is not of the format {kind}", "check that it is the right file")
    return document


def _bytes(document: Mapping[str, str], name: str, path: Path, size: int | None = None) -> bytes:
    try:
        value = base64.b64decode(document[name], validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise _damaged_file(path) from None
    # The last character of base64 can have unused bits: only one text per value is accepted.
    if _text(value) != document[name] or size not in (None, len(value)):
        raise _damaged_file(path)
    return value


def _generation(document: Mapping[str, str], path: Path) -> int:
    text = document.get("generation", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise _damaged_file(path)
    return int(text)


def _damaged_file(path: Path) -> IntegrityError:
    return IntegrityError(f"{path} is damaged", "get the file again, or a copy of it from a backup")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
