"""A console behind a real nginx with the documented configuration: TLS, a path, addresses, events."""

import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse, HTTPSConnection
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from flask import jsonify
from starlette.responses import StreamingResponse
from starlette.routing import Route

from common.daemon.console import ConsoleSection
from common.web.address import Address
from common.web.doors import MOST_WRONG
from common.web.server import Console, section_server
from common.web.site import Site
from deploy.development_ca import DevelopmentCa
from deploy.local_setup import free_port
from owner_node.config import PolicyConfig
from owner_node.console.serving import application, person_of
from owner_node.release.approvals import Person
from tests.fakes.offering import Offering
from tests.fakes.oidc_provider import oidc_provider
from tests.fakes.owner_console import Answer
from tests.nginx import nginx

DOCUMENTED = Path(__file__).parents[4] / "docs" / "console.md"
DESCRIPTION = "/.well-known/openid-configuration"
pytestmark = [
    pytest.mark.needs("nginx"), pytest.mark.filterwarnings("ignore::DeprecationWarning")
]  # fmt: skip


def documented(folder: Path, port: int, upstream: str) -> str:
    """Return the configuration of the page, for a port, a certificate and an upstream of this test."""
    text = DOCUMENTED.read_text().split("```nginx\n")[1].split("```")[0]
    for before, after in (
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("tessera.north.example", "localhost"),
        ("/etc/nginx/tls/tessera", f"{folder}/proxy"),
        ("http://unix:/run/tessera-owner/console.sock", upstream),
    ):
        assert before in text
        text = text.replace(before, after)
    return text


def in_front(folder: Path, server: str) -> AbstractContextManager[None]:
    """Run nginx with a server of HTTP."""
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return nginx(folder, f"http {{ access_log off; {places}\n{server}\n}}\n")


@dataclass
class Browser:
    """A browser that reaches a console through the proxy."""

    port: int
    authority: Path
    source: str = "127.0.0.1"
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Of the pages."""
        return f"https://localhost:{self.port}"

    @contextmanager
    def opened(
        self, method: str, path: str, form: dict[str, str] | None = None, **headers: str
    ) -> Iterator[HTTPResponse]:
        """Send a request; the answer's body is not read yet."""
        context = ssl.create_default_context(cafile=self.authority)
        connection = HTTPSConnection(
            "localhost", self.port, timeout=30, context=context, source_address=(self.source, 0)
        )
        cookies = "; ".join(f"{name}={each}" for name, each in self.cookies.items())
        own = {"Origin": self.origin, "Cookie": cookies}
        connection.request(method, path, urlencode(form) if form else None, own | headers)
        with closing(connection), connection.getresponse() as response:
            yield response

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        """Send a request."""
        with self.opened(method, path, form, **headers) as response:
            answer = Answer(response.status, response.read().decode(), response)
        if answer.cookie():
            name, _, value = answer.cookie().partition("=")
            self.cookies[name] = value
        return answer


@pytest.fixture
def provider(tmp_path):
    """A provider that knows an approver."""
    with oidc_provider(tmp_path) as made:
        made.knows_mail("17", "dpo@north.example")
        described = {"end_session_endpoint": f"{made.issuer}/end"}
        made.answers[DESCRIPTION] = lambda answer: jsonify(answer.json | described)
        yield made


@pytest.fixture(params=["socket", "loopback", "tls"])
def section(request, tmp_path, provider):
    """A console for a proxy, and what nginx is told of it."""
    ca, folder = DevelopmentCa("web.test"), tmp_path / "web"
    folder.mkdir()
    ca.aggregator("proxy", ["localhost"]).write(folder, "proxy")
    (tmp_path / "web" / "ca.pem").write_bytes(ca.issued.certificate_pem)
    about: dict[str, Any] = {"url": f"https://localhost:{free_port()}/north"}
    about |= {"oidc": provider.section("dpo@north.example")}
    port = free_port()
    if request.param == "socket":
        path = tmp_path / "s"
        return ConsoleSection(listen=f"unix:{path}", **about), f"http://unix:{path}"
    if request.param == "loopback":
        about |= {"proxies": ("127.0.0.1",)}
        return ConsoleSection(listen=f"127.0.0.1:{port}", **about), f"http://127.0.0.1:{port}"
    certificate, key = ca.aggregator("web", ["console.internal"]).write(folder, "web")
    tls = (
        f"https://127.0.0.1:{port}; proxy_ssl_protocols TLSv1.3; proxy_ssl_verify on; "
        f"proxy_ssl_name console.internal; proxy_ssl_trusted_certificate {tmp_path}/web/ca.pem"
    )
    about |= {"certificate": certificate, "key": key, "proxies": ("127.0.0.0/30",)}
    return ConsoleSection(listen=f"127.0.0.1:{port}", **about), tls


@contextmanager
def running(console: Console[Any]) -> Iterator[None]:
    """Serve pages for a block."""
    pages, listener = section_server(console)
    thread = threading.Thread(target=pages.run, args=([listener],))
    thread.start()
    try:
        yield
    finally:
        pages.should_exit = True
        thread.join()


@pytest.fixture
def browser(section, tmp_path) -> Iterator[Browser]:
    """A browser in front of nginx, in front of the pages of an owner whom a plan waits for."""
    console, upstream = section
    offering = Offering(tmp_path, PolicyConfig(approval="manual"))
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"), "r1", k="5", purpose="research")
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is None
    pages = Console(
        "owner test", console, tmp_path / "state", lambda found: Person(**found), person_of,
        lambda doors, address, provider: application(lambda: offering.config, doors, address, provider),
    )  # fmt: skip
    port = urlsplit(console.url).port
    assert port is not None
    with (
        closing(offering.records.db),
        running(pages),
        in_front(tmp_path / "web", documented(tmp_path / "web", port, upstream)),
    ):
        yield Browser(port, tmp_path / "web" / "ca.pem")


def test_people_sign_in_decide_and_sign_out(browser, provider):
    """Every link, redirection, cookie and form has the path; sign-out names that of the provider."""
    first = browser.ask("GET", "/north/")
    assert first.status == 401
    assert 'href="/north/sign-in"' in first.body
    assert browser.ask("GET", "/north/static/console.css").status == 200
    assert browser.ask("GET", "/").status == 404
    there = browser.ask("GET", "/north/sign-in").header("location")
    back = provider.approves(there, "17")
    assert back.startswith(f"{browser.origin}/north/signed-in?")
    ended = browser.ask("GET", back.removeprefix(browser.origin))
    assert (ended.status, ended.header("refresh")) == (200, "0; url=/north/")
    assert f"__Host-tessera-visit-{browser.port}-north" in browser.cookies
    paths = ("/", "/plans/hub/r1", "/ledger", "/data", "/explore")
    pages = {path: browser.ask("GET", f"/north{path}") for path in paths}
    for path, page in pages.items():
        assert page.status == 200, path
        for link in re.findall(r'\b(?:href|src|action|hx-get)="(/[^"]*)"', page.body):
            assert link.startswith("/north/"), (path, link)
    place = "/north/plans/hub/r1"
    form = pages["/plans/hub/r1"].body.partition(f'action="{place}/approve"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    answer = browser.ask("POST", f"{place}/approve", fields | {"confirm": "r1", "valid": "24 hours"})
    assert (answer.status, answer.header("location")) == (303, "/north/plans/hub/r1")
    left = browser.ask("POST", "/north/leave", {"csrf": fields["csrf"]})
    assert f'href="{provider.issuer}/end?client_id=' in left.body
    assert browser.ask("GET", "/north/").status == 401


def test_each_browser_has_its_own_limits(browser):
    """The proxy says where a request comes from; what a browser writes itself is not believed."""
    for number in range(MOST_WRONG):
        forged = {"X-Forwarded-For": f"10.0.0.{number}"}
        assert browser.ask("GET", "/north/signed-in?state=x&code=y", **forged).status == 403
    assert browser.ask("GET", "/north/sign-in", **{"X-Forwarded-For": "10.9.9.9"}).status == 429
    other = Browser(browser.port, browser.authority, "127.0.0.77")
    assert other.ask("GET", "/north/sign-in").status == 303


def test_events_arrive_as_they_come(section, tmp_path):
    """The second event is sent after the first one has been read behind the proxy."""
    console, upstream = section
    read, site_of = threading.Event(), {}

    def live(_):
        def events():
            yield "event: change\ndata: 1\n\n"
            assert read.wait(30)
            yield "event: over\ndata: 2\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def made(doors, address, provider):
        site = Site("common.web", "Test", (), doors, "", provider)
        site_of["doors"] = doors
        return site.application(lambda: [Route("/live", live)], address)

    pages = Console("owner test", console, tmp_path / "state", dict, lambda found: found, made)
    port = urlsplit(console.url).port
    assert port is not None
    with (
        running(pages),
        in_front(tmp_path / "web", documented(tmp_path / "web", port, upstream)),
        ExitStack() as leaving,
    ):
        leaving.callback(read.set)
        name = f"__Host-tessera-visit-{port}-north"
        cookies = {name: site_of["doors"].begin("vera")}
        browser = Browser(port, tmp_path / "web" / "ca.pem", cookies=cookies)
        with browser.opened("GET", "/north/live", Accept="text/event-stream") as stream:
            assert stream.status == 200
            assert stream.readline() == b"event: change\n"
            read.set()
            assert b"event: over" in stream.read()


@pytest.mark.parametrize(
    ("peer", "named", "client"),
    [
        ("10.0.0.5", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.5", "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("10.0.0.5", "6.6.6.6, 1.2.3.4, 10.0.0.6", "1.2.3.4"),
        ("10.0.0.5", "", "10.0.0.5"),
        ("10.0.0.5", "10.0.0.6", "10.0.0.5"),
        ("10.1.0.5", "1.2.3.4", "10.1.0.5"),
        ("", "1.2.3.4", "1.2.3.4"),
        ("", "", ""),
    ],
)
def test_where_a_request_comes_from(peer, named, client):
    """The last address that no declared proxy has; a stranger names nothing."""
    address = Address(["h"], proxies=[ip_network("10.0.0.0/24")], by_socket=not peer)
    headers = [(b"x-forwarded-for", each.encode()) for each in named.split(", ", 1) if each]
    scope = {"type": "http", "client": (peer, 1) if peer else None, "headers": headers}
    assert address.client(scope) == client
