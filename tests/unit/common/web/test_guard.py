"""The guard in front of every page, asked by programs that are no browser."""

import contextlib
import itertools
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from ssl import SSLError, TLSVersion, create_default_context

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Message

from common.errors import ConfigurationError
from common.log import TextFormatter
from common.web.address import Address
from common.web.connections import ConnectionLimits, Gate, LimitedConnection, network_of
from common.web.doors import IDLE_SECONDS, Doors
from common.web.guard import MOST_OF_PERSON, Guard
from common.web.server import listen, server
from common.web.site import Site
from deploy.development_ca import DevelopmentCa

PROJECT = Path(__file__).parents[4]
LIMITS = ConnectionLimits()
LARGE = 32 * 2**20


class Served:
    """A site with one good and one faulty page, at a real port."""

    def __init__(self, scheme: str = "http", tls=None, limits: ConnectionLimits = LIMITS) -> None:
        self.before: Callable[[], object] = lambda: None
        self.later, self.place = [0.0], listen("127.0.0.1:0", scheme)
        self.doors: Doors[str] = Doors(lambda: time.monotonic() + self.later[0])
        site = Site("common.web", "Test", (), self.doors, "Ask for a link.")
        given = (self.fault, self.large, self.file, self.endless)
        pages = [Route(f"/{each.__name__}", each) for each in given]
        pages.append(Route("/", self.good))
        application = site.application(lambda: pages, self.place.address)
        self.server = server(application, self.doors, tls, limits)
        self.site, self.port = site, self.place.listener.getsockname()[1]
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[self.place.listener]))
        self.thread.start()

    def stop(self):
        """Serve no more."""
        self.server.should_exit = True
        self.thread.join()

    def good(self, request):
        """Answer."""
        self.before()
        return self.site.refusal(200, "Good.")

    def fault(self, request):
        """Fail with a value in the text of the error."""
        raise ZeroDivisionError("marked value Zq7Qz")

    def large(self, request):
        """Answer with more than any buffer takes, at once."""
        return PlainTextResponse(b"x" * LARGE)

    def file(self, request):
        """Answer with a large file, a part at a time."""
        return StreamingResponse(itertools.repeat(b"x" * 2**16, LARGE // 2**16))

    def endless(self, request):
        """Answer without an end."""
        return StreamingResponse(itertools.repeat(b"x" * 2**16))

    def ask(self, path: str = "/", connection=None, **headers: str):
        """Send a request."""
        connection = connection or HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def cookie(self) -> str:
        """Return the cookie of a new visit."""
        return f"tessera-visit-{self.port}={self.doors.begin('vera')}"


@pytest.fixture
def served() -> Iterator[Served]:
    """A site that listens."""
    made = Served()
    yield made
    made.stop()


def test_a_fault_tells_neither_browser_nor_log_its_text(served, caplog):
    """An error can quote a value. The page has its place alone, and the headers of every other answer."""
    with caplog.at_level(logging.DEBUG):
        answer, body = served.ask("/fault", Cookie=served.cookie())
        served.ask("/")
    assert answer.status == 500
    assert "ZeroDivisionError" in body
    assert "frame-ancestors 'none'" in answer.getheader("content-security-policy")
    assert answer.getheader("cache-control") == "no-store"
    log = "".join(TextFormatter().format(record) for record in caplog.records)
    assert "page failed" in log
    assert "Zq7Qz" not in body + log


async def test_a_form_that_breaks_off(caplog):
    """Nobody is there to be answered, and nothing is a fault of the page."""
    doors: Doors[object] = Doors(time.monotonic)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    guard = Guard(
        PlainTextResponse("done"), doors, "visit", Address(["h:1"]), lambda *_: PlainTextResponse("no")
    )
    headers = {"host": "h:1", "origin": "http://h:1", "cookie": f"visit={doors.begin('vera')}"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await guard({"type": "http", "method": "POST", "path": "/x", "headers": raw}, receive, send)
    assert (sent, caplog.records) == ([], [])


@pytest.mark.parametrize("cookie", ["a,b=1", "=", ";;;", "\xff=\xff", 'tessera-visit="', "x" * 30_000])
def test_cookies_that_cannot_be_read(served, cookie):
    """A cookie of whatever bytes is nobody's visit."""
    assert served.ask("/", Cookie=cookie)[0].status in (400, 401, 431)


def test_two_host_headers(served):
    """A request that names two hosts is for none."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.putrequest("GET", "/", skip_host=True)
    for host in (f"127.0.0.1:{served.port}", "attacker.example"):
        connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status in (400, 421)
    connection.close()


def test_a_proxy_is_not_believed(served):
    """Whoever reaches the port could say that the request came from elsewhere, or over TLS."""
    for _ in range(10):
        assert served.ask("/enter?key=guess", **{"X-Forwarded-For": "10.1.1.1"})[0].status == 401
    assert served.ask("/enter?key=guess", **{"X-Forwarded-For": "10.1.1.2"})[0].status == 429


@pytest.mark.parametrize("header", [{"HX-Request": "true"}, {"Accept": "text/event-stream"}])
def test_pages_that_ask_by_themselves_keep_no_visit_alive(served, header):
    """A page that waits for events or results is not a person."""
    cookie = served.cookie()
    served.later[0] = IDLE_SECONDS - 60
    assert served.ask("/", Cookie=cookie, **header)[0].status == 200
    served.later[0] = IDLE_SECONDS + 60
    assert served.ask("/", Cookie=cookie, **header)[0].status == 401


def silent(port: int, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """Open a connection that reads nothing."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
    connection.sendall(sent)
    return connection


def wait_closed(connection: socket.socket) -> None:
    """Wait until the other side closes a connection, at most for its time limit."""
    with connection, contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def test_silent_connections_close_nothing_to_others():
    """As many as there may be, silent or slow, are closed; a page that takes longer than that is not."""
    made = Served(limits=ConnectionLimits(of_network=60, request_seconds=0.5))
    slow = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf"
    try:
        connections = [silent(made.port, sent) for sent in (b"", b"GET / HT", slow) for _ in range(20)]
        for each in connections:
            wait_closed(each)
        made.before = lambda: wait_closed(silent(made.port))
        assert made.ask("/", Cookie=made.cookie())[0].status == 200
    finally:
        made.stop()


def test_one_address_closes_its_own_connections(served):
    """Those that waited longest make room for the next ones; a request among them is answered."""
    kept = [silent(served.port) for _ in range(2 * LIMITS.of_network)]
    for each in kept[: LIMITS.of_network]:
        wait_closed(each)
    kept.append(silent(served.port, b"GET / HTTP/1.1\r\n"))
    assert served.ask("/")[0].status == 401
    assert served.ask("/", Cookie=served.cookie())[0].status == 200
    for each in kept[-LIMITS.of_network // 2 :]:
        each.setblocking(False)
        with pytest.raises(BlockingIOError):
            each.recv(1)
    for each in kept:
        each.close()


def test_many_addresses_close_nothing_to_others():
    """Whatever number of addresses opens connections: the request of another one is answered."""
    # A connection that was closed counts until its transport has ended, two passes of the loop later: with 40
    # in all, a busy server turned away eight of every 48 new ones.
    limits = ConnectionLimits(96, 20, 5)
    made = Served(limits=limits)
    try:
        kept = [silent(made.port, source=f"127.0.0.{2 + each % 40}") for each in range(200)]
        assert made.ask("/", Cookie=made.cookie())[0].status == 200
        for each in kept[: -limits.connections]:
            wait_closed(each)
        for each in kept[-limits.connections :]:
            each.close()
    finally:
        made.stop()


@pytest.fixture
def closed(monkeypatch) -> threading.Event:
    """Set once a server has closed a connection."""
    closed, left = threading.Event(), Gate.left

    def note(gate: Gate, connection: LimitedConnection) -> None:
        left(gate, connection)
        closed.set()

    monkeypatch.setattr(Gate, "left", note)
    return closed


@pytest.mark.parametrize("ending", ["", "Connection: close\r\n"])
@pytest.mark.parametrize("path", ["/large", "/file", "/endless"])
def test_an_answer_that_nobody_reads(path, ending, closed):
    """Its connection is closed, whether it stays open for further requests or not."""
    made = Served(limits=ConnectionLimits(write_seconds=0.2, request_seconds=0.2))
    about = f"Host: 127.0.0.1:{made.port}\r\nCookie: {made.cookie()}\r\n{ending}"
    try:
        with silent(made.port, f"GET {path} HTTP/1.1\r\n{about}\r\n".encode()):
            assert closed.wait(30), "the server still waits"
    finally:
        made.stop()


def test_an_answer_of_which_a_little_is_read(closed):
    """Reading something now and then keeps no connection."""
    made = Served(limits=ConnectionLimits(write_seconds=1))
    # As little as on a line to another machine waits in the system.
    made.place.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    about = f"Host: 127.0.0.1:{made.port}\r\nCookie: {made.cookie()}\r\n"
    try:
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            reader.connect(("127.0.0.1", made.port))
            reader.sendall(f"GET /endless HTTP/1.1\r\n{about}\r\n".encode())
            for _ in range(100):
                # Paced by the clock, not by a condition: slowness is what is tested.
                if closed.wait(0.1):
                    break
                reader.recv(2048)
            assert closed.is_set(), "the server still waits"
    finally:
        made.stop()


def test_strangers_who_read_nothing_close_nothing_to_others():
    """Whatever they ask for, and however much: their connections make room for a person's."""
    made = Served(limits=ConnectionLimits(60, 20, 5))
    request = f"GET /static/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        stack.callback(made.stop)
        for number in range(100):
            flood = stack.enter_context(silent(made.port, source=f"127.0.0.{2 + number % 40}"))
            flood.setblocking(False)
            with contextlib.suppress(OSError):
                flood.sendall(request * 500)
        for _ in range(5):
            assert made.ask("/", Cookie=made.cookie())[0].status == 200


def test_an_answer_that_is_read_slowly():
    """Whoever reads on gets a whole file, however long it takes."""
    made = Served(limits=ConnectionLimits(write_seconds=0.5))
    about = f"Host: 127.0.0.1:{made.port}\r\nCookie: {made.cookie()}\r\nConnection: close\r\n"
    try:
        with silent(made.port, f"GET /file HTTP/1.1\r\n{about}\r\n".encode()) as reader:
            size, begun = 0, time.monotonic()
            while part := reader.recv(LARGE // 20):
                size += len(part)
                # Paced by the clock, not by a condition: slowness is what is tested.
                threading.Event().wait(max(0.0, begun + 1.5 * size / LARGE - time.monotonic()))
        assert size > LARGE
    finally:
        made.stop()


def test_one_person_leaves_room_for_others(served):
    """The streams that one person follows are bounded, in any number of visits; others follow theirs."""
    cookies = [served.cookie() for _ in range(2)]
    other = f"tessera-visit-{served.port}={served.doors.begin('otto')}"
    with contextlib.ExitStack() as stack:
        answers = []
        for number in range(MOST_OF_PERSON + 5):
            about = f"Host: 127.0.0.1:{served.port}\r\nCookie: {cookies[number % 2]}\r\n"
            request = f"GET /endless HTTP/1.1\r\n{about}\r\n"
            stream = stack.enter_context(silent(served.port, request.encode()))
            answers.append(stream.recv(12).decode())
        assert answers == ["HTTP/1.1 200"] * MOST_OF_PERSON + ["HTTP/1.1 503"] * 5
        assert served.ask("/", Cookie=cookies[0])[0].status == 503
        assert served.ask("/", Cookie=other)[0].status == 200


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"), ("::1", "::/64"), ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::", "2001:db8::/64"), ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),        ("", ""), ("somewhere", "somewhere"),
    ],
)  # fmt: skip
def test_networks(address, network):
    """A machine has as many addresses of its IPv6 network as it likes, so these count as one."""
    assert network_of(address) == network


def test_a_handshake_that_does_not_come(tmp_path):
    """A connection that begins no TLS is closed, too."""
    files = DevelopmentCa("web.test").aggregator("web", ["127.0.0.1"]).write(tmp_path, "web")
    made = Served("https", files, ConnectionLimits(request_seconds=0.5))
    try:
        wait_closed(silent(made.port))
    finally:
        made.stop()


def test_tls(tmp_path):
    """TLS 1.3 with the configured certificate; cookies are for TLS alone, and browsers stay with it."""
    ca = DevelopmentCa("web.test")
    files = ca.aggregator("web", ["127.0.0.1"]).write(tmp_path, "web")
    (tmp_path / "ca.pem").write_bytes(ca.issued.certificate_pem)
    made = Served("https", files)
    try:
        context = create_default_context(cafile=tmp_path / "ca.pem")
        link = f"/enter?key={made.doors.new_key('vera')}"
        connection = HTTPSConnection("127.0.0.1", made.port, timeout=30, context=context)
        answer, _ = made.ask(link, connection)
        assert connection.sock is None
        cookie = answer.getheader("set-cookie")
        assert cookie.startswith(f"__Host-tessera-visit-{made.port}=")
        assert "Secure" in cookie
        assert answer.getheader("strict-transport-security")
        context.maximum_version = TLSVersion.TLSv1_2
        with pytest.raises(SSLError):
            made.ask("/", HTTPSConnection("127.0.0.1", made.port, timeout=30, context=context))
    finally:
        made.stop()


def test_certificates_that_cannot_be_used(tmp_path):
    """A key that others can read, one of another certificate, and no file are refused at the start."""
    ca = DevelopmentCa("web.test")
    certificate, key = ca.aggregator("web", ["127.0.0.1"]).write(tmp_path, "web")
    _, other = ca.aggregator("other", ["127.0.0.1"]).write(tmp_path, "other")
    absent = tmp_path / "absent.pem"
    for wrong in ((certificate, other), (absent, key), (certificate, absent), (key, key)):
        with pytest.raises(ConfigurationError):
            server(Router(), Doors(time.monotonic), wrong)
    key.chmod(0o644)
    with pytest.raises(ConfigurationError):
        server(Router(), Doors(time.monotonic), (certificate, key))


def test_every_link_of_a_template_gets_the_path_of_the_console():
    """A link that begins otherwise would lead out of a console behind a proxy."""
    attribute = re.compile(r'\b(href|src|action|formaction|hx-(?:get|post|put|delete)|data-live)="([^"]*)"')
    own = re.compile(r"/|#|\{\{ (?:path|here|link\.path|provider) \}\}")
    known, n_links = {"href", "src", "action", "hx-get", "data-live"}, 0
    for package in ("common/web", "owner_node/console", "aggregator/console"):
        for template in (PROJECT / package / "templates").glob("*.html"):
            for name, value in attribute.findall(template.read_text()):
                assert own.match(value), (template, name, value)
                assert name in known, (template, name)
                n_links += 1
    assert n_links > 50
