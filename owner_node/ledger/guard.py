"""Watches what aggregators show of this owner's ledger, and stops all work once it lacks what was signed."""

import asyncio
import logging

from common.errors import IntegrityError
from common.fragment import MOST_ENTRIES, LedgerHead
from common.signing import Domain
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.trust import Trust
from owner_node.state.chain import Head
from owner_node.state.records import Records

_log = logging.getLogger(__name__)


class LedgerGuard:
    """Whether any aggregator has shown that this owner's ledger lost entries: then no connection works.

    What stops the work is kept in owner.db (`owner_node.ledger.halt`): a restart does not forget it.

    Args:
        records: The owner's state.
        owner: This owner's id.
    """

    def __init__(self, records: Records, owner: str) -> None:
        self._records, self._owner = records, owner
        self.broken = asyncio.Event()
        """Set once, and for as long as the process runs."""
        self._seen: dict[str, Head] = {}
        self._error: IntegrityError | None = None
        self._note(records.ledger.halt.reason())

    def check(self) -> None:
        """Let work go on, or not.

        Raises:
            IntegrityError: If the ledger lost entries.
        """
        if self._error is not None:
            raise self._error

    async def examine(self, trust: Trust, aggregator: str, shown: wire.LedgerHead) -> None:
        """Compare the newest head that an aggregator keeps with the ledger.

        Args:
            trust: Knows this owner's certificates.
            aggregator: Name of the aggregator.
            shown: What it keeps.

        Raises:
            IntegrityError: If the ledger lacks it, which stops the work for all aggregators; or if this owner
                cannot have signed it, which stops it for this one.
        """
        if shown.sequence >= MOST_ENTRIES:
            raise IntegrityError(f"aggregator {aggregator} shows a place that no ledger has")
        head = Head(shown.sequence, shown.hash)
        if self._seen.get(aggregator) == head:
            return
        try:
            await asyncio.to_thread(self._examine, trust, aggregator, shown)
        except IntegrityError:
            self._note(self._records.ledger.halt.reason())
            raise
        self._seen[aggregator] = head

    def _examine(self, trust: Trust, aggregator: str, shown: wire.LedgerHead) -> None:
        heads, head = self._records.ledger.heads, Head(shown.sequence, shown.hash)
        if not heads.misses(head):
            return
        if not own_head(self._records, self._owner, trust, shown):
            raise IntegrityError(
                f"aggregator {aggregator} keeps entry {shown.sequence} of this owner's ledger under a "
                "signature that none of this owner's keys made; no work is done for it",
                "if owner.db was lost and the keys or the CA were replaced since, run owner-node ledger "
                "recover; if not, ask the aggregator's operator where it has this from",
                {"aggregator": aggregator, "signed": shown.sequence},
            )
        try:
            heads.check(head)
        except IntegrityError as error:
            with self._records.db.transaction() as tx:
                self._records.ledger.halt.stop(tx, error)
            _log.error("ledger halted", extra={"aggregator": aggregator, "reason": error.message})
            raise

    def _note(self, reason: IntegrityError | None) -> None:
        if reason is not None:
            self._error = reason
            self.broken.set()


def own_head(records: Records, owner: str, trust: Trust, shown: wire.LedgerHead) -> bool:
    """Whether this owner signed a ledger head, as an aggregator keeps it; see `own_signature`."""
    try:
        payload = LedgerHead(owner, shown.sequence, shown.hash).to_bytes()
    except ValueError:
        return False
    return own_signature(records, trust, Domain.LEDGER_HEAD, payload, shown.signature, shown.certificate)


def own_signature(
    records: Records, trust: Trust, domain: Domain, payload: bytes, signature: bytes, chain_pem: bytes
) -> bool:
    """Whether this owner signed something: by a key it is known to have had, or by its certificate.

    A key outlives the CA that vouched for it; a certificate is what is left when owner.db was lost.

    Args:
        records: The owner's state.
        trust: Knows this owner's certificates.
        domain: What the signature is for.
        payload: What was signed.
        signature: DER.
        chain_pem: The certificate chain that came with it.
    """
    return records.own_keys.signed(domain, payload, signature) or trust.own(
        domain, payload, signature, chain_pem
    )
