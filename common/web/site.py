"""A web application of pages: templates, errors, signing in and out, the guard around all of it."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from common.errors import (
    ConflictError,
    NotConnectedError,
    RefusedError,
    TesseraError,
    UsageError,
    on_one_line,
    one_line,
)
from common.web.address import Address, network_of
from common.web.doors import LINK_SECONDS, MOST_BEGUN, Doors, SignInAttempts, TooManyAttemptsError, Visit
from common.web.guard import LEAVE, Guard, cookie_of, fault_text, visit_of
from common.web.jobs import Jobs
from common.web.oidc import CALLBACK, SignIn
from common.words.numbers import bound_text, cost_text, delta_text, left_text, moment_text, percent_text

COOKIE = "tessera-visit"
"""Cookie of a visit; its name ends with port and path, because browsers send cookies to all of a host."""
_PROVIDER_THREADS = 4
_T = TypeVar("_T")
_SYMBOLS = ("ε", "δ")
_SIGN_IN_COOKIE = "tessera-sign-in"
_HOST_PREFIX = "__Host-"
"""Browsers take such a cookie over TLS alone, and from no other host of the domain."""
_STATUS: dict[type[TesseraError], int] = {ConflictError: 409, RefusedError: 403, NotConnectedError: 502}


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the menu."""

    path: str
    name: str


class EntryEvent(StrEnum):
    """What happened at the entrance of a console."""

    IN = "signed-in"
    OUT = "signed-out"
    FAILED = "sign-in-failed"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What the audit log says about somebody who came or left."""

    event: EntryEvent
    address: str
    """Address of the browser."""
    person: Any = None
    """Who it is; None where nobody knows."""
    reason: str = ""
    """Why a sign-in failed."""


Note = Callable[[AuditEntry], None]
"""Writes an entry to the audit log."""
MOST_FAILURES = 5
"""Failed sign-ins that are written to the audit log in a minute, whoever causes them."""
_LONGEST_REASON = 200


class Site:
    """The pages of one program.

    Args:
        package: The package whose folder `templates` holds its templates.
        sign_in: What to do to get a new link, in a sentence.
        provider: Who says who a person is; None for one-time links.
        note: Writes to the audit log who signed in or out; called in a thread.
    """

    def __init__(
        self,
        package: str,
        title: str,
        menu: Sequence[Link],
        doors: Doors[Any],
        sign_in: str,
        provider: SignIn[Any] | None = None,
        note: Note = lambda _: None,
    ) -> None:
        self._note, self._failures = note, SignInAttempts(MOST_FAILURES, doors.clock)
        self._doors, self._title, self._menu, self._sign_in = doors, title, menu, sign_in
        self._provider = provider
        self._jobs: list[Jobs] = []
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader(package), PackageLoader("common.web")]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
            extensions=[_Rooted],
        )
        self._templates.filters |= {
            "moment": moment,
            "grouped": "{:,}".format,
            "percent": percent_text,
            "bound": bound_text,
            "cost": cost_text,
            "delta": delta_text,
            "left": left_text,
            "joined": on_one_line,
            "capitalised": capitalise,
        }

    async def note(self, entry: AuditEntry) -> None:
        """Write to the audit log; of failures, which anybody can cause, only some of a minute."""
        if entry.event is EntryEvent.FAILED:
            try:
                self._failures.check("")
            except TooManyAttemptsError:
                return
            self._failures.count("")
        await to_thread.run_sync(self._note, entry)

    def jobs(self, name: str = "job") -> Jobs:
        """Return a place for long work, which stops when the pages are not served any more."""
        self._jobs.append(Jobs(name))
        return self._jobs[-1]

    def page(
        self, request: Request, template: str, values: Mapping[str, Any] | None = None, status: int = 200
    ) -> HTMLResponse:
        """Return a page of a visit; every text of the values is escaped, control characters included."""
        visit = request.scope["state"]["visit"]
        return self._render(template, request.url.path, visit, values or {}, status)

    def document(self, html: str) -> HTMLResponse:
        """Return a self-contained page of `common.words.pages`: with its own styles, and no script is run."""
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
        return HTMLResponse(html, headers={"content-security-policy": policy})

    def refusal(
        self, status: int, text: str, hint: str = "", visit: Visit[Any] | None = None, provider: str = ""
    ) -> HTMLResponse:
        """Return a page that says what is wrong; it needs no visit, and has the menu if there is one.

        Args:
            provider: Where to sign out at the provider as well; empty for nowhere.
        """
        nobody = status == 401
        words = {
            "text": text,
            "hint": hint or (self._sign_in if nobody and self._provider is None else ""),
            "sign_in": nobody and self._provider is not None,
            "provider": provider,
        }
        return self._render("refusal.html", "", visit, words, status)

    def _render(
        self, template: str, path: str, visit: Visit[Any] | None, values: Mapping[str, Any], status: int
    ) -> HTMLResponse:
        # What no other entry of the menu leads to, the first one does.
        section = next((entry.path for entry in self._menu[1:] if path.startswith(entry.path)), "/")
        frame = {
            "title": self._title,
            "menu": self._menu if visit else (),
            "path": path,
            "section": section if path else "",
            "visit": visit,
        }
        return HTMLResponse(self._templates.get_template(template).render(frame | dict(values)), status)

    def application(self, routes: Callable[[], Sequence[BaseRoute]], address: Address) -> ASGIApp:
        """Return the application.

        Args:
            routes: Makes the pages, when the first is asked for by a person who has signed in: what computes
                their contents can be large, and is not loaded before.
        """
        self._templates.globals["root"] = address.root
        cookie = _cookie(COOKIE, address)
        entrance = (
            _Links(self, self._doors, cookie)
            if self._provider is None
            else _SignIns(self, self._doors, cookie, self._provider, _cookie(_SIGN_IN_COOKIE, address))
        )

        async def leave(request: Request) -> Response:
            self._doors.leave(cookie_of(request.headers, cookie))
            await self.note(AuditEntry(EntryEvent.OUT, _client(request), visit_of(request).person))
            there = "" if self._provider is None else await to_thread.run_sync(self._provider.leave_address)
            return self.refusal(200, "You are signed out.", self._sign_in, provider=there)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            for jobs in self._jobs:
                jobs.close()

        def of_known_error(request: Request, error: Exception) -> Response:
            known = error if isinstance(error, TesseraError) else UsageError(str(error))
            status = next((code for kind, code in _STATUS.items() if isinstance(known, kind)), 400)
            return self.refusal(
                status, on_one_line(known.message), on_one_line(known.hint, "; "), visit_of(request)
            )

        def of_http_error(request: Request, error: Exception) -> Response:
            status = error.status_code if isinstance(error, HTTPException) else 500
            text = "There is no such page." if status == 404 else "This is not possible."
            return self.refusal(status, text, visit=visit_of(request))

        def of_fault(_: Request, error: Exception) -> Response:
            # The guard logs it.
            return self.refusal(500, fault_text(error))

        application = Starlette(
            routes=[
                *entrance.routes(),
                Route(LEAVE, leave, methods=["POST"]),
                Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
                Mount("/", _Late(routes)),
            ],
            exception_handlers={
                TesseraError: of_known_error,
                HTTPException: of_http_error,
                Exception: of_fault,
            },
            lifespan=lifespan,
        )
        return Guard(application, self._doors, cookie, address, self.refusal)

    def signed_in(self, cookie: str, secret: str) -> Response:
        """Return the answer to a sign-in that another site led to, which leads to the first page.

        The browser sends no cookie of this site with what another site leads to, redirections included. So
        this is a page, and the page leads on.
        """
        response = self.refusal(200, "You are signed in.")
        response.headers["refresh"] = f"0; url={self._templates.globals['root']}/"
        set_cookie(response, cookie, secret)
        return response


class _Rooted(Extension):
    """Puts the path that all pages begin with before the links of templates, which begin with their own."""

    _OWN = re.compile(r'\b(href|src|action|hx-get|data-live)="(?=/|\{\{ (?:path|here|link\.path) \}\})')

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        root = self.environment.globals["root"]
        return self._OWN.sub(rf'\1="{root}', source)


class _Late:
    """Pages that are made when the first of them is asked for."""

    def __init__(self, routes: Callable[[], Sequence[BaseRoute]]) -> None:
        self._routes = routes
        self._router: Router | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._router is None:
            self._router = Router(self._routes())
        await self._router(scope, receive, send)


class _Links:
    """Signing in with a one-time link."""

    def __init__(self, site: Site, doors: Doors[Any], cookie: str) -> None:
        self._site, self._doors, self._cookie = site, doors, cookie

    def routes(self) -> list[BaseRoute]:
        return [Route("/enter", self.enter)]

    async def enter(self, request: Request) -> Response:
        try:
            secret = self._doors.enter(request.query_params.get("key", ""), _address(request))
        except TooManyAttemptsError:
            return self._site.refusal(429, "Too many wrong links. Wait a minute.")
        if secret is None:
            reason = "This link was used, is older than ten minutes, or is wrong."
            await self._site.note(AuditEntry(EntryEvent.FAILED, _client(request), reason=reason))
            return self._site.refusal(401, reason)
        visit = self._doors.visit(secret)
        await self._site.note(AuditEntry(EntryEvent.IN, _client(request), visit.person if visit else None))
        response = RedirectResponse("/", 303)
        set_cookie(response, self._cookie, secret)
        return response


class _SignIns:
    """Signing in at an OpenID Connect provider."""

    def __init__(
        self, site: Site, doors: Doors[Any], cookie: str, provider: SignIn[Any], begun_cookie: str
    ) -> None:
        self._site, self._doors, self._cookie = site, doors, cookie
        self._provider, self._begun_cookie = provider, begun_cookie
        self._begun = SignInAttempts(MOST_BEGUN, doors.clock)
        # A provider that does not answer leaves the threads of all pages to these.
        self._limiter = CapacityLimiter(_PROVIDER_THREADS)

    async def _in_thread(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return await to_thread.run_sync(call, *arguments, limiter=self._limiter)

    def routes(self) -> list[BaseRoute]:
        return [Route("/sign-in", self.begin), Route(CALLBACK, self.end)]

    async def begin(self, request: Request) -> Response:
        address = _address(request)
        try:
            self._begun.check(address)
            self._doors.wrong.check(address)
        except TooManyAttemptsError:
            return self._site.refusal(429, "Too many sign-ins. Wait a minute.")
        self._begun.count(address)
        cookie, there = await self._in_thread(self._provider.begin)
        response = RedirectResponse(there, 303)
        # The provider leads back here: a strict cookie would not come with that.
        set_cookie(response, self._begun_cookie, cookie, samesite="lax", seconds=int(LINK_SECONDS))
        return response

    async def end(self, request: Request) -> Response:
        address, query = _address(request), dict(request.query_params)
        try:
            self._doors.wrong.check(address)
        except TooManyAttemptsError:
            return self._site.refusal(429, "Too many sign-ins. Wait a minute.")
        try:
            begun = cookie_of(request.headers, self._begun_cookie)
            person, decides = await self._in_thread(self._provider.end, begun, query)
        except RefusedError as error:
            self._doors.wrong.count(address)
            reason = error.message[:_LONGEST_REASON]
            await self._site.note(AuditEntry(EntryEvent.FAILED, _client(request), reason=reason))
            raise
        await self._site.note(AuditEntry(EntryEvent.IN, _client(request), person))
        return self._site.signed_in(self._cookie, self._doors.begin(person, decides=decides))


def set_cookie(
    response: Response,
    name: str,
    value: str,
    samesite: Literal["strict", "lax"] = "strict",
    seconds: int | None = None,
) -> None:
    """Set a cookie that no script sees."""
    response.set_cookie(
        name, value, seconds, path="/", httponly=True, samesite=samesite, secure=name.startswith(_HOST_PREFIX)
    )


def _cookie(name: str, address: Address) -> str:
    port = address.hosts[0].rpartition(":")[2]
    own = f"{name}-{port}" if port.isdecimal() else name
    own += address.root.replace("/", "-")
    return f"{_HOST_PREFIX}{own}" if address.scheme == "https" else own


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _address(request: Request) -> str:
    return network_of(_client(request))


def _finalize(value: object) -> object:
    """Escape control, bidirectional and other invisible characters of every text that is not a template's."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(text: str | datetime | None) -> str:
    """Return a time as people read it, in UTC; a dash where there is none."""
    return moment_text(text) if text else "–"


def capitalise(text: str) -> str:
    """Return a text that begins with a capital letter, as messages of errors do not; ε and δ stay small."""
    return text if text[:1] in _SYMBOLS else text[:1].upper() + text[1:]
