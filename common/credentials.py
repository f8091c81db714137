"""What a daemon proves its identity with, followed while it runs: renewed files are taken without a restart.

The files of `[tls]` are looked at every few seconds. What is taken is a certificate that is valid now, names
this party and belongs to its key, with the authorities that are trusted: all together, or nothing. Files that
are half written, or do not fit, leave the former in use and are told in the log. So renewal by the
aggregator, by an organisation's own CA, and by agents that exchange files (SPIRE's) are the same thing here.
Looking is `stat` on three files: it works on every file system and through symbolic links, unlike watches.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from common.durable import read_private
from common.errors import ConfigurationError, IdentityError, TesseraError
from common.identity import Party, load_certificates, renewal_begins
from common.key_files import finish_switch
from common.settings import TlsSection
from common.signing import Signer, load_key

LOOK_SECONDS = 5.0
"""How often the files are looked at."""
_WARN_EVERY = timedelta(days=1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """The three files of `[tls]` as they were at one moment, found to fit together."""

    signer: Signer
    """The party's key and certificate chain."""
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
        """What the files hold."""
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
    ca_pem, chain_pem, key_pem = _read(tls.ca), _read(tls.cert), read_private(tls.key)
    signer = Signer(load_key(key_pem, tls.key), _certificates(chain_pem, tls.cert))
    return Identity(signer, tuple(_certificates(ca_pem, tls.ca)), ca_pem, chain_pem, key_pem)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", hint="check the path and who may read the file"
        ) from None


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return load_certificates(pem)
    except IdentityError as error:
        raise ConfigurationError(f"{path}: {error.message}", hint=error.hint) from None


class Credentials:
    """A daemon's identity, as its files have it now.

    Args:
        tls: The files.
        party: Whom they must name.
        clock: Tells the time.

    Raises:
        ConfigurationError: If a file cannot be used, or the certificate is another party's.
        IdentityError: If the certificate is not valid now.
    """

    def __init__(self, tls: TlsSection, party: Party, clock: Callable[[], datetime]) -> None:
        self._tls, self._party, self._clock = tls, party, clock
        self._lock = threading.Lock()
        self._told = ""
        self._warned: datetime | None = None
        self._changed = asyncio.Event()
        self._seen = self._stamps()
        self._current = self._usable()

    @property
    def current(self) -> Identity:
        """The identity of now."""
        return self._current

    def current_signer(self) -> Signer:
        """Return the key of now."""
        return self._current.signer

    def authorities(self) -> tuple[x509.Certificate, ...]:
        """Return the CAs that are trusted now."""
        return self._current.authorities

    def renewal_due(self) -> bool:
        """Whether the certificate is in the last part of its validity."""
        return self._clock() >= renewal_begins(self._current.signer.certificate)

    async def replaced(self, identity: Identity) -> None:
        """Wait until another identity is in use than the given one."""
        while self._current is identity:
            await self._changed.wait()

    async def look(self) -> bool:
        """Look at the files once; returns whether another identity is in use now."""
        found = await asyncio.to_thread(self._refresh)
        if found:
            self._changed, changed = asyncio.Event(), self._changed
            changed.set()
        return found

    async def watch(self) -> None:
        """Look at the files for ever, and tell in the log when the certificate nears its end."""
        while True:
            await self.look()
            self._warn()
            await asyncio.sleep(LOOK_SECONDS)

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file does."""
        return tuple(self._stamp())

    def _stamp(self) -> Iterator[tuple[int, int, int]]:
        for path in (self._tls.ca, self._tls.cert, self._tls.key):
            try:
                found = path.stat()
            except OSError:
                yield (0, 0, 0)
            else:
                yield (found.st_mtime_ns, found.st_ino, found.st_size)

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
        """Take the files if they have changed and fit; blocks."""
        with self._lock:
            seen = self._stamps()
            if seen == self._seen:
                return False
            try:
                identity = self._usable()
            except TesseraError as error:
                # Perhaps they are being written: looked at again, and told once.
                if error.message != self._told:
                    _log.warning("changed files not taken", extra={"reason": error.message})
                    self._told = error.message
                return False
            if self._stamps() != seen:
                return False
            self._seen, self._told = seen, ""
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
