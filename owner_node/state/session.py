"""The state machine of one owner's part in one release, as a table of states and events.

    invited → awaiting_approval → reserved → linked → spent → sealed → uploaded → acknowledged → published
                                                                 any of these → refused or ended

Messages arrive late and twice, so events are idempotent. The table spells out the rule: an event that leads
to a state that the session has reached or passed leaves it where it is; an end is final; an event that the
table lacks is an error. `publish` is allowed from `sealed` on, because the answer to a complete upload may
have been lost.
"""

from enum import StrEnum

from common.errors import ProtocolError


class State(StrEnum):
    """The states of an owner's session (DESIGN §2)."""

    INVITED = "invited"
    AWAITING_APPROVAL = "awaiting_approval"
    RESERVED = "reserved"
    LINKED = "linked"
    SPENT = "spent"
    SEALED = "sealed"
    UPLOADED = "uploaded"
    ACKNOWLEDGED = "acknowledged"
    PUBLISHED = "published"
    REFUSED = "refused"
    ENDED = "ended"


class Event(StrEnum):
    """What can happen to a session."""

    INVITE = "invite"
    """The schema was requested."""
    WAIT = "wait"
    """A person has to decide."""
    ACCEPT = "accept"
    """The plan was accepted and its charge reserved."""
    LINK = "link"
    """The source was loaded and pinned, and linking answered."""
    SPEND = "spend"
    """The charge was spent; noise may be drawn."""
    SEAL = "seal"
    """The fragment is on disk, digested and signed."""
    UPLOAD = "upload"
    """Every byte of the fragment was sent."""
    ACKNOWLEDGE = "acknowledge"
    """The aggregator's receipt arrived and is valid."""
    PUBLISH = "publish"
    """The release was published."""
    REFUSE = "refuse"
    """This owner cannot or will not continue; nothing has been spent."""
    END = "end"
    """The release ended without being published."""


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.INVITED: {
        Event.INVITE: State.INVITED,
        Event.WAIT: State.AWAITING_APPROVAL,
        Event.ACCEPT: State.RESERVED,
        Event.REFUSE: State.REFUSED,
        Event.END: State.ENDED,
    },
    State.AWAITING_APPROVAL: {
        Event.INVITE: State.AWAITING_APPROVAL,
        Event.WAIT: State.AWAITING_APPROVAL,
        Event.ACCEPT: State.RESERVED,
        Event.REFUSE: State.REFUSED,
        Event.END: State.ENDED,
    },
    State.RESERVED: {
        Event.INVITE: State.RESERVED,
        Event.WAIT: State.RESERVED,
        Event.ACCEPT: State.RESERVED,
        Event.LINK: State.LINKED,
        Event.REFUSE: State.REFUSED,
        Event.END: State.ENDED,
    },
    State.LINKED: {
        Event.INVITE: State.LINKED,
        Event.WAIT: State.LINKED,
        Event.ACCEPT: State.LINKED,
        Event.LINK: State.LINKED,
        Event.SPEND: State.SPENT,
        Event.REFUSE: State.REFUSED,
        Event.END: State.ENDED,
    },
    State.SPENT: {
        Event.INVITE: State.SPENT,
        Event.WAIT: State.SPENT,
        Event.ACCEPT: State.SPENT,
        Event.LINK: State.SPENT,
        Event.SPEND: State.SPENT,
        Event.SEAL: State.SEALED,
        Event.END: State.ENDED,
    },
    State.SEALED: {
        Event.INVITE: State.SEALED,
        Event.WAIT: State.SEALED,
        Event.ACCEPT: State.SEALED,
        Event.LINK: State.SEALED,
        Event.SPEND: State.SEALED,
        Event.SEAL: State.SEALED,
        Event.UPLOAD: State.UPLOADED,
        Event.PUBLISH: State.PUBLISHED,
        Event.END: State.ENDED,
    },
    State.UPLOADED: {
        Event.INVITE: State.UPLOADED,
        Event.WAIT: State.UPLOADED,
        Event.ACCEPT: State.UPLOADED,
        Event.LINK: State.UPLOADED,
        Event.SPEND: State.UPLOADED,
        Event.SEAL: State.UPLOADED,
        Event.UPLOAD: State.UPLOADED,
        Event.ACKNOWLEDGE: State.ACKNOWLEDGED,
        Event.PUBLISH: State.PUBLISHED,
        Event.END: State.ENDED,
    },
    State.ACKNOWLEDGED: {
        Event.INVITE: State.ACKNOWLEDGED,
        Event.WAIT: State.ACKNOWLEDGED,
        Event.ACCEPT: State.ACKNOWLEDGED,
        Event.LINK: State.ACKNOWLEDGED,
        Event.SPEND: State.ACKNOWLEDGED,
        Event.SEAL: State.ACKNOWLEDGED,
        Event.UPLOAD: State.ACKNOWLEDGED,
        Event.ACKNOWLEDGE: State.ACKNOWLEDGED,
        Event.PUBLISH: State.PUBLISHED,
        Event.END: State.ENDED,
    },
    State.PUBLISHED: {
        Event.INVITE: State.PUBLISHED,
        Event.WAIT: State.PUBLISHED,
        Event.ACCEPT: State.PUBLISHED,
        Event.LINK: State.PUBLISHED,
        Event.SPEND: State.PUBLISHED,
        Event.SEAL: State.PUBLISHED,
        Event.UPLOAD: State.PUBLISHED,
        Event.ACKNOWLEDGE: State.PUBLISHED,
        Event.PUBLISH: State.PUBLISHED,
    },
    # The end of the release is also reported to an owner that refused.
    State.REFUSED: {Event.REFUSE: State.REFUSED, Event.END: State.REFUSED},
    State.ENDED: {Event.END: State.ENDED},
}

FINAL = frozenset({State.PUBLISHED, State.REFUSED, State.ENDED})
"""States without a transition to another state."""
UNDECIDED = frozenset({State.INVITED, State.AWAITING_APPROVAL})
"""States in which this owner has agreed to nothing yet."""
LINKS = frozenset({State.RESERVED, State.LINKED, State.SPENT})
"""States in which tokens may still have to be made."""
CHARGED = frozenset({State.SPENT, State.SEALED, State.UPLOADED, State.ACKNOWLEDGED, State.PUBLISHED})
"""States that a session reaches only after its charge is spent."""


def advance(state: State, event: Event | str) -> State:
    """Return the state after an event.

    Args:
        state: The state before.
        event: An event, or its name.

    Raises:
        ProtocolError: If the table lacks the event; names role, state and event.
    """
    following = {str(known): after for known, after in TRANSITIONS[state].items()}.get(str(event))
    if following is None:
        raise ProtocolError(
            f"the owner's session in state {state} does not take {event}",
            "the other side is at another step; nothing was changed here",
            {"role": "owner", "state": str(state), "event": str(event)},
        )
    return following
