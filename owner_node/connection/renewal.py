"""A new certificate for a new key, over the live channel, before the present one ends.

The aggregator that issued the present certificate can renew it; another says so, and is asked again later:
then an organisation's own CA, or an agent that exchanges files, has to. The key never leaves: it is made
here, and is on the disk only together with its certificate.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import ec

from common.credentials import Credentials
from common.enrolment import key_pem, make_request, new_key
from common.errors import ConfigurationError, IdentityError, TesseraError
from common.identity import Party
from common.key_files import switch_pair
from common.settings import TlsSection
from owner_node.connection.client import AggregatorClient
from owner_node.connection.credentials import check_renewed

_LONGEST_CHAIN = 64 * 1024
_ASK_AGAIN = timedelta(hours=1)
_log = logging.getLogger(__name__)


class Renewal:
    """Renews this owner's certificate; one object for all connections.

    Args:
        credentials: The owner's identity.
        tls: Its files.
        party: Whom its certificate names.
        clock: Tells the time.
    """

    def __init__(
        self, credentials: Credentials, tls: TlsSection, party: Party, clock: Callable[[], datetime]
    ) -> None:
        self._credentials, self._tls, self._party, self._clock = credentials, tls, party, clock
        self._lock = asyncio.Lock()
        self._asked: dict[str, datetime] = {}

    async def renew(self, client: AggregatorClient, aggregator: str) -> None:
        """Renew the certificate if it is time to; what goes wrong is told in the log, and tried again."""
        if self._lock.locked() or not self._due(aggregator):
            return
        async with self._lock:
            self._asked[aggregator] = self._clock()
            key = new_key()
            try:
                self._check_folders()
                chain = await client.renew(make_request(key, self._party))
                await asyncio.to_thread(self._install, key, chain)
            except (TesseraError, OSError) as error:
                reason = error.message if isinstance(error, TesseraError) else error.strerror
                extra = {"aggregator": aggregator, "reason": reason}
                _log.warning("certificate not renewed", extra=extra)
            else:
                await self._credentials.look()

    def _check_folders(self) -> None:
        """Ask for nothing that could not be stored."""
        for folder in {self._tls.cert.parent, self._tls.key.parent}:
            if not os.access(folder, os.W_OK):
                raise ConfigurationError(
                    f"{folder} cannot be written to",
                    hint="let this user write there, or renew the files there",
                )

    def _due(self, aggregator: str) -> bool:
        asked = self._asked.get(aggregator)
        rested = asked is None or not timedelta(0) <= self._clock() - asked < _ASK_AGAIN
        return rested and self._credentials.renewal_due()

    def _install(self, key: ec.EllipticCurvePrivateKey, chain: bytes) -> None:
        """Check what came as from a stranger, then let it take the place of the present pair."""
        if len(chain) > _LONGEST_CHAIN:
            raise IdentityError("a certificate chain of this length is not accepted")
        check_renewed(key.public_key(), chain, self._party, self._credentials.current, self._clock())
        switch_pair(self._tls.cert, self._tls.key, chain, key_pem(key))
