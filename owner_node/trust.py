"""Checks of signatures that an owner node trusts: by one aggregator, by other owners, and by itself.

The certificate of a TLS session identifies the host that was dialled. The author of a plan is identified by
the plan's own signature, which is checked here. A ledger head that the aggregator returns is trusted if this
owner itself signed it.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cryptography import x509

from common.errors import IdentityError, TesseraError
from common.trust.identity import (
    Party,
    PartyKind,
    fingerprint,
    load_certificates,
    party_of_certificate,
    valid_moment,
    verify_chain,
)
from common.trust.signing import Domain, verify


class Trust:
    """Checks signed documents that one aggregator sends.

    Args:
        authorities: Returns the CAs that are trusted now.
    """

    def __init__(
        self,
        authorities: Callable[[], Sequence[x509.Certificate]],
        trust_domain: str,
        owner: str,
        aggregator: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._authorities = authorities
        self._owner = Party(PartyKind.OWNER, owner, trust_domain)
        self._aggregator = Party(PartyKind.AGGREGATOR, aggregator, trust_domain)
        self._clock = clock

    def check(
        self,
        domain: Domain,
        payload: bytes,
        signature: bytes,
        chain_pem: bytes,
        since: datetime | None = None,
    ) -> None:
        """Check that the aggregator signed a document.

        Args:
            signature: DER.
            since: Begin of the release, as this owner recorded it: a certificate that was valid at some
                moment since then is accepted. None: it must be valid now.

        Raises:
            IdentityError: If the certificate is not the aggregator's, or not valid.
            IntegrityError: If the signature is invalid.
        """
        leaf, *intermediates = load_certificates(chain_pem)
        now = self._clock()
        moment = now if since is None else valid_moment(leaf, since, now)
        verify_chain(leaf, intermediates, self._authorities(), moment, "server")
        if party_of_certificate(leaf) != self._aggregator:
            raise IdentityError(
                f"a document of {self._aggregator.uri} comes with the certificate of "
                f"{party_of_certificate(leaf).uri}",
                "check [[aggregator]] name in owner.toml, and which aggregator its address leads to",
            )
        verify(leaf, domain, payload, signature)

    def check_owner(
        self, owner: str, domain: Domain, payload: bytes, signature: bytes, chain_pem: bytes, since: datetime
    ) -> str:
        """Check that another owner signed a document.

        Args:
            signature: DER.
            since: Begin of the release, as this owner recorded it.

        Returns:
            The fingerprint of its key.

        Raises:
            IdentityError: If the certificate is not that owner's, or was not valid since.
            IntegrityError: If the signature is invalid.
        """
        leaf, *intermediates = load_certificates(chain_pem)
        moment = valid_moment(leaf, since, self._clock())
        verify_chain(leaf, intermediates, self._authorities(), moment, "client")
        expected = Party(PartyKind.OWNER, owner, self._owner.trust_domain)
        if party_of_certificate(leaf) != expected:
            raise IdentityError(
                f"a statement of {expected.uri} comes with the certificate of another party",
                "every owner signs with the key of its own certificate",
            )
        verify(leaf, domain, payload, signature)
        return fingerprint(leaf.public_key())

    def is_own(self, domain: Domain, payload: bytes, signature: bytes, chain_pem: bytes) -> bool:
        """Whether this owner signed something, with a certificate under a trusted CA.

        Args:
            signature: DER.
            chain_pem: The certificate chain that came with it; it may have expired since.
        """
        try:
            leaf, *intermediates = load_certificates(chain_pem)
            moment = min(self._clock(), leaf.not_valid_after_utc - timedelta(seconds=1))
            verify_chain(leaf, intermediates, self._authorities(), moment, "client")
            verify(leaf, domain, payload, signature)
        except (TesseraError, ValueError):
            return False
        return party_of_certificate(leaf) == self._owner
