"""What Prometheus is told about an owner node. Only imported where `[metrics]` names a port.

Exact decimals become binary floats here and nowhere else: a budget is decided about in the ledger.
"""

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack

from prometheus_client.core import Metric

from common import __version__
from common.clock import utc_now
from common.daemon.audit import Delivery, open_sinks
from common.daemon.metrics import Tally, bytes_counted, gauge, step_seconds
from common.daemon.service_manager import READY, STOPPING, notify
from common.errors import ConfigurationError
from common.trust.credentials import Credentials
from owner_node.config import AggregatorSection, OwnerConfig
from owner_node.connection.client import KINDS
from owner_node.connection.connection import Connection
from owner_node.connection.credentials import Renewal, own_credentials, own_party
from owner_node.connection.recall import LedgerGuard
from owner_node.connection.worker import STEPS
from owner_node.release.node import Node
from owner_node.release.records import Records
from owner_node.state.history import AuditFeed
from owner_node.state.presence import Doorbell, daemon_lock
from owner_node.state.session import State
from owner_node.trust import Trust


class Metrics:
    """How the daemon is, as families of metrics.

    Args:
        config: The owner's configuration.
        records: The owner's state.
        credentials: The owner's identity of now.
        tally: What was counted.
    """

    def __init__(self, config: OwnerConfig, records: Records, credentials: Credentials, tally: Tally) -> None:
        self._config, self._records = config, records
        self._credentials, self._tally = credentials, tally

    def families(self) -> list[Metric]:
        """Return how things stand; may be called in any thread, and blocks while owner.db is written."""
        certificate = self._credentials.current_signer().certificate
        return [
            gauge(
                "tessera_owner_info",
                "The owner, and the version that its node runs; always 1.",
                [((self._config.owner.id, __version__), 1)],
                ("owner", "version"),
            ),
            gauge(
                "tessera_owner_certificate_expires_timestamp_seconds",
                "Until when the owner's certificate is valid, in Unix time.",
                [((), certificate.not_valid_after_utc.timestamp())],
            ),
            gauge(
                "tessera_owner_halted",
                "Whether all work is stopped because the ledger lacks what was signed, 1 or 0.",
                [((), self._records.ledger.losses.reason() is not None)],
            ),
            self._connected(),
            self._sessions(),
            *self._budgets(),
            bytes_counted(
                "tessera_owner_sent_bytes",
                "Bytes of tokens and fragments that were sent since the start.",
                self._tally,
            ),
            step_seconds(
                "tessera_owner_step_seconds",
                "How long this owner worked at each step of releases, since the start.",
                self._tally,
            ),
        ]

    def _connected(self) -> Metric:
        standing = {each.aggregator for each in self._records.presence.state().connections if each.connected}
        return gauge(
            "tessera_owner_connected",
            "Whether the connection to an aggregator stands, 1 or 0.",
            [((each.name,), each.name in standing) for each in self._config.aggregators],
            ("aggregator",),
        )

    def _sessions(self) -> Metric:
        counted = self._records.sessions.counted()
        return gauge(
            "tessera_owner_sessions",
            "How many releases are in each state at this owner, those that ended included.",
            [((str(state),), counted.get(state, 0)) for state in State],
            ("state",),
        )

    def _budgets(self) -> list[Metric]:
        balances = [
            ((each.name, each.budget), self._records.ledger.balance(each.budget, each.total_epsilon))
            for each in self._config.datasets
        ]
        labels = ("dataset", "budget")
        return [
            gauge(
                "tessera_owner_budget_total_epsilon",
                "What the budget of a data set holds for its lifetime.",
                [(of, float(balance.total)) for of, balance in balances],
                labels,
            ),
            gauge(
                "tessera_owner_budget_reserved_epsilon",
                "What of it is reserved for releases under way.",
                [(of, float(balance.reserved)) for of, balance in balances],
                labels,
            ),
            gauge(
                "tessera_owner_budget_remaining_epsilon",
                "What is left of it, reservations taken off.",
                [(of, float(balance.remaining)) for of, balance in balances],
                labels,
            ),
        ]


_log = logging.getLogger(__name__)


class Daemon:
    """A running owner node.

    Args:
        config: Its configuration.
    """

    def __init__(self, config: OwnerConfig) -> None:
        self._config = config

    async def run(self, stopping: asyncio.Event) -> None:
        """Attend to every aggregator until told to stop; the first internal fault ends all.

        Raises:
            ConfigurationError: If a file or folder cannot be used.
            UsageError: If another process works on the same state.
            IntegrityError: If the ledger does not hold.
        """
        if not self._config.aggregators:
            raise ConfigurationError(
                f"{self._config.path} names no aggregator", hint="add an [[aggregator]] with name and address"
            )
        async with AsyncExitStack() as stack:
            credentials = own_credentials(self._config, utc_now)
            records = self._open(stack)
            audit = self._audit(records)
            tally = Tally(STEPS, KINDS)
            connections = self._connections(records, credentials, tally)

            def look_again() -> None:
                audit.wake()
                for connection in connections:
                    connection.look_again()

            stack.callback(Doorbell(self._config.owner.state_dir, look_again).close)
            self._offer_metrics(stack, records, credentials, tally)
            _log.info("ready", extra={"owner": self._config.owner.id, "version": __version__})
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(connection.attend()) for connection in connections]
                tasks += [group.create_task(credentials.watch()), group.create_task(audit.run())]
                notify(READY)
                await stopping.wait()
                notify(STOPPING)
                for task in tasks:
                    task.cancel()
        _log.info("stopped")

    def _open(self, stack: AsyncExitStack) -> Records:
        state_dir = self._config.owner.state_dir
        records = Records.open(state_dir, utc_now)
        stack.callback(records.db.close)
        stack.enter_context(daemon_lock(state_dir))
        records.ledger.verify()
        records.clean_outbox()
        records.presence.started(os.getpid(), __version__, self._config.digest)
        stack.callback(records.presence.stopped)
        return records

    def _audit(self, records: Records) -> Delivery:
        """Return what copies the history to the configured sinks, woken by every commit."""
        feed = AuditFeed(records.db, records.history, self._config.owner.id)
        delivery = Delivery(feed, open_sinks(self._config.audit, "tessera-owner-node"))
        records.db.committed = delivery.wake
        return delivery

    def _offer_metrics(
        self, stack: AsyncExitStack, records: Records, credentials: Credentials, tally: Tally
    ) -> None:
        if self._config.metrics.listen:
            # A daemon that nobody asks does without the library.
            from common.daemon.metrics import Endpoint

            metrics = Metrics(self._config, records, credentials, tally)
            stack.push_async_callback(Endpoint(self._config.metrics.listen, metrics.families).close)

    def _connections(self, records: Records, credentials: Credentials, tally: Tally) -> list[Connection]:
        owner, tls = self._config.owner, self._config.tls
        guard = LedgerGuard(records, owner.id)
        renewal = Renewal(credentials, tls, own_party(self._config), utc_now)

        def connection(aggregator: AggregatorSection) -> Connection:
            trust = Trust(credentials.authorities, owner.trust_domain, owner.id, aggregator.name, utc_now)
            node = Node(self._config, aggregator.name, records, credentials, trust, utc_now)
            return Connection(
                self._config, aggregator, node, records, trust, credentials, renewal, guard, utc_now, tally
            )

        return [connection(aggregator) for aggregator in self._config.aggregators]


async def run(config: OwnerConfig) -> None:
    """Run an owner node until the process is told to stop."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await Daemon(config).run(stopping)
