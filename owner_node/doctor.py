"""The checks of `owner-node doctor`, in the order of their dependencies."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from common.cli import doctor_network as network
from common.cli.doctor import (
    Check,
    CheckOutcome,
    Finding,
    configured,
    database,
    examine,
    failed_with,
    free_disk,
    identity,
    kept_clock,
    passed,
    private_file,
    private_folder,
    skipped,
    warned,
)
from common.cli.doctor_network import skew
from common.clock import utc_now
from common.errors import TesseraError
from common.trust.credentials import Identity
from common.trust.identity import Party, PartyKind
from owner_node import config
from owner_node.config import DatasetConfig, KnownAggregator, OwnerConfig
from owner_node.connection.client import PROTOCOL, greet
from owner_node.connection.client import explain as explain_handshake
from owner_node.connection.credentials import own_party
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.release.attempts import Attempts
from owner_node.sources import probe
from owner_node.state.database import FILE_NAME, OwnerDatabase
from owner_node.state.history import History
from owner_node.state.presence import DaemonPresence
from owner_node.state.sessions import Sessions


def examination(path: Path | None) -> Iterator[Finding]:
    """Check everything that an owner node needs, enrolled or not.

    Args:
        path: Value of `--config`.

    Yields:
        Findings, as soon as they are made.
    """
    findings, owner = configured("owner-node", lambda: config.load(path))
    yield from findings
    if owner is None:
        return
    offered = f"{len(owner.datasets)} data set(s), {len(owner.aggregators)} aggregator(s)"
    yield passed("configuration", f"{owner.path}: owner {owner.owner.id!r}, {offered}")
    yield from examine(_local(owner))
    findings, own = identity("identity", owner.tls, own_party(owner), "client", utc_now())
    yield from findings
    yield from examine(_of_data(owner))
    for aggregator in owner.aggregators:
        yield from examine(_of_aggregator(owner, aggregator, own))
    if not owner.aggregators:
        yield warned("aggregator", "none is named", "add an [[aggregator]] with name and address")
    yield from examine([("daemon", lambda: _daemon(owner))])


def _local(owner: OwnerConfig) -> Iterator[tuple[str, Check]]:
    state = owner.owner.state_dir
    yield "state", lambda: private_folder("state", state)
    yield "disk", lambda: free_disk("disk", state)
    yield "clock", kept_clock
    yield "database", lambda: database("database", state / FILE_NAME)
    if (state / FILE_NAME).is_file():
        yield "ledger", lambda: _ledger(owner)


def _ledger(owner: OwnerConfig) -> Iterator[Finding]:
    """Verify both chains, check for lost entries and unrecorded totals, and count attempts."""
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        book = Ledger(db, utc_now)
        book.verify()
        History(db, utc_now).verify()
        halted = book.losses.reason()
        if halted is not None:
            raise halted
        yield passed("ledger", f"ledger and history hold, {book.head().sequence} ledger entries")
        book.check_totals({each.budget: each.total_epsilon for each in owner.datasets})
        attempts = Attempts(History(db, utc_now), Sessions(db, utc_now), utc_now)
        for each in attempts.allowances(owner):
            if each.blocked:
                yield warned("attempts", str(each), "find out in owner-node history who asks so often")
            else:
                yield passed("attempts", str(each))


def _of_data(owner: OwnerConfig) -> Iterator[tuple[str, Check]]:
    for dataset in owner.datasets:
        yield f"data set {dataset.name!r}", _source_of(dataset)
    if any(dataset.identifier for dataset in owner.datasets):
        yield "linkage key", lambda: _linkage_key(owner)


def _source_of(dataset: DatasetConfig) -> Check:
    def check() -> Iterator[Finding]:
        name = f"data set {dataset.name!r}"
        if dataset.password_file is not None:
            yield from private_file(name, dataset.password_file)
        probe(dataset, examples=True)
        yield passed(name, f"{dataset.place} can be read and has the declared columns")

    return check


def _linkage_key(owner: OwnerConfig) -> Iterator[Finding]:
    try:
        found = linkage_key.load(owner.owner.state_dir)
    except TesseraError as error:
        yield warned("linkage key", error.message, error.hint)
    else:
        yield passed("linkage key", f"there is one, generation {found.generation}, check value {found.check}")


def _of_aggregator(
    owner: OwnerConfig, aggregator: KnownAggregator, own: Identity | None
) -> Iterator[tuple[str, Check]]:
    name = f"aggregator {aggregator.name!r}"
    yield name, lambda: _network(owner, aggregator, own, name)


def _network(
    owner: OwnerConfig, aggregator: KnownAggregator, own: Identity | None, check: str
) -> Iterator[Finding]:
    """Check the route to an aggregator step by step, up to the first failure."""
    host, port = _place(aggregator)
    taken, direct = network.proxy(f"{check}, proxy", host, os.environ)
    yield taken
    names = [*network.name(f"{check}, name", host)]
    yield from names
    if direct and any(each.outcome is CheckOutcome.FAIL for each in names):
        return
    found, seen = network.reach(f"{check}, TLS", host, port, direct=direct)
    yield found
    if seen is not None:
        party = Party(PartyKind.AGGREGATOR, aggregator.name, owner.owner.trust_domain)
        shown = f"{check}, certificate"
        yield from examine([(shown, lambda: network.shown_names(shown, host, seen, party, utc_now()))])
        if own is None:
            yield from examine([(shown, lambda: network.issued_under(shown, host, port, owner.tls.ca))])
    if own is None:
        yield skipped(f"{check}, calls", "they need a certificate of this owner")
    elif seen is not None or not direct:
        yield from _calls(owner, aggregator, own, check, explain=seen is not None)


def _place(aggregator: KnownAggregator) -> tuple[str, int]:
    host, _, port = aggregator.address.rpartition(":")
    return host.strip("[]"), int(port)


def _calls(
    owner: OwnerConfig, aggregator: KnownAggregator, own: Identity, check: str, *, explain: bool
) -> Iterator[Finding]:
    """Call the aggregator as the daemon does, and compare versions and clocks."""
    reason: TesseraError | None = explain_handshake(aggregator, owner.tls, utc_now()) if explain else None
    before = time.time()
    if reason is None:
        try:
            version, theirs = greet(aggregator.address, own, [each.name for each in owner.datasets])
        except TesseraError as error:
            reason = error
        else:
            yield passed(f"{check}, calls", f"taken; version {version}, protocol {PROTOCOL} as here")
            yield skew(f"{check}, clock", theirs, before, time.time())
            return
    yield failed_with(f"{check}, calls", reason)


def _daemon(owner: OwnerConfig) -> Iterator[Finding]:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        state = DaemonPresence(db, utc_now).state()
    if not state.running:
        yield warned("daemon", "it does not run", "start it: owner-node run")
        return
    yield passed("daemon", f"runs as process {state.pid} since {state.started}, version {state.version}")
    outdated = state.outdated(owner.digest)
    if outdated:
        yield warned("daemon", outdated, "restart it: owner-node run reads owner.toml when it starts")
    for each in state.connections:
        if each.connected:
            yield passed("daemon", f"connected to {each.aggregator!r} since {each.since}")
        else:
            yield warned("daemon", f"not connected to {each.aggregator!r}: {each.reason}", "see above")
