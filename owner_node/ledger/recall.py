"""Asks the aggregators what this owner signed, and checks it, for `owner_node.ledger.recovery`."""

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime

from common.errors import IntegrityError, NotConnectedError, TesseraError
from common.fragment import MOST_ENTRIES, Consent, FragmentStatement
from common.plan import Plan
from common.signing import Domain, load_chain
from common.wire.v1 import owner_pb2 as wire
from owner_node.config import AggregatorSection, OwnerConfig
from owner_node.connection.client import AggregatorClient, explain
from owner_node.connection.trust import Trust
from owner_node.ledger.guard import own_head, own_signature
from owner_node.ledger.recovery import Recalled, Shown
from owner_node.state.chain import Head
from owner_node.state.records import Records

_MOST_PLACES = 100_000
_MOST_RELEASES = 100_000
_MOST_BYTES = 1 << 30
"""Of one aggregator: what is collected lies in memory until all of it is there."""


async def recall(
    config: OwnerConfig, records: Records, without: Iterable[str], clock: Callable[[], datetime]
) -> tuple[Shown, ...]:
    """Ask every aggregator of the configuration.

    Args:
        config: The owner's configuration.
        records: The owner's state.
        without: Names of aggregators to leave out.
        clock: Tells the time.

    Raises:
        NotConnectedError: If one does not answer; nothing was changed.
        IntegrityError: If what one shows is not about this owner.
    """
    left_out = set(without)
    return tuple(
        [
            await _ask(config, section, records, clock)
            for section in config.aggregators
            if section.name not in left_out
        ]
    )


async def _ask(
    config: OwnerConfig, section: AggregatorSection, records: Records, clock: Callable[[], datetime]
) -> Shown:
    authorities = load_chain(config.tls.ca)
    trust = Trust(lambda: authorities, config.owner.trust_domain, config.owner.id, section.name, clock)
    places: list[Head] = []
    releases: list[Recalled] = []
    try:
        async with AggregatorClient(section.address, config.tls) as client:
            response = await client.connect([dataset.name for dataset in config.datasets])
            async for item in _bounded(client.recall(), section.name):
                places += [Head(each.sequence, each.hash) for each in item.heads]
                if item.HasField("release"):
                    releases.append(_checked(item.release, config.owner.id, section.name, records, trust))
    except NotConnectedError as error:
        found = explain(section, config.tls, clock()) or error
        raise NotConnectedError(
            f"aggregator {section.name} does not answer: {found.message}",
            "every aggregator has to show what it knows; one that is gone for ever is left out with "
            f"--without {section.name}, and what was released there is then not charged",
            {"aggregator": section.name},
        ) from None
    shown = response.newest_ledger_head
    newest = Head(shown.sequence, shown.hash) if response.HasField("newest_ledger_head") else None
    proved = newest is not None and own_head(records, config.owner.id, trust, shown)
    return Shown(section.name, newest, proved, tuple(places), tuple(releases))


async def _bounded(items: AsyncIterator[wire.RecallItem], aggregator: str) -> AsyncIterator[wire.RecallItem]:
    """Pass on what an aggregator shows, as long as an honest one could.

    Raises:
        IntegrityError: If it shows more than that, or a place that no ledger has.
    """
    n_places = n_releases = n_bytes = 0
    async for item in items:
        n_places += len(item.heads)
        n_releases += item.HasField("release")
        n_bytes += item.ByteSize()
        too_many = n_places > _MOST_PLACES or n_releases > _MOST_RELEASES or n_bytes > _MOST_BYTES
        if too_many or any(each.sequence >= MOST_ENTRIES for each in item.heads):
            raise IntegrityError(
                f"aggregator {aggregator} shows more than this owner can have signed",
                f"ask its operator; --without {aggregator} leaves it out, and what was released there is "
                "then not charged",
                {"aggregator": aggregator},
            )
        yield item


def _checked(
    item: wire.RecalledRelease, owner: str, aggregator: str, records: Records, trust: Trust
) -> Recalled:
    """Check one release; the aggregator may be mistaken, or lie, and what is charged stays charged.

    Raises:
        IntegrityError: If it is about another owner, or not what it says.
    """
    try:
        plan, statement = _read(item, owner)
        agreed = (item.key_check, "accept", item.key_generation)
        consent = Consent(plan.release, owner, plan.digest, *agreed)
    except (ValueError, TesseraError):
        raise IntegrityError(
            f"aggregator {aggregator} shows a release that is not this owner's, or not readable",
            "both sides must run compatible versions; ask the aggregator's operator",
            {"aggregator": aggregator},
        ) from None
    signed = (item.consent_signature, item.consent_certificate)
    proved = own_signature(records, trust, Domain.CONSENT, consent.to_bytes(), *signed)
    return Recalled(aggregator, plan, proved, item.masking_asked, statement is not None, item.settled)


def _read(item: wire.RecalledRelease, owner: str) -> tuple[Plan, FragmentStatement | None]:
    plan = Plan.from_bytes(item.plan)
    if item.release != plan.release or owner not in plan.owners:
        raise ValueError("a release of others")
    if not item.fragment:
        return plan, None
    statement = FragmentStatement.from_bytes(item.fragment)
    if (statement.release, statement.owner, statement.plan_digest) != (plan.release, owner, plan.digest):
        raise ValueError("a fragment of others")
    return plan, statement
