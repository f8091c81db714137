"""Drives every release: one object that stores an event, then acts on the resulting state.

Every event goes through `record`: it is stored first, then folded into the state, then acted on. A restart is
therefore the same as going on: the journal is replayed, and the state determines what is due.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from aggregator.drive.deadlines import Deadlines
from aggregator.drive.endings import ended_by, expiry, failed_at_owner
from aggregator.drive.messages import SharedDocument, document_of
from aggregator.drive.presence import OwnerPresence, Signal
from aggregator.drive.rounds import opened_round
from aggregator.drive.stages import (
    LostFragmentError,
    compare_keys,
    folder_of,
    publish_release,
    signed_addendum,
    signed_plan,
)
from aggregator.drive.steps import Steps
from aggregator.protocol.events import (
    Confirmed,
    Described,
    Event,
    OwnerEvent,
    Passed,
    Published,
    Refused,
    Started,
)
from aggregator.protocol.release import Release, apply, begin
from aggregator.protocol.states import ENDS, State
from aggregator.protocol.work import Work, work_for
from aggregator.store.database import CannotStoreError
from aggregator.store.intake import BlobKind, Intake
from aggregator.store.journal import Journal
from aggregator.store.operator_log import Action
from common.daemon.metrics import Stopwatch, step_histogram
from common.daemon.process import in_own_thread
from common.errors import TesseraError, UsageError
from common.files import remove_folder, remove_leftover
from common.model.rounds import FIRST_COUNTED
from common.progress import Progress
from common.trust.signing import SignerSource
from common.workspace import Workspace

STEP_SECONDS = step_histogram(
    "tessera_aggregator_step_seconds",
    "How long releases were in each state before they left it, since the start.",
    [state for state in State if state not in ENDS],
)
_log = logging.getLogger(__name__)


class Conductor:
    """The releases of this aggregator."""

    def __init__(
        self,
        *,
        journal: Journal,
        presence: OwnerPresence,
        intake: Intake,
        signer: SignerSource,
        release_dir: Path,
        ca: Path,
        workspace: Workspace,
        clock: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._presence = presence
        self._intake = intake
        self._signer = signer
        self._release_dir = release_dir
        self._ca = ca
        self._workspace = workspace
        self._clock = clock
        self._releases: dict[str, Release] = {}
        self._of_owner: dict[str, set[str]] = {}
        self._signals: dict[str, Signal] = {}
        self.anything = Signal()
        """Fired at every change of any release."""
        self._documents: dict[str, SharedDocument | None] = {}
        self._deadlines = Deadlines(
            lambda release: self._steps.take(release, partial(self._expire, release)), clock, elapsed
        )
        self._stopwatch = Stopwatch(STEP_SECONDS, elapsed)
        self._elapsed = elapsed
        self._progress: dict[str, Progress] = {}
        self._linking, self._publishing = asyncio.Lock(), asyncio.Lock()
        self._stopping = False
        self._steps = Steps(self.fail, self._keeps, self._wake_watchers)

    # --- queries -------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The present moment in whole Unix seconds."""
        return int(self._clock())

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every release, oldest first."""
        return tuple(self._releases.values())

    def release(self, release: str) -> Release:
        """Return a release."""
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

    def newest_schema(self, owner: str, dataset: str) -> tuple[Release, Described] | None:
        """Return the newest schema that an owner has sent of a data set, and the release that it was for."""
        sent = [
            (release, answer)
            for name in self._of_owner.get(owner, ())
            if (release := self._releases[name]).request.dataset == dataset
            and (answer := release.progress[owner].described) is not None
        ]
        return max(sent, key=lambda sent_schema: sent_schema[1].at, default=None)

    def work(self, owner: str) -> list[tuple[Release, Work]]:
        """Return everything that an owner should do now."""
        mine = [self._releases[name] for name in sorted(self._of_owner.get(owner, ()))]
        due = [(release, work_for(release, owner)) for release in mine]
        return [(release, work) for release, work in due if work is not None]

    def document(self, release: str) -> SharedDocument | None:
        """Return the document that the work of a release names now; None if it names none."""
        return self._documents.get(release)

    def folder(self, release: str) -> Path:
        """Return where a release is published."""
        return self._release_dir / release

    def waiting(self, release: str) -> str:
        """Return what the aggregator itself waits for before the release can continue; empty if nothing."""
        return self._steps.waiting(release)

    def progress(self, release: str) -> str:
        """Return how far the aggregator's own step of a release is; empty if it runs none, or not long."""
        progress = self._progress.get(release)
        return "" if progress is None else progress.text()

    def attempting(self, release: str) -> bool:
        """Whether an attempt of the aggregator's own long step is in progress."""
        return release in self._progress

    def halted(self, release: str) -> TesseraError | None:
        """Return the error that halted publication until an operator retries it, or None."""
        return self._steps.halted(release)

    def stuck(self, release: str) -> bool:
        """Whether a release cannot be published now: no attempt is in progress, and nothing of it is public.

        An attempt that is in progress can make the folder appear at any moment.
        """
        waits = bool(self.waiting(release)) and not self.attempting(release)
        return waits and not folder_of(self._releases[release], self._release_dir).may_exist()

    # --- events --------------------------------------------------------------------------------

    def begin(self, started: Started, action: Action) -> Release:
        """Store a new release, then act on it; if it cannot be stored, there is no such release."""
        self._journal.append(started.request.release, started, action)
        self._adopt(begin(started))
        return self._after(started.request.release, started)

    def record(self, release: str, event: Event, action: Action | None = None) -> Release:
        """Store an event, then act on it. Idempotent: a repeated answer is not stored again.

        Raises:
            ProtocolError, ConflictError: As `protocol.release.apply`; then nothing has changed.
            CannotStoreError: If it could not be stored; then nothing has changed either.
        """
        before = self.release(release)
        after = apply(before, event)
        if after is before:
            return before
        self._journal.append(release, event, action)
        self._releases[release] = after
        return self._after(release, event, before)

    def owner_failed(self, release: str, owner: str, code: str, message: str, objects_to: str = "") -> None:
        """End a release because an owner refuses or fails.

        After the end, and while the release is being published, this is too late and changes nothing. Only
        refusals that cross each other are all recorded.
        """
        known = self.release(release)
        named = objects_to if objects_to in known.progress else ""
        event = failed_at_owner(self.now, owner, code, message, named)
        also_refuses = known.state is State.REFUSED and isinstance(event, Refused)
        heard = known.progress[owner].refused is not None
        if (also_refuses and not heard) or not (known.ended or known.state is State.JOINING):
            self.record(release, event)

    def fail(self, release: str, error: TesseraError, owner: str = "") -> None:
        """End a release because of an error, if it has not ended yet."""
        known = self._releases[release]
        if not known.ended:
            self.record(release, ended_by(self.now, error, owner, known.state))

    def try_again(self, release: str) -> None:
        """Publish a release whose publication was halted; a no-op if it was not, or was retried already."""
        if self._steps.clear(release):
            self._go_on(self._releases[release])

    def _keeps(self, release: str, error: TesseraError) -> bool:
        """Whether a release stays in its state despite an error.

        Once all fragments have arrived, owners have spent, and another attempt costs them nothing. Only a
        lost fragment ends the release.
        """
        joining = self._releases[release].state is State.JOINING
        return joining and not isinstance(error, LostFragmentError)

    def _after(self, release: str, event: Event, before: Release | None = None) -> Release:
        after = self._releases[release]
        owner = {"owner": event.owner} if isinstance(event, OwnerEvent) else {}
        _log.info(event.name, extra={"release": release, "state": str(after.state)} | owner)
        if before is None or (after.state, after.rounds) != (before.state, before.rounds):
            self._enter(after)
        elif isinstance(event, Passed):
            for name in after.request.owners:
                self._presence.signal(name).fire()
        self._go_on(self._releases[release])
        self._wake_watchers(release)
        return self._releases[release]

    def _wake_watchers(self, release: str) -> None:
        """Wake whoever watches a release."""
        self.signal(release).fire()
        self.anything.fire()

    def _enter(self, release: Release) -> None:
        """Act on a new state: wake all owners, watch the deadline, remove files that are no longer needed."""
        step = "" if release.ended else str(release.state)
        self._stopwatch.enter(release.id, step, ago=self.now - release.entered)
        for owner in release.request.owners:
            self._presence.signal(owner).fire()
        self._deadlines.watch(release)
        self._prepare(release)
        self._intake.remove_answers(release.id, before=len(release.rounds))
        if release.round:
            # The next round's have the same names.
            without = [owner for owner, known in release.progress.items() if known.passed_sums is None]
            self._intake.remove(release.id, without, BlobKind.SUMS)
        if release.state in (State.MASKING, State.MEASURING):
            self._remove(release, BlobKind.TOKENS)
        if release.state is State.COLLECTING or release.round > FIRST_COUNTED:
            self._remove(release, BlobKind.SELECTION)
        if release.ended:
            self._steps.clear(release.id)

    def _remove_all(self, release: Release) -> None:
        """Delete what arrived for an ended release; what owners fetch goes once it cannot go on."""
        # Resuming uses the same file names. An owner that has sealed a fragment needs no selection.
        needed = release.measures or bool(release.missing("sealed"))
        if self._intake.set_aside(release.id, but_shown=needed and self.now < release.resumable_until):
            self._steps.take(release.id, partial(asyncio.to_thread, self._intake.clear))

    def _remove(self, release: Release, kind: BlobKind) -> None:
        """Delete blobs of all owners in the background; no later state has blobs of this kind."""
        self._steps.take(
            release.id,
            partial(asyncio.to_thread, self._intake.remove, release.id, release.request.owners, kind),
        )

    def _go_on(self, release: Release) -> None:
        """Run the aggregator's own step, if one is due."""
        if release.state is State.INVITING and not release.missing("described"):
            self._steps.take(release.id, partial(self._plan, release.id), abandoned=True)
        elif (
            release.state is State.PLANNED
            and release.confirmed
            and not (release.ended or release.needs_anyway)
        ):
            self._steps.take(release.id, partial(self._confirm, release.id))
        elif release.state is State.LINKING and not release.missing("linked"):
            self._steps.take(release.id, partial(self._link, release.id))
        elif release.state is State.MEASURING and _is_answered(release):
            self._steps.take(release.id, partial(self._open_round, release.id))
        elif release.state is State.JOINING:
            self._steps.take(release.id, partial(self._publish, release.id))
        elif release.ended:
            self._remove_all(release)

    # --- steps that take time ------------------------------------------------------------------------

    async def _plan(self, release: str) -> None:
        known = self._releases[release]
        if known.state is State.INVITING:
            event = await in_own_thread(signed_plan, known, self._signer, self.now)
            if self._releases[release].state is State.INVITING:
                self.record(release, event)

    async def _confirm(self, release: str) -> None:
        if self._releases[release].state is State.PLANNED:
            self.record(release, Confirmed(at=self.now))

    def _prepare(self, release: Release) -> None:
        """Make the document of a state; end the release before any owner links, if linkage keys differ."""
        try:
            self._documents[release.id] = document_of(release)
            if release.state is State.LINKING:
                compare_keys(release)
        except TesseraError as error:
            # If this cannot be stored, the comparison of tokens reports it again.
            with suppress(CannotStoreError):
                self.fail(release.id, error)

    async def _link(self, release: str) -> None:
        # Each may take all the memory that is allowed.
        async with self._linking:
            await self._link_next(release)

    async def _link_next(self, release: str) -> None:
        known = self._releases[release]
        if known.state is not State.LINKING:
            return
        with self._show_progress(release, State.LINKING) as progress:
            event = await asyncio.to_thread(
                signed_addendum,
                known,
                self._intake,
                self._signer,
                self.now,
                self._workspace,
                progress,
            )
        if self._releases[release].state is State.LINKING:
            self.record(release, event)

    async def _open_round(self, release: str) -> None:
        known = self._releases[release]
        if known.state is not State.MEASURING or not _is_answered(known):
            return
        event = await asyncio.to_thread(opened_round, known, self._intake, self._signer, self.now)
        after = self._releases[release]
        if after.state is State.MEASURING and len(after.rounds) == len(known.rounds):
            self.record(release, event)

    async def _publish(self, release: str) -> None:
        async with self._publishing:
            await self._publish_next(release)

    async def _publish_next(self, release: str) -> None:
        known = self._releases[release]
        if known.state is not State.JOINING:
            return
        moment = datetime.fromtimestamp(self.now, UTC)
        with self._show_progress(release, State.JOINING) as progress:
            digest = await asyncio.to_thread(
                publish_release,
                known,
                self._intake,
                self._release_dir,
                self._signer,
                self._ca,
                moment,
                self._workspace,
                progress,
            )
        # A folder that has appeared is published, even if storing that event needs several attempts.
        folder = folder_of(known, self._release_dir)
        note = await asyncio.to_thread(folder.note, known.request.out)
        self.record(
            release,
            Published(at=self.now, manifest_digest=digest, directory=str(folder.path), note=note),
        )

    @contextmanager
    def _show_progress(self, release: str, state: State) -> Iterator[Progress]:
        """Show the progress of a step; stop it when the release leaves the state, or the daemon stops."""

        def is_due() -> bool:
            return not self._stopping and self._releases[release].state is state

        self._progress[release] = Progress(release, self._elapsed, is_due)
        try:
            yield self._progress[release]
        finally:
            del self._progress[release]

    async def _expire(self, release: str) -> None:
        known = self._releases[release]
        # The release may have gone on to its next step while storing failed.
        if self._deadlines.over(release):
            self.record(release, expiry(self.now, known, self._presence.is_connected))

    def remove_data(self, release: str) -> None:
        """Remove the data of a deleted release; blocks.

        Raises:
            OSError: If they cannot be removed now; the next call resumes.
        """
        self._intake.set_aside(release)
        self._intake.clear()
        remove_leftover(self.folder(release))
        # A release that was not published did not make a folder of this name.
        if self._releases[release].published is not None:
            remove_folder(self.folder(release))

    # --- deadlines, beginning and end ----------------------------------------------------------------

    def _adopt(self, release: Release) -> None:
        self._releases[release.id] = release
        for owner in release.request.owners:
            self._of_owner.setdefault(owner, set()).add(release.id)

    def resume(self) -> None:
        """Resume every release of the journal; needs a running event loop."""
        for release in self._journal.replay().values():
            self._adopt(release)
        for release in self.releases:
            self._enter(release)
            self._go_on(release)
            if release.deleted is not None:
                self._steps.take(release.id, partial(asyncio.to_thread, self.remove_data, release.id))

    async def stop(self) -> None:
        """Stop. Waits for a step that runs in a thread: it ends soon, and is repeated at the next start."""
        self._stopping = True
        self._deadlines.stop()
        await self._steps.stop()


def _is_answered(release: Release) -> bool:
    """Whether the next round of a synthetic release is due: the first, or all owners have answered."""
    return not release.rounds or (bool(release.round) and not release.missing("measured"))
