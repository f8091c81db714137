"""A key and its certificate in two files that change together, although no system renames two at once.

A new pair is first written beside the old one, as `NAME.next`; then the certificate takes its place, then
the key. Whoever finds a switch half done finishes it, so that a power cut between the two renames loses
nothing. A key that waits for its certificate is `NAME.requested`.
"""

from contextlib import suppress
from pathlib import Path

from common.durable import read_private, sync_directory, write_atomic
from common.errors import TesseraError
from common.identity import fingerprint
from common.signing import load_chain, load_key

_PUBLIC_FILE = 0o644


def _next(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")


def requested_key(key: Path) -> Path:
    """Return where the key waits that a certificate has been asked for."""
    return key.with_name(f"{key.name}.requested")


def switch_pair(certificate: Path, key: Path, chain_pem: bytes, key_pem: bytes) -> None:
    """Replace a key and its certificate, so that no crash leaves one without the other.

    Args:
        certificate: File of the certificate chain.
        key: File of the private key; it is 0600 from the moment it exists.
        chain_pem: The new chain.
        key_pem: The new key, which must be the chain's.

    Raises:
        OSError: If a file cannot be written; then the old pair is in place.
    """
    write_atomic(_next(key), key_pem)
    write_atomic(_next(certificate), chain_pem, _PUBLIC_FILE)
    finish_switch(certificate, key)


def finish_switch(certificate: Path, key: Path) -> None:
    """Finish a switch that was interrupted; nothing happens if there was none.

    Raises:
        OSError: If a file cannot be renamed.
    """
    if not _next(key).exists():
        return
    # Another process may finish the same switch at the same time.
    with suppress(FileNotFoundError):
        if _was_replaced(certificate, key):
            _next(certificate).unlink(missing_ok=True)
            _next(key).unlink()
            return
        if _belong_together(_next(certificate), _next(key)):
            _next(certificate).replace(certificate)
            sync_directory(certificate.parent)
        if _belong_together(certificate, _next(key)):
            _next(key).replace(key)
            sync_directory(key.parent)


def _was_replaced(certificate: Path, key: Path) -> bool:
    """Whether the pair in place was put there after the one that waits was written, by somebody's hand."""
    if not _belong_together(certificate, key) or not _belong_together(_next(certificate), _next(key)):
        return False
    # Not by what the certificates say: one that is installed on purpose may begin before the present one.
    return certificate.stat().st_mtime_ns > _next(certificate).stat().st_mtime_ns


def _belong_together(certificate: Path, key: Path) -> bool:
    try:
        private = load_key(read_private(key), key)
        return fingerprint(load_chain(certificate)[0].public_key()) == fingerprint(private.public_key())
    except TesseraError:
        return False
