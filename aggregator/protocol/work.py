"""What an owner should do now, derived from the release alone.

The same work is sent until it is answered. This covers lost messages, repeated polls and restarts of either
side.
"""

from dataclasses import dataclass
from typing import Literal

from aggregator.protocol.events import Conflicted
from aggregator.protocol.release import Release
from aggregator.protocol.states import State

Step = Literal["describe", "consent", "link", "mask", "collect", "encrypt", "add", "measure", "conclude"]

DRY_RUN_REASON = "only a plan was requested"
"""The reason that owners receive when a dry run has ended."""


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to do for one release."""

    release: str
    step: Step
    """What to do; the content comes from the release."""
    round: int = 0
    """Number of the round to answer; 0 for other steps."""

    @property
    def name(self) -> str:
        """Its name among the work of its release: an owner can be busy with one round at a time."""
        return f"{self.step}-{self.round}" if self.round else self.step


_STEPS: dict[State, tuple[str, Step]] = {
    State.INVITING: ("described", "describe"),
    State.CONSENTING: ("consented", "consent"),
    State.LINKING: ("linked", "link"),
    State.MASKING: ("sealed", "mask"),
    State.COLLECTING: ("received", "collect"),
    State.MEASURING: ("measured", "measure"),
}
"""The answer that each state waits for, and the work that it answers."""


def work_for(release: Release, owner: str) -> Work | None:
    """Return what an owner should do now, or None if there is nothing."""
    progress = release.progress.get(owner)
    if progress is None:
        return None
    if release.ended:
        return None if progress.acknowledged else Work(release.id, "conclude")
    if release.state not in _STEPS:
        return None
    answer, step = _STEPS[release.state]
    if step == "measure":
        return _in_round(release, owner)
    return Work(release.id, step) if getattr(progress, answer) is None else None


def _in_round(release: Release, owner: str) -> Work | None:
    """Return what an owner should do in a round: what others wait for comes first."""
    if not release.round:
        return None
    opened, progress = release.rounds[-1], release.progress[owner]
    if owner in opened.rows and progress.passed_rows is None:
        return Work(release.id, "encrypt", release.round)
    if owner in opened.sums and progress.passed_sums is None:
        without = any(release.progress[other].passed_rows is None for other in opened.rows)
        return None if without else Work(release.id, "add", release.round)
    if progress.measured is not None or any(
        release.progress[other].passed_sums is None for other in opened.sums
    ):
        return None
    return Work(release.id, "measure", release.round)


def conclusion(release: Release) -> tuple[str, str, str]:
    """Return the result for an owner at the end: state, reason and the manifest's digest."""
    if release.published is not None:
        return str(release.state), "", release.published.manifest_digest
    if isinstance(release.ending, Conflicted):
        # What owners declare, hold or use does not fit together: only they can correct it.
        texts = (release.ending.message, release.ending.hint)
        return str(release.state), "; ".join(filter(None, texts)), ""
    if release.ending is not None:
        return str(release.state), release.ending.message, ""
    return str(State.CANCELLED), DRY_RUN_REASON, ""
