"""What operators do with releases: start, confirm, cancel, delete. Each is stored with who asked for it."""

import asyncio
from dataclasses import replace

from aggregator.admission import allowed_seconds, check_start
from aggregator.conductor import Conductor
from aggregator.config import Deadlines
from aggregator.journal import Journal
from aggregator.operator_log import UNCHANGED, Action
from aggregator.protocol.events import Cancelled, Confirmed, Deleted, Started
from aggregator.protocol.release import Release
from aggregator.protocol.request import Request
from aggregator.protocol.states import State
from common.errors import ConfigurationError, UsageError


class Operations:
    """Carries out what operators ask for.

    Args:
        conductor: The releases.
        journal: The owners, and the operators' log.
        deadlines: How long each step may take, for releases that start from now on.
    """

    def __init__(self, conductor: Conductor, journal: Journal, deadlines: Deadlines) -> None:
        self._conductor = conductor
        self._journal = journal
        self._deadlines = deadlines

    def start(self, request: Request, action: Action, *, confirmed: bool) -> Release:
        """Start a release, or return the one of the same id and arguments; if it is halted, it goes on.

        Args:
            request: The arguments.
            action: Who asks.
            confirmed: Whether the operator agrees to the plan without seeing it.

        Raises:
            UsageError: If the id is taken by another request, its data were deleted, or an owner or data
                set is not known.
        """
        existing = self._conductor.find(request.release)
        if existing is None:
            folder = self._conductor.folder(request.release)
            check_start(request, self._journal.owners(), folder)
            allowed = allowed_seconds(self._deadlines)
            started = Started(at=action.at, request=request, confirmed=confirmed, allowed=allowed)
            return self._conductor.begin(started, action)
        if existing.request != request:
            raise UsageError(
                f"release {request.release} was asked for with other arguments",
                "choose another --id, or repeat the same arguments to watch it",
                {"release": request.release},
            )
        if existing.deleted is not None:
            raise UsageError(
                f"the data of release {request.release} were deleted",
                f"choose another --id; its history stays: aggregator show {request.release}",
                {"release": request.release},
            )
        return self._again(existing, action, confirmed=confirmed)

    def _again(self, existing: Release, action: Action, *, confirmed: bool) -> Release:
        if confirmed and _open_plan(existing):
            return self._conductor.record(existing.id, Confirmed(at=action.at), action)
        if self._conductor.halted(existing.id) is not None:
            self._journal.operators.note(action)
            self._conductor.try_again(existing.id)
            return existing
        self._journal.operators.note(replace(action, outcome=UNCHANGED))
        return existing

    def confirm(self, release: str, action: Action) -> Release:
        """Go on from a plan. Confirming again changes nothing.

        Raises:
            UsageError: If there is no such release, or no plan to agree to.
        """
        known = self._conductor.release(release)
        if _open_plan(known):
            return self._conductor.record(release, Confirmed(at=action.at), action)
        if not known.confirmed or known.state is State.PLANNED:
            raise UsageError(f"release {release} is {known.state}: there is no plan to confirm", "see show")
        self._journal.operators.note(replace(action, outcome=UNCHANGED))
        return known

    def cancel(self, release: str, action: Action) -> Release:
        """Cancel a release. Cancelling again changes nothing.

        Raises:
            UsageError: If there is no such release, or it has ended or is about to be published.
        """
        known = self._conductor.release(release)
        if known.state is State.CANCELLED:
            self._journal.operators.note(replace(action, outcome=UNCHANGED))
            return known
        if known.ended or (known.state is State.JOINING and not self._conductor.stuck(release)):
            folder = self._conductor.folder(release)
            raise UsageError(
                f"release {release} is {known.state} and cannot be cancelled",
                f"it may have appeared: see {folder}; move that away first"
                if self._conductor.halted(release) is not None
                else "nothing is under way that could be stopped",
                {"release": release, "state": str(known.state)},
            )
        event = Cancelled(
            at=action.at, code="cancelled", message=f"release {release} was cancelled by its operator"
        )
        return self._conductor.record(release, event, action)

    async def delete(self, release: str, action: Action) -> Release:
        """Remove the data of a release that has ended; its history stays. Deleting again changes nothing.

        Raises:
            UsageError: If there is no such release, it has not ended, or its folder is somewhere else.
            ConfigurationError: If the folder cannot be removed yet; nobody gets anything of it any more.
        """
        known = self._conductor.release(release)
        if not known.ended:
            raise UsageError(
                f"release {release} is {known.state}: only what has ended can be deleted",
                f"wait for its end, or cancel it first: aggregator cancel {release}",
                {"release": release, "state": str(known.state)},
            )
        if self._conductor.folder(release).is_symlink():
            raise UsageError(
                f"{self._conductor.folder(release)} is a link: the data are somewhere else",
                "remove the link and what it leads to, then delete the release",
            )
        if known.deleted is None:
            known = self._conductor.record(release, Deleted(at=action.at), action)
        else:
            self._journal.operators.note(replace(action, outcome=UNCHANGED))
        try:
            await asyncio.to_thread(self._conductor.remove_data, release)
        except OSError as error:
            raise ConfigurationError(
                f"release {release} is deleted, but its folder cannot be removed yet: {error.strerror}",
                hint=f"see that the aggregator may write there, then repeat: aggregator delete {release}",
            ) from None
        return known


def _open_plan(release: Release) -> bool:
    return release.state is State.PLANNED and not release.ended
