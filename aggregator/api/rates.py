"""The rate at which one owner can call. Honest owners call a few times per step of a release."""

import asyncio
import logging
from collections.abc import Callable

from common.errors import NotConnectedError

CALLS_PER_SECOND = 20.0
"""Calls of one owner that are taken in the long run; one more for every `_CALL_BYTES` of a message."""
_BURST = 400
"""Calls that are taken at once after a pause."""
_LONGEST_SECONDS = 5.0
"""How long a call may be delayed; those beyond are refused, so that they do not accumulate."""
_CALL_BYTES = 64 * 1024
_log = logging.getLogger(__name__)


class Rates:
    """Delays calls of owners that call too often, and refuses what it would delay too long."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        # When each owner will have been idle long enough for what it has called so far.
        self._settled: dict[str, float] = {}
        self._refused: set[str] = set()

    async def take(self, owner: str, n_bytes: int) -> None:
        """Count a call, and wait until it may be taken.

        Args:
            owner: Owner id, or what else the calls are counted for.
            n_bytes: Size of its message.

        Raises:
            NotConnectedError: If the owner calls far too often; logged when that begins.
        """
        now = self._elapsed()
        cost = (1 + n_bytes // _CALL_BYTES) / CALLS_PER_SECOND
        before = self._settled.get(owner, 0.0)
        if before <= now:
            self._refused.discard(owner)
        settled = max(before, now) + cost
        delay = settled - now - _BURST / CALLS_PER_SECOND
        if delay > _LONGEST_SECONDS:
            if owner not in self._refused:
                self._refused.add(owner)
                _log.warning("owner calls too often", extra={"owner": owner})
            raise NotConnectedError(
                f"owner {owner} calls too often", f"call at most {CALLS_PER_SECOND:g} times a second"
            )
        self._settled[owner] = settled
        if delay > 0:
            await asyncio.sleep(delay)
