"""The pages: what each asks of the daemon, and the changes, which people make who may decide."""

import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from aggregator.config import AggregatorConfig
from aggregator.console.calls import Calls
from aggregator.console.certificates import Certificates
from aggregator.console.form import Form, empty_form, fitting_groups, form_values, request_of
from aggregator.console.views import (
    action_line,
    event_line,
    owner_lines,
    plan_document,
    published_files,
    release_document,
    schema_document,
    shared_attributes,
)
from aggregator.control.documents import iso, owner_document, stored_releases
from common.clock import utc_now
from common.errors import ConfigurationError, NotConnectedError, TesseraError, UsageError
from common.model.plan import Plan
from common.web.doors import Doors
from common.web.guard import form_of, number_of, visit_of
from common.web.jobs import Job
from common.web.site import Site
from common.wire.v1.control_pb2 import (
    ConfirmRequest,
    ListActionsRequest,
    ListEventsRequest,
    ListOwnersRequest,
    ListReleasesRequest,
    ReleaseRequest,
    SchemaRequest,
    StatusRequest,
    WatchAllRequest,
)

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import OwnerView, ReleaseView

LINES_PER_PAGE = 50
"""Lines of a list on one page."""
_KEPT_SECONDS = 60.0
"""How long the result of a verification is shown before it is made again."""
_NEWEST_EVENTS = 12
_MOST_SCHEMAS = 50
"""Owners whose schemas are on the page of a new release."""
_Handler = Callable[[Request], Any]


class _Events(NamedTuple):
    """Some events of a release, newest first."""

    lines: list[dict[str, Any]]
    last: int
    """Number of the last one; 0 if there are no more."""


class Pages:
    """The pages of an aggregator."""

    def __init__(self, load: Callable[[], AggregatorConfig], site: Site, doors: Doors[Any]) -> None:
        self._load, self._site, self._doors = load, site, doors
        self._calls, self._jobs = Calls(load), site.jobs()
        self._certificates = Certificates(load, site.page)

    def routes(self) -> list[BaseRoute]:
        """Return the pages by their addresses."""
        release, certificates = "/releases/{release}", self._certificates
        changes: dict[str, _Handler] = {
            "/new": self.start,
            f"{release}/confirm": self.confirm,
            f"{release}/cancel": self.cancel,
            f"{release}/resume": self.resume,
            f"{release}/delete": self.delete,
            "/certificates/requests": certificates.receive,
            "/certificates/requests/{digest}/approve": certificates.approve,
            "/certificates/requests/{digest}/refuse": certificates.refuse,
            "/certificates/{serial}/revoke": certificates.revoke,
        }
        return [
            Route("/", self.releases),
            Route("/live", self.live),
            Route(release, self.release),
            Route(f"{release}/live", self.live_release),
            Route(f"{release}/state", self.state),
            Route(f"{release}/history", self.history),
            Route(f"{release}/verification", self.verification),
            Route(f"{release}/report", self.report),
            Route(f"{release}/files/{{name}}", self.file),
            Route("/owners", self.owners),
            Route("/owners/{owner}", self.owner),
            Route("/new", self.new),
            Route("/certificates", certificates.show),
            Route("/certificates/{serial}", certificates.certificate),
            Route("/certificates/{serial}/bundle", certificates.bundle),
            *(Route(path, handler, methods=["POST"]) for path, handler in changes.items()),
        ]

    # --- releases ------------------------------------------------------------------------------------

    async def releases(self, request: Request) -> Response:
        """Show the releases under way and, a page at a time, all of them, newest first."""
        after, now = request.query_params.get("after", ""), utc_now()
        asked = ListReleasesRequest(after=after, newest_first=True, most=LINES_PER_PAGE)
        try:
            status = await self._calls.ask("Status", StatusRequest())
            answer = await self._calls.ask("ListReleases", asked)
            views, older = answer.releases, answer.last
            opened = ListReleasesRequest(newest_first=True, most=LINES_PER_PAGE, open=True)
            under_way = [] if after else (await self._calls.ask("ListReleases", opened)).releases
        except NotConnectedError:
            state_dir = self._load().aggregator.state_dir
            stored = await run_in_threadpool(stored_releases, state_dir)
            status, views, older, under_way = None, stored[::-1][:LINES_PER_PAGE], "", []
        values = {
            "status": status,
            "under_way": [release_document(view, now) for view in under_way],
            "releases": [release_document(view, now) for view in views],
            "first": not after,
            "after": after,
            "older": older,
        }
        return self._site.page(request, "releases.html", values)

    async def release(self, request: Request) -> Response:
        """Show one release: its state, what can be done, its plan, what was published, what happened."""
        view = await self._view(request)
        newest = await self._events(view.release, _NEWEST_EVENTS)
        plan = Plan.from_bytes(view.plan) if view.plan else None
        files = await run_in_threadpool(_files, view.directory)
        return self._site.page(
            request,
            "release.html",
            self._state_values(request, view)
            | {
                "plan": None if plan is None else plan_document(plan),
                "files": files,
                "events": newest.lines,
            },
        )

    async def state(self, request: Request) -> Response:
        """Show the part of a release that changes by itself."""
        view = await self._view(request)
        events = (await self._events(view.release, _NEWEST_EVENTS)).lines
        return self._site.page(request, "state.html", self._state_values(request, view) | {"events": events})

    def _state_values(self, request: Request, view: "ReleaseView") -> dict[str, Any]:
        number, lines = number_of(request, "owners"), owner_lines(view)
        first = min(number * LINES_PER_PAGE, max(len(lines) - 1, 0))
        return {
            "release": release_document(view, utc_now()),
            "lines": lines[first : first + LINES_PER_PAGE],
            "n_owners": len(lines),
            "first": first,
            "owners_page": number,
            "per_page": LINES_PER_PAGE,
        }

    async def history(self, request: Request) -> Response:
        """Show what happened to a release and what operators did with it, newest first."""
        view = await self._view(request)
        before = number_of(request, "before")
        events = await self._events(view.release, LINES_PER_PAGE, before)
        answers = self._calls.all("ListActions", ListActionsRequest(release=view.release))
        actions = [action_line(action) async for answer in answers for action in answer.actions]
        values = {
            "id": view.release,
            "events": events.lines,
            "actions": actions[::-1][:LINES_PER_PAGE],
            "newest": not before,
            "older": events.last,
        }
        return self._site.page(request, "history.html", values)

    async def _view(self, request: Request) -> "ReleaseView":
        view: ReleaseView = await self._calls.ask("Show", _request_for(request))
        return view

    async def _events(self, release: str, most: int, before: int = 0) -> "_Events":
        asked = ListEventsRequest(release=release, before=before, most=most)
        answer = await self._calls.ask("ListEvents", asked)
        return _Events([event_line(event) for event in answer.events], answer.last)

    # --- live ----------------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        """Send an event at every change of any release."""

        async def events() -> AsyncIterator[str]:
            async for change in self._calls.watch("WatchAll", WatchAllRequest()):
                yield ": alive\n\n" if change is None else _event("change")

        return self._stream(request, events())

    async def live_release(self, request: Request) -> Response:
        """Send an event at every change of a release, and another kind if its state is a new one."""
        await self._view(request)

        async def events() -> AsyncIterator[str]:
            known = None
            async for view in self._calls.watch("Watch", _request_for(request)):
                if view is None:
                    yield ": alive\n\n"
                    continue
                now = (view.state, view.HasField("error"), view.resumable)
                yield _event("change") if now == known else _event("state") + _event("change")
                known = now
            yield _event("state") + _event("change") + _event("over")

        return self._stream(request, events())

    def _stream(self, request: Request, events: AsyncIterator[str]) -> Response:
        visit = visit_of(request)

        async def lines() -> AsyncIterator[str]:
            try:
                async for event in events:
                    yield event
                    if not self._doors.goes_on(visit):
                        yield _event("state") + _event("change") + _event("over")
                        return
            except TesseraError:
                # The daemon has gone: the page says so, and asks again after a while.
                yield _event("lost")

        return StreamingResponse(lines(), media_type="text/event-stream")

    # --- what was published --------------------------------------------------------------------------

    async def verification(self, request: Request) -> Response:
        """Show what `aggregator verify` says of a published release, or that it is being verified."""
        view = await self._view(request)
        if not view.directory:
            raise UsageError(f"release {view.release} has no folder to verify", "only published ones have")
        folder, settings = Path(view.directory), self._load()
        key = ("verify", view.release, view.manifest_digest)
        job = self._jobs.start(key, lambda job: _verify(folder, settings, job), _KEPT_SECONDS)
        return self._site.page(request, "verification.html", {"id": view.release, "found": job.result})

    async def report(self, request: Request) -> Response:
        """Show the report of a published release."""
        path = _published_file(await self._view(request), "report.html")
        return self._site.document(await run_in_threadpool(path.read_text, "utf-8"))

    async def file(self, request: Request) -> Response:
        """Download a file of a published release."""
        name = request.path_params["name"]
        path = await run_in_threadpool(_published_file, await self._view(request), name)
        return FileResponse(
            path, media_type="application/octet-stream", filename=f"{path.parent.name}-{name}"
        )

    # --- owners --------------------------------------------------------------------------------------

    async def owners(self, request: Request) -> Response:
        """Show every owner that has ever connected, a page at a time."""
        asked = ListOwnersRequest(after=request.query_params.get("after", ""), most=LINES_PER_PAGE)
        answer = await self._calls.ask("ListOwners", asked)
        listed = [owner_document(owner) for owner in answer.owners]
        values = {"owners": listed, "after": asked.after, "next": answer.last}
        return self._site.page(request, "owners.html", values)

    async def owner(self, request: Request) -> Response:
        """Show an owner: connection, certificate, and the schemas and limits that it has sent."""
        name = request.path_params["owner"]
        owners = (await self._calls.ask("ListOwners", ListOwnersRequest(only=name))).owners
        if not owners:
            raise UsageError(
                f"owner {name} never connected to this aggregator", "aggregator owners lists them"
            )
        known = {dataset: await self._schema(name, dataset) for dataset in owners[0].datasets}
        return self._site.page(request, "owner.html", {"owner": owner_document(owners[0]), "schemas": known})

    async def _schema(self, owner: str, dataset: str) -> dict[str, Any] | None:
        """Return the newest schema that an owner has sent of a data set; None if it has sent none."""
        try:
            view = await self._calls.ask("ShowSchema", SchemaRequest(owner=owner, dataset=dataset))
        except UsageError:
            return None
        return schema_document(view)

    # --- starting a release --------------------------------------------------------------------------

    async def new(self, request: Request) -> Response:
        """Show the data sets that owners offer, or the form for a release of one."""
        offered = await self._owners_by_dataset()
        dataset = request.query_params.get("dataset", "")
        if dataset not in offered:
            return self._site.page(request, "datasets.html", {"offered": offered})
        return await self._form(request, None, offered[dataset], dataset=dataset)

    async def start(self, request: Request) -> Response:
        """Start a plan or a release as the form says; a mistake leads back to the form."""
        form = form_values(form_of(request))
        try:
            view = await self._calls.ask("Start", request_of(form), visit_of(request).person.name)
        except (UsageError, ConfigurationError) as error:
            offered = await self._owners_by_dataset()
            return await self._form(request, form, offered.get(form.texts["dataset"], []), error)
        return _see(view.release)

    async def _owners_by_dataset(self) -> dict[str, list["OwnerView"]]:
        """Return the owners of every data set that is offered."""
        owners: dict[str, list[OwnerView]] = {}
        async for answer in self._calls.all("ListOwners", ListOwnersRequest()):
            for owner in answer.owners:
                for dataset in owner.datasets:
                    owners.setdefault(dataset, []).append(owner)
        return dict(sorted(owners.items()))

    async def _form(
        self,
        request: Request,
        form: Form | None,
        owners: list["OwnerView"],
        error: TesseraError | None = None,
        dataset: str = "",
    ) -> Response:
        """Show the form that was sent, or without one an empty form that fits what the owners hold."""
        dataset, some = dataset if form is None else form.texts["dataset"], owners[:_MOST_SCHEMAS]
        asked = [(owner.id, await self._schema(owner.id, dataset)) for owner in some]
        schemas = {owner: schema for owner, schema in asked if schema is not None}
        layout, groups = fitting_groups(schemas)
        if form is None:
            day, mark = f"{utc_now():%Y-%m-%d}", secrets.token_hex(2)
            form = empty_form(dataset, day, mark, layout, groups)
        values = {
            "form": form,
            "error": error,
            "owners": [owner_document(owner) for owner in owners],
            "schemas": schemas,
            "fits": layout if len(schemas) > 1 else "",
            "attributes": shared_attributes(list(schemas.values())),
            "most_schemas": _MOST_SCHEMAS,
        }
        return self._site.page(request, "new.html", values, 200 if error is None else 400)

    # --- changes of a release ------------------------------------------------------------------------

    async def confirm(self, request: Request) -> Response:
        """Confirm the plan that was shown."""
        view = await self._view(request)
        if form_of(request).get("digest") != view.plan_digest:
            raise UsageError("the plan is another one than the page showed", "load the page again")
        confirmation = ConfirmRequest(release=view.release, anyway="anyway" in form_of(request))
        return await self._change(request, "Confirm", confirmation)

    async def cancel(self, request: Request) -> Response:
        """Cancel a release."""
        return await self._change(request, "Cancel")

    async def resume(self, request: Request) -> Response:
        """Go on with a release that is halted, or that ended after owners may have spent."""
        return await self._change(request, "Resume")

    async def delete(self, request: Request) -> Response:
        """Delete the data of a release whose id was typed."""
        release = request.path_params["release"]
        if form_of(request).get("confirm", "").strip() != release:
            raise UsageError("the release id that was typed is another one", f"type {release}")
        return await self._change(request, "Delete")

    async def _change(self, request: Request, call: str, asked: ConfirmRequest | None = None) -> Response:
        await self._calls.ask(call, asked or _request_for(request), visit_of(request).person.name)
        return _see(request.path_params["release"])


def _request_for(request: Request) -> ReleaseRequest:
    return ReleaseRequest(release=request.path_params["release"])


def _see(release: str) -> Response:
    return RedirectResponse(f"/releases/{release}", 303)


def _event(name: str) -> str:
    return f"event: {name}\ndata: {name}\n\n"


def _files(directory: str) -> list[tuple[str, int]]:
    try:
        return published_files(Path(directory)) if directory else []
    except OSError:
        return []


def _published_file(view: "ReleaseView", name: str) -> Path:
    """Return a file of a published release; no other name of its folder, and nothing outside it."""
    if name not in dict(_files(view.directory)):
        raise UsageError(f"release {view.release} has no file {name}", "its page lists those that are there")
    return Path(view.directory) / name


def _verify(folder: Path, settings: AggregatorConfig, job: Job) -> dict[str, Any]:
    """Return what verifying a folder says, as texts: an error would hold what the verification held."""
    from common.release.verification import verify_release

    begun = iso(int(datetime.now(UTC).timestamp()))
    workspace = settings.engine.workspace(settings.aggregator.state_dir)
    try:
        verified = verify_release(folder, settings.tls.ca, workspace=workspace, progress=job.progress)
    except TesseraError as error:
        return {"problem": {"message": error.message, "hint": error.hint}, "time": begun}
    return {"lines": verified.to_lines(), "time": begun}
