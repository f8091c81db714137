"""A party's key and certificate: files that change together, and a daemon's identity that follows them.

No system renames two files at once. A new pair is therefore first written beside the old one, as `NAME.next`;
then the certificate takes its place, then the key. The next reader completes a switch that was interrupted,
so that a power cut between the two renames loses nothing. A key that waits for its certificate is
`NAME.requested`.

A running daemon checks the files of `[tls]` every few seconds and uses renewed files without a restart. It
accepts a certificate that is valid now, names this party and belongs to its key, together with the trusted
authorities: all of them or nothing. Files that are incomplete or do not fit are reported in the log, and the
former ones stay in use. So renewal by the aggregator, by an organisation's own CA, and by agents that
exchange files (SPIRE's) are handled alike. The check is `stat` on three files: unlike watches, it works on
every file system and through symbolic links.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from common.errors import ConfigurationError, TesseraError
from common.files import read_private, sync_directory, write_atomic
from common.settings import TlsSection
from common.trust.identity import Party, fingerprint, renewal_begins
from common.trust.signing import Signer, chain_pem, load_chain, load_key

_PUBLIC_FILE = 0o644


def _next(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")


def requested_key(key: Path) -> Path:
    """Return the file of a key whose certificate has been requested."""
    return key.with_name(f"{key.name}.requested")


def switch_pair(certificate: Path, key: Path, new_chain: bytes, new_key: bytes) -> None:
    """Replace a key and its certificate, so that no crash leaves one without the other.

    Args:
        key: File of the private key; it is 0600 from the moment it exists.
        new_key: The new key, PEM, which must be the chain's.
    """
    write_atomic(_next(key), new_key)
    write_atomic(_next(certificate), new_chain, _PUBLIC_FILE)
    finish_switch(certificate, key)


def finish_switch(certificate: Path, key: Path) -> None:
    """Finish a switch that was interrupted; nothing happens if there was none."""
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
    """Whether the pair in place was installed by hand after the waiting pair was written."""
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


CHECK_SECONDS = 5.0
"""How often the files are checked."""
_WARN_EVERY = timedelta(days=1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """What the three files of `[tls]` held at one moment, found to fit together."""

    signer: Signer
    authorities: tuple[x509.Certificate, ...]
    """The CAs that are trusted."""
    ca_pem: bytes
    """Their certificates, as TLS takes them."""
    chain_pem: bytes
    """The party's certificate chain."""
    key_pem: bytes = field(repr=False)
    """Its private key."""

    @property
    def files(self) -> tuple[bytes, bytes, bytes]:
        """What TLS takes of the files."""
        return self.ca_pem, self.chain_pem, self.key_pem


def read_identity(tls: TlsSection) -> Identity:
    """Read the files of `[tls]`.

    Raises:
        ConfigurationError: If a file is absent, open to others or of the wrong kind, or key and certificate
            do not belong together.
        IdentityError: If the certificate names no party.
    """
    with suppress(OSError):
        finish_switch(tls.cert, tls.key)
    signer, authorities = Signer.load(tls.key, tls.cert), load_chain(tls.ca)
    # TLS gets what was read here, whatever form the files have.
    return Identity(
        signer, tuple(authorities), chain_pem(authorities), signer.chain_pem.encode(), signer.key_pem
    )


class Credentials:
    """A daemon's identity, as its files have it now; they must name its party.

    Raises:
        ConfigurationError: If a file cannot be used, or the certificate is another party's.
        IdentityError: If the certificate is not valid now.
    """

    def __init__(self, tls: TlsSection, party: Party, clock: Callable[[], datetime]) -> None:
        self._tls, self._party, self._clock = tls, party, clock
        self._lock = threading.Lock()
        self._reported = ""
        self._warned: datetime | None = None
        self._changed = asyncio.Event()
        self._seen = self._stamps()
        self._current = self._usable()

    @property
    def current(self) -> Identity:
        """The current identity."""
        return self._current

    def current_signer(self) -> Signer:
        """Return the current key."""
        return self._current.signer

    def authorities(self) -> tuple[x509.Certificate, ...]:
        """Return the CAs that are trusted now."""
        return self._current.authorities

    def renewal_due(self) -> bool:
        """Whether the certificate is in the last part of its validity."""
        return self._clock() >= renewal_begins(self._current.signer.certificate)

    async def wait_for_other(self, identity: Identity) -> None:
        """Wait until another identity is in use than the given one."""
        while self._current is identity:
            await self._changed.wait()

    async def refresh(self) -> bool:
        """Check the files once; returns whether another identity is in use now."""
        replaced = await asyncio.to_thread(self._refresh)
        if replaced:
            self._changed, changed = asyncio.Event(), self._changed
            changed.set()
        return replaced

    async def watch(self) -> None:
        """Check the files periodically, and log when the certificate expires soon; never returns."""
        while True:
            await self.refresh()
            self._warn()
            await asyncio.sleep(CHECK_SECONDS)

    def _stamps(self) -> list[tuple[int, int, int]]:
        """Return what changes when a file does."""
        stamps = []
        for path in (self._tls.ca, self._tls.cert, self._tls.key):
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return stamps

    def _usable(self) -> Identity:
        identity = read_identity(self._tls)
        if identity.signer.party != self._party:
            raise ConfigurationError(
                f"{self._tls.cert} is the certificate of {identity.signer.party.uri}",
                hint=f"this is {self._party.kind} {self._party.name} of {self._party.trust_domain}: "
                "name its certificate",
            )
        identity.signer.check_validity(self._clock())
        return identity

    def _refresh(self) -> bool:
        """Load the files if they have changed and fit together; blocks."""
        with self._lock:
            seen = self._stamps()
            if seen == self._seen:
                return False
            try:
                identity = self._usable()
            except TesseraError as error:
                # They may still be being written: checked again, and reported once.
                if error.message != self._reported:
                    _log.warning("changed files not taken", extra={"reason": error.message})
                    self._reported = error.message
                return False
            if self._stamps() != seen:
                return False
            self._seen, self._reported = seen, ""
            if identity.files == self._current.files:
                return False
            self._current, self._warned = identity, None
            until = identity.signer.certificate.not_valid_after_utc.isoformat()
            _log.info("identity renewed", extra={"fingerprint": identity.signer.fingerprint, "until": until})
            return True

    def _warn(self) -> None:
        now, ends = self._clock(), self._current.signer.certificate.not_valid_after_utc
        if not self.renewal_due() or (self._warned is not None and now - self._warned < _WARN_EVERY):
            return
        self._warned = now
        event = "certificate has expired" if now > ends else "certificate expires soon"
        _log.warning(event, extra={"until": ends.isoformat(), "days": max((ends - now).days, 0)})
