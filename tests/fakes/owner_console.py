"""The owner's web pages at a real port, over the real state of an owner that a plan waits for."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from common.daemon.console import ConsoleSection, OidcSection
from common.web.address import Address
from common.web.doors import Doors
from common.web.oidc import SignIn
from common.web.server import server
from owner_node.config import PolicyConfig
from owner_node.console.serving import application, person_of
from owner_node.release.approvals import Person
from tests.fakes.offering import Offering

APPRAISING = 'id="appraising"'
"""What a page has as long as it waits for the data of its plan."""


@dataclass
class Answer:
    """An answer with its body."""

    status: int
    body: str
    response: HTTPResponse

    def header(self, name: str) -> str:
        """Return a header; empty if it is not there."""
        return self.response.getheader(name) or ""

    def cookie(self) -> str:
        """Return the cookie that it sets, as a browser sends it back."""
        return self.header("set-cookie").split(";")[0]


@dataclass
class OwnerConsole:
    """A console that listens, and a person's browser reduced to a cookie."""

    offering: Offering
    port: int
    doors: Doors[Person]
    later: list[float]
    cookie: str = ""
    sent: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def link(self, name: str = "vera") -> str:
        """Return the path of a new one-time link."""
        return "/enter?" + urlencode({"key": self.doors.new_key(Person(name))})

    def ask(
        self,
        method: str,
        path: str,
        form: dict[str, str] | bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = form if isinstance(form, bytes) else urlencode(form or {}).encode()
        own = {"Cookie": self.cookie} if self.cookie else {}
        if method == "POST":
            own |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body if method == "POST" else None, own | (headers or {}))
        response = connection.getresponse()
        answer = Answer(response.status, response.read().decode(), response)
        connection.close()
        # As a page does in a browser, while the data of a plan are loaded.
        return self.ask("GET", path) if APPRAISING in answer.body else answer

    def sign_in(self, name: str = "vera") -> None:
        """Follow a one-time link."""
        answer = self.ask("GET", self.link(name))
        assert answer.status == 303
        self.cookie = answer.cookie()

    def csrf(self) -> str:
        """Return what the forms of this visit carry."""
        page = self.ask("GET", "/").body
        return page.split('name="csrf" value="')[1].split('"')[0]

    def approval(self) -> dict[str, str]:
        """Return the form of the plan's page that approves it, filled in."""
        form = self.ask("GET", "/plans/hub/r1").body.partition('action="/plans/hub/r1/approve"')[2]
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form.partition("</form>")[0]))
        return {"csrf": self.csrf()} | fields | {"confirm": "r1", "valid": "24 hours"}


@contextmanager
def owner_console(
    folder: Path,
    purpose: str = "research",
    approvers: int = 1,
    oidc: OidcSection | None = None,
    k: str = "5",
    usable: bool = True,
    **policy: Any,
) -> Iterator[OwnerConsole]:
    """Make an owner that asks a person about every plan, ask it for one, and serve its pages.

    Unless `usable`, its data are gone when the plan arrives.
    """
    offering = Offering(folder, PolicyConfig(approval="manual", approvers=approvers, **policy))
    offering.config = replace(offering.config, console=ConsoleSection(oidc=oidc))
    offering.restart()
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"), "r1", k=k, purpose=purpose)
    if not usable:
        offering.source.unlink()
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is None
    listener = socket.create_server(("127.0.0.1", 0))
    port, later = listener.getsockname()[1], [0.0]
    at = f"127.0.0.1:{port}"
    doors: Doors[Person] = Doors(lambda: time.monotonic() + later[0])
    provider = None if oidc is None else SignIn(oidc, f"http://{at}", person_of, doors.clock)
    listening = server(application(lambda: offering.config, doors, Address([at]), provider), doors)
    thread = threading.Thread(target=lambda: listening.run(sockets=[listener]))
    thread.start()
    try:
        yield OwnerConsole(offering, port, doors, later)
    finally:
        listening.should_exit = True
        thread.join()
        offering.records.db.close()
