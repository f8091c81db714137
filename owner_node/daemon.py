"""The owner node's daemon: one connection per aggregator, audit delivery, and metrics for Prometheus."""

import asyncio
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from operator import attrgetter

from prometheus_client.core import GaugeMetricFamily, Metric

from common import __version__
from common.clock import utc_now
from common.daemon.delivery import Delivery, open_sinks
from common.daemon.messengers import notice_sinks
from common.daemon.metrics import Endpoint, gauges
from common.daemon.notify import NotifySection
from common.daemon.process import READY, STOPPING, in_thread, notify, raise_file_limit, stop_event
from common.errors import ConfigurationError, TesseraError
from common.files import private_directory
from common.trust.credentials import Credentials
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.connection.client import SENT_BYTES
from owner_node.connection.connection import Connection
from owner_node.connection.credentials import Renewal, own_credentials, own_party
from owner_node.connection.ledger_guard import LedgerGuard
from owner_node.connection.worker import LONG_THREADS, STEP_SECONDS
from owner_node.notices import NOTICES, NoticeFeed, note_due
from owner_node.release.node import Node
from owner_node.release.records import Records
from owner_node.release.trial import trial_config, trial_folder
from owner_node.state.history import AuditFeed
from owner_node.state.presence import NotificationPipe, daemon_lock
from owner_node.state.session import SessionState
from owner_node.trust import Trust


class OwnerMetrics:
    """Current metrics of an owner node. Decimals become binary floats here and nowhere else."""

    def __init__(self, config: OwnerConfig, records: Records, credentials: Credentials) -> None:
        self._config, self._records, self._credentials = config, records, credentials
        self._loop = asyncio.get_running_loop()

    def families(self) -> list[Metric]:
        """Return all metrics; called in any thread but the event loop's, blocks while owner.db is written.

        Raises:
            TimeoutError: If the event loop has no time to answer: a daemon that hangs shows nothing.
        """
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(_ANSWER_SECONDS)
        records, aggregators = self._records, self._config.aggregators
        certificate = self._credentials.current_signer().certificate
        connected = {
            connection.aggregator
            for connection in records.presence.state().connections
            if connection.connected
        }
        sessions = records.sessions.count_by_state()
        return [
            gauges(
                "tessera_owner_info",
                "The owner, and the version that its node runs; always 1.",
                ("owner", "version"),
                [((self._config.owner.id, __version__), 1)],
            ),
            GaugeMetricFamily(
                "tessera_owner_certificate_expires_timestamp_seconds",
                "Expiry of the owner's certificate, in Unix time.",
                certificate.not_valid_after_utc.timestamp(),
            ),
            GaugeMetricFamily(
                "tessera_owner_halted",
                "Whether all work is stopped because the ledger lacks signed entries, 1 or 0.",
                records.ledger.losses.reason() is not None,
            ),
            gauges(
                "tessera_owner_connected",
                "Whether the connection to an aggregator is up, 1 or 0.",
                ["aggregator"],
                [((aggregator.name,), aggregator.name in connected) for aggregator in aggregators],
            ),
            gauges(
                "tessera_owner_sessions",
                "Number of releases in each state at this owner, including ended ones.",
                ["state"],
                [((state,), sessions.get(state, 0)) for state in SessionState],
            ),
            *self._budgets(),
        ]

    def _budgets(self) -> list[Metric]:
        balances = [
            (
                (dataset.name, dataset.budget),
                self._records.ledger.balance(dataset.budget, dataset.total_epsilon),
            )
            for dataset in self._config.datasets
        ]
        return [
            gauges(
                name,
                documentation,
                ("dataset", "budget"),
                [(labels, float(amount(balance))) for labels, balance in balances],
            )
            for name, documentation, amount in (
                (
                    "tessera_owner_budget_total_epsilon",
                    "Total epsilon of the budget of a data set, for its lifetime.",
                    attrgetter("total"),
                ),
                (
                    "tessera_owner_budget_reserved_epsilon",
                    "Epsilon that is reserved for open releases.",
                    attrgetter("reserved"),
                ),
                (
                    "tessera_owner_budget_remaining_epsilon",
                    "Remaining epsilon, after spends and reservations.",
                    attrgetter("remaining"),
                ),
            )
        ]


_NOTE_SECONDS = 60.0
_ANSWER_SECONDS = 4.0
_PROGRESS_SECONDS = 2.0
_DROP_SECONDS = 3600.0
_log = logging.getLogger(__name__)


class OwnerDaemon:
    """A running owner node."""

    def __init__(self, config: OwnerConfig) -> None:
        self._config = config

    async def run(self, stopping: asyncio.Event) -> None:
        """Work for every aggregator until `stopping` is set; the first internal fault ends all.

        Raises:
            ConfigurationError: If a file or folder cannot be used.
            UsageError: If another process works on the same state.
            IntegrityError: If the ledger is not intact.
        """
        if not self._config.aggregators:
            raise ConfigurationError(
                f"{self._config.path} names no aggregator", hint="add an [[aggregator]] with name and address"
            )
        async with AsyncExitStack() as stack:
            credentials = own_credentials(self._config, utc_now)
            records = self._open(stack)
            audit, notices = self._audit(records)
            connections = self._connections(records, self._trial_records(stack), credentials)

            def check_decisions() -> None:
                audit.wake()
                for connection in connections:
                    connection.check_decisions()

            stack.callback(NotificationPipe(self._config.owner.state_dir, check_decisions).close)
            if self._config.metrics.listen:
                metrics = OwnerMetrics(self._config, records, credentials)
                endpoint = Endpoint(self._config.metrics.listen, metrics.families, [SENT_BYTES, STEP_SECONDS])
                stack.push_async_callback(endpoint.close)
            _log.info("ready", extra={"owner": self._config.owner.id, "version": __version__})
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(connection.run()) for connection in connections]
                others = (credentials.watch(), audit.run(), _write_progress(records), _drop_old(records))
                tasks += [group.create_task(coroutine) for coroutine in others]
                if self._config.notify != NotifySection():
                    tasks += [group.create_task(notices.run()), group.create_task(self._note_due(records))]
                notify(READY)
                await stopping.wait()
                notify(STOPPING)
                for task in tasks:
                    task.cancel()
        _log.info("stopped")

    def _open(self, stack: AsyncExitStack) -> Records:
        state_dir = private_directory(self._config.owner.state_dir)
        # The records of releases that were interrupted lie there, and may leave no room for what comes next.
        # What another process uses is locked.
        self._config.workspace.clear()
        records = Records.open(state_dir, utc_now, self._config.owner.keep_for_audit)
        stack.callback(records.db.close)
        stack.enter_context(daemon_lock(state_dir))
        records.ledger.verify()
        records.clean_outbox()
        records.presence.note_started(os.getpid(), __version__, self._config.digest)
        stack.callback(records.presence.note_stopped)
        return records

    def _trial_records(self, stack: AsyncExitStack) -> Records | None:
        """Open the state of trials, if the policy allows them; the daemon's lock covers it."""
        if not self._config.policy.allow_trials:
            return None
        records = Records.open(trial_folder(self._config.owner.state_dir), utc_now)
        stack.callback(records.db.close)
        records.clean_outbox()
        return records

    def _audit(self, records: Records) -> tuple[Delivery, Delivery]:
        """Return the tasks that copy the history to the audit sinks, and tell people, after every commit."""
        owner = self._config.owner.id
        feed = AuditFeed(records.db, records.history, owner)
        audit = Delivery(feed, open_sinks(self._config.audit, "tessera-owner-node"))
        sinks = notice_sinks(self._config.notify, NOTICES, f"owner {owner}")
        to_people = NoticeFeed(records.db, records.history, owner)
        to_people.keep_sinks({sink.name: former for sink, former in sinks.items()})
        notices = Delivery(to_people, tuple(sinks))

        def committed() -> None:
            audit.wake()
            notices.wake()

        records.db.committed = committed
        return audit, notices

    async def _note_due(self, records: Records) -> None:
        """Record what the clock brings about for people, now and every minute, until cancelled."""
        while True:
            try:
                await in_thread(note_due, self._config, records, utc_now)
            except TesseraError as error:
                # A full disk, for example: releases continue, and a minute later it is tried again.
                _log.warning("people not notified", extra={"reason": error.message})
            await asyncio.sleep(_NOTE_SECONDS)

    def _connections(
        self, records: Records, trials: Records | None, credentials: Credentials
    ) -> list[Connection]:
        owner, tls = self._config.owner, self._config.tls
        guard = LedgerGuard(records, owner.id)
        renewal = Renewal(credentials, tls, own_party(self._config), utc_now)

        def connection(aggregator: KnownAggregator) -> Connection:
            trust = Trust(credentials.authorities, owner.trust_domain, owner.id, aggregator.name, utc_now)
            parties = (credentials, trust, utc_now)
            node = Node(self._config, aggregator.name, records, *parties)
            trial = (
                None
                if trials is None
                else Node(trial_config(self._config), aggregator.name, trials, *parties)
            )
            return Connection(
                self._config, aggregator, node, records, trust, credentials, renewal, guard, utc_now, trial
            )

        return [connection(aggregator) for aggregator in self._config.aggregators]


async def _write_progress(records: Records) -> None:
    """Write how far long steps are, for commands and pages, until cancelled."""
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        await in_thread(records.presence.write_progress)


async def _drop_old(records: Records) -> None:
    """Delete what is kept for a time only, once that is over, until cancelled."""
    while True:
        await asyncio.sleep(_DROP_SECONDS)
        try:
            await in_thread(records.drop_fragments)
        except TesseraError as error:
            _log.warning("nothing was deleted", extra={"reason": error.message})


_SWITCH_SECONDS = 0.0005
"""How long one thread keeps the interpreter. While plans of 2 MB of another aggregator are decided, a release
takes 2.5 s; with Python's 5 ms it takes 4.1 s, and 0.9 s alone (all parties in one process)."""


_FILES = 4096
"""Open files for aggregators and what long work keeps on disk; many systems allow 1,024 by default."""
_SHORT_THREADS = 4
"""Threads for what is soon done, such as reading the database, while every aggregator has long work."""


async def run(config: OwnerConfig) -> None:
    """Run an owner node until a stop signal arrives."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    raise_file_limit(_FILES)
    n_threads = LONG_THREADS * len(config.aggregators) + _SHORT_THREADS
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(n_threads))
    await OwnerDaemon(config).run(stop_event())
