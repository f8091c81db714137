"""The gRPC service for the aggregator's command line, on a Unix socket that only its user can reach."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from aggregator.api.call_errors import raises
from aggregator.api.views import MOST_AT_ONCE, action_view, event_view, first_piece, owner_view, release_view
from aggregator.ca.enrolment import Enrolment
from aggregator.drive.conductor import Conductor
from aggregator.drive.operations import Operations
from aggregator.drive.presence import OwnerPresence, wait
from aggregator.protocol.release import Release
from aggregator.store.database import CannotStoreError
from aggregator.store.intake import Intake
from aggregator.store.journal import Journal
from aggregator.store.operator_log import USER_KEY, Action
from common import __version__
from common.errors import TesseraError, UsageError
from common.planning.arguments import parse_arguments
from common.trust.credentials import Credentials
from common.wire.v1 import control_pb2 as wire
from common.wire.v1.control_pb2_grpc import ControlServiceServicer

if TYPE_CHECKING:
    import grpc

_REFRESH_SECONDS = 1.0
"""How often a watched release is refreshed without an event: uploads grow without one."""
_SHORTEST_SECONDS = 0.25
"""Time between two views of a release in one state: a view takes as long as the release has owners, and every
owner causes several events."""

_LONGEST_USER = 256
_PIECE = 200
"""Most entries of the operators' log in one message."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True, slots=True)
class About:
    """The daemon's description of itself."""

    name: str
    listen: str
    """Where owners reach it."""
    started: int
    """Unix time."""
    credentials: Credentials

    @property
    def certificate_expires(self) -> int:
        """Until when its certificate is valid, in Unix time."""
        return int(self.credentials.current_signer().certificate.not_valid_after_utc.timestamp())


class ControlService(ControlServiceServicer):
    """The service on the Unix socket."""

    def __init__(
        self,
        about: About,
        conductor: Conductor,
        operations: Operations,
        journal: Journal,
        presence: OwnerPresence,
        intake: Intake,
        enrolment: Enrolment,
        clock: Callable[[], float],
    ) -> None:
        self._about = about
        self._conductor = conductor
        self._operations = operations
        self._journal = journal
        self._presence = presence
        self._intake = intake
        self._enrolment = enrolment
        self._clock = clock

    @raises
    async def Status(self, request: wire.StatusRequest, context: Context) -> wire.StatusResponse:
        """Return the status of the daemon; a revoked owner does not count as connected."""
        revoked = self._enrolment.revoked_owners()
        connected = self._presence.count() - sum(map(self._presence.is_connected, revoked))
        return wire.StatusResponse(
            name=self._about.name,
            version=__version__,
            listen=self._about.listen,
            started=self._about.started,
            connected_owners=connected,
            releases=Counter(str(release.state) for release in self._conductor.releases),
            certificate_expires=self._about.certificate_expires,
        )

    @raises
    async def ListOwners(self, request: wire.ListOwnersRequest, context: Context) -> wire.ListOwnersResponse:
        """List all owners that have ever connected, by id, a page at a time."""
        revoked = self._enrolment.revoked_keys()
        known = self._journal.owners(after=request.after).values()
        owners, more = first_piece(
            (
                owner_view(owner, self._presence, revoked=owner.fingerprint in revoked)
                for owner in known
                if request.only in ("", owner.id)
            ),
            _most(request.most),
        )
        return wire.ListOwnersResponse(owners=owners, last=owners[-1].id if more else "")

    @raises
    async def Start(self, request: wire.StartRequest, context: Context) -> wire.ReleaseView:
        """Start a release, or find the one of that id and those arguments."""
        release = request.release or self._new_id(request.dataset)
        with self._noting(context, "plan" if request.dry_run else "release", release, request) as action:
            sent = {
                name: getattr(request, name)
                for name in request.DESCRIPTOR.fields_by_name
                if name != "confirmed"
            }
            groups = [group.owners for group in request.groups]
            asked = parse_arguments(**sent | {"release": release, "groups": groups})
            return self._view(self._operations.start(asked, action, confirmed=request.confirmed))

    @raises
    async def Confirm(self, request: wire.ConfirmRequest, context: Context) -> wire.ReleaseView:
        """Confirm a plan."""
        asked = request if request.anyway else None
        with self._noting(context, "confirm", request.release, asked) as action:
            return self._view(self._operations.confirm(request.release, action, anyway=request.anyway))

    @raises
    async def ListReleases(
        self, request: wire.ListReleasesRequest, context: Context
    ) -> wire.ListReleasesResponse:
        """List all releases, oldest or newest first, without the plans, a page at a time."""
        releases, more = first_piece(self._list(request), _most(request.most))
        return wire.ListReleasesResponse(releases=releases, last=releases[-1].release if more else "")

    @raises
    async def Show(self, request: wire.ReleaseRequest, context: Context) -> wire.ReleaseView:
        """Return one release."""
        return self._view(self._conductor.release(request.release))

    @raises
    async def Watch(self, request: wire.ReleaseRequest, context: Context) -> AsyncIterator[wire.ReleaseView]:
        """Send a release now and at every change, until it has ended."""
        last = None
        self._conductor.release(request.release)
        while True:
            ticket = self._conductor.signal(request.release).ticket()
            release = self._conductor.release(request.release)
            view = self._view(release)
            if view != last:
                yield view
                last = view
            if release.ended:
                return
            ends = time.monotonic() + _SHORTEST_SECONDS
            await wait(ticket, _REFRESH_SECONDS)
            while (left := ends - time.monotonic()) > 0:
                if self._conductor.release(release.id).state is not release.state:
                    break
                await wait(self._conductor.signal(release.id).ticket(), left)

    @raises
    async def WatchAll(self, request: wire.WatchAllRequest, context: Context) -> AsyncIterator[wire.Changed]:
        """Send a message now and after every change of any release."""
        while True:
            ticket = self._conductor.anything.ticket()
            yield wire.Changed()
            await wait(ticket, None)
            await asyncio.sleep(_REFRESH_SECONDS)

    @raises
    async def ListEvents(self, request: wire.ListEventsRequest, context: Context) -> wire.ListEventsResponse:
        """List what happened to a release, newest first, a page at a time."""
        self._conductor.release(request.release)
        most = _most(request.most)
        newest = self._journal.newest_events(request.release, request.before, most)
        events = [event_view(event) for _, event in newest]
        more = len(newest) == most and newest[-1][0] > 1
        return wire.ListEventsResponse(events=events, last=newest[-1][0] if more else 0)

    @raises
    async def ShowSchema(self, request: wire.SchemaRequest, context: Context) -> wire.SchemaView:
        """Return the newest schema that an owner has sent of a data set."""
        newest_schema = self._conductor.newest_schema(request.owner, request.dataset)
        if newest_schema is None:
            raise UsageError(
                f"owner {request.owner} has not sent a schema of data set {request.dataset!r} yet",
                "aggregator plan asks the owners for theirs, without a charge",
                {"owner": request.owner, "dataset": request.dataset},
            )
        release, sent = newest_schema
        return wire.SchemaView(
            owner=request.owner, dataset=request.dataset, release=release.id, described=sent.at,
            schema=sent.schema.encode(),
        )  # fmt: skip

    @raises
    async def Cancel(self, request: wire.ReleaseRequest, context: Context) -> wire.ReleaseView:
        """Cancel a release."""
        with self._noting(context, "cancel", request.release) as action:
            return self._view(self._operations.cancel(request.release, action))

    @raises
    async def Resume(self, request: wire.ReleaseRequest, context: Context) -> wire.ReleaseView:
        """Go on with a release that is halted, or that ended after owners may have spent."""
        with self._noting(context, "resume", request.release) as action:
            return self._view(self._operations.resume(request.release, action))

    @raises
    async def Delete(self, request: wire.ReleaseRequest, context: Context) -> wire.ReleaseView:
        """Remove the data of a release that has ended."""
        with self._noting(context, "delete", request.release) as action:
            return self._view(await self._operations.delete(request.release, action))

    @raises
    async def ListActions(
        self, request: wire.ListActionsRequest, context: Context
    ) -> wire.ListActionsResponse:
        """List the operators' actions, oldest first, a page at a time."""
        actions = self._journal.operators.actions(request.after, _PIECE, request.release)
        return wire.ListActionsResponse(
            actions=[action_view(action) for _, action in actions],
            last=actions[-1][0] if len(actions) == _PIECE else 0,
        )

    @contextmanager
    def _noting(
        self, context: Context, name: str, release: str, arguments: Message | None = None
    ) -> Iterator[Action]:
        """Make the log entry of a request; a refused one is stored with the reason."""
        document = MessageToDict(arguments, preserving_proto_field_name=True) if arguments else {}
        action = Action(int(self._clock()), _user(context), name, release, document)
        try:
            yield action
        except TesseraError as error:
            with suppress(CannotStoreError):
                outcome = f"{error.code}: {error.message}"
                self._journal.operators.note(replace(action, outcome=outcome))
            raise

    def _list(self, request: wire.ListReleasesRequest) -> Iterator[wire.ReleaseView]:
        """Yield the releases that come after one, or all, each without its plan."""
        releases = self._conductor.releases[:: -1 if request.newest_first else 1]
        begin = releases.index(self._conductor.release(request.after)) + 1 if request.after else 0
        for release in releases[begin:]:
            if request.open and release.ended:
                continue
            view = self._view(release)
            view.ClearField("plan")
            yield view

    def _view(self, release: Release) -> wire.ReleaseView:
        waiting, halted = self._conductor.waiting(release.id), self._conductor.halted(release.id)
        progress = self._conductor.progress(release.id)
        resumable = self._operations.can_resume(release)
        return release_view(
            release,
            self._presence,
            self._intake,
            self._clock(),
            waiting,
            halted,
            progress,
            resumable=resumable,
        )

    def _new_id(self, dataset: str) -> str:
        """Return an id that no release has: the day, the data set, four random digits."""
        day = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        name = "".join(char if char in _ID_LETTERS else "-" for char in dataset.lower())[:40]
        while True:
            release = f"{day}-{name}-{secrets.token_hex(2)}"
            if self._conductor.find(release) is None:
                return release


def _most(wanted: int) -> int:
    return min(wanted or MOST_AT_ONCE, MOST_AT_ONCE)


def _user(context: Context) -> str:
    said = dict(context.invocation_metadata() or ()).get(USER_KEY, b"")
    return said.decode("utf-8", "replace")[:_LONGEST_USER] if isinstance(said, bytes) else ""


_ID_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
