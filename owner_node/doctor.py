"""The checks of `owner-node doctor`, in the order of their dependencies."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from common.cli import doctor_network as network
from common.cli.doctor import (
    Check,
    CheckOutcome,
    Finding,
    database,
    examine,
    failed_with,
    free_disk,
    identity,
    kept_clock,
    load_configuration,
    passed,
    private_file,
    private_folder,
    processor,
    recipients,
    scratch_folder,
    skipped,
    warned,
)
from common.cli.doctor_network import skew
from common.clock import utc_now
from common.errors import TesseraError
from common.model.compatibility import common_protocol
from common.trust.credentials import Identity
from common.trust.identity import Party, PartyKind
from common.trust.proxy import proxy_to
from common.words.numbers import count_text, moment_text, size_text
from owner_node import config
from owner_node.config import DatasetConfig, KnownAggregator, OwnerConfig
from owner_node.config.engine import EngineKind
from owner_node.connection.client import explain as explain_handshake
from owner_node.connection.client import host_and_port
from owner_node.connection.command_client import probe_aggregator
from owner_node.connection.credentials import own_party
from owner_node.engines.choice import engine_of
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.loading import probe
from owner_node.loading.hidden import hidden_files
from owner_node.release.attempts import Attempts
from owner_node.state.database import FILE_NAME, OwnerDatabase
from owner_node.state.history import History
from owner_node.state.notification_pipe import NO_RESPONSE, NO_RESPONSE_HINT, responds
from owner_node.state.presence import DaemonPresence
from owner_node.state.sessions import Sessions


def examination(path: Path | None, *, examples: bool) -> Iterator[Finding]:
    """Check everything that an owner node needs, enrolled or not.

    Args:
        examples: Whether a finding names similar columns and files: on a terminal, never on a page.

    Yields:
        Findings, as soon as they are made.
    """
    findings, owner = load_configuration("owner-node", lambda: config.load(path))
    yield from findings
    if owner is None:
        return
    offered = (
        f"{count_text(len(owner.datasets), 'data set')}, {count_text(len(owner.aggregators), 'aggregator')}"
    )
    yield passed("configuration", f"{owner.path}: owner {owner.owner.id!r}, {offered}")
    for text, hint in owner.unmatched_attributes():
        yield warned("policy", text, hint)
    yield from examine(_local(owner))
    findings, own = identity("identity", owner.tls, own_party(owner), "client", utc_now())
    yield from findings
    yield from examine(_of_data(owner, examples=examples))
    for aggregator in owner.aggregators:
        name = f"aggregator {aggregator.name!r}"
        yield from examine([(name, partial(_network, owner, aggregator, own, name))])
    if not owner.aggregators:
        yield warned("aggregator", "none is named", "add an [[aggregator]] with name and address")
    yield from examine([("daemon", lambda: _daemon(owner))])


def _hidden(owner: OwnerConfig) -> Iterator[Finding]:
    for text in hidden_files(owner):
        problem, _, hint = text.partition("; ")
        yield warned("data sets", problem, hint)


def _local(owner: OwnerConfig) -> Iterator[tuple[str, Check]]:
    state = owner.owner.state_dir
    yield "state", lambda: private_folder("state", state)
    yield "disk", lambda: free_disk("disk", state)
    if owner.engine.scratch is not None:
        scratch = owner.engine.scratch
        yield "scratch", lambda: scratch_folder("scratch", scratch)
    yield "engine", lambda: _engine(owner)
    yield from recipients(owner.audit, owner.notify)
    yield "clock", kept_clock
    yield "processor", processor
    yield "database", lambda: database("database", state / FILE_NAME)
    yield "ledger", lambda: _ledger(owner)


def _engine(owner: OwnerConfig) -> Iterator[Finding]:
    """Check that scratch is private and has room for the largest data set."""
    workspace, scratch = owner.workspace, owner.engine.scratch
    if scratch is not None and not scratch.parent.is_dir():
        # Starting would make the folder, perhaps where a disk is mounted later.
        yield skipped("engine", f"it starts in {scratch}, which is not there")
        return
    free, needed = workspace.free(), 0
    with workspace.file() as stream:
        stream.write(b"x")
    for dataset in owner.datasets:
        choice = engine_of(dataset, owner.engine, workspace)
        needed = max(needed, choice.scratch_bytes or 0)
        said = f"data set {dataset.name!r}: {choice.text}"
        if choice.too_large:
            yield warned("engine", said, "raise engine.memory_limit in owner.toml, or bring fewer records")
        else:
            yield passed("engine", said)
    if owner.uses_spark:
        yield from _spark(owner)
    free_text = f"{size_text(free)} free in {workspace.scratch}"
    if needed > free:
        text = f"{free_text}, a release may need {size_text(needed)}"
        yield warned("engine", text, "free some, or name a folder on a larger disk: engine.scratch")
    else:
        yield passed("engine", free_text)


def _spark(owner: OwnerConfig) -> Iterator[Finding]:
    """Check that pyspark, Java and the master are there, and that an executor runs what releases need."""
    from owner_node.engines.spark import Cluster

    settings = owner.engine.spark(owner.workspace)
    masks = owner.engine.kind is EngineKind.SPARK
    with settings.workspace.folder("doctor") as folder:
        Cluster(settings, folder, masks=masks).close()
    yield passed("engine", f"Spark starts, master {settings.master}")
    if not settings.is_protected:
        yield warned(
            "engine",
            "the executors of the Spark cluster send original values unencrypted",
            "set spark.authenticate.secret in engine.conf, and for its master and workers",
        )


def _ledger(owner: OwnerConfig) -> Iterator[Finding]:
    """Verify both chains, check for lost entries and unrecorded totals, and count attempts."""
    if not (owner.owner.state_dir / FILE_NAME).is_file():
        return
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        book = Ledger(db, utc_now)
        book.verify()
        History(db, utc_now).verify()
        halted = book.losses.reason()
        if halted is not None:
            raise halted
        yield passed("ledger", f"ledger and history hold, {book.head().sequence} ledger entries")
        book.check_totals({dataset.budget: dataset.total_epsilon for dataset in owner.datasets})
        attempts = Attempts(Sessions(db, utc_now), utc_now)
        for allowance in attempts.allowances(owner):
            if allowance.blocked:
                yield warned("attempts", str(allowance), "find out in owner-node history who asks so often")
            else:
                yield passed("attempts", str(allowance))


def _of_data(owner: OwnerConfig, *, examples: bool) -> Iterator[tuple[str, Check]]:
    for dataset in owner.datasets:
        name = f"data set {dataset.name!r}"
        yield name, partial(_source, dataset, name, examples=examples)
    yield "data sets", lambda: _hidden(owner)
    if any(dataset.person_columns for dataset in owner.datasets):
        yield "linkage key", lambda: _linkage_key(owner)


def _source(dataset: DatasetConfig, check: str, *, examples: bool) -> Iterator[Finding]:
    for secret in filter(None, (dataset.password_file, dataset.credentials_file)):
        yield from private_file(check, secret)
    probe(dataset, examples=examples)
    yield passed(check, f"{dataset.origin.shown} can be read and has the declared columns")


def _linkage_key(owner: OwnerConfig) -> Iterator[Finding]:
    try:
        key = linkage_key.load(owner.owner.state_dir)
    except TesseraError as error:
        yield warned("linkage key", error.message, error.hint)
    else:
        yield passed("linkage key", f"there is one, generation {key.generation}, check value {key.check}")


def _network(
    owner: OwnerConfig, aggregator: KnownAggregator, own: Identity | None, check: str
) -> Iterator[Finding]:
    """Check the route to an aggregator step by step, up to the first failure."""
    host, port = host_and_port(aggregator.address)
    through = proxy_to(host, port=port)
    yield network.proxy(f"{check}, proxy", host, through, port)
    if through is None:
        names = [*network.name(f"{check}, name", host)]
        yield from names
        if any(finding.outcome is CheckOutcome.FAIL for finding in names):
            return
    else:
        yield skipped(f"{check}, name", f"the proxy looks {host} up")
    finding, seen = network.reach(f"{check}, TLS", host, port, through)
    yield finding
    if seen is not None:
        party = Party(PartyKind.AGGREGATOR, aggregator.name, owner.owner.trust_domain)
        shown = f"{check}, certificate"
        yield from examine([(shown, lambda: network.shown_names(shown, host, seen, party, utc_now()))])
        if own is None:
            yield from examine(
                [(shown, lambda: network.issued_under(shown, host, port, owner.tls.ca, through))]
            )
    if own is None:
        yield skipped(f"{check}, calls", "they need a certificate of this owner")
    elif seen is not None:
        yield from _calls(owner, aggregator, own, check)


def _calls(owner: OwnerConfig, aggregator: KnownAggregator, own: Identity, check: str) -> Iterator[Finding]:
    """Call the aggregator as the daemon does, and compare versions and clocks."""
    reason: TesseraError | None = explain_handshake(aggregator, owner.tls, utc_now())
    before = time.time()
    if reason is None:
        try:
            software, theirs = probe_aggregator(owner, aggregator, own)
        except TesseraError as error:
            reason = error
        else:
            protocol = common_protocol("this owner node", {"the aggregator": software})
            said = f"accepted; version {software.version}, protocol {protocol} on both sides"
            yield passed(f"{check}, calls", said)
            yield skew(f"{check}, clock", theirs, before, time.time())
            return
    yield failed_with(f"{check}, calls", reason)


def _daemon(owner: OwnerConfig) -> Iterator[Finding]:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        state = DaemonPresence(db, utc_now).state()
    if not state.running:
        yield warned("daemon", "it does not run", "start it: owner-node run")
        return
    yield passed(
        "daemon", f"runs as process {state.pid} since {moment_text(state.started)}, version {state.version}"
    )
    if not responds(owner.owner.state_dir):
        yield warned("daemon", NO_RESPONSE, NO_RESPONSE_HINT)
    outdated = state.outdated(owner.digest)
    if outdated:
        yield warned("daemon", outdated, "restart it: owner-node run reads owner.toml when it starts")
    for connection in state.connections:
        if connection.connected:
            yield passed(
                "daemon", f"connected to {connection.aggregator!r} since {moment_text(connection.since)}"
            )
        else:
            yield warned(
                "daemon", f"not connected to {connection.aggregator!r}: {connection.reason}", "see above"
            )
