"""Metrics of the daemons: bytes and durations that are counted as they occur, and a port for Prometheus.

`GET /metrics` on a local port returns them, where one is configured. Anyone who reaches the port can read
them: states, counts, and ids of parties and data sets, never a value of a record, an identifier, a token or a
purpose. Label values are names of the program's own and ids of parties, and are few. Requests are answered
one at a time. A client that has not sent its request and read the answer within some seconds is disconnected,
even if it is still sending.

Each module owns the metrics that it counts; an `Endpoint` exposes them beside those of the moment.

    SENT_BYTES = bytes_counter("tessera_owner_sent_bytes", "Bytes sent since the start.", KINDS)
    SENT_BYTES.labels("tokens").inc(16)
    endpoint = Endpoint("127.0.0.1:9464", snapshot, [SENT_BYTES])
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from common.daemon.process import deadline
from common.errors import CannotListenError

BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
"""Upper bounds of the buckets of durations in seconds, from a tenth of a second to a week."""
_REQUEST_SECONDS = 5.0
_MOST_REQUESTS = 16
"""Requests at a time. For one more the oldest is disconnected, so that nobody takes all threads and files."""
_SHUTDOWN_SECONDS = 0.1
_log = logging.getLogger(__name__)
# No series beside the documented ones.
disable_created_metrics()  # type: ignore[no-untyped-call]


def bytes_counter(name: str, documentation: str, kinds: Iterable[str]) -> Counter:
    """Return a counter of bytes with the label `kind`, at zero for each of the kinds."""
    counter = Counter(name, documentation, ["kind"], registry=None)
    for kind in kinds:
        counter.labels(kind)
    return counter


def step_histogram(name: str, documentation: str, steps: Iterable[str]) -> Histogram:
    """Return a histogram of seconds with the label `step`, empty for each of the steps."""
    histogram = Histogram(name, documentation, ["step"], registry=None, buckets=BOUNDS)
    for step in steps:
        histogram.labels(step)
    return histogram


def gauges(
    name: str, documentation: str, labels: Iterable[str], values: Iterable[tuple[Iterable[str], float]]
) -> GaugeMetricFamily:
    """Return a family of gauges."""
    family = GaugeMetricFamily(name, documentation, labels=list(labels))
    for label_values, value in values:
        family.add_metric(list(label_values), value)
    return family


class Stopwatch:
    """Measures how long each of many things is in each of its steps."""

    def __init__(self, seconds: Histogram, elapsed: Callable[[], float]) -> None:
        self._seconds, self._elapsed = seconds, elapsed
        self._entered: dict[str, tuple[str, float]] = {}

    def enter(self, name: str, step: str, ago: float = 0.0) -> None:
        """Note that something enters a step, which ends its previous one.

        Args:
            step: The step; empty if there is none after the last one.
            ago: How many seconds ago it entered; ignored unless the id is new to this object.
        """
        now = self._elapsed()
        before = self._entered.pop(name, None)
        if before is not None:
            self._seconds.labels(before[0]).observe(now - before[1])
        if step:
            self._entered[name] = (step, now if before is not None else now - max(ago, 0.0))


class _Snapshot(Collector):
    """Metrics that are computed on request; a failure is logged in the form of our own logs."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return all families, or none if they cannot be computed now."""
        try:
            return list(self._families())
        except Exception as fault:  # noqa: BLE001 - the edge of a request
            _log.error("metrics cannot be computed", exc_info=fault)
            return ()


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
        """Log no requests."""


class _MetricsServer(ThreadingWSGIServer):
    """The library's server, with a time limit for every request and nothing written to standard error."""

    request_queue_size = 128
    """With the library's 5, connections of a burst wait for seconds until TCP tries again."""

    def __init__(self, host: str, port: int) -> None:
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._requests: dict[socket.socket, None] = {}
        super().__init__((str(address[0]), int(address[1])), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of the address, which can take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread, unless the oldest ones have not ended yet."""
        open_requests = list(self._requests)
        if len(open_requests) >= _MOST_REQUESTS:
            with suppress(OSError):
                open_requests[len(open_requests) - _MOST_REQUESTS].shutdown(socket.SHUT_RDWR)
        if len(open_requests) >= 2 * _MOST_REQUESTS:
            self.shutdown_request(request)
            return
        self._requests[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._requests.pop(request, None)
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a request; the connection is closed once the whole of it takes too long."""
        with deadline(request, _REQUEST_SECONDS):
            super().finish_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up; failures of collecting are logged where they occur."""


class Endpoint:
    """The port for Prometheus, while it is open.

    Args:
        listen: "host:port"; port 0 lets the system choose.
        snapshot: Returns the metrics of the moment; called in a thread for every request.
    """

    def __init__(
        self, listen: str, snapshot: Callable[[], Iterable[Metric]], counted: Iterable[Collector] = ()
    ) -> None:
        host, _, port = listen.rpartition(":")
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        for collector in (_Snapshot(snapshot), *counted):
            registry.register(collector)
        try:
            self._server = _MetricsServer(host.strip("[]"), int(port))
        except OSError as error:
            raise CannotListenError(
                f"[metrics] {listen} cannot be listened on: {error.strerror}",
                hint="is another process using this port?",
            ) from None
        self._server.set_app(make_wsgi_app(registry))
        Thread(target=self._server.serve_forever, args=(_SHUTDOWN_SECONDS,), daemon=True).start()
        self.address = f"{host}:{self._server.server_port}"
        """Where it listens."""
        _log.info("metrics", extra={"address": self.address})

    async def close(self) -> None:
        """Accept no more requests; those that are being answered end with the process at the latest."""
        # In a thread: a request may be waiting for the event loop.
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()
