"""The guard in front of every page, asked by programs that are no browser."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from ssl import SSLError, TLSVersion, create_default_context

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router
from starlette.types import Message

from common.errors import ConfigurationError
from common.log import TextFormatter
from common.web import server as web_server
from common.web.doors import IDLE_SECONDS, Doors
from common.web.guard import Guard
from common.web.server import listen, server
from common.web.site import Site
from deploy.development_ca import DevelopmentCa


class Served:
    """A site with one good and one faulty page, at a real port."""

    def __init__(self, scheme: str = "http", tls=None) -> None:
        self.before: Callable[[], object] = lambda: None
        self.later, self.place = [0.0], listen("127.0.0.1:0", scheme)
        self.doors: Doors[str] = Doors(lambda: time.monotonic() + self.later[0])
        site = Site("common.web", "Test", (), self.doors, "Ask for a link.")
        pages = [Route("/", self.good), Route("/fault", self.fault)]
        self.server = server(site.application(lambda: pages, self.place.hosts, scheme), self.doors, tls)
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
        PlainTextResponse("done"), doors, "visit", ["h:1"], "http", lambda *_: PlainTextResponse("no")
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


def silent(port: int, sent: bytes = b"") -> socket.socket:
    """Open a connection that sends no whole request."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(sent)
    return connection


def wait_closed(connection: socket.socket) -> None:
    """Wait until the other side closes a connection, at most for its time limit."""
    with connection, contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def test_silent_connections_close_nothing_to_others(monkeypatch):
    """As many as there may be, silent or slow, are closed; a page that takes longer than that is not."""
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(web_server, "MOST_PER_ADDRESS", 200)
    made = Served()
    slow = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf"
    try:
        connections = [silent(made.port, sent) for sent in (b"", b"GET / HT", slow) for _ in range(20)]
        for each in connections:
            wait_closed(each)
        made.before = lambda: wait_closed(silent(made.port))
        assert made.ask("/", Cookie=made.cookie())[0].status == 200
    finally:
        made.stop()


def test_one_address_leaves_room_for_others(served):
    """Whoever opens as many connections as one address may have is closed at once from then on."""
    kept = [silent(served.port) for _ in range(web_server.MOST_PER_ADDRESS)]
    wait_closed(silent(served.port))
    for each in kept:
        each.close()


def test_a_handshake_that_does_not_come(tmp_path, monkeypatch):
    """A connection that begins no TLS is closed, too."""
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 0.5)
    files = DevelopmentCa("web.test").aggregator("web", ["127.0.0.1"]).write(tmp_path, "web")
    made = Served("https", files)
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
