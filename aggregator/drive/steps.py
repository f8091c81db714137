"""The steps that are the aggregator's own, in the background; again after a rest if the disk took nothing.

A full, read-only or failing disk ends no release: owners have spent for it. The step rests and is tried
again, and meanwhile the release says what it waits for. An error that another attempt would most likely meet
again, and that must not end the release either, halts the step until somebody asks for another attempt.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aggregator.drive.presence import wait
from aggregator.store.database import CannotStoreError
from common.errors import InternalError, TesseraError

_FIRST_REST_SECONDS = 2.0
_LONGEST_REST_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Steps:
    """Carries out steps of releases.

    Args:
        failed: Is told of the error that a step ended with; may raise what the disk refuses.
        keeps: Whether a release stays where it is despite an error; then its step halts.
        changed: Is told that a release waits for something else than before.
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
        self._waiting: dict[str, str] = {}
        self._halted: dict[str, TesseraError] = {}
        self._stopping = asyncio.Event()

    def take(self, release: str, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry a step out, as often as it takes.

        Args:
            release: Release id.
            step: Makes an attempt. It does nothing if it is not due any more, and if it fails it has either
                done nothing or goes on where it was.
        """
        task = asyncio.create_task(self._carry_out(release, step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def waiting(self, release: str) -> str:
        """Return what a release's step waits for; empty if none rests or is halted."""
        return self._waiting.get(release, "")

    def halted(self, release: str) -> TesseraError | None:
        """Return the error that halted a release's step, until it is taken again; None if none did."""
        return self._halted.get(release)

    def clear(self, release: str) -> bool:
        """Forget that a release's step halted, so that it can be taken again; returns whether it had."""
        if self._halted.pop(release, None) is None:
            return False
        self._note(release, "")
        return True

    async def stop(self) -> None:
        """Wait for what is being done; what rests is taken up at the next start."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _carry_out(self, release: str, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        rest = _FIRST_REST_SECONDS
        while not self._stopping.is_set():
            try:
                halted = await self._attempt(release, step)
            except (OSError, CannotStoreError) as error:
                self._note(release, _reason(error))
                await wait(self._stopping, rest)
                rest = min(2 * rest, _LONGEST_REST_SECONDS)
            else:
                if halted is not None:
                    self._halted[release] = halted
                self._note(release, f"{halted.message}; the fragments are kept" if halted else "")
                return

    async def _attempt(
        self, release: str, step: Callable[[], Coroutine[Any, Any, None]]
    ) -> TesseraError | None:
        """Take a step; returns the error that halts it, if one does."""
        try:
            await step()
        except (OSError, CannotStoreError):
            raise
        except TesseraError as known:
            error = known
        except Exception as fault:  # noqa: BLE001 - a release must end in words, whatever went wrong
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


def _reason(error: OSError | CannotStoreError) -> str:
    if isinstance(error, CannotStoreError):
        return error.message
    place = f"{error.filename} cannot be used" if error.filename else "the disk cannot be used"
    return f"{place}: {error.strerror or type(error).__name__}"
