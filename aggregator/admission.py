"""Whether a release can be started: what is known before any owner is asked."""

from collections.abc import Mapping
from pathlib import Path

from aggregator.config import Deadlines
from aggregator.journal import KnownOwner
from aggregator.protocol.request import Request
from aggregator.protocol.states import State
from common.errors import UsageError


def check_start(request: Request, known: Mapping[str, KnownOwner], folder: Path) -> None:
    """Check what an operator asks for against what is known of the owners.

    An owner that is known and not connected is waited for; what it offers may have changed meanwhile.

    Args:
        request: The arguments.
        known: Owners that have ever connected, by id.
        folder: Where the release would appear.

    Raises:
        UsageError: If an owner never connected, a connected one does not offer the data set, or a folder is
            taken.
    """
    unknown = [owner for owner in request.owners if owner not in known]
    if unknown:
        raise UsageError(
            f"{_named('owner', unknown)} never connected to this aggregator",
            f"known owners: {', '.join(known) or 'none'}",
            {"unknown": unknown, "known": list(known)},
        )
    lacking = [owner for owner in request.owners if request.dataset not in known[owner].datasets]
    if lacking:
        offered = "; ".join(f"{owner}: {', '.join(known[owner].datasets) or 'none'}" for owner in lacking)
        raise UsageError(
            f"no data set {request.dataset!r} is offered by {_named('owner', lacking)}",
            f"data sets offered: {offered}",
            {"owners": lacking, "dataset": request.dataset},
        )
    if folder.exists():
        raise UsageError(f"{folder} exists already", "choose another --id", {"release": request.release})
    if request.out:
        from common.folders import check_out

        check_out(Path(request.out))


def allowed_seconds(deadlines: Deadlines) -> dict[str, int]:
    """Return how many seconds each state may last; a release keeps them for its life."""
    durations = {
        State.INVITING: deadlines.invite,
        State.PLANNED: deadlines.consent,
        State.CONSENTING: deadlines.consent,
        State.LINKING: deadlines.link,
        State.MASKING: deadlines.mask,
        State.COLLECTING: deadlines.collect,
    }
    return {str(state): max(1, int(duration.total_seconds())) for state, duration in durations.items()}


def _named(what: str, names: list[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names)}"
