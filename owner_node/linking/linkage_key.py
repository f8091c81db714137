"""The owners' linkage key: stored in a private file (docs/linking.md)."""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.canonical import canonical, parse_json
from common.errors import ConfigurationError, IntegrityError, UsageError
from common.files import private_directory, read_private, write_atomic
from owner_node.linking.tokens import KEY_SIZE

_KEY_FILE = "linkage.key"
_KEY_FORMAT = "tessera/v1/linkage-key"
_CHECK_INFO = b"tessera/v1/linkage-key-check"
_CHECK_BYTES = 4


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
    document = read_document(read_private(path), path, _KEY_FORMAT)
    return LinkageKey(bytes_of(document, "key", path, KEY_SIZE), generation_of(document, path))


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
    store(state_dir, made)
    return made


def store(state_dir: Path, key: LinkageKey) -> None:
    """Write the linkage key to its file."""
    document = {"format": _KEY_FORMAT, "generation": key.generation, "key": text_of(key.key)}
    write_atomic(private_directory(state_dir) / _KEY_FILE, canonical(document) + b"\n")


def read_document(data: bytes, path: Path, kind: str) -> dict[str, str]:
    """Parse a flat JSON document of texts; this program writes no other form."""
    try:
        document = parse_json(data)
    except ValueError:
        raise damaged_file(path) from None
    if not isinstance(document, dict):
        raise damaged_file(path)
    if not all(isinstance(text, str) and text.isascii() for text in (*document, *document.values())):
        raise damaged_file(path)
    if document.get("format") != kind:
        raise IntegrityError(f"{path} is not of the format {kind}", "check that it is the right file")
    return document


def bytes_of(document: Mapping[str, str], name: str, path: Path, size: int | None = None) -> bytes:
    """Return the bytes that an entry of a document holds in base64, of one size if that is given."""
    try:
        value = base64.b64decode(document[name], validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise damaged_file(path) from None
    # The last character of base64 can have unused bits: only one text per value is accepted.
    if text_of(value) != document[name] or size not in (None, len(value)):
        raise damaged_file(path)
    return value


def generation_of(document: Mapping[str, str], path: Path) -> int:
    """Return the number of a document's key in the sequence of replacements."""
    text = document.get("generation", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise damaged_file(path)
    return int(text)


def damaged_file(path: Path) -> IntegrityError:
    """Return the error of a file of another form."""
    return IntegrityError(f"{path} is damaged", "get the file again, or a copy of it from a backup")


def text_of(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()
