"""All that this owner signed, requested from every aggregator and checked, to recover a ledger."""

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime

from common.errors import IntegrityError, NotConnectedError, TesseraError
from common.model.fragment import MOST_ENTRIES, Consent, FragmentStatement
from common.model.plan import Plan, is_trial
from common.trust.signing import Domain
from common.wire.v1 import owner_pb2 as wire
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.connection.client import AggregatorClient, explain
from owner_node.connection.command_client import trust_in
from owner_node.connection.ledger_guard import newest_head, own_head, own_signature
from owner_node.release.records import Records
from owner_node.release.recovery import Recalled, Shown
from owner_node.state.chain import Head
from owner_node.trust import Trust

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
