"""The port for Prometheus: what it answers, to whom it does not wait, and how it closes."""

import asyncio
import logging
import socket
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from threading import Event, Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common.daemon import metrics
from common.daemon.metrics import BOUNDS, Endpoint, Tally, bytes_counted, gauge, step_seconds
from common.errors import ConfigurationError


def families():
    """Return one family of each kind."""
    tally = Tally(["mask"], ["tokens"])
    tally.moved("tokens", 7)
    tally.took("mask", 0.2)
    return [
        gauge("tessera_test_state", "One.", [(("a",), 1), (("b",), 0)], ("owner",)),
        bytes_counted("tessera_test_bytes", "Two.", tally),
        step_seconds("tessera_test_seconds", "Three.", tally),
    ]


@pytest.fixture
async def opened():
    """A function that opens an endpoint, closed after the test."""
    made = []

    def open_(tell=families, listen="127.0.0.1:0"):
        made.append(Endpoint(listen, tell))
        return made[-1]

    yield open_
    for endpoint in made:
        await endpoint.close()


def ask(endpoint, method="GET", timeout=10):
    """Return the status and the body of a request."""
    host, _, port = endpoint.address.rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=timeout)
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
    assert read["tessera_test_seconds_sum", "mask"] == 0.2
    assert read["tessera_test_seconds_bucket", "+Inf", "mask"] == 1
    assert sum(name == "tessera_test_seconds_bucket" for name, *_ in read) == len(BOUNDS) + 1
    assert read[("process_open_fds",)] > 0


async def test_every_request_asks_anew(opened):
    """What is told is how things stand at the request, and nothing is asked before there is one."""
    asked: list[None] = []

    def tell():
        asked.append(None)
        return [gauge("tessera_test_asked", "How often.", [((), len(asked))])]

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
    assert "tessera" not in text
    assert "process_" in text
    assert [record.getMessage() for record in caplog.records] == ["metrics cannot be told"]


async def test_other_methods_are_refused(opened):
    """The port only tells."""
    assert ask(opened(), "POST")[0] == 405


async def test_a_client_that_says_nothing_is_not_waited_for(opened, monkeypatch):
    """Requests are answered one at a time, and whoever holds a connection without asking is hung up on."""
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


async def test_a_client_that_trickles_is_not_waited_for(opened, monkeypatch):
    """The time limit is one of the whole request: a byte now and then does not prolong it."""
    monkeypatch.setattr(metrics, "_REQUEST_SECONDS", 0.2)
    endpoint = opened()
    with trickling(endpoint) as cut:
        assert ask(endpoint)[0] == 200
        assert cut.wait(10)


async def test_a_client_that_trickles_does_not_hold_up_the_end(monkeypatch):
    """A daemon can stop while a request is on its way, however long that may take."""
    monkeypatch.setattr(metrics, "_REQUEST_SECONDS", 60.0)
    endpoint = Endpoint("127.0.0.1:0", families)
    with trickling(endpoint):
        with pytest.raises(TimeoutError):
            ask(endpoint, timeout=0.5)
        async with asyncio.timeout(10):
            await endpoint.close()
        with pytest.raises(ConnectionRefusedError):
            ask(endpoint)


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
