"""The aggregator's process: one object that wires the parts together and shuts them down."""

import asyncio
import gc
import logging
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from aggregator.api.answers import Answers
from aggregator.api.control_service import About, ControlService
from aggregator.api.owner_service import OwnerService
from aggregator.api.server_tls import server_credentials, server_options
from aggregator.api.statements import Statements
from aggregator.api.uploads import Uploads
from aggregator.ca.enrolment import Enrolment
from aggregator.ca.renewal import Renewals, renew_own
from aggregator.config import AggregatorConfig
from aggregator.drive.conductor import Conductor
from aggregator.drive.deadlines import elapsed
from aggregator.drive.notices import NOTICES, note_due
from aggregator.drive.operations import Operations
from aggregator.drive.presence import OwnerPresence
from aggregator.metrics import COUNTED, AggregatorMetrics
from aggregator.store.database import FILE_NAME
from aggregator.store.intake import Intake
from aggregator.store.journal import Journal
from aggregator.store.notices import FILE_NAME as NOTICES_FILE
from aggregator.store.notices import NoticeList
from aggregator.store.schemas import OfferedSchemas
from common.clock import utc_now
from common.daemon.delivery import Delivery, open_sinks
from common.daemon.messengers import notice_sinks
from common.daemon.metrics import Endpoint
from common.daemon.process import KEPT_FILES, READY, STOPPING, notify, raise_file_limit, stop_event
from common.errors import CannotListenError, CannotStoreError, ConfigurationError, TesseraError
from common.files import PRIVATE_FILE, RELEASE_DIRECTORY, exclusive_lock, private_directory, remove_leftovers
from common.trust.credentials import Credentials
from common.trust.identity import Party, PartyKind
from common.wire.limits import MESSAGE_LIMIT
from common.wire.v1.control_pb2_grpc import add_ControlServiceServicer_to_server
from common.wire.v1.owner_pb2_grpc import add_OwnerServiceServicer_to_server

_GRACE_SECONDS = 2.0
_NOTE_SECONDS = 60.0
_MOST_CONNECTIONS = 4096
"""Most connections of owners, counted before their handshake: anybody on the network can open one."""
_FILES_PER_CONNECTION = 2
"""The connection, and the file of an upload."""
_LONGEST_SOCKET_PATH = 100
"""Systems allow about 104 bytes for the path of a Unix socket."""
_OF_A_RELEASE = (
    "aggregator.release.assembly", "aggregator.release.linking", "aggregator.release.publication",
    "common.release.table", "common.release.report", "common.wire.decoding", "pyarrow.parquet", "pandas",
)  # fmt: skip
_log = logging.getLogger(__name__)


def _load_libraries(threads: int) -> None:
    """Import the libraries that a release needs and an idle daemon does not; set their number of threads."""
    for name in _OF_A_RELEASE:
        import_module(name)
    import_module("pyarrow").set_cpu_count(threads)
    # What they consist of stays: the collector, which holds up every call, need not go through it each time.
    gc.freeze()


async def _load_for_releases(conductor: Conductor, threads: int) -> None:
    """Load libraries once the first release goes on: owners answer meanwhile."""
    while True:
        ticket = conductor.anything.ticket()
        if not all(release.ended for release in conductor.releases):
            break
        await ticket.wait()
    await asyncio.to_thread(_load_libraries, threads)


class AggregatorDaemon:
    """A running aggregator."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._config = config
        self._stack = AsyncExitStack()
        self.address = ""
        """Where owners reach it, once it has started; the port is the one that the system chose."""

    async def start(self) -> None:
        """Open everything, continue with the releases of the journal, then listen.

        Raises:
            ConfigurationError: If a file, folder or address cannot be used.
            UsageError: If another process serves the same state.
        """
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _start(self) -> None:
        section = self._config.aggregator
        state = private_directory(section.state_dir)
        self._stack.enter_context(exclusive_lock(state / "aggregator.lock", "aggregator serve"))
        remove_leftovers(state)
        _make_folder(section.release_dir)
        workspace = self._config.engine.workspace(section.state_dir)
        await asyncio.to_thread(workspace.clear)
        credentials = await asyncio.to_thread(self._credentials)
        journal = Journal(state / FILE_NAME)
        self._stack.callback(journal.close)
        await asyncio.to_thread(_compact, journal)
        self._deliver_audit(journal)
        presence, intake = OwnerPresence(time.time, elapsed), Intake(state / "incoming")
        await asyncio.to_thread(intake.clear)
        conductor = Conductor(
            journal=journal,
            presence=presence,
            intake=intake,
            signer=credentials,
            release_dir=section.release_dir,
            ca=self._config.tls.ca,
            workspace=workspace,
            clock=time.time,
            elapsed=elapsed,
        )
        self._stack.push_async_callback(conductor.stop)
        conductor.resume()
        self._tell_people(conductor, journal, credentials)
        uploads = Uploads(conductor, intake, credentials, time.time)
        enrolment = Enrolment(journal.db, journal.operators, utc_now)
        service = self._owner_service(conductor, journal, presence, intake, uploads, credentials, enrolment)
        self.address = await self._listen(service, credentials)
        self._spawn(credentials.watch())
        about = About(section.name, self.address, int(time.time()), credentials)
        await self._listen_for_control(
            ControlService(
                about,
                conductor,
                Operations(conductor, journal, self._config.deadlines),
                journal,
                presence,
                intake,
                enrolment,
                time.time,
            )
        )
        if self._config.metrics.listen:
            metrics = AggregatorMetrics(about, conductor, journal, presence, enrolment)
            endpoint = Endpoint(self._config.metrics.listen, metrics.families, COUNTED)
            self._stack.push_async_callback(endpoint.close)
        _log.info("ready", extra={"aggregator": section.name, "address": self.address})
        self._spawn(_load_for_releases(conductor, workspace.threads))

    def _deliver_audit(self, journal: Journal) -> None:
        """Copy operators' actions to the configured audit sinks, including those noted during shutdown."""
        sinks = open_sinks(self._config.audit, "tessera-aggregator")
        if sinks:
            delivery = Delivery(journal.operators, sinks)
            journal.operators.listen(delivery.wake)
            self._spawn(delivery.run())
            self._spawn(journal.watch())

    def _tell_people(self, conductor: Conductor, journal: Journal, credentials: Credentials) -> None:
        """Tell operators what `[notify]` asks for, after every event and every minute."""
        section, loop = self._config.aggregator, asyncio.get_running_loop()
        sinks = notice_sinks(self._config.notify, NOTICES, f"aggregator {section.name}")
        if not sinks:
            return
        notices = NoticeList(section.state_dir / NOTICES_FILE, section.name, int(time.time()))
        self._stack.callback(notices.close)
        notices.keep_sinks({sink.name: former for sink, former in sinks.items()})
        delivery, changed = Delivery(notices, tuple(sinks)), asyncio.Event()

        def note_commit() -> None:
            loop.call_soon_threadsafe(changed.set)

        journal.db.committed = note_commit
        notices.committed = delivery.wake

        async def watch() -> None:
            while True:
                changed.clear()
                try:
                    certificates = self._certificates(journal, credentials)
                    note_due(notices, conductor.releases, conductor.halted, certificates, utc_now())
                except TesseraError as error:
                    # A full disk, for example: releases continue, and a minute later it is tried again.
                    _log.warning("people not notified", extra={"reason": error.message})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_NOTE_SECONDS):
                        await changed.wait()

        self._spawn(watch())
        self._spawn(delivery.run())

    @staticmethod
    def _certificates(journal: Journal, credentials: Credentials) -> dict[str, datetime]:
        """Return when certificates end, by owner; the own under an empty text."""
        owners = journal.owners().values()
        ends = {owner.id: datetime.fromtimestamp(owner.certificate_expires, UTC) for owner in owners}
        return ends | {"": credentials.current_signer().certificate.not_valid_after_utc}

    async def stop(self) -> None:
        """Accept no more calls, wait for writes in progress, close everything."""
        await self._stack.aclose()
        _log.info("stopped")

    def _credentials(self) -> Credentials:
        section, tls = self._config.aggregator, self._config.tls
        # An aggregator that holds the CA's key can renew its certificate even after a long absence.
        renew_own(tls, self._config.enrolment, utc_now())
        return Credentials(tls, Party(PartyKind.AGGREGATOR, section.name, section.trust_domain), utc_now)

    def _owner_service(
        self,
        conductor: Conductor,
        journal: Journal,
        presence: OwnerPresence,
        intake: Intake,
        uploads: Uploads,
        credentials: Credentials,
        enrolment: Enrolment,
    ) -> OwnerService:
        section, ca = self._config.aggregator, self._config.enrolment
        renewals = Renewals(self._config.tls, ca, credentials, enrolment, journal, utc_now)
        self._spawn(renewals.watch())
        statements = Statements(credentials.authorities, enrolment.check, section.trust_domain, time.time)
        return OwnerService(
            conductor=conductor,
            journal=journal,
            presence=presence,
            statements=statements,
            answers=Answers(statements, intake, journal, conductor.release),
            uploads=uploads,
            enrolment=enrolment,
            renewals=renewals,
            schemas=OfferedSchemas(section.state_dir),
            trust_domain=section.trust_domain,
            signer=credentials,
            clock=time.time,
        )

    def _spawn(self, watching: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background until the daemon stops, which waits for its end."""
        task = asyncio.create_task(watching)

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        self._stack.push_async_callback(end)

    async def _listen(self, service: OwnerService, credentials: Credentials) -> str:
        listen = self._config.aggregator.listen
        files = raise_file_limit(2 * KEPT_FILES + _MOST_CONNECTIONS * _FILES_PER_CONNECTION)
        connections = max((files - KEPT_FILES) // _FILES_PER_CONNECTION, 1)
        server = grpc.aio.server(options=server_options(connections))
        add_OwnerServiceServicer_to_server(service, server)
        checks = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs leave it out
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        try:
            port = server.add_secure_port(listen, server_credentials(lambda: credentials.current))
        except RuntimeError:
            raise CannotListenError(
                f"{listen} cannot be listened on", hint="is another process using this port?"
            ) from None
        await server.start()
        _log.debug("listening", extra={"address": listen, "connections": connections})
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        self._stack.push_async_callback(server.stop, _GRACE_SECONDS)
        # Otherwise polls would stay open for the whole grace period.
        self._stack.callback(service.close)
        return f"{listen.rpartition(':')[0]}:{port}"

    async def _listen_for_control(self, service: ControlService) -> None:
        path = self._config.aggregator.control_socket
        if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
            raise ConfigurationError(
                f"{path} is too long for the path of a Unix socket",
                hint="name a shorter one in aggregator.toml: [aggregator] control_socket",
            )
        private_directory(path.parent)
        path.unlink(missing_ok=True)
        server = grpc.aio.server(options=[("grpc.max_send_message_length", MESSAGE_LIMIT)])
        add_ControlServiceServicer_to_server(service, server)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        # gRPC leaves its mode to the umask; its folder is private already.
        path.chmod(PRIVATE_FILE)
        self._stack.push_async_callback(server.stop, None)


def _compact(journal: Journal) -> None:
    try:
        journal.db.compact()
    except CannotStoreError as error:
        # It is as it was, and works.
        _log.warning("database not compacted", extra={"reason": error.message})


def _make_folder(path: Path) -> None:
    try:
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(RELEASE_DIRECTORY)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be made: {error.strerror}", hint="name a folder that this user can write to"
        ) from None


async def serve(config: AggregatorConfig) -> None:
    """Run an aggregator until the process receives a stop signal."""
    stopping = stop_event()
    daemon = AggregatorDaemon(config)
    await daemon.start()
    notify(READY)
    try:
        await stopping.wait()
    finally:
        notify(STOPPING)
        await daemon.stop()
