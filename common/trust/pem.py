r"""PEM files as people have them: made by many programs, mailed, pasted, and saved by editors.

OpenSSL, gRPC and cryptography each take other forms, and say little where they refuse. So a file is read
here, once, and everything behind gets one form. What cannot be misunderstood is read: a byte order mark,
UTF-16 with one, line ends of every system or `\n` as two characters, indentation, blocks without a line break
between them, and text or other blocks around. Everything else is refused for what it is.

References:
    RFC 7468 (PEM); RFC 1421, section 4.6 (header lines).
"""

import base64
import codecs
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from common.errors import IdentityError

_MARKER = re.compile(r"-----(?P<kind>BEGIN|END) (?P<label>[A-Z0-9 ]+)-----")
_BETWEEN_DIGITS = re.compile(r"\s|\\[nr]")
_DER = re.compile(rb"\x30[\x30-\x83]")
"""How DER of certificates, keys and requests begins, and PKCS #12."""
_LINE = 64


@dataclass(frozen=True, slots=True)
class PemKind:
    """What a file is read for."""

    words: str
    labels: tuple[str, ...]
    """What its blocks are called; the first one is usual."""
    from_der: str
    """The command that converts a binary file."""
    convertible: Mapping[str, str]
    """Other blocks that hold the same, with the command that converts a file of them."""

    @property
    def begins(self) -> str:
        """The line that a file of this kind begins with."""
        return f"-----BEGIN {self.labels[0]}-----"


CERTIFICATE = PemKind(
    "a certificate",
    ("CERTIFICATE", "X509 CERTIFICATE"),
    "openssl x509 -in FILE -out NEW (or openssl pkcs12 -nokeys -in FILE -out NEW)",
    {
        "TRUSTED CERTIFICATE": "openssl x509 -in FILE -out NEW",
        "PKCS7": "openssl pkcs7 -print_certs -in FILE -out NEW",
    },
)
PRIVATE_KEY = PemKind(
    "a private key",
    ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"),
    "openssl pkey -in FILE -out NEW (or openssl pkcs12 -nodes -nocerts -in FILE -out NEW)",
    {
        "ENCRYPTED PRIVATE KEY": "openssl pkey -in FILE -out NEW",
        "OPENSSH PRIVATE KEY": "ssh-keygen -p -m PKCS8 -N '' -f FILE",
    },
)
REQUEST = PemKind(
    "a certificate request",
    ("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
    "openssl req -in FILE -out NEW",
    {},
)
_KINDS = (CERTIFICATE, PRIVATE_KEY, REQUEST)


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two marking lines."""

    label: str
    der: bytes = field(repr=False)

    @property
    def pem(self) -> bytes:
        """The block in the form that every library reads."""
        lines = textwrap.wrap(base64.b64encode(self.der).decode(), _LINE)
        return "\n".join(
            [f"-----BEGIN {self.label}-----", *lines, f"-----END {self.label}-----", ""]
        ).encode()


def read_blocks(data: bytes, kind: PemKind) -> list[Block]:
    """Return the blocks of one kind, in their order; others beside them are left out.

    Raises:
        IdentityError: If there is none, or one cannot be read; the message continues a sentence that begins
            with the file.
    """
    bodies = list(_bodies(_text(data, kind), kind))
    for label, body in bodies:
        encrypted = label in PRIVATE_KEY.labels and "ENCRYPTED" in body
        if kind is PRIVATE_KEY and (encrypted or label == "ENCRYPTED PRIVATE KEY"):
            command = kind.convertible["ENCRYPTED PRIVATE KEY"]
            hint = f"a daemon starts without a passphrase: {command}, and keep the new file private"
            raise IdentityError("holds a private key that is encrypted with a passphrase", hint)
        if label in kind.convertible:
            raise IdentityError(f"holds a block {label!r}", f"convert it: {kind.convertible[label]}")
    chosen = [(label, body) for label, body in bodies if label in kind.labels]
    if not chosen:
        raise _other_kind({label for label, _ in bodies}, kind)
    return [
        Block(label, _decode(body, f"{kind.words.removeprefix('a ')} {number} of {len(chosen)}"))
        for number, (label, body) in enumerate(chosen, 1)
    ]


def _text(data: bytes, kind: PemKind) -> str:
    if not data.strip():
        raise IdentityError("is empty", f"put {kind.words} into it, as PEM")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if _DER.match(data):
        raise IdentityError("is binary (DER or PKCS #12), not PEM", f"convert it: {kind.from_der}")
    if b"\0" in data:
        hint = f"save it as text in UTF-8; it begins with {kind.begins}"
        raise IdentityError("is UTF-16 without a byte order mark, or no text", hint)
    # Other encodings have the same letters where a block stands.
    return data.decode("latin-1")


def _bodies(text: str, kind: PemKind) -> Iterator[tuple[str, str]]:
    """Return labels and what stands between the marking lines."""
    begun: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        label = marker["label"]
        if (begun is None) != (marker["kind"] == "BEGIN") or (begun is not None and label != begun["label"]):
            raise _cut_off(label if begun is None else begun["label"], ends=begun is not None)
        if begun is not None:
            yield label, text[begun.end() : marker.start()]
        begun = marker if begun is None else None
    if begun is not None:
        raise _cut_off(begun["label"], ends=True)
    if not _MARKER.search(text):
        raise IdentityError(f"holds no {kind.words.removeprefix('a ')}", f"it begins with {kind.begins}")


def _cut_off(label: str, *, ends: bool) -> IdentityError:
    line = f"-----{'END' if ends else 'BEGIN'} {label}-----"
    return IdentityError(f"is cut off, or damaged: a line {line} is missing", "copy the whole file again")


def _other_kind(labels: set[str], kind: PemKind) -> IdentityError:
    others = [other.words for other in _KINDS if labels & {*other.labels, *other.convertible}]
    there = " and ".join(others or sorted(label.lower() for label in labels))
    return IdentityError(
        f"holds {there}, and no {kind.words.removeprefix('a ')}",
        f"name the file with {kind.words}; it begins with {kind.begins}",
    )


def _decode(body: str, which: str) -> bytes:
    digits = _BETWEEN_DIGITS.sub("", body)
    try:
        return base64.b64decode(digits, validate=True)
    except ValueError:
        raise IdentityError(f"is damaged: {which} is no base64", "copy the whole file again") from None
