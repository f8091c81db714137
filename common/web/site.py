"""A web application of pages: templates, errors, signing in and out, the guard around all of it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from common.errors import ConflictError, TesseraError, UsageError
from common.log import one_line, places
from common.web.doors import Doors, TooManyAttemptsError
from common.web.guard import Guard, cookie_of

COOKIE = "tessera-visit"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the menu."""

    path: str
    name: str


class Site:
    """The pages of one program.

    Args:
        package: The package whose folder `templates` holds its templates.
        title: What every page's title ends with.
        menu: The entries of the menu.
        doors: Who may enter.
        sign_in: What to do to get a new link, in a sentence.
    """

    def __init__(
        self, package: str, title: str, menu: Sequence[Link], doors: Doors[Any], sign_in: str
    ) -> None:
        self._doors, self._title, self._menu, self._sign_in = doors, title, menu, sign_in
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader(package), PackageLoader("common.web")]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
        )
        self._templates.filters |= {"moment": moment, "grouped": "{:,}".format, "percent": percent}

    def page(
        self, request: Request, template: str, values: Mapping[str, Any] | None = None, status: int = 200
    ) -> HTMLResponse:
        """Return a page of a visit.

        Args:
            request: The request.
            template: Name of the template.
            values: Values of the template; every text is escaped, control characters included.
            status: Status code.
        """
        visit = request.scope["state"]["visit"]
        own = {"title": self._title, "menu": self._menu, "path": request.url.path, "visit": visit}
        return HTMLResponse(self._templates.get_template(template).render(own | dict(values or {})), status)

    def refusal(self, status: int, text: str, hint: str = "") -> HTMLResponse:
        """Return a page that says what is wrong; it needs no visit."""
        values = {"title": self._title, "menu": (), "path": "", "visit": None}
        words = {"text": text, "hint": hint or (self._sign_in if status == 401 else "")}
        return HTMLResponse(self._templates.get_template("refusal.html").render(values | words), status)

    def application(self, routes: Sequence[BaseRoute], hosts: Sequence[str], scheme: str) -> Starlette:
        """Return the application.

        Args:
            routes: The pages.
            hosts: The values of the Host header that name this site.
            scheme: "http", or "https" where it listens with TLS.
        """

        def enter(request: Request) -> Response:
            try:
                secret = self._doors.enter(request.query_params.get("key", ""))
            except TooManyAttemptsError:
                return self.refusal(429, "Too many wrong links. Wait a minute.", self._sign_in)
            if secret is None:
                return self.refusal(401, "This link was used, is older than ten minutes, or is wrong.")
            response = RedirectResponse("/", 303)
            response.set_cookie(
                COOKIE, secret, httponly=True, samesite="strict", secure=scheme == "https", path="/"
            )
            return response

        def leave(request: Request) -> Response:
            self._doors.leave(cookie_of(request.headers, COOKIE))
            return self.refusal(200, "You are signed out.", self._sign_in)

        def of_known_error(_: Request, error: Exception) -> Response:
            known = error if isinstance(error, TesseraError) else UsageError(str(error))
            status = 409 if isinstance(known, ConflictError) else 400
            return self.refusal(status, known.message, known.hint)

        def of_http_error(_: Request, error: Exception) -> Response:
            status = error.status_code if isinstance(error, HTTPException) else 500
            return self.refusal(
                status, "There is no such page." if status == 404 else "This is not possible."
            )

        def of_fault(_: Request, error: Exception) -> Response:
            _log.warning("page failed", exc_info=error)
            return self.refusal(
                500, f"internal fault ({type(error).__name__} at {places(error)[-1]}); please report it"
            )

        guard = Middleware(
            Guard, doors=self._doors, cookie=COOKIE, hosts=hosts, scheme=scheme, refusal=self.refusal
        )
        return Starlette(
            routes=[
                Route("/enter", enter),
                Route("/leave", leave, methods=["POST"]),
                Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
                *routes,
            ],
            middleware=[guard],
            exception_handlers={
                TesseraError: of_known_error, HTTPException: of_http_error, Exception: of_fault
            },
        )  # fmt: skip


def _finalize(value: object) -> object:
    """Escape control, bidirectional and other invisible characters of every text that is not a template's."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(text: str | datetime | None) -> str:
    """Return a time as people read it, in UTC."""
    if not text:
        return "–"
    time = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return f"{time:%Y-%m-%d %H:%M} UTC"


def percent(share: float | Decimal | str) -> str:
    """Return a share with three digits."""
    return f"{100 * float(share):.3g} %"
