"""The linkage key sent between owners, sealed and signed (docs/linking.md).

Only the recipient's private key can open an export, and the export names the owner key that signed it. Owners
compare the fingerprints of both keys on the telephone: certificates are not trusted here, so neither the
aggregator nor its CA can impersonate an owner to another.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.canonical import canonical
from common.errors import IdentityError, UsageError
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
from owner_node.linking.linkage_key import (
    LinkageKey,
    bytes_of,
    damaged_file,
    exists,
    generation_of,
    load,
    read_document,
    store,
    text_of,
)
from owner_node.linking.tokens import KEY_SIZE

_RECIPIENT_FILE = "linkage-recipient.key"
_PRIVATE_FORMAT = "tessera/v1/linkage-recipient-key"
_RECIPIENT_FORMAT = "tessera/v1/linkage-recipient"
_EXPORT_FORMAT = str(Domain.LINKAGE_EXPORT)
_LARGEST_FILE = 64 * 1024
# The sealing key is derived from a fresh key agreement and used once, so its nonce may be constant.
_NONCE = bytes(12)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    sender: Party
    """The owner that made the export, according to its certificate."""
    key: LinkageKey
    """The key that is now in place."""
    changed: bool
    """False if the same key was in place already."""


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
        document = {
            "format": _PRIVATE_FORMAT,
            "key": text_of(X25519PrivateKey.generate().private_bytes_raw()),
        }
        write_atomic(path, canonical(document) + b"\n")
    public = _recipient_key(state_dir).public_key()
    return {"format": _RECIPIENT_FORMAT, "key": text_of(public.public_bytes_raw())}, fingerprint(public)


def _recipient_key(state_dir: Path) -> X25519PrivateKey:
    path = state_dir / _RECIPIENT_FILE
    if not path.exists():
        raise UsageError(
            "this owner has no recipient key yet",
            "create it with owner-node linkage-key recipient, and have the linkage key exported to it",
        )
    document = read_document(read_private(path), path, _PRIVATE_FORMAT)
    return X25519PrivateKey.from_private_bytes(bytes_of(document, "key", path, 32))


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
    document = read_document(_read_foreign(to), to, _RECIPIENT_FORMAT)
    public = X25519PublicKey.from_public_bytes(bytes_of(document, "key", to, 32))
    _check_fingerprint("the recipient key in this file", fingerprint(public), expected)
    key = load(state_dir)
    ephemeral = X25519PrivateKey.generate()
    body: dict[str, Any] = {
        "format": _EXPORT_FORMAT,
        "generation": str(key.generation),
        "recipient": text_of(public.public_bytes_raw()),
        "ephemeral": text_of(ephemeral.public_key().public_bytes_raw()),
        "certificate": signer.chain_pem,
    }
    # The seal authenticates the header, too: nobody can sign the sealed key as their own.
    try:
        seal = ChaCha20Poly1305(_sealing_key(ephemeral, public, body))
    except ValueError:  # a point of small order: no agreement with it is secret
        raise damaged_file(to) from None
    body["sealed"] = text_of(seal.encrypt(_NONCE, key.key, canonical(body)))
    return body | {"signature": text_of(signer.sign_document(Domain.LINKAGE_EXPORT, body))}


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
    document = read_document(_read_foreign(path), path, _EXPORT_FORMAT)
    body = {name: value for name, value in document.items() if name != "signature"}
    sender, certificate = _sender(body, path)
    _check_fingerprint("the key that signed this export", fingerprint(certificate.public_key()), expected)
    verify_document(certificate, Domain.LINKAGE_EXPORT, body, bytes_of(document, "signature", path))
    received = LinkageKey(_open(state_dir, body, path), generation_of(body, path))
    present = load(state_dir) if exists(state_dir) else None
    if present is not None and present != received and not replace:
        raise UsageError(
            f"another linkage key (generation {present.generation}) is in place; "
            f"the export holds generation {received.generation}",
            "--replace replaces it by the imported key",
        )
    if present != received:
        store(state_dir, received)
    return Imported(sender, received, changed=present != received)


def _sender(body: Mapping[str, Any], path: Path) -> tuple[Party, x509.Certificate]:
    certificates = load_certificates(str(body.get("certificate", "")).encode())
    party = party_of_certificate(certificates[0])
    if party.kind is not PartyKind.OWNER:
        raise IdentityError(
            f"{path} was made by {party.uri}, which is not an owner", "exports come from owners"
        )
    return party, certificates[0]


def _open(state_dir: Path, body: Mapping[str, Any], path: Path) -> bytes:
    own = _recipient_key(state_dir)
    if bytes_of(body, "recipient", path, 32) != own.public_key().public_bytes_raw():
        raise IdentityError(
            "the export is sealed to another recipient",
            "print this owner's recipient file (owner-node linkage-key recipient) and have the key "
            "exported to that one",
        )
    header = {name: value for name, value in body.items() if name != "sealed"}
    try:
        ephemeral = X25519PublicKey.from_public_bytes(bytes_of(body, "ephemeral", path, 32))
        seal = ChaCha20Poly1305(_sealing_key(own, ephemeral, header))
        key = seal.decrypt(_NONCE, bytes_of(body, "sealed", path), canonical(header))
    except (InvalidTag, ValueError):
        raise damaged_file(path) from None
    if len(key) != KEY_SIZE:
        raise damaged_file(path)
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
        raise damaged_file(path)
    return data
