"""Verifies the statements that owners sign, as untrusted input."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.store.ledger_heads import StoredHead
from common.canonical import Document
from common.errors import IdentityError, ProtocolError
from common.model.fragment import LedgerHead
from common.trust.identity import (
    Party,
    PartyKind,
    load_certificates,
    party_of_certificate,
    valid_moment,
    verify_chain,
)
from common.trust.signing import Domain, verify
from common.wire.v1 import owner_pb2 as wire

_LONGEST_CHAIN = 64 * 1024


class Statements:
    """Verifies owners' statements."""

    def __init__(
        self,
        authorities: Callable[[], Sequence[x509.Certificate]],
        refuse: Callable[[x509.Certificate], None],
        trust_domain: str,
        clock: Callable[[], float],
    ) -> None:
        self._authorities, self._refuse = authorities, refuse
        self._trust_domain = trust_domain
        self._clock = clock

    def chain(self, pem: bytes, owner: str, since: datetime | None = None) -> tuple[x509.Certificate, str]:
        """Return the certificate of an owner and its whole chain as PEM text.

        Args:
            since: When the release was planned: the certificate must have been valid at some moment since
                then. None requires one that is valid now.

        Raises:
            IdentityError: If it is not the certificate of this owner, was not valid, or is revoked.
        """
        if len(pem) > _LONGEST_CHAIN:
            raise IdentityError("a certificate chain of this length is not accepted")
        leaf, *intermediates = load_certificates(pem)
        now = datetime.fromtimestamp(self._clock(), UTC)
        moment = now if since is None else valid_moment(leaf, since, now)
        verify_chain(leaf, intermediates, self._authorities(), moment, "client")
        expected = Party(PartyKind.OWNER, owner, self._trust_domain)
        if party_of_certificate(leaf) != expected:
            raise IdentityError(
                f"a statement of {expected.uri} comes with the certificate of another party",
                "every owner signs with the key of its own certificate",
            )
        self._refuse(leaf)
        text = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in (leaf, *intermediates))
        return leaf, text.decode()

    def check(
        self,
        owner: str,
        domain: Domain,
        statement: Document,
        signature: bytes,
        pem: bytes,
        since: datetime | None = None,
    ) -> str:
        """Check a signed statement of an owner; returns the chain of its signer as PEM text.

        Raises:
            IntegrityError: If the signature does not hold.
            IdentityError: If the certificate is not this owner's.
        """
        leaf, text = self.chain(pem, owner, since)
        verify(leaf, domain, statement.to_bytes(), signature)
        return text

    def ledger_head(self, message: wire.LedgerHead, owner: str) -> StoredHead:
        """Return an owner's signed ledger head."""
        try:
            head = LedgerHead(owner, message.sequence, message.hash)
        except ValueError:
            raise ProtocolError(
                f"owner {owner} sent an invalid ledger head",
                "the owner node must run a compatible version",
            ) from None
        text = self.check(owner, Domain.LEDGER_HEAD, head, message.signature, message.certificate)
        return StoredHead(head, message.signature, text.encode())
