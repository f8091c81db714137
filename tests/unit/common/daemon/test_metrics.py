"""Counted metrics, and the port for Prometheus: what it answers, whom it hangs up on, and how it closes."""

import asyncio
import logging
import socket
import struct
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from threading import Event, Thread, active_count

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from common.daemon import metrics
from common.daemon.metrics import BOUNDS, Endpoint, Stopwatch, bytes_counter, gauges, step_histogram
from common.errors import ConfigurationError


def families():
    """Return a family of gauges."""
    return [gauges("tessera_test_state", "One.", ["owner"], [(("a",), 1), (("b",), 0)])]


def counted():
    """Return a counter and a histogram that have counted something."""
    sent = bytes_counter("tessera_test_bytes", "Two.", ["tokens", "fragment"])
    seconds = step_histogram("tessera_test_seconds", "Three.", ["link", "mask"])
    sent.labels("tokens").inc(7)
    seconds.labels("mask").observe(0.2)
    return sent, seconds


@pytest.fixture
async def opened():
    """A function that opens an endpoint, closed after the test."""
    made = []

    def open_(tell=families, listen="127.0.0.1:0"):
        made.append(Endpoint(listen, tell, counted()))
        return made[-1]

    yield open_
    for endpoint in made:
        await endpoint.close()


def ask(endpoint, method="GET"):
    """Return the status and the body of a request."""
    host, _, port = endpoint.address.rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=10)
    try:
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def test_what_prometheus_reads(opened):
    """Every number arrives under its name and labels, beside those of the process."""
    status, text = ask(opened())
    assert status == 200
    read = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read["tessera_test_state", "a"] == 1
    assert read["tessera_test_state", "b"] == 0
    assert read["tessera_test_bytes_total", "tokens"] == 7
    assert read["tessera_test_bytes_total", "fragment"] == 0
    assert read["tessera_test_seconds_sum", "mask"] == 0.2
    assert read["tessera_test_seconds_bucket", "+Inf", "mask"] == 1
    assert read["tessera_test_seconds_count", "link"] == 0
    assert sum(name == "tessera_test_seconds_bucket" for name, *_ in read) == 2 * (len(BOUNDS) + 1)
    assert not [name for name, *_ in read if name.endswith("_created")]
    assert read[("process_open_fds",)] > 0


async def test_every_request_asks_anew(opened):
    """What is told is how things stand at the request, and nothing is asked before there is one."""
    asked: list[None] = []

    def tell():
        asked.append(None)
        return [GaugeMetricFamily("tessera_test_asked", "How often.", len(asked))]

    endpoint = opened(tell)
    assert asked == []
    assert "tessera_test_asked 1.0" in ask(endpoint)[1]
    assert "tessera_test_asked 2.0" in ask(endpoint)[1]


async def test_what_cannot_be_told_is_left_out(opened, caplog):
    """A look at the state that fails is told in the log, and its answer is not half of it."""

    def tell():
        raise ValueError("Zq7Qz")

    with caplog.at_level(logging.ERROR):
        status, text = ask(opened(tell))
    assert status == 200
    assert "tessera_test_state" not in text
    assert "process_" in text
    assert "tessera_test_bytes" in text
    assert [record.getMessage() for record in caplog.records] == ["metrics cannot be computed"]


async def test_other_methods_are_refused(opened):
    """The port only tells."""
    assert ask(opened(), "POST")[0] == 405


async def test_a_client_that_says_nothing_is_hung_up_on(opened, monkeypatch):
    """A connection without a request delays nobody else, and is not kept."""
    monkeypatch.setattr(metrics, "_REQUEST_SECONDS", 0.2)
    endpoint = opened()
    with connected(endpoint) as silent:
        assert ask(endpoint)[0] == 200
        assert silent.recv(1) == b""


def connected(endpoint):
    """Return a connection to an endpoint."""
    host, _, port = endpoint.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


@contextmanager
def trickling(endpoint):
    """Hold a connection that sends a byte of a request now and then, for as long as it is let."""
    over, cut = Event(), Event()
    with connected(endpoint) as slow:
        slow.send(b"G")

        def trickle():
            with suppress(OSError):
                while not over.wait(0.05):
                    slow.send(b"G")
            cut.set()

        thread = Thread(target=trickle)
        thread.start()
        try:
            yield cut
        finally:
            over.set()
            thread.join()


async def test_a_client_that_trickles_is_hung_up_on(opened, monkeypatch):
    """The time limit is one of the whole request: a byte now and then does not prolong it."""
    monkeypatch.setattr(metrics, "_REQUEST_SECONDS", 0.2)
    endpoint = opened()
    with trickling(endpoint) as cut:
        assert ask(endpoint)[0] == 200
        assert cut.wait(10)


async def test_a_client_that_trickles_does_not_hold_up_the_end(monkeypatch):
    """A daemon can stop while a request is on its way, however long that takes."""
    monkeypatch.setattr(metrics, "_REQUEST_SECONDS", 60.0)
    endpoint = Endpoint("127.0.0.1:0", families)
    with trickling(endpoint):
        assert ask(endpoint)[0] == 200
        async with asyncio.timeout(90):
            await endpoint.close()
        with pytest.raises(ConnectionRefusedError):
            ask(endpoint)


async def test_a_flood_takes_few_threads(opened):
    """The oldest connections are closed for new ones, and a request among them is answered."""
    endpoint = opened()
    before = active_count()
    with ExitStack() as stack:
        kept = [stack.enter_context(connected(endpoint)) for _ in range(200)]
        assert active_count() - before < 8 * metrics._MOST_REQUESTS
        assert ask(endpoint)[0] == 200
        assert kept[0].recv(1) == b""


async def test_the_port_is_closed_and_free_again(opened):
    """Nothing listens any more after the end, and the next start can have the port."""
    first = Endpoint("127.0.0.1:0", families)
    address = first.address
    with pytest.raises(ConfigurationError) as caught:
        opened(listen=address)
    assert "another process" in caught.value.hint
    await first.close()
    with pytest.raises(ConnectionRefusedError):
        ask(first)
    assert ask(opened(listen=address))[0] == 200


async def test_the_other_protocol(opened):
    """An address of IPv6 is one of this machine, too."""
    try:
        endpoint = opened(listen="[::1]:0")
    except ConfigurationError:
        pytest.skip("this machine has no IPv6 loopback")
    assert ask(endpoint)[0] == 200


async def test_a_client_that_hangs_up_writes_nothing(opened, capfd):
    """Standard error holds our own log lines only, whatever clients do."""
    endpoint = opened()
    with connected(endpoint) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.send(b"GET /metrics HTTP/1.1\r\n")
    assert ask(endpoint)[0] == 200
    await endpoint.close()
    assert capfd.readouterr().err == ""


def durations(histogram):
    """Return how often each step ended, and how many seconds it took altogether."""
    (family,) = histogram.collect()
    found = {(each.name.rpartition("_")[2], each.labels["step"]): each.value for each in family.samples}
    return {step: (found["count", step], found["sum", step]) for _, step in found}


def test_time_in_each_step():
    """A stopwatch counts a step when it is left, each thing for itself, also what was begun before."""
    now = 100.0
    histogram = step_histogram("tessera_test_seconds", "Three.", ["link", "mask"])
    watch = Stopwatch(histogram, lambda: now)
    watch.enter("old", "mask", ago=50)
    watch.enter("new", "link")
    now = 110.0
    assert durations(histogram) == {"link": (0, 0), "mask": (0, 0)}
    watch.enter("old", "")
    watch.enter("new", "mask", ago=999)
    now = 117.0
    watch.enter("new", "")
    watch.enter("new", "")
    assert durations(histogram) == {"link": (1, 10.0), "mask": (2, 67.0)}


def test_a_clock_that_was_set_back():
    """What seems to have begun in the future began now; no duration is negative."""
    histogram = step_histogram("tessera_test_seconds", "Three.", ["mask"])
    watch = Stopwatch(histogram, lambda: 5.0)
    watch.enter("r1", "mask", ago=-100)
    watch.enter("r1", "")
    assert durations(histogram) == {"mask": (1, 0.0)}
