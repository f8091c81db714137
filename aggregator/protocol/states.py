"""The states of a release and what may happen in each, as one table.

An owner's answer leaves the state as it is, except the last one that a step waits for: it counts as the
event `…_by_all`. An event that is not in the table is an error.
"""

from collections.abc import Mapping
from enum import StrEnum

from common.errors import ProtocolError


class State(StrEnum):
    """Where a release is."""

    INVITING = "inviting"
    PLANNED = "planned"
    CONSENTING = "consenting"
    LINKING = "linking"
    MASKING = "masking"
    COLLECTING = "collecting"
    MEASURING = "measuring"
    JOINING = "joining"
    PUBLISHED = "published"
    CONFLICT = "conflict"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


ENDS = frozenset(
    {State.PUBLISHED, State.CONFLICT, State.REFUSED, State.FAILED, State.CANCELLED, State.EXPIRED}
)
"""States in which a release has ended. A dry run also ends, in `planned`."""

TRANSITIONS: Mapping[State, Mapping[str, State]] = {
    State.INVITING: {
        "described": State.INVITING,
        "planned": State.PLANNED,
        "conflicted": State.CONFLICT,
        "refused": State.REFUSED,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    State.PLANNED: {
        "confirmed": State.CONSENTING,
        "acknowledged": State.PLANNED,
        "deleted": State.PLANNED,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    State.CONSENTING: {
        "waiting": State.CONSENTING,
        "consented": State.CONSENTING,
        "consented_by_all": State.LINKING,
        "refused": State.REFUSED,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    State.LINKING: {
        "linked": State.LINKING,
        "addended": State.MASKING,
        "addended_to_measure": State.MEASURING,
        "conflicted": State.CONFLICT,
        "refused": State.REFUSED,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    State.MASKING: {
        "sealed": State.MASKING,
        "sealed_by_all": State.COLLECTING,
        "refused": State.REFUSED,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    State.COLLECTING: {
        "received": State.COLLECTING,
        "received_by_all": State.JOINING,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    # A synthetic release instead of masking and collecting: round by round, until nothing is left to ask, and
    # all owners have signed that the sums hold.
    State.MEASURING: {
        "opened": State.MEASURING,
        "passed_rows": State.MEASURING,
        "passed_sums": State.MEASURING,
        "measured": State.MEASURING,
        "measured_by_all": State.JOINING,
        "refused": State.REFUSED,
        "failed": State.FAILED,
        "cancelled": State.CANCELLED,
        "expired": State.EXPIRED,
    },
    # The release folder appears in this state, and a folder that has appeared cannot be cancelled. There is
    # something to cancel only while storage fails or publication has failed, and the folder is absent.
    State.JOINING: {"published": State.PUBLISHED, "failed": State.FAILED, "cancelled": State.CANCELLED},
    State.PUBLISHED: {"acknowledged": State.PUBLISHED, "deleted": State.PUBLISHED},
    State.CONFLICT: {"acknowledged": State.CONFLICT, "deleted": State.CONFLICT},
    # Refusals of several owners at the same time are all recorded.
    State.REFUSED: {"refused": State.REFUSED, "acknowledged": State.REFUSED, "deleted": State.REFUSED},
    # After owners have spent, the same fragments can still be collected (`Release.resumable`).
    State.FAILED: {
        "resumed": State.MASKING,
        "resumed_by_all": State.COLLECTING,
        "resumed_to_measure": State.MEASURING,
        "acknowledged": State.FAILED,
        "deleted": State.FAILED,
    },
    State.CANCELLED: {"acknowledged": State.CANCELLED, "deleted": State.CANCELLED},
    State.EXPIRED: {
        "resumed": State.MASKING,
        "resumed_by_all": State.COLLECTING,
        "resumed_to_measure": State.MEASURING,
        "acknowledged": State.EXPIRED,
        "deleted": State.EXPIRED,
    },
}


def next_state(state: State, event: str) -> State:
    """Return the state that an event leads to."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise ProtocolError(
            f"aggregator: a release in state {state} takes no {event!r}",
            "request the work that is due and answer that",
            {"role": "aggregator", "state": str(state), "event": event},
        ) from None
