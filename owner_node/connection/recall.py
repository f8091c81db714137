"""Comparison of this owner's ledger with what aggregators keep of it.

`LedgerGuard` watches the ledger heads that aggregators show, and stops all work once the ledger lacks an
entry that this owner signed. `recall` requests everything that this owner signed from every aggregator and
checks it, for `owner_node.release.recovery`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime

from common.errors import IntegrityError, NotConnectedError, TesseraError
from common.model.fragment import MOST_ENTRIES, Consent, FragmentStatement, LedgerHead
from common.model.plan import Plan, is_trial
from common.trust.signing import Domain
from common.wire.v1 import owner_pb2 as wire
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.connection.client import AggregatorClient, explain, trust_in
from owner_node.ledger.losses import Recalled, Shown
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
    """Whether this owner signed a ledger head, as an aggregator keeps it; see `own_signature`."""
    try:
        payload = LedgerHead(owner, shown.sequence, shown.hash).to_bytes()
    except ValueError:
        return False
    return own_signature(records, trust, Domain.LEDGER_HEAD, payload, shown.signature, shown.certificate)


def own_signature(
    records: Records, trust: Trust, domain: Domain, payload: bytes, signature: bytes, chain_pem: bytes
) -> bool:
    """Whether this owner signed something, by a key stored in owner.db or by its certificate.

    A stored key outlives the CA that certified it; the certificate still proves it if owner.db was lost.

    Args:
        signature: DER.
        chain_pem: The certificate chain that came with it.
    """
    return records.own_keys.signed(domain, payload, signature) or trust.is_own(
        domain, payload, signature, chain_pem
    )


_MOST_PLACES = 100_000
_MOST_RELEASES = 100_000
_MOST_BYTES = 1 << 30
"""Limits per aggregator, since the answer is collected in memory."""


async def recall(
    config: OwnerConfig, records: Records, without: Iterable[str], clock: Callable[[], datetime]
) -> tuple[Shown, ...]:
    """Request from every configured aggregator what this owner signed for it.

    Raises:
        NotConnectedError: If one does not answer; nothing was changed.
        IntegrityError: If one shows something that is not this owner's.
    """
    asked = [section for section in config.aggregators if section.name not in set(without)]
    return tuple([await _ask(config, section, records, clock) for section in asked])


async def _ask(
    config: OwnerConfig, section: KnownAggregator, records: Records, clock: Callable[[], datetime]
) -> Shown:
    trust = trust_in(config, section.name, clock)
    places: list[Head] = []
    releases: list[Recalled] = []
    try:
        async with AggregatorClient(section.address, config.tls) as client:
            response = await client.connect([dataset.name for dataset in config.datasets], trust)
            async for item in _within_limits(client.recall(), section.name):
                places += [Head(head.sequence, head.hash) for head in item.heads]
                # No trial was ever charged.
                if item.HasField("release") and not is_trial(item.release.release):
                    releases.append(
                        _check_release(item.release, config.owner.id, section.name, records, trust)
                    )
    except NotConnectedError as error:
        cause = explain(section, config.tls, clock()) or error
        raise NotConnectedError(
            f"aggregator {section.name} does not answer: {cause.message}",
            "every aggregator has to show what it knows; leave out one that is gone for ever with "
            f"--without {section.name}: then only what the ledger has reserved there is charged",
            {"aggregator": section.name},
        ) from None
    newest = newest_head(response)
    proved = newest is not None and own_head(records, config.owner.id, trust, response.newest_ledger_head)
    return Shown(section.name, newest, proved, tuple(places), tuple(releases))


async def _within_limits(
    items: AsyncIterator[wire.RecallItem], aggregator: str
) -> AsyncIterator[wire.RecallItem]:
    """Yield what an aggregator shows, up to the limits of an honest one."""
    n_places = n_releases = n_bytes = 0
    async for item in items:
        n_places += len(item.heads)
        n_releases += item.HasField("release")
        n_bytes += item.ByteSize()
        too_many = n_places > _MOST_PLACES or n_releases > _MOST_RELEASES or n_bytes > _MOST_BYTES
        if too_many or any(head.sequence >= MOST_ENTRIES for head in item.heads):
            raise IntegrityError(
                f"aggregator {aggregator} shows more than this owner can have signed",
                f"ask its operator; --without {aggregator} leaves it out, and charges only what the ledger "
                "has reserved there",
                {"aggregator": aggregator},
            )
        yield item


def _check_release(
    item: wire.RecalledRelease, owner: str, aggregator: str, records: Records, trust: Trust
) -> Recalled:
    """Check one release as untrusted input: a charge that follows from it is final."""
    refused = IntegrityError(
        f"aggregator {aggregator} shows a release that is not this owner's, or is malformed",
        "both sides must run compatible versions; ask the aggregator's operator",
        {"aggregator": aggregator},
    )
    try:
        plan = Plan.from_bytes(item.plan)
        consent = Consent.accepting(plan, owner, item.key_check, item.key_generation)
        sealed = FragmentStatement.from_bytes(item.fragment) if item.fragment else None
    except (ValueError, TesseraError):
        raise refused from None
    if item.release != plan.release or owner not in plan.owners:
        raise refused
    about = (plan.release, owner, plan.digest)
    if sealed is not None and (sealed.release, sealed.owner, sealed.plan_digest) != about:
        raise refused
    signed = (item.consent_signature, item.consent_certificate)
    proved = own_signature(records, trust, Domain.CONSENT, consent.to_bytes(), *signed)
    return Recalled(aggregator, plan, proved, item.masking_asked, sealed is not None)
