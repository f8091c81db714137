"""The state machine of one owner's part in one release, as a table of states and events.

    invited → awaiting_approval → reserved → linked → spent → sealed → uploaded → acknowledged → published
                                                                 any of these → refused or ended

Messages arrive late and twice, so events are idempotent. The table spells out the rule: an event that leads
to a state that the session has reached or passed leaves it where it is; an end is final; an event that the
table lacks is an error. `publish` is allowed from `sealed` on, because the answer to a complete upload may
have been lost.
"""

from datetime import timedelta
from enum import StrEnum

from common.errors import ProtocolError

LONGEST_HOLD = timedelta(days=30)
"""How long a reservation is held at most before a person may return it, whatever deadline was stated."""


class SessionState(StrEnum):
    """The states of an owner's session."""

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


class SessionEvent(StrEnum):
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
    RESUME = "resume"
    """The aggregator continues with a release that had ended after the charge was spent."""


TRANSITIONS: dict[SessionState, dict[SessionEvent, SessionState]] = {
    SessionState.INVITED: {
        SessionEvent.INVITE: SessionState.INVITED,
        SessionEvent.WAIT: SessionState.AWAITING_APPROVAL,
        SessionEvent.ACCEPT: SessionState.RESERVED,
        SessionEvent.REFUSE: SessionState.REFUSED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.AWAITING_APPROVAL: {
        SessionEvent.INVITE: SessionState.AWAITING_APPROVAL,
        SessionEvent.WAIT: SessionState.AWAITING_APPROVAL,
        SessionEvent.ACCEPT: SessionState.RESERVED,
        SessionEvent.REFUSE: SessionState.REFUSED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.RESERVED: {
        SessionEvent.INVITE: SessionState.RESERVED,
        SessionEvent.WAIT: SessionState.RESERVED,
        SessionEvent.ACCEPT: SessionState.RESERVED,
        SessionEvent.LINK: SessionState.LINKED,
        SessionEvent.REFUSE: SessionState.REFUSED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.LINKED: {
        SessionEvent.INVITE: SessionState.LINKED,
        SessionEvent.WAIT: SessionState.LINKED,
        SessionEvent.ACCEPT: SessionState.LINKED,
        SessionEvent.LINK: SessionState.LINKED,
        SessionEvent.SPEND: SessionState.SPENT,
        SessionEvent.REFUSE: SessionState.REFUSED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.SPENT: {
        SessionEvent.INVITE: SessionState.SPENT,
        SessionEvent.WAIT: SessionState.SPENT,
        SessionEvent.ACCEPT: SessionState.SPENT,
        SessionEvent.LINK: SessionState.SPENT,
        SessionEvent.SPEND: SessionState.SPENT,
        SessionEvent.SEAL: SessionState.SEALED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.SEALED: {
        SessionEvent.INVITE: SessionState.SEALED,
        SessionEvent.WAIT: SessionState.SEALED,
        SessionEvent.ACCEPT: SessionState.SEALED,
        SessionEvent.LINK: SessionState.SEALED,
        SessionEvent.SPEND: SessionState.SEALED,
        SessionEvent.SEAL: SessionState.SEALED,
        SessionEvent.UPLOAD: SessionState.UPLOADED,
        SessionEvent.PUBLISH: SessionState.PUBLISHED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.UPLOADED: {
        SessionEvent.INVITE: SessionState.UPLOADED,
        SessionEvent.WAIT: SessionState.UPLOADED,
        SessionEvent.ACCEPT: SessionState.UPLOADED,
        SessionEvent.LINK: SessionState.UPLOADED,
        SessionEvent.SPEND: SessionState.UPLOADED,
        SessionEvent.SEAL: SessionState.UPLOADED,
        SessionEvent.UPLOAD: SessionState.UPLOADED,
        SessionEvent.ACKNOWLEDGE: SessionState.ACKNOWLEDGED,
        SessionEvent.PUBLISH: SessionState.PUBLISHED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.ACKNOWLEDGED: {
        SessionEvent.INVITE: SessionState.ACKNOWLEDGED,
        SessionEvent.WAIT: SessionState.ACKNOWLEDGED,
        SessionEvent.ACCEPT: SessionState.ACKNOWLEDGED,
        SessionEvent.LINK: SessionState.ACKNOWLEDGED,
        SessionEvent.SPEND: SessionState.ACKNOWLEDGED,
        SessionEvent.SEAL: SessionState.ACKNOWLEDGED,
        SessionEvent.UPLOAD: SessionState.ACKNOWLEDGED,
        SessionEvent.ACKNOWLEDGE: SessionState.ACKNOWLEDGED,
        SessionEvent.PUBLISH: SessionState.PUBLISHED,
        SessionEvent.END: SessionState.ENDED,
    },
    SessionState.PUBLISHED: {
        SessionEvent.INVITE: SessionState.PUBLISHED,
        SessionEvent.WAIT: SessionState.PUBLISHED,
        SessionEvent.ACCEPT: SessionState.PUBLISHED,
        SessionEvent.LINK: SessionState.PUBLISHED,
        SessionEvent.SPEND: SessionState.PUBLISHED,
        SessionEvent.SEAL: SessionState.PUBLISHED,
        SessionEvent.UPLOAD: SessionState.PUBLISHED,
        SessionEvent.ACKNOWLEDGE: SessionState.PUBLISHED,
        SessionEvent.PUBLISH: SessionState.PUBLISHED,
    },
    # The end of the release is also reported to an owner that refused.
    SessionState.REFUSED: {SessionEvent.REFUSE: SessionState.REFUSED, SessionEvent.END: SessionState.REFUSED},
    # Only after the charge was spent (`Cases.resume`).
    SessionState.ENDED: {
        SessionEvent.END: SessionState.ENDED,
        SessionEvent.RESUME: SessionState.SPENT,
    },
}

FINAL = frozenset({SessionState.PUBLISHED, SessionState.REFUSED, SessionState.ENDED})
"""States in which a session has ended. One that was charged may be resumed."""
UNDECIDED = frozenset({SessionState.INVITED, SessionState.AWAITING_APPROVAL})
"""States in which this owner has agreed to nothing yet."""
UNSPENT = frozenset({*UNDECIDED, SessionState.RESERVED, SessionState.LINKED})
"""States in which a session may have disclosed something and has charged nothing."""
LINKS = frozenset({SessionState.RESERVED, SessionState.LINKED, SessionState.SPENT})
"""States in which tokens may still have to be made."""
CHARGED = frozenset(
    {
        SessionState.SPENT,
        SessionState.SEALED,
        SessionState.UPLOADED,
        SessionState.ACKNOWLEDGED,
        SessionState.PUBLISHED,
    }
)
"""States that a session reaches only after its charge is spent."""


def advance(state: SessionState, event: SessionEvent | str) -> SessionState:
    """Return the state after an event.

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
