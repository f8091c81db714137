"""How far a long step is, with an estimate of what is left: in words, for people, and in the log."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

MASKING = "masking"
"""The step that draws noise."""
_SHORTEST_SECONDS = 3.0
"""A step that ends sooner shows nothing."""
_LOG_SECONDS = 60.0
_PERCENT = 5
_MINUTE = 60
_HOUR = 3600
_log = logging.getLogger(__name__)


class StepStoppedError(Exception):
    """The step is not due any more, a person stopped it, or the daemon stops: a later attempt resumes it."""


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """How far a step is, and what is left of it."""

    percent: int
    """Share that is done, in steps of 5 %."""
    seconds_left: int
    """Estimate of what is left; 0 if there is none yet."""

    def __str__(self) -> str:
        """Return it in words, no more exact than an estimate is."""
        return f"{self.percent} %" + (f", {_words(self.seconds_left)} left" if self.seconds_left else "")


class Progress:
    """The progress of one piece of work, step by step. It is advanced by the work and read anywhere."""

    def __init__(
        self,
        release: str = "",
        elapsed: Callable[[], float] = time.monotonic,
        is_due: Callable[[], bool] = lambda: True,
    ) -> None:
        self._release = release
        self._elapsed = elapsed
        self._is_due = is_due
        self.what = ""
        """What is being done, such as "publishing"; empty between two steps."""
        self.done = 0.0
        """How much of it is done."""
        self.total = 0.0
        """How much there is to do, in any unit; 0 while that is not known."""
        self._stopped = False
        self._started = self._logged = elapsed()

    def begin(self, what: str, total: float = 0.0) -> None:
        """Begin a step; the total is 0 while that is not known."""
        self.what, self.done, self.total = what, 0.0, total
        self._started = self._logged = self._elapsed()

    def expect(self, total: float) -> None:
        """State how much there is to do, once it is known."""
        self.total = total

    def advance(self, amount: float) -> None:
        """State that so much more is done."""
        self.reach(self.done + amount)

    def reach(self, done: float) -> None:
        """State that at least so much is done."""
        if self.stopped:
            raise StepStoppedError
        self.done = max(self.done, done)
        if self._elapsed() - self._logged >= _LOG_SECONDS:
            self._logged = self._elapsed()
            self.report()

    def report(self) -> None:
        """Log how far the step is; called once a minute."""
        _log.info("step goes on", extra={"release": self._release, "progress": self.text()})

    def stop(self) -> None:
        """Let the work end when it advances next."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether the work is to end."""
        return self._stopped or not self._is_due()

    def end(self) -> None:
        """State that nothing is being done."""
        self.begin("")

    def estimate(self) -> StepEstimate | None:
        """Return how far the step is; None at its beginning, between two, and if its length is not known."""
        done, total, seconds = self.done, self.total, self._elapsed() - self._started
        if seconds < _SHORTEST_SECONDS or not self.what or not total:
            return None
        share = min(done / total, 1.0)
        percent = int(100 * share) // _PERCENT * _PERCENT
        return StepEstimate(percent, max(1, round(seconds / share - seconds)) if percent else 0)

    def text(self) -> str:
        """Return the progress in words; empty at the beginning of a step, and between two."""
        what, estimate = self.what, self.estimate()
        if estimate is not None:
            return f"{what}, {estimate}"
        return what if self._elapsed() - self._started >= _SHORTEST_SECONDS else ""


def _words(seconds: float) -> str:
    """Return a duration in words, no more exact than an estimate is."""
    if seconds < _MINUTE:
        return "less than a minute"
    if seconds < _HOUR:
        minutes = round(seconds / _MINUTE)
        return f"about {minutes} minute{'s' if minutes > 1 else ''}"
    hours = round(seconds / _HOUR)
    return f"about {hours} hour{'s' if hours > 1 else ''}"
