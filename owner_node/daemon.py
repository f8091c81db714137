"""The owner's process: one object that puts the parts together and takes them apart again."""

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from common import __version__
from common.audit import Delivery, open_sinks
from common.credentials import Credentials
from common.errors import ConfigurationError
from common.service_manager import READY, STOPPING, notify
from common.tally import Tally
from owner_node.config import AggregatorSection, OwnerConfig
from owner_node.connection.client import KINDS
from owner_node.connection.connection import Connection
from owner_node.connection.credentials import own_credentials, own_party
from owner_node.connection.renewal import Renewal
from owner_node.connection.trust import Trust
from owner_node.connection.worker import STEPS
from owner_node.ledger.guard import LedgerGuard
from owner_node.release.node import Node
from owner_node.state.audit_feed import AuditFeed
from owner_node.state.doorbell import Doorbell
from owner_node.state.presence import daemon_lock
from owner_node.state.records import Records

_log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


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
            credentials = own_credentials(self._config, _now)
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
        records = Records.open(state_dir, _now)
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
            from common.metrics import Endpoint
            from owner_node.metrics import Metrics

            metrics = Metrics(self._config, records, credentials, tally)
            stack.push_async_callback(Endpoint(self._config.metrics.listen, metrics.families).close)

    def _connections(self, records: Records, credentials: Credentials, tally: Tally) -> list[Connection]:
        owner, tls = self._config.owner, self._config.tls
        guard = LedgerGuard(records, owner.id)
        renewal = Renewal(credentials, tls, own_party(self._config), _now)

        def connection(aggregator: AggregatorSection) -> Connection:
            trust = Trust(credentials.authorities, owner.trust_domain, owner.id, aggregator.name, _now)
            node = Node(self._config, aggregator.name, records, credentials, trust, _now)
            return Connection(
                self._config, aggregator, node, records, trust, credentials, renewal, guard, _now, tally
            )

        return [connection(aggregator) for aggregator in self._config.aggregators]


async def run(config: OwnerConfig) -> None:
    """Run an owner node until the process is told to stop."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await Daemon(config).run(stopping)
