"""The pages: what each reads, and the two changes, approve and refuse."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from common.clock import utc_now
from common.errors import UsageError
from common.web.doors import Doors
from common.web.jobs import Jobs
from common.web.site import Link, Site
from owner_node.config import OwnerConfig
from owner_node.doctor import examination
from owner_node.ledger.ledger import Entry, EntryKind, Ledger
from owner_node.release.approvals import Person
from owner_node.release.decisions import LONGEST_REASON, Decisions
from owner_node.risk.attacks import LINKING
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.presence import ring
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session
from owner_node.views.budgets import balances, unrecorded
from owner_node.views.plan import named, plan_document, preview_of
from owner_node.views.status import status_document

VALID = {"1 hour": timedelta(hours=1), "24 hours": timedelta(days=1), "7 days": timedelta(days=7)}
"""For how long an approval can be given."""
LINES_PER_PAGE = 100
"""Lines of the history on one page."""
_MENU = (
    Link("/", "Inbox"),
    Link("/ledger", "Ledger"),
    Link("/history", "History"),
    Link("/connections", "Connections"),
)
_CHECK_UP = "check-up"
_WIDTH, _HEIGHT = 600, 160


def application(
    load: Callable[[], OwnerConfig], doors: Doors[Person], hosts: Sequence[str], scheme: str = "http"
) -> Starlette:
    """Return the web application of an owner node.

    Args:
        load: Reads the configuration; called once per request, so that pages show what commands show.
        doors: Who may enter.
        hosts: The values of the Host header that name this console.
        scheme: "http", or "https" where it listens with TLS.
    """
    return _Pages(load, doors).application(hosts, scheme)


class _Pages:
    def __init__(self, load: Callable[[], OwnerConfig], doors: Doors[Person]) -> None:
        self._load, self._jobs = load, Jobs()
        self._site = Site(
            "owner_node.console", f"Tessera owner {load().owner.id}", _MENU, doors,
            "owner-node console prints a new link.",
        )  # fmt: skip

    def application(self, hosts: Sequence[str], scheme: str) -> Starlette:
        plan = "/plans/{aggregator}/{release}"
        routes = [
            Route("/", self.inbox),
            Route(plan, self.plan),
            Route(f"{plan}/trial", self.trial),
            Route(f"{plan}/approve", self.approve, methods=["POST"]),
            Route(f"{plan}/refuse", self.refuse, methods=["POST"]),
            Route("/ledger", self.ledger),
            Route("/history", self.history),
            Route("/connections", self.connections),
            Route("/connections/check-up", self.check_up, methods=["GET", "POST"]),
        ]
        return self._site.application(routes, hosts, scheme)

    def inbox(self, request: Request) -> Response:
        """Show the plans that wait for a person, what deserves attention, and the sessions under way."""
        owner = self._load()
        with _opened(owner) as (db, decisions):
            waiting = [plan_document(each, owner, db, decisions) for each in decisions.waiting()]
            status = status_document(owner, db)
            fault = unrecorded(owner, Ledger(db, utc_now))
            warnings = [*_warnings(status), *([] if fault is None else [f"{fault.message}: {fault.hint}"])]
        values = {"waiting": waiting, "status": status, "warnings": warnings}
        return self._site.page(request, "inbox.html", values)

    def plan(self, request: Request) -> Response:
        """Show one plan, the verdict first."""
        owner = self._load()
        with _opened(owner) as (db, decisions):
            document = plan_document(decisions.find(_name(request)), owner, db, decisions)
        waits = document["state"] == SessionState.AWAITING_APPROVAL
        values = {"plan": document, "waits": waits, "valid": list(VALID), "longest": LONGEST_REASON}
        return self._site.page(request, "plan.html", values)

    def trial(self, request: Request) -> Response:
        """Show what the attacks found when the plan was tried, or that it is being tried."""
        owner = self._load()
        with _opened(owner) as (_, decisions):
            session = decisions.find(_name(request))
        key = ("trial", session.aggregator, session.release, session.plan_digest, session.source_digest)
        job = self._jobs.result(key, lambda: preview_of(session, owner))
        found = job.result() if job is not None and job.done() else None
        values = {"running": job is not None and not job.done(), "found": found, "plan": named(session)}
        return self._site.page(request, "trial.html", values | {"strongest": _strongest(found)})

    def approve(self, request: Request) -> Response:
        """Approve the plan that was shown."""
        form = _form(request)
        valid = VALID.get(form.get("valid", ""))
        if valid is None:
            raise UsageError("choose for how long the approval holds", ", ".join(VALID))

        def decide(decisions: Decisions, session: Session, person: Person) -> None:
            if form.get("confirm", "").strip() != session.release:
                raise UsageError("the release id that was typed is another one", f"type {session.release}")
            decisions.approve(_name(request), session.plan_digest, person, valid)

        return self._decide(request, decide)

    def refuse(self, request: Request) -> Response:
        """Refuse the plan that was shown."""
        reason = _form(request).get("reason", "")

        def decide(decisions: Decisions, session: Session, person: Person) -> None:
            decisions.refuse(_name(request), session.plan_digest, person, reason)

        return self._decide(request, decide)

    def _decide(self, request: Request, decide: Callable[[Decisions, Session, Person], object]) -> Response:
        """Carry out a decision about exactly the plan whose digest is in the form."""
        digest = _form(request).get("digest", "")
        if not digest:
            raise UsageError("the form names no plan", "load the page again")
        owner = self._load()
        with _opened(owner) as (_, decisions):
            session = decisions.awaiting(_name(request), digest)
            decide(decisions, session, request.scope["state"]["visit"].person)
        ring(owner.owner.state_dir)
        return RedirectResponse(f"/plans/{session.aggregator}/{session.release}", 303)

    def ledger(self, request: Request) -> Response:
        """Show budgets, what is left of them over time, and every charge."""
        owner = self._load()
        with _opened(owner) as (db, _):
            ledger = Ledger(db, utc_now)
            found, entries = balances(owner, ledger), ledger.entries()
        charts = {each["budget"]: _chart(entries, each["budget"], each["total"]) for each in found}
        values = {"balances": found, "entries": entries[::-1][:LINES_PER_PAGE], "charts": charts}
        return self._site.page(request, "ledger.html", values)

    def history(self, request: Request) -> Response:
        """Show the history, newest first, filtered."""
        owner, wanted = self._load(), request.query_params
        before = wanted.get("before", "")
        filters = {name: wanted.get(name, "") for name in ("aggregator", "release", "event")}
        with _opened(owner) as (db, _):
            lines = History(db, utc_now).newest(
                int(before) if before.isdecimal() else None,
                LINES_PER_PAGE,
                **{name: value for name, value in filters.items() if value},
            )
        older = lines[-1].sequence if len(lines) == LINES_PER_PAGE else None
        return self._site.page(request, "history.html", {"lines": lines, "filters": filters, "older": older})

    def connections(self, request: Request) -> Response:
        """Show aggregators, certificate and linkage key."""
        owner = self._load()
        with _opened(owner) as (db, _):
            status = status_document(owner, db)
        return self._site.page(request, "connections.html", {"status": status})

    def check_up(self, request: Request) -> Response:
        """Show what `owner-node doctor` finds; a POST looks again."""
        owner = self._load()
        if request.method == "POST":
            self._jobs.forget(_CHECK_UP)
        job = self._jobs.result(_CHECK_UP, lambda: list(examination(owner.path)))
        findings = job.result() if job is not None and job.done() else None
        return self._site.page(request, "check_up.html", {"findings": findings})


@contextmanager
def _opened(owner: OwnerConfig) -> Iterator[tuple[OwnerDatabase, Decisions]]:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        yield db, Decisions(db, utc_now)


def _name(request: Request) -> str:
    return f"{request.path_params['aggregator']}/{request.path_params['release']}"


def _form(request: Request) -> dict[str, str]:
    found: dict[str, str] = request.scope["state"]["form"]
    return found


def _warnings(status: dict[str, Any]) -> Iterator[str]:
    if status["halted"]:
        yield f"No work is done: {status['halted']}. See owner-node ledger recover."
    if not status["running"]:
        yield "The daemon is not running. Start it: owner-node run."
    if status["outdated"]:
        yield status["outdated"]
    if status["certificate"]["warning"]:
        yield status["certificate"]["warning"]
    for each in status["aggregators"]:
        if status["running"] and not each["connected"]:
            yield f"Not connected to aggregator {each['name']}: {each['reason'] or 'not tried yet'}."


def _strongest(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the attack that re-identifies most persons, by whichever intruder; None if none was tried."""
    tried = [each for each in (found or {}).get("risks", ()) if each["attack"] in LINKING]
    earlier = (found or {}).get("risk_with_earlier")
    return max([*tried, *filter(None, [earlier])], key=lambda each: each["rate"]["mean"], default=None)


def _chart(entries: Sequence[Entry], budget: str, total: Decimal | None) -> list[tuple[float, float]] | None:
    """Return the corners of the line of what is charged to a budget over time, in a box of 600 by 160.

    Args:
        entries: All charges, oldest first.
        budget: The budget.
        total: The height of the box; None for the most that was charged.
    """
    signs = {EntryKind.RESERVE: 1, EntryKind.RETURN: -1}
    charged, level, corners = Decimal(0), Decimal(0), [Decimal(0)]
    own = [each for each in entries if each.budget == budget]
    for each in own:
        level += signs.get(each.kind, 0) * each.charge
        corners.append(level)
        charged = max(charged, level)
    top = max(total or Decimal(0), charged)
    if not own or not top:
        return None
    width = _WIDTH / len(own)
    steps = []
    for number, corner in enumerate(corners):
        height = _HEIGHT - float(corner / top) * _HEIGHT
        steps += [(number * width, height), (min((number + 1) * width, _WIDTH), height)]
    return steps
