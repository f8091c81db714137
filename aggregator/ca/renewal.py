"""Renewal of certificates before they expire: owners' over their connections, the aggregator's own by itself.

Both need the CA's key, `[enrolment] ca_key`. It is read when it is used, and not kept in memory.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.ca.authority import Authority
from aggregator.ca.enrolment import Enrolment
from aggregator.config import EnrolmentSection
from aggregator.store.journal import Journal
from common.errors import TesseraError, UsageError
from common.settings import TlsSection
from common.trust.credentials import Credentials, read_identity, switch_pair
from common.trust.enrolment import expiry_warning, key_pem, new_key, read_request
from common.trust.identity import host_names, renewal_begins

_CHECK_SECONDS = 3600.0
_WARN_EVERY = timedelta(days=1)
_log = logging.getLogger(__name__)


def renew_own(tls: TlsSection, enrolment: EnrolmentSection, now: datetime) -> bool:
    """Renew the aggregator's own certificate with a new key, if it is due; returns whether it was.

    Its names stay. A certificate that another CA issued is not renewed here.

    Raises:
        ConfigurationError: If a file cannot be used.
        IdentityError: If no party would accept the new certificate.
        OSError: If the new files cannot be written.
    """
    if enrolment.ca_key is None or not enrolment.auto_renew:
        return False
    identity = read_identity(tls)
    present, party = identity.signer.certificate, identity.signer.party
    if now < renewal_begins(present):
        return False
    authority = Authority.load(identity.authorities, enrolment.ca_key)
    if not authority.has_issued(present):
        return False
    key = new_key()
    issued = authority.issue(key.public_key(), party, now, host_names(present))
    switch_pair(tls.cert, tls.key, issued.public_bytes(Encoding.PEM), key_pem(key))
    return True


class Renewals:
    """Renews owners' certificates, and the aggregator's own in time."""

    def __init__(
        self,
        tls: TlsSection,
        section: EnrolmentSection,
        credentials: Credentials,
        enrolment: Enrolment,
        journal: Journal,
        clock: Callable[[], datetime],
    ) -> None:
        self._tls, self._section, self._credentials = tls, section, credentials
        self._enrolment, self._journal, self._clock = enrolment, journal, clock
        self._warned: datetime | None = None

    def renew(self, present: x509.Certificate, request: bytes) -> bytes:
        """Issue a certificate for the new key of an owner, and return its chain as PEM; blocks.

        Raises:
            UsageError: If this aggregator renews no certificates, or it is not time yet.
            ProtocolError, IntegrityError, IdentityError: As `read_request` and `Enrolment.renew`.
        """
        ca_key = self._section.ca_key
        if ca_key is None or not self._section.auto_renew:
            raise UsageError(
                "this aggregator does not renew certificates",
                "have the CA renew the certificate, or enrol again: owner-node enroll request",
            )
        asked = read_request(request)
        authority = Authority.load(self._credentials.authorities(), ca_key)
        issued = self._enrolment.renew(authority, present, asked)
        return issued.public_bytes(Encoding.PEM)

    async def watch(self) -> None:
        """Renew the own certificate in time, and log which owners' certificates expire soon."""
        while True:
            try:
                if await asyncio.to_thread(renew_own, self._tls, self._section, self._clock()):
                    await self._credentials.refresh()
                self._warn()
            except (TesseraError, OSError) as error:
                reason = error.message if isinstance(error, TesseraError) else error.strerror
                _log.warning("certificate not renewed", extra={"reason": reason})
            await asyncio.sleep(_CHECK_SECONDS)

    def _warn(self) -> None:
        now = self._clock()
        if self._warned is not None and now - self._warned < _WARN_EVERY:
            return
        self._warned = now
        for owner in self._journal.owners().values():
            ends = datetime.fromtimestamp(owner.certificate_expires, UTC)
            if expiry_warning(owner.id, ends, now):
                _log.warning(
                    "certificate of an owner ends", extra={"owner": owner.id, "until": ends.isoformat()}
                )
