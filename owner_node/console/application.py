"""The pages: what each reads, and what a person can do there: approve, refuse, explore."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from common.cli.doctor import Finding
from common.clock import utc_now
from common.errors import ConflictError, TesseraError, UsageError
from common.model.mechanisms import MECHANISMS
from common.planning.names import split_names
from common.progress import StepStoppedError
from common.web.guard import fault_text, form_of, number_of, visit_of
from common.web.jobs import Job
from common.web.site import Site
from owner_node.config import OwnerConfig
from owner_node.console import pictures
from owner_node.doctor import examination
from owner_node.explore.questions import EPSILONS, KS, RANK_NOISES, REPETITIONS, grid_of, question_of
from owner_node.loading.advice import left_out_lines
from owner_node.release.approvals import Person
from owner_node.release.decisions import LONGEST_REASON, Decisions
from owner_node.risk.attacks import WORDS
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.notification_pipe import notify_daemon
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session
from owner_node.views.appraisal import appraise
from owner_node.views.budgets import balances, ledger_warnings, unrecorded
from owner_node.views.data import config_warnings, data_document, policy_parts
from owner_node.views.decision import decision_document
from owner_node.views.details import attack_sections, plan_sections
from owner_node.views.explorations import Explorations, explored
from owner_node.views.plan import plan_document
from owner_node.views.status import certificates, status_document

if TYPE_CHECKING:
    from owner_node.ledger.ledger import Entry

VALID = {"1 hour": timedelta(hours=1), "24 hours": timedelta(days=1), "7 days": timedelta(days=7)}
"""For how long an approval can be given."""
LINES_PER_PAGE = 100
"""Lines of the history, and charges, on one page."""
PLANS_PER_PAGE = 10
"""Waiting plans on one page: each is read and shown with what decides about it."""
MOST_SETTINGS = 200
"""Most settings of an exploration that a page starts."""
_KEPT_SECONDS = 60.0
"""How old an appraisal may be when a page is opened."""
_LOOK_SECONDS = 3.0
"""How long a page waits for an appraisal before it is shown without."""
_CHECK_UP = "check-up"
_MOST_DIGITS = 16
_EXPLORATION = "exploration"
_ASKED = {
    "dataset": "", "epsilon": EPSILONS, "k": KS, "mechanism": "", "rank_noise": RANK_NOISES,
    "attributes": "", "known": "", "repetitions": str(REPETITIONS),
}  # fmt: skip
"""The fields of the form of an exploration, as it is first shown."""


class OwnerPages:
    """The pages of an owner.

    Args:
        load: Reads the configuration; called once per request.
    """

    def __init__(self, load: Callable[[], OwnerConfig], site: Site) -> None:
        self._load, self._site = load, site
        # A plan is appraised, and a check-up made, while an exploration runs.
        self._jobs, self._explorations = site.jobs(), site.jobs("exploration")
        self._appraisals = site.jobs("appraisal")
        self._lines: tuple[Entry, ...] = ()

    def routes(self) -> list[BaseRoute]:
        """Return the pages by their addresses."""
        plan = "/plans/{aggregator}/{release}"
        return [
            Route("/", self.inbox),
            Route(plan, self.plan),
            Route(f"{plan}/decision", self.decision),
            Route(f"{plan}/approve", self.approve, methods=["POST"]),
            Route(f"{plan}/refuse", self.refuse, methods=["POST"]),
            Route("/ledger", self.ledger),
            Route("/history", self.history),
            Route("/data", self.data),
            Route("/data/{dataset}", self.dataset, methods=["GET", "POST"]),
            Route("/explore", self.explore, methods=["GET", "POST"]),
            Route("/explore/running", self.exploring, methods=["GET", "POST"]),
            Route("/explore/kept/{name}", self.exploration),
            Route("/explore/kept/{name}/delete", self.delete_exploration, methods=["POST"]),
            Route("/connections", self.connections),
            Route("/connections/check-up", self.check_up, methods=["GET", "POST"]),
        ]

    @contextmanager
    def _open(self, owner: OwnerConfig) -> Iterator[tuple[OwnerDatabase, Decisions]]:
        """Open the owner's database to show it; the ledger is read once, and only what is new of it."""
        with OwnerDatabase(owner.owner.state_dir, make=False) as db:
            decisions = Decisions(db, utc_now)
            self._lines = decisions.ledger.read_once(self._lines)
            yield db, decisions

    def inbox(self, request: Request) -> Response:
        """Show the plans that wait for a person, what deserves attention, and the sessions under way."""
        owner, start = self._load(), number_of(request, "from")
        with self._open(owner) as (db, decisions):
            waiting = decisions.waiting()
            shown = islice(waiting, start, start + PLANS_PER_PAGE)
            plans = [plan_document(session, owner, decisions) for session in shown]
            status = status_document(owner, db, decisions.ledger)
            fault = unrecorded(owner, decisions.ledger)
            warnings = [*_warnings(status), *([] if fault is None else [f"{fault.message}: {fault.hint}"])]
        asked = str(SessionState.AWAITING_APPROVAL)
        under_way = [session for session in status["sessions"] if session["state"] != asked]
        following = start + PLANS_PER_PAGE
        values = {
            "waiting": plans, "n_waiting": len(waiting), "status": status, "warnings": warnings,
            "under_way": under_way[:LINES_PER_PAGE], "n_under_way": len(under_way),
            "following": following if following < len(waiting) else None,
        }  # fmt: skip
        return self._site.page(request, "inbox.html", values)

    def plan(self, request: Request) -> Response:
        """Show one plan, the verdict first."""
        return self._plan(request)

    def _appraisal(self, request: Request, owner: OwnerConfig) -> Job | None:
        """Appraise the plan of a page if it waits, at most once a minute; return the work, done or not.

        A page waits for it for a moment, and is shown without it then. What a page asks for by itself begins
        none.
        """
        with self._open(owner) as (_, decisions):
            session = decisions.find(_name(request))
        key = ("appraisal", session.aggregator, session.release, session.plan_digest)
        if session.state is not SessionState.AWAITING_APPROVAL or "hx-request" in request.headers:
            return self._appraisals.of(key)
        job = self._appraisals.start(key, lambda job: appraise(session, owner, job.progress), _KEPT_SECONDS)
        wait([job.future], _LOOK_SECONDS)
        return job

    def _plan(self, request: Request, unheeded: TesseraError | None = None) -> Response:
        """Show a plan, and above it why a decision about it, or about what was shown earlier, is void."""
        owner = self._load()
        appraising = self._appraisal(request, owner)
        running = _running(appraising)
        with self._open(owner) as (_, decisions):
            session = decisions.find(_name(request))
            document = plan_document(session, owner, decisions, _why(appraising))
        waits = document["state"] == SessionState.AWAITING_APPROVAL
        # What was stored before is shown at once.
        first = running if waits and not session.source_digest else None
        planned = "attributes" in document
        values = {
            "plan": document, "waits": waits, "valid": list(VALID), "longest": LONGEST_REASON, "owner": owner,
            "path": f"/plans/{session.aggregator}/{session.release}", "source": session.source_digest,
            "unheeded": unheeded, "running": first,
            "sections": [*attack_sections(document), *plan_sections(document)],
            "flow": pictures.flow(owner.owner.id, document) if planned else None,
            "cost": pictures.cost(document["balance"], document["charge"], waits=waits) if planned else [],
            "scale": pictures.risk_scale(document["verdict"]["intruder"]) if planned else None,
        }  # fmt: skip
        status = 200 if unheeded is None else 409 if isinstance(unheeded, ConflictError) else 400
        return self._site.page(request, "plan.html", values, status)

    def approve(self, request: Request) -> Response:
        """Approve the plan that was shown."""
        form = form_of(request)
        valid = VALID.get(form.get("valid", ""))
        if valid is None:
            raise UsageError("choose how long the approval is valid", ", ".join(VALID))

        def decide(decisions: Decisions, session: Session, person: Person) -> None:
            if form.get("confirm", "").strip() != session.release:
                raise UsageError("the release id that was typed is another one")
            source = form.get("source", "")
            anyway = "anyway" in form
            decisions.approve(_name(request), session.plan_digest, person, valid, source, anyway=anyway)

        return self._decide(request, decide)

    def refuse(self, request: Request) -> Response:
        """Refuse the plan that was shown."""
        reason = form_of(request).get("reason", "")

        def decide(decisions: Decisions, session: Session, person: Person) -> None:
            decisions.refuse(_name(request), session.plan_digest, person, reason)

        return self._decide(request, decide)

    def _decide(self, request: Request, decide: Callable[[Decisions, Session, Person], object]) -> Response:
        """Carry out a decision about exactly the plan whose digest is in the form."""
        digest = form_of(request).get("digest", "")
        if not digest:
            raise UsageError("the form names no plan", "load the page again")
        owner = self._load()
        with OwnerDatabase(owner.owner.state_dir, make=False) as db:
            decisions = Decisions(db, utc_now)
            try:
                session = decisions.awaiting(_name(request), digest)
                decide(decisions, session, visit_of(request).person)
            except (ConflictError, UsageError) as error:
                return self._plan(request, error)
        notify_daemon(owner.owner.state_dir)
        return RedirectResponse(f"/plans/{session.aggregator}/{session.release}", 303)

    def decision(self, request: Request) -> Response:
        """Show who decided what about a plan, and the plan, to print and sign."""
        owner = self._load()
        appraising = self._appraisal(request, owner)
        with self._open(owner) as (db, decisions):
            session = decisions.find(_name(request))
            decision = decision_document(session, owner, decisions.approvals, History(db, utc_now))
            plan = plan_document(session, owner, decisions, _why(appraising))
        signers = list(dict.fromkeys(person["by"] for person in decision["persons"]))
        values = {
            "plan": plan, "decision": decision, "owner": owner, "signers": signers, "now": utc_now(),
            "attacks": WORDS, "sections": plan_sections(plan),
        }  # fmt: skip
        return self._site.page(request, "decision.html", values)

    def ledger(self, request: Request) -> Response:
        """Show budgets, what is left of them over time, and every charge."""
        owner, before = self._load(), number_of(request, "before")
        with self._open(owner) as (_, decisions):
            left, entries = balances(owner, decisions.ledger), decisions.ledger.entries()
            warnings = ledger_warnings(owner, decisions.ledger)
        earlier = [entry for entry in reversed(entries) if not before or entry.sequence < before]
        older = earlier[LINES_PER_PAGE - 1].sequence if len(earlier) > LINES_PER_PAGE else None
        values = {"balances": left, "entries": earlier[:LINES_PER_PAGE], "older": older}
        values |= {"warnings": warnings}
        charts = pictures.charts(left, entries, utc_now())
        return self._site.page(request, "ledger.html", values | {"charts": charts})

    def history(self, request: Request) -> Response:
        """Show the history, newest first, filtered."""
        owner, wanted = self._load(), request.query_params
        before = number_of(request, "before")
        filters = {name: wanted.get(name, "") for name in ("aggregator", "release", "event")}
        with self._open(owner) as (db, _):
            history = History(db, utc_now)
            events = history.events()
            lines = history.newest(
                before or None,
                LINES_PER_PAGE,
                **{name: value for name, value in filters.items() if value},
            )
        older = lines[-1].sequence if len(lines) == LINES_PER_PAGE else None
        values = {"lines": lines, "filters": filters, "older": older, "events": events}
        return self._site.page(request, "history.html", values | {"left_out_lines": left_out_lines})

    def data(self, request: Request) -> Response:
        """Show the data sets, the policy, and what is amiss in the configuration."""
        owner = self._load()
        values = {"owner": owner, "warnings": list(config_warnings(owner)), "policy": policy_parts(owner)}
        return self._site.page(request, "data.html", values)

    def dataset(self, request: Request) -> Response:
        """Show what `owner-node check` finds in a data set, and what others see of it; POST checks again."""
        owner = self._load()
        dataset = owner.dataset(request.path_params["dataset"])
        key = ("check", dataset.name, owner.digest)

        def check(job: Job) -> dict[str, Any]:
            return data_document(dataset, owner, examples=False, progress=job.progress)

        if request.method == "POST":
            self._jobs.forget(key)
            self._jobs.start(key, check)
            return RedirectResponse(request.url.path, 303)
        job = self._jobs.start(key, check)
        running = _running(job)
        document = None if running else _result(job)
        message = "" if document is None else json.dumps(document["schema"], indent=2, ensure_ascii=False)
        values = {
            "dataset": dataset,
            "running": running,
            "found": document,
            "problem": _problem(job),
            "message": message.splitlines(),
            "left_out_lines": left_out_lines,
            "folder": f"{owner.path.parent}/",
        }
        return self._site.page(request, "dataset.html", values)

    def explore(self, request: Request) -> Response:
        """Show the form of an exploration, the one that runs, and those that are kept; a POST starts one."""
        owner = self._load()
        if request.method == "POST":
            form = {name: text.strip() for name, text in form_of(request).items() if name in _ASKED}
            self._start(owner, _ASKED | form, visit_of(request).person.name)
            return RedirectResponse("/explore", 303)
        values = {
            "datasets": [dataset.name for dataset in owner.datasets], "mechanisms": list(MECHANISMS),
            "asked": _ASKED, "job": self._explorations.of(_EXPLORATION),
            "kept": Explorations(owner.owner.state_dir).all(),
        }  # fmt: skip
        return self._site.page(request, "explore_form.html", values)

    def _start(self, owner: OwnerConfig, asked: dict[str, str], by: str) -> None:
        running = self._explorations.of(_EXPLORATION)
        if running is not None and running.running:
            raise UsageError("an exploration is running", "wait until it is done, or stop it")
        dataset = owner.dataset(asked["dataset"]).name
        grid = grid_of(asked["epsilon"], asked["k"], asked["mechanism"], asked["rank_noise"])
        if len(grid.settings()) > MOST_SETTINGS:
            raise UsageError(
                f"these are {len(grid.settings())} settings, and at most {MOST_SETTINGS} are tried at once",
                "name fewer budgets, k, mechanisms or rank noises",
            )
        if not re.fullmatch("[0-9]+", asked["repetitions"]) or len(asked["repetitions"]) > _MOST_DIGITS:
            raise UsageError("the number of draws is no whole number", f"for example {REPETITIONS}")
        question = question_of(grid, int(asked["repetitions"]), known=asked["known"])
        attributes = split_names(asked["attributes"])
        self._explorations.forget(_EXPLORATION)
        self._explorations.start(
            _EXPLORATION,
            lambda job: explored(owner, dataset, attributes, question, by, job.note, job.progress),
        )

    def exploring(self, request: Request) -> Response:
        """Show the progress of the exploration that runs, or how it ended; a POST stops it."""
        job = self._explorations.of(_EXPLORATION)
        if request.method == "POST":
            if job is not None:
                job.stop()
            return RedirectResponse("/explore", 303)
        running = _running(job)
        name = None if running else _result(job)
        done = None
        if name is not None:
            kept = Explorations(self._load().owner.state_dir).all()
            done = next((exploration for exploration in kept if exploration["name"] == name), None)
        values = {"running": running, "done": done, "problem": _problem(job)}
        return self._site.page(request, "exploring.html", values)

    def exploration(self, request: Request) -> Response:
        """Show the page of a kept exploration."""
        kept = Explorations(self._load().owner.state_dir)
        return self._site.document(kept.page(request.path_params["name"]))

    def delete_exploration(self, request: Request) -> Response:
        """Delete a kept exploration."""
        Explorations(self._load().owner.state_dir).delete(request.path_params["name"])
        return RedirectResponse("/explore", 303)

    def connections(self, request: Request) -> Response:
        """Show aggregators, certificate and linkage key."""
        owner = self._load()
        with self._open(owner) as (db, decisions):
            status = status_document(owner, db, decisions.ledger)
            values = {"status": status, "certificates": certificates(owner, db)}
        return self._site.page(request, "connections.html", values)

    def check_up(self, request: Request) -> Response:
        """Show what `owner-node doctor` finds; a POST checks again."""
        owner = self._load()
        if request.method == "POST":
            self._jobs.forget(_CHECK_UP)
        job = self._jobs.start(_CHECK_UP, lambda job: _examine(owner.path, job))
        running = _running(job)
        if running is None and job.error:
            # Next time it may succeed.
            self._jobs.forget(_CHECK_UP)
        return self._site.page(request, "check_up.html", {"findings": None if running else job.result})


def _examine(path: Path, job: Job) -> list[Finding]:
    findings: list[Finding] = []
    for finding in examination(path, examples=False):
        findings.append(finding)
        job.note(len(findings), 0)
    return findings


def _name(request: Request) -> str:
    return f"{request.path_params['aggregator']}/{request.path_params['release']}"


def _warnings(status: dict[str, Any]) -> Iterator[str]:
    if status["halted"]:
        yield f"No work is done: {status['halted']}. See owner-node ledger recover."
    if not status["running"]:
        yield "The daemon is not running. Start it: owner-node run."
    if status["outdated"]:
        yield status["outdated"]
    if status["certificate"]["warning"]:
        yield status["certificate"]["warning"]
    for aggregator in status["aggregators"]:
        if status["running"] and not aggregator["connected"]:
            reason = aggregator["reason"] or "not tried yet"
            yield f"Not connected to aggregator {aggregator['name']}: {reason}."


def _why(appraising: Job | None) -> str:
    """Return why the data of a plan cannot be used, as far as an appraisal says it."""
    if (problem := _problem(appraising)) is not None:
        return problem.message
    return _result(appraising) or ""


def _running(job: Job | None) -> Job | None:
    """Return work that runs; None if there is none. Read this first: it can end at any time."""
    return job if job is not None and job.running else None


def _result(job: Job | None) -> Any:
    return None if job is None or job.running or job.error else job.result


def _problem(job: Job | None) -> TesseraError | None:
    """Return why work failed, in words; of a fault only its kind and place: its text could quote a value."""
    error = None if job is None else job.error
    if error is None or isinstance(error, TesseraError):
        return error
    if isinstance(error, StepStoppedError):
        return UsageError("It was stopped; nothing is kept.", "")
    return UsageError(fault_text(error), "")
