"""Drives every release: one object that stores an event, then acts on the state that it leads to.

Everything that happens comes through `record`: stored first, folded, then acted on. So a restart is the same
as going on: the journal is replayed, and the state says what is due.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path

from aggregator.admission import allowed_seconds, check_start
from aggregator.config import Deadlines
from aggregator.endings import ended_by, expired, failed_at_owner
from aggregator.intake import Intake, Kind
from aggregator.journal import Journal
from aggregator.presence import Presence
from aggregator.protocol.events import (
    Cancelled,
    Confirmed,
    Event,
    OwnerEvent,
    Published,
    Refused,
    Started,
)
from aggregator.protocol.release import Release, apply, begin
from aggregator.protocol.request import Request
from aggregator.protocol.states import State
from aggregator.protocol.work import Work, work_for
from aggregator.signal import Signal
from aggregator.stages import compare_keys, copy_out, publish_release, signed_addendum, signed_plan
from common.errors import InternalError, TesseraError, UsageError
from common.signing import Signer

_log = logging.getLogger(__name__)
_LONGEST_TIMER = 3600.0
"""A deadline days away is looked at again every hour: the machine's clock may be set meanwhile."""


class Conductor:
    """The releases of this aggregator.

    Args:
        journal: Where events are stored.
        presence: Who is connected.
        intake: What owners have uploaded.
        signer: The aggregator's key.
        release_dir: Where release folders appear.
        deadlines: How long each step may take, for releases that start from now on.
        clock: The time in Unix seconds.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        presence: Presence,
        intake: Intake,
        signer: Signer,
        release_dir: Path,
        deadlines: Deadlines,
        clock: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._presence = presence
        self._intake = intake
        self._signer = signer
        self._release_dir = release_dir
        self._deadlines = deadlines
        self._clock = clock
        self._releases: dict[str, Release] = {}
        self._of_owner: dict[str, set[str]] = {}
        self._signals: dict[str, Signal] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- looking -------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The present moment in whole Unix seconds."""
        return int(self._clock())

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every release, oldest first."""
        return tuple(self._releases.values())

    def release(self, release: str) -> Release:
        """Return a release.

        Raises:
            UsageError: If there is none of this id.
        """
        try:
            return self._releases[release]
        except KeyError:
            raise UsageError(
                f"there is no release {release!r}", "aggregator releases lists them", {"release": release}
            ) from None

    def find(self, release: str) -> Release | None:
        """Return a release, or None."""
        return self._releases.get(release)

    def signal(self, release: str) -> Signal:
        """Return the signal of a release's changes."""
        return self._signals.setdefault(release, Signal())

    def work(self, owner: str) -> list[tuple[Release, Work]]:
        """Return everything that an owner should do now."""
        mine = [self._releases[each] for each in sorted(self._of_owner.get(owner, ()))]
        due = [(release, work_for(release, owner)) for release in mine]
        return [(release, work) for release, work in due if work is not None]

    def folder(self, release: str) -> Path:
        """Return where a release is published."""
        return self._release_dir / release

    # --- what operators do ---------------------------------------------------------------------------

    def start(self, request: Request, *, confirmed: bool) -> Release:
        """Start a release, or return the one of the same id and arguments.

        Args:
            request: The arguments.
            confirmed: Whether the operator agrees to the plan without seeing it.

        Raises:
            UsageError: If the id is taken by another request, or an owner or data set is not known.
        """
        existing = self._releases.get(request.release)
        if existing is not None:
            if existing.request != request:
                raise UsageError(
                    f"release {request.release} was asked for with other arguments",
                    "choose another --id, or repeat the same arguments to watch it",
                    {"release": request.release},
                )
            return self.confirm(request.release) if confirmed and _open_plan(existing) else existing
        check_start(request, self._journal.owners(), self.folder(request.release))
        self._journal.note_operator(self.now, "start", request.release)
        started = Started(
            at=self.now, request=request, confirmed=confirmed, allowed=allowed_seconds(self._deadlines)
        )
        return self._begin(started)

    def confirm(self, release: str) -> Release:
        """Go on from a plan. Confirming again changes nothing.

        Raises:
            UsageError: If there is no such release, or no plan to agree to.
        """
        known = self.release(release)
        if not known.confirmed or known.state is State.PLANNED:
            if not _open_plan(known):
                raise UsageError(
                    f"release {release} is {known.state}: there is no plan to confirm", "see show"
                )
            self._journal.note_operator(self.now, "confirm", release)
            self.record(release, Confirmed(at=self.now))
        return self.release(release)

    def cancel(self, release: str) -> Release:
        """Cancel a release. Cancelling again changes nothing.

        Raises:
            UsageError: If there is no such release, or it has ended or is about to be published.
        """
        known = self.release(release)
        if known.state is State.CANCELLED:
            return known
        if known.ended or known.state is State.JOINING:
            raise UsageError(
                f"release {release} is {known.state} and cannot be cancelled",
                "nothing is under way that could be stopped",
                {"release": release, "state": str(known.state)},
            )
        self._journal.note_operator(self.now, "cancel", release)
        event = Cancelled(
            at=self.now, code="cancelled", message=f"release {release} was cancelled by its operator"
        )
        return self.record(release, event)

    # --- what happens --------------------------------------------------------------------------------

    def _begin(self, started: Started) -> Release:
        self._journal.append(started.request.release, started)
        self._adopt(begin(started))
        return self._after(started.request.release, started)

    def record(self, release: str, event: Event) -> Release:
        """Store an event, then act on it. An answer that repeats what is known is not stored again.

        Raises:
            ProtocolError, ConflictError: As `protocol.release.apply`; then nothing has changed.
        """
        before = self.release(release)
        after = apply(before, event)
        if after is before:
            return before
        self._journal.append(release, event)
        self._releases[release] = after
        return self._after(release, event, before)

    def owner_failed(self, release: str, owner: str, code: str, message: str) -> None:
        """Take an owner's word that it will not or cannot go on.

        After the end, and while the release is being published, it is too late and changes nothing; only
        refusals that cross each other are all heard.
        """
        known, event = self.release(release), failed_at_owner(self.now, owner, code, message)
        also_refuses = known.state is State.REFUSED and isinstance(event, Refused)
        heard = known.progress[owner].refused is not None
        if (also_refuses and not heard) or not (known.ended or known.state is State.JOINING):
            self.record(release, event)

    def fail(self, release: str, error: TesseraError, owner: str = "") -> None:
        """End a release that is still going on because of an error."""
        known = self._releases[release]
        if not known.ended:
            self.record(release, ended_by(self.now, error, owner, known.state))

    def _after(self, release: str, event: Event, before: Release | None = None) -> Release:
        after = self._releases[release]
        owner = {"owner": event.owner} if isinstance(event, OwnerEvent) else {}
        _log.info(event.name, extra={"release": release, "state": str(after.state)} | owner)
        if before is None or after.state is not before.state:
            self._entered(after)
        self._go_on(self._releases[release])
        self.signal(release).fire()
        return self._releases[release]

    def _entered(self, release: Release) -> None:
        """Do what comes with a new state: tell all owners, watch its deadline, tidy up at the end."""
        for owner in release.request.owners:
            self._presence.signal(owner).fire()
        self._watch_deadline(release)
        if release.state is State.LINKING:
            self._compare_keys(release)
        if release.state is State.MASKING:
            for owner in release.request.owners:
                self._intake.remove(release.id, owner, Kind.TOKENS)
        if release.ended:
            self._intake.remove_all(release.id)

    def _go_on(self, release: Release) -> None:
        """Take the step that is the aggregator's, if it is its turn."""
        if release.state is State.INVITING and not release.missing("described"):
            self._plan(release)
        elif release.state is State.PLANNED and release.confirmed and not release.ended:
            self.record(release.id, Confirmed(at=self.now))
        elif release.state is State.LINKING and not release.missing("linked"):
            self._spawn(release, self._link(release))
        elif release.state is State.JOINING:
            self._spawn(release, self._publish(release))

    def _plan(self, release: Release) -> None:
        try:
            event = signed_plan(release, self._signer, self.now)
        except TesseraError as error:
            self.fail(release.id, error)
        else:
            self.record(release.id, event)

    def _compare_keys(self, release: Release) -> None:
        """Stop before any owner is asked to link, if they cannot have the same linkage key."""
        try:
            compare_keys(release)
        except TesseraError as error:
            self.fail(release.id, error)

    # --- steps that take time ------------------------------------------------------------------------

    def _spawn(self, release: Release, step: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(self._carried_out(release.id, step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carried_out(self, release: str, step: Coroutine[None, None, None]) -> None:
        try:
            await step
        except TesseraError as error:
            self.fail(release, error)
        except OSError as error:
            self.fail(release, InternalError(f"the aggregator's disk: {error.strerror}", "see its log"))
        except Exception as fault:  # noqa: BLE001 - a release must end in words, whatever went wrong
            _log.error("step failed", extra={"release": release}, exc_info=fault)
            self.fail(release, InternalError("an internal fault of the aggregator", "see its log"))

    async def _link(self, release: Release) -> None:
        event = await asyncio.to_thread(signed_addendum, release, self._intake, self._signer, self.now)
        if self._releases[release.id].state is State.LINKING:
            self.record(release.id, event)

    async def _publish(self, release: Release) -> None:
        moment = datetime.fromtimestamp(self.now, UTC)
        digest = await asyncio.to_thread(
            publish_release, release, self._intake, self._release_dir, self._signer, moment
        )
        folder = self.folder(release.id)
        if release.request.out:
            await asyncio.to_thread(copy_out, folder, Path(release.request.out))
        self.record(release.id, Published(at=self.now, manifest_digest=digest, directory=str(folder)))

    # --- deadlines, beginning and end ----------------------------------------------------------------

    def _watch_deadline(self, release: Release) -> None:
        timer = self._timers.pop(release.id, None)
        if timer is not None:
            timer.cancel()
        if release.deadline is not None:
            seconds = min(max(release.deadline - self._clock(), 0.0), _LONGEST_TIMER)
            loop = asyncio.get_running_loop()
            self._timers[release.id] = loop.call_later(seconds, self._deadline, release.id)

    def _deadline(self, release: str) -> None:
        known = self._releases[release]
        if known.deadline is not None and self._clock() >= known.deadline:
            self.record(release, expired(self.now, known, self._presence.connected))
        else:
            self._watch_deadline(known)

    def _adopt(self, release: Release) -> None:
        self._releases[release.id] = release
        for owner in release.request.owners:
            self._of_owner.setdefault(owner, set()).add(release.id)

    def resume(self) -> None:
        """Go on with every release of the journal; needs a running event loop."""
        for release in self._journal.replay().values():
            self._adopt(release)
        for release in self.releases:
            self._entered(release)
            self._go_on(release)

    async def stop(self) -> None:
        """Stop acting. A step that runs in a thread is waited for: it is short, or would be repeated."""
        for timer in self._timers.values():
            timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _open_plan(release: Release) -> bool:
    return release.state is State.PLANNED and not release.ended
