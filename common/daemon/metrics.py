"""What a daemon counts while it runs: bytes that moved, and how long steps took. Counted if asked or not.

Nothing here is about a record: names of steps and of kinds of data are the program's own, and few.
"""

import asyncio
import logging
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from socketserver import TCPServer
from threading import Thread, Timer
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from common.errors import ConfigurationError

BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
"""Seconds that the counts of durations are divided at: from a tenth of a second to a week."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How long one step took, over all times that it was taken."""

    counts: tuple[int, ...]
    """How often it took at most each of `BOUNDS`, and at last how often it was taken; never falling."""
    seconds: float
    """How long it took altogether."""


class Tally:
    """Counts since the start of a daemon; may be used from any thread.

    Args:
        steps: Names of the steps that take time.
        kinds: Names of the kinds of data whose bytes are counted.
    """

    def __init__(self, steps: Iterable[str], kinds: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._counts = {step: [0] * (len(BOUNDS) + 1) for step in steps}
        self._seconds = dict.fromkeys(self._counts, 0.0)
        self._bytes = dict.fromkeys(kinds, 0)

    def took(self, step: str, seconds: float) -> None:
        """Count a step that is over; one of another name is not counted."""
        counts = self._counts.get(step)
        if counts is not None:
            with self._lock:
                counts[bisect_left(BOUNDS, seconds)] += 1
                self._seconds[step] += seconds

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        """Count the step that the block is, however it ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.took(step, time.monotonic() - began)

    def moved(self, kind: str, n_bytes: int) -> None:
        """Count bytes that were sent or received."""
        with self._lock:
            self._bytes[kind] += n_bytes

    @property
    def n_bytes(self) -> Mapping[str, int]:
        """Bytes by kind of data."""
        with self._lock:
            return dict(self._bytes)

    @property
    def durations(self) -> Mapping[str, Durations]:
        """Durations by step."""
        with self._lock:
            return {step: self._durations(step) for step in self._counts}

    def _durations(self, step: str) -> Durations:
        total, counts = 0, []
        for count in self._counts[step]:
            total += count
            counts.append(total)
        return Durations(tuple(counts), self._seconds[step])


class Stopwatch:
    """Tells a tally how long each of many things was in each of its steps.

    Args:
        tally: Counts.
        elapsed: Seconds that pass whatever the clock is set to.
    """

    def __init__(self, tally: Tally, elapsed: Callable[[], float]) -> None:
        self._tally, self._elapsed = tally, elapsed
        self._entered: dict[str, tuple[str, float]] = {}

    def enters(self, name: str, step: str, ago: float = 0.0) -> None:
        """Note that something has entered a step, which ends the one that it was in.

        Args:
            name: What it is.
            step: The step; empty if there is none after the last one.
            ago: How many seconds ago it was; only counts for what this does not know yet.
        """
        now = self._elapsed()
        before = self._entered.pop(name, None)
        if before is not None:
            self._tally.took(before[0], now - before[1])
        if step:
            self._entered[name] = (step, now if before is not None else now - max(ago, 0.0))


_REQUEST_SECONDS = 5.0
_SHUTDOWN_SECONDS = 0.1
_CLOSE_SECONDS = 1.0
_log = logging.getLogger(__name__)


class _Handler(WSGIRequestHandler):
    def handle(self) -> None:
        """Answer a request; the connection is cut once it has taken too long as a whole."""
        # A time limit of the socket would be one for every piece, and a byte now and then would keep to it.
        deadline = Timer(_REQUEST_SECONDS, _cut, (self.connection,))
        deadline.daemon = True
        deadline.start()
        try:
            super().handle()
        finally:
            deadline.cancel()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is the library's
        """Say nothing of requests."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Server(WSGIServer):
    def server_bind(self) -> None:
        """Bind without asking a name server what the address is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of who hung up; what goes wrong in collecting is logged there."""


class _Families(Collector):
    """Hands a function's families to the library; what goes wrong is logged in our own form.

    Args:
        families: Tells how things stand.
    """

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the families, or none if they cannot be told now."""
        try:
            return list(self._families())
        except Exception as fault:  # noqa: BLE001 - the edge of a request
            _log.error("metrics cannot be told", exc_info=fault)
            return ()

    def describe(self) -> Iterable[Metric]:
        """Return nothing: families are not asked for before there is a request."""
        return ()


class Endpoint:
    """The port, while it is open.

    Args:
        listen: "host:port"; port 0 lets the system choose.
        families: Tells how things stand; called in a thread for every request.

    Raises:
        ConfigurationError: If the address cannot be listened on.
    """

    def __init__(self, listen: str, families: Callable[[], Iterable[Metric]]) -> None:
        host, _, port = listen.rpartition(":")
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(_Families(families))
        try:
            self._server = _open(host.strip("[]"), int(port))
        except OSError as error:
            raise ConfigurationError(
                f"[metrics] {listen} cannot be listened on: {error.strerror}",
                hint="is another process using this port?",
            ) from None
        self._server.set_app(make_wsgi_app(registry))
        self._thread = Thread(target=self._server.serve_forever, args=(_SHUTDOWN_SECONDS,), daemon=True)
        self._thread.start()
        self.address = f"{host}:{self._server.server_port}"
        """Where it listens."""
        _log.info("metrics", extra={"address": self.address})

    async def close(self) -> None:
        """Answer no more requests; the loop goes on meanwhile, for a request may ask it.

        A request that is being answered is waited for a second at most: its thread ends with the process.
        """
        stopping = Thread(target=self._server.shutdown, daemon=True)
        stopping.start()
        await asyncio.to_thread(stopping.join, _CLOSE_SECONDS)
        self._server.server_close()


def _open(host: str, port: int) -> _Server:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]

    class Server(_Server):
        address_family = family

    return Server((str(address[0]), int(address[1])), _Handler)


def gauge(
    name: str, says: str, values: Iterable[tuple[Iterable[str], float]], labels: Iterable[str] = ()
) -> GaugeMetricFamily:
    """Return a family of numbers that go up and down.

    Args:
        name: Its name.
        says: What it tells, one sentence.
        values: For each of its series the values of the labels, and the number.
        labels: Names of the labels.
    """
    family = GaugeMetricFamily(name, says, labels=list(labels))
    for of, value in values:
        family.add_metric(list(of), value)
    return family


def bytes_counted(name: str, says: str, tally: Tally) -> CounterMetricFamily:
    """Return the family of the bytes of a tally, by kind."""
    family = CounterMetricFamily(name, says, labels=["kind"])
    for kind, n_bytes in tally.n_bytes.items():
        family.add_metric([kind], n_bytes)
    return family


def step_seconds(name: str, says: str, tally: Tally) -> HistogramMetricFamily:
    """Return the family of the durations of a tally, by step."""
    family = HistogramMetricFamily(name, says, labels=["step"])
    bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
    for step, found in tally.durations.items():
        buckets = list(zip(bounds, found.counts, strict=True))
        family.add_metric([step], buckets, found.seconds)
    return family
