"""Work stops once an aggregator shows an entry that this owner signed and its ledger lacks."""

import asyncio
import logging

from common.errors import IntegrityError
from common.model.fragment import MOST_ENTRIES, LedgerHead
from common.trust.signing import Domain
from common.wire.v1 import owner_pb2 as wire
from owner_node.release.records import Records
from owner_node.state.chain import Head
from owner_node.trust import Trust

_log = logging.getLogger(__name__)


class LedgerGuard:
    """Stops the work of all connections once an aggregator shows that this owner's ledger lost entries.

    The reason is stored in owner.db (`owner_node.ledger.losses`), so it survives a restart.
    """

    def __init__(self, records: Records, owner: str) -> None:
        self._records, self._owner = records, owner
        self.broken = asyncio.Event()
        """Set when the ledger is known to lack entries; never cleared while the process runs."""
        self._seen: dict[str, Head] = {}
        self._error: IntegrityError | None = None
        self._check_losses()

    def check(self) -> None:
        """Check that work may continue.

        Raises:
            IntegrityError: If the ledger lost entries.
        """
        if self._error is not None:
            raise self._error

    async def examine(self, trust: Trust, aggregator: str, shown: wire.LedgerHead) -> None:
        """Compare the newest head that an aggregator keeps with the ledger.

        Raises:
            IntegrityError: If the ledger lacks it, which stops the work for all aggregators; or if this owner
                cannot have signed it, which stops the work for this one.
        """
        if shown.sequence >= MOST_ENTRIES:
            raise IntegrityError(f"aggregator {aggregator} shows a ledger entry number out of range")
        head = Head(shown.sequence, shown.hash)
        if self._seen.get(aggregator) == head:
            return
        try:
            await asyncio.to_thread(self._examine, trust, aggregator, shown)
        except IntegrityError:
            self._check_losses()
            raise
        self._seen[aggregator] = head

    def _examine(self, trust: Trust, aggregator: str, shown: wire.LedgerHead) -> None:
        losses, head = self._records.ledger.losses, Head(shown.sequence, shown.hash)
        if not losses.misses(head):
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
            losses.check(head)
        except IntegrityError as error:
            with self._records.db.transaction() as tx:
                losses.stop(tx, error)
            _log.error("ledger halted", extra={"aggregator": aggregator, "reason": error.message})
            raise

    def _check_losses(self) -> None:
        self._error = self._error or self._records.ledger.losses.reason()
        if self._error is not None:
            self.broken.set()


def newest_head(response: wire.ConnectResponse | wire.PollResponse) -> Head | None:
    """Return the newest head of this owner that an aggregator keeps."""
    shown = response.newest_ledger_head
    return Head(shown.sequence, shown.hash) if response.HasField("newest_ledger_head") else None


def own_head(records: Records, owner: str, trust: Trust, shown: wire.LedgerHead) -> bool:
    """Return whether this owner signed a ledger head, as an aggregator keeps it; see `own_signature`."""
    try:
        payload = LedgerHead(owner, shown.sequence, shown.hash).to_bytes()
    except ValueError:
        return False
    return own_signature(records, trust, Domain.LEDGER_HEAD, payload, shown.signature, shown.certificate)


def own_signature(
    records: Records, trust: Trust, domain: Domain, payload: bytes, signature: bytes, chain_pem: bytes
) -> bool:
    """Return whether this owner signed something, by a key stored in owner.db or by its certificate.

    A stored key outlives the CA that certified it; the certificate still proves it if owner.db was lost.

    Args:
        signature: DER.
        chain_pem: The certificate chain that came with it.
    """
    return records.own_keys.signed(domain, payload, signature) or trust.is_own(
        domain, payload, signature, chain_pem
    )
