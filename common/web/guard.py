"""The checks that every request passes before a page sees it, and the headers that every answer carries.

Everything that answers is inside the guard, faults of pages included.

A page on another site can make a browser send requests here. So the Host header must name this console (DNS
rebinding), a change must come from one of its own pages (Origin, and the token of the visit's forms), and the
cookie is sent with requests of the same site alone.
"""

import hmac
import logging
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.log import places
from common.web.address import Address
from common.web.doors import Doors, Visit

LONGEST_FORM = 64 * 1024
"""Largest body of a request, in bytes."""
OPEN = ("/static/", "/enter", "/sign-in", "/signed-in")
"""Where no visit is needed."""
_LONGEST_NUMBER = 15
"""Digits of a number in an address."""
LEAVE = "/leave"
"""Where a visit is ended, also by those who may change nothing."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_OF_HTTPS = {"strict-transport-security": "max-age=31536000"}
_log = logging.getLogger(__name__)


class Guard:
    """ASGI middleware; puts `visit` and `form` (of a POST) into the state of a request.

    Args:
        refusal: Makes the page that says why a request is refused, from a status and a sentence.
    """

    def __init__(
        self,
        app: ASGIApp,
        doors: Doors[object],
        cookie: str,
        address: Address,
        refusal: Callable[[int, str], Response],
    ) -> None:
        self._app, self._doors, self._cookie, self._refusal = app, doors, cookie, refusal
        self._address = address
        self._headers = _HEADERS | (_OF_HTTPS if address.scheme == "https" else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        root, begun = self._address.root, False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in self._headers.items():
                    # A page that brings its own styles has its own policy (`Site.document`).
                    headers.setdefault(name, value)
                if headers.get("content-type", "").startswith("text/event-stream"):
                    # nginx passes events on as they come.
                    headers["x-accel-buffering"] = "no"
                if headers.get("location", "").startswith("/"):
                    headers["location"] = root + headers["location"]
            await send(message)

        # Pages know no path but their own.
        inside = scope["path"].startswith(f"{root}/")
        path = scope["path"][len(root) :] if inside else scope["path"]
        scope = {**scope, "path": path, "client": (self._address.client(scope), 0)}
        try:
            refused = (
                await self._refusal_for(scope, receive)
                if inside
                else self._refusal(404, "There is no such page.")
            )
            await (refused or self._app)(scope, receive, send_with_headers)
        except ClientDisconnect:
            # In the middle of a form: there is nobody to answer.
            return
        except Exception as fault:  # noqa: BLE001 - a server would log the text of the error, which can quote a value
            _log.warning("page failed", exc_info=fault)
            if not begun:
                await self._refusal(500, fault_text(fault))(scope, receive, send_with_headers)

    async def _refusal_for(self, scope: Scope, receive: Receive) -> Response | None:
        headers, method = Headers(scope=scope), scope["method"]
        if headers.getlist("host") != [headers.get("host")] or headers["host"] not in self._address.hosts:
            return self._refusal(421, "This address is not the one that the console listens at.")
        if method not in ("GET", "HEAD", "POST"):
            return self._refusal(405, "This method is not known here.")
        if method == "POST" and headers.get("origin") not in self._address.origins:
            return self._refusal(403, "This request did not come from a page of this console.")
        state = scope.setdefault("state", {})
        state["visit"] = visit = self._doors.visit(
            cookie_of(headers, self._cookie), active=method == "POST" or not _refreshes(headers)
        )
        if visit is None:
            if scope["path"].startswith(OPEN) and method != "POST":
                return None
            return self._refusal(401, "Nobody is signed in here, or 15 minutes passed without a request.")
        if method == "POST" and not visit.decides and scope["path"] != LEAVE:
            return self._refusal(403, "You may look at these pages, and change nothing.")
        return await self._checked_form(Request(scope, receive), visit) if method == "POST" else None

    async def _checked_form(self, request: Request, visit: Visit[object]) -> Response | None:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_FORM:
                return self._refusal(413, "This form is too long.")
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
        except ValueError:
            return self._refusal(400, "This form cannot be read.")
        if not hmac.compare_digest(form.pop("csrf", "").encode(), visit.csrf.encode()):
            return self._refusal(403, "This form is not of this visit. Load the page again.")
        request.scope["state"]["form"] = form
        return None


def form_of(request: Request) -> dict[str, str]:
    """Return the form that was sent, its token checked."""
    form: dict[str, str] = request.scope["state"]["form"]
    return form


def visit_of(request: Request) -> Visit[Any]:
    """Return the visit of the person who asks."""
    visit: Visit[Any] = request.scope["state"]["visit"]
    return visit


def number_of(request: Request, name: str) -> int:
    """Return a whole number of the query; 0 for anything else."""
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else 0


def fault_text(fault: BaseException) -> str:
    """Return what a page says of a fault: its type and place, never its text, which can quote a value."""
    return f"internal fault ({type(fault).__name__} at {places(fault)[-2]}); please report it"


def cookie_of(headers: Headers, name: str) -> str:
    """Return the value of a cookie; empty if there is none."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _refreshes(headers: Headers) -> bool:
    """Whether a page asks by itself, such as one that waits for a result or for events."""
    return "hx-request" in headers or headers.get("accept") == "text/event-stream"
