"""The aggregator's own steps of a release, run in the background; retried with backoff on storage errors.

A full, read-only or failing disk ends no release, because owners have spent for it. The step is retried with
backoff, and meanwhile the release reports what it waits for. Some errors would most likely repeat at another
attempt and must not end the release either. They halt the step until an operator requests another attempt.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aggregator.drive.presence import wait
from aggregator.store.database import CannotStoreError
from common.errors import InternalError, TesseraError
from common.files import disk_reason
from common.progress import StepStoppedError

_FIRST_BACKOFF_SECONDS = 2.0
_LONGEST_BACKOFF_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Steps:
    """Runs steps of releases.

    Args:
        failed: Called with the error that ended a step; may raise storage errors.
        keeps: Whether a release stays where it is despite an error; then its step halts.
    """

    def __init__(
        self,
        failed: Callable[[str, TesseraError], object],
        keeps: Callable[[str, TesseraError], bool],
        changed: Callable[[str], None],
    ) -> None:
        self._failed = failed
        self._keeps = keeps
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, str] = {}
        self._halted: dict[str, TesseraError] = {}
        self._stopping = asyncio.Event()

    def take(
        self, release: str, step: Callable[[], Coroutine[Any, Any, None]], *, abandoned: bool = False
    ) -> None:
        """Run a step in the background, with retries.

        Args:
            step: Makes one attempt. It does nothing if it is no longer due. After a failure it has changed
                nothing, or the next attempt resumes where this one stopped.
            abandoned: Whether a stop cancels it: it computes from what it was given, and changes nothing.
        """
        task = asyncio.create_task(self._carry_out(release, step))
        if abandoned:
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def waiting(self, release: str) -> str:
        """Return what a release's step waits for; empty if none is waiting for a retry or halted."""
        return self._waiting.get(release, "")

    def halted(self, release: str) -> TesseraError | None:
        """Return the error that halted a release's step, until it is run again; None if none did."""
        return self._halted.get(release)

    def clear(self, release: str) -> bool:
        """Clear the halt of a release's step, so that it can be run again; returns whether it was halted."""
        if self._halted.pop(release, None) is None:
            return False
        self._note(release, "")
        return True

    async def stop(self) -> None:
        """Wait for attempts in progress; steps that wait for a retry are resumed at the next start."""
        self._stopping.set()
        for task in self._abandoned:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _carry_out(self, release: str, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        backoff = _FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            try:
                halted = await self._attempt(release, step)
            except (OSError, CannotStoreError) as error:
                reason = error.message if isinstance(error, CannotStoreError) else disk_reason(error)
                self._note(release, reason)
                await wait(self._stopping, backoff)
                backoff = min(2 * backoff, _LONGEST_BACKOFF_SECONDS)
            else:
                if halted is not None:
                    self._halted[release] = halted
                self._note(release, f"{halted.message}; the fragments are kept" if halted else "")
                return

    async def _attempt(
        self, release: str, step: Callable[[], Coroutine[Any, Any, None]]
    ) -> TesseraError | None:
        """Make one attempt; returns the error that halts the step, if one does."""
        try:
            await step()
        except (OSError, CannotStoreError):
            raise
        except StepStoppedError:
            return None
        except TesseraError as known:
            error = known
        except Exception as fault:  # noqa: BLE001 - a release must end with an error message, whatever went wrong
            _log.error("step failed", extra={"release": release}, exc_info=fault)
            error = InternalError("an internal fault of the aggregator", "see its log")
        else:
            return None
        if self._keeps(release, error):
            return error
        self._failed(release, error)
        return None

    def _note(self, release: str, reason: str) -> None:
        if reason == self.waiting(release):
            return
        if reason:
            _log.error("step waits", extra={"release": release, "reason": reason})
            self._waiting[release] = reason
        else:
            del self._waiting[release]
        self._changed(release)
