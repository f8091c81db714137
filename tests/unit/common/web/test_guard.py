"""The guard in front of every page, asked by programs that are no browser."""

import logging
import re
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from ssl import SSLError, TLSVersion, create_default_context

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router
from starlette.types import Message

from common.errors import ConfigurationError
from common.log import TextFormatter
from common.web.address import Address, network_of
from common.web.doors import IDLE_SECONDS, Doors
from common.web.guard import Guard
from common.web.server import listen, server
from common.web.site import Site
from deploy.development_ca import DevelopmentCa

PROJECT = Path(__file__).parents[4]


class Served:
    """A site with one good and one faulty page, at a real port."""

    def __init__(self, scheme: str = "http", tls=None) -> None:
        self.later, self.place = [0.0], listen("127.0.0.1:0", scheme)
        self.doors: Doors[str] = Doors(lambda: time.monotonic() + self.later[0])
        site = Site("common.web", "Test", (), self.doors, "Ask for a link.")
        pages = [Route("/", self.good), Route("/fault", self.fault)]
        application = site.application(lambda: pages, self.place.address)
        self.server = server(application, self.doors, tls)
        self.site, self.port = site, self.place.listener.getsockname()[1]
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[self.place.listener]))
        self.thread.start()

    def stop(self):
        """Serve no more."""
        self.server.should_exit = True
        self.thread.join()

    def good(self, request):
        """Answer."""
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
