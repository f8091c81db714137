"""What operators do with releases: start, confirm, cancel, delete. The requester of each action is stored.

`check_start` decides before any owner is asked whether a release can be started.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aggregator.config import DeadlineSettings
from aggregator.drive.conductor import Conductor
from aggregator.drive.endings import worthless_plan
from aggregator.protocol.events import Cancelled, Confirmed, Deleted, Resumed, Started
from aggregator.protocol.release import Release
from aggregator.protocol.states import State
from aggregator.store.journal import Journal, KnownOwner
from aggregator.store.operator_log import UNCHANGED, Action
from common.errors import ConfigurationError, UsageError
from common.planning.arguments import ReleaseArguments


def check_start(request: ReleaseArguments, known: Mapping[str, KnownOwner], folder: Path) -> None:
    """Check the arguments of a new release against what is known of the owners.

    An owner that is known but not connected is waited for; the data sets that it offers may change meanwhile.

    Raises:
        UsageError: If an owner never connected, a connected one does not offer the data set, or a folder is
            taken.
    """
    unknown = [owner for owner in request.owners if owner not in known]
    if unknown:
        raise UsageError(
            f"{_names_text('owner', unknown)} never connected to this aggregator",
            f"known owners: {', '.join(known) or 'none'}",
            {"unknown": unknown, "known": list(known)},
        )
    lacking = [owner for owner in request.owners if request.dataset not in known[owner].datasets]
    if lacking:
        offered = "; ".join(f"{owner}: {', '.join(known[owner].datasets) or 'none'}" for owner in lacking)
        raise UsageError(
            f"no data set {request.dataset!r} is offered by {_names_text('owner', lacking)}",
            f"data sets offered: {offered}",
            {"owners": lacking, "dataset": request.dataset},
        )
    if folder.exists():
        raise UsageError(f"{folder} exists already", "choose another --id", {"release": request.release})
    if request.out:
        from common.files import check_out

        check_out(Path(request.out))


def allowed_seconds(deadlines: DeadlineSettings) -> dict[str, int]:
    """Return how many seconds each state may last; a release keeps these limits until it is resumed."""
    durations = {
        State.INVITING: deadlines.invite,
        State.PLANNED: deadlines.consent,
        State.CONSENTING: deadlines.consent,
        State.LINKING: deadlines.link,
        State.MASKING: deadlines.mask,
        State.COLLECTING: deadlines.collect,
        State.MEASURING: deadlines.mask,
    }
    return {str(state): max(1, int(duration.total_seconds())) for state, duration in durations.items()}


def _names_text(what: str, names: list[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names)}"


class Operations:
    """Carries out the operators' requests."""

    def __init__(self, conductor: Conductor, journal: Journal, deadlines: DeadlineSettings) -> None:
        self._conductor = conductor
        self._journal = journal
        self._deadlines = deadlines

    def start(self, request: ReleaseArguments, action: Action, *, confirmed: bool) -> Release:
        """Start a release, or return the one of the same id and arguments.

        One that is halted, or that ended after owners may have spent, continues.

        Args:
            confirmed: Whether the operator agrees to the plan without seeing it.

        Raises:
            UsageError: If the id is taken by another request, its data were deleted, or an owner or data
                set is not known, or the plan that is confirmed needs `anyway`.
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
                f"release {request.release} was requested with other arguments",
                "choose another --id, or repeat the same arguments to watch it",
                {"release": request.release},
            )
        _check_has_data(existing)
        if confirmed and _open_plan(existing):
            return self._confirm(existing, action, anyway=request.anyway)
        return self._again(existing, action)

    def resume(self, release: str, action: Action) -> Release:
        """Go on with a release that is halted, or that ended after owners may have spent.

        Raises:
            UsageError: If there is no such release, its data were deleted, or there is nothing to resume.
        """
        known = self._conductor.release(release)
        _check_has_data(known)
        if not self.can_resume(known):
            raise UsageError(
                f"release {release} is {known.state}: there is nothing to resume",
                "start another release, with another id",
                {"release": release, "state": str(known.state)},
            )
        return self._again(known, action)

    def can_resume(self, release: Release) -> bool:
        """Whether a release is halted, or ended after owners may have spent and can continue."""
        halted = self._conductor.halted(release.id) is not None and not release.ended
        return halted or self._conductor.now < release.resumable_until

    def _again(self, existing: Release, action: Action) -> Release:
        if self._conductor.now < existing.resumable_until:
            # A deadline that was too short is longer now, if the operator has seen to that.
            allowed = allowed_seconds(self._deadlines)
            return self._conductor.record(existing.id, Resumed(at=action.at, allowed=allowed), action)
        if self._conductor.halted(existing.id) is not None:
            self._journal.operators.note(action)
            self._conductor.try_again(existing.id)
            return existing
        self._journal.operators.note(replace(action, outcome=UNCHANGED))
        return existing

    def confirm(self, release: str, action: Action, *, anyway: bool) -> Release:
        """Confirm a plan. Idempotent.

        Args:
            anyway: Whether the operator wants the result also if it is expected to be worthless.

        Raises:
            UsageError: If there is no such release, no plan to agree to, or its result is worthless.
        """
        known = self._conductor.release(release)
        if _open_plan(known):
            return self._confirm(known, action, anyway=anyway)
        if not known.confirmed or known.state is State.PLANNED:
            raise UsageError(f"release {release} is {known.state}: there is no plan to confirm", "see show")
        self._journal.operators.note(replace(action, outcome=UNCHANGED))
        return known

    def _confirm(self, release: Release, action: Action, *, anyway: bool) -> Release:
        if release.needs_anyway and not anyway:
            raise worthless_plan(release)
        return self._conductor.record(release.id, Confirmed(at=action.at), action)

    def cancel(self, release: str, action: Action) -> Release:
        """Cancel a release. Idempotent.

        Raises:
            UsageError: If there is no such release, or it has ended or is about to be published.
        """
        known = self._conductor.release(release)
        if known.state is State.CANCELLED:
            self._journal.operators.note(replace(action, outcome=UNCHANGED))
            return known
        if known.ended or (known.state is State.JOINING and not self._conductor.stuck(release)):
            hint = "it is being published; should that fail, it can be cancelled then"
            if known.ended:
                hint = "no step is in progress that could be stopped"
            elif self._conductor.waiting(release) and not self._conductor.attempting(release):
                hint = f"it may have appeared: see {self._conductor.folder(release)}; move that away first"
            raise UsageError(
                f"release {release} is {known.state} and cannot be cancelled",
                hint,
                {"release": release, "state": str(known.state)},
            )
        event = Cancelled(
            at=action.at, code="cancelled", message=f"release {release} was cancelled by its operator"
        )
        return self._conductor.record(release, event, action)

    async def delete(self, release: str, action: Action) -> Release:
        """Remove the data of a release that has ended; its history stays. Idempotent.

        Raises:
            UsageError: If there is no such release, it has not ended, or its folder is a link.
            ConfigurationError: If the folder cannot be removed yet; its data are no longer served to anyone.
        """
        known = self._conductor.release(release)
        if not known.ended:
            raise UsageError(
                f"release {release} is {known.state}: only a release that has ended can be deleted",
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


def _check_has_data(release: Release) -> None:
    if release.deleted is not None:
        raise UsageError(
            f"the data of release {release.id} were deleted",
            f"choose another --id; its history stays: aggregator show {release.id}",
            {"release": release.id},
        )


def _open_plan(release: Release) -> bool:
    return release.state is State.PLANNED and not release.ended
