"""The owner's certificate: its checks before use, and its renewal for a new key before it expires.

Renewal runs over the live connection. The aggregator that issued the present certificate can renew it;
another one refuses and is asked again later. Without such an aggregator, an organisation's own CA or an agent
that exchanges the files has to renew it. The private key never leaves this node: it is generated here, and
written to disk only together with its certificate.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import ConfigurationError, IdentityError, TesseraError
from common.settings import TlsSection
from common.trust.credentials import Credentials, Identity, switch_pair
from common.trust.enrolment import key_pem, make_request, new_key
from common.trust.identity import (
    Party,
    PartyKind,
    fingerprint,
    host_names,
    load_certificates,
    party_of_certificate,
    verify_chain,
)
from owner_node.config import OwnerConfig
from owner_node.connection.client import AggregatorClient


def own_party(config: OwnerConfig) -> Party:
    """Return the party that the owner's certificate must name."""
    return Party(PartyKind.OWNER, config.owner.id, config.owner.trust_domain)


def own_credentials(config: OwnerConfig, clock: Callable[[], datetime]) -> Credentials:
    """Load the owner's key and certificate; later changes of the files are followed.

    Raises:
        ConfigurationError: If a file cannot be used, or the certificate names another party.
        IdentityError: If the certificate is not valid now.
    """
    if not config.tls.cert.exists():
        raise ConfigurationError(
            f"{config.tls.cert} does not exist: this owner has no certificate yet",
            hint="get one: owner-node enroll request --out FILE, then owner-node enroll install",
        )
    return Credentials(config.tls, own_party(config), clock)


def check_issued(
    key: ec.EllipticCurvePublicKey,
    chain_pem: bytes,
    party: Party,
    authorities: Sequence[x509.Certificate],
    now: datetime,
) -> x509.Certificate:
    """Check a certificate that was issued to this owner, before it is used.

    Args:
        key: The key that it was requested for.
        authorities: The trusted CAs, one of which must have issued it.

    Returns:
        The certificate.

    Raises:
        IdentityError: If it is for another key or party, not valid now, or not issued under these CAs.
    """
    leaf, *intermediates = load_certificates(chain_pem)
    if fingerprint(leaf.public_key()) != fingerprint(key):
        raise IdentityError(
            "the certificate is for another key than the requested one",
            "install the bundle that answers the newest request of this owner",
        )
    named = party_of_certificate(leaf)
    if named != party:
        raise IdentityError(
            f"the certificate names {named.uri}", f"this owner is {party.uri}: compare with owner.toml"
        )
    verify_chain(leaf, intermediates, authorities, now, "client")
    if hosts := host_names(leaf):
        raise IdentityError(
            f"the certificate also names hosts ({', '.join(hosts)})",
            "have it issued without host names: no owner may pose as an aggregator",
        )
    return leaf


def check_renewed(
    key: ec.EllipticCurvePublicKey, chain_pem: bytes, party: Party, present: Identity, now: datetime
) -> None:
    """Check a certificate that is to replace the present one.

    It must be valid at every aggregator of this owner, so it must be under a CA of the present one, and
    expire later.

    Raises:
        IdentityError: If it does not meet these conditions.
    """
    first, *intermediates = present.signer.chain
    same = [authority for authority in present.authorities if _leads_to(first, intermediates, authority, now)]
    issued = check_issued(key, chain_pem, party, same or present.authorities, now)
    if issued.not_valid_after_utc <= first.not_valid_after_utc:
        raise IdentityError(
            "the new certificate does not end later than the present one",
            "ask the operator of the aggregator that issued it; the present one stays in use",
        )


def _leads_to(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    authority: x509.Certificate,
    now: datetime,
) -> bool:
    try:
        verify_chain(leaf, intermediates, (authority,), now, "client")
    except IdentityError:
        return False
    return True


_LONGEST_CHAIN = 64 * 1024
_ASK_AGAIN = timedelta(hours=1)
_log = logging.getLogger(__name__)


class Renewal:
    """Renews this owner's certificate; one object for all connections."""

    def __init__(
        self, credentials: Credentials, tls: TlsSection, party: Party, clock: Callable[[], datetime]
    ) -> None:
        self._credentials, self._tls, self._party, self._clock = credentials, tls, party, clock
        self._lock = asyncio.Lock()
        self._asked: dict[str, datetime] = {}

    async def renew(self, client: AggregatorClient, aggregator: str) -> None:
        """Renew the certificate if it is due; failures are logged and retried later."""
        asked = self._asked.get(aggregator)
        rested = asked is None or not timedelta(0) <= self._clock() - asked < _ASK_AGAIN
        if self._lock.locked() or not rested or not self._credentials.renewal_due():
            return
        async with self._lock:
            self._asked[aggregator] = self._clock()
            try:
                await self.renew_now(client)
            except (TesseraError, OSError) as error:
                reason = error.message if isinstance(error, TesseraError) else error.strerror
                extra = {"aggregator": aggregator, "reason": reason}
                _log.warning("certificate not renewed", extra=extra)

    async def renew_now(self, client: AggregatorClient) -> None:
        """Renew the certificate and use it.

        Raises:
            TesseraError: If the aggregator does not renew it, or its answer cannot be used.
            OSError: If it cannot be written.
        """
        key = new_key()
        self._check_folders()
        chain = await client.renew(make_request(key, self._party))
        await asyncio.to_thread(self._install, key, chain)
        await self._credentials.refresh()

    def _check_folders(self) -> None:
        """Check that the files can be written, before a certificate is requested."""
        for folder in {self._tls.cert.parent, self._tls.key.parent}:
            if not os.access(folder, os.W_OK):
                raise ConfigurationError(
                    f"{folder} cannot be written to",
                    hint="let this user write there, or renew the files there",
                )

    def _install(self, key: ec.EllipticCurvePrivateKey, chain: bytes) -> None:
        """Check the received chain as untrusted input, then replace the present pair."""
        if len(chain) > _LONGEST_CHAIN:
            raise IdentityError("a certificate chain of this length is not accepted")
        check_renewed(key.public_key(), chain, self._party, self._credentials.current, self._clock())
        switch_pair(self._tls.cert, self._tls.key, chain, key_pem(key))
