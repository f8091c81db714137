"""The owner's state machine: every state, every event, late ones and repeated ones included."""

import pytest

from common.errors import ProtocolError
from owner_node.state.session import CHARGED, FINAL, TRANSITIONS, SessionEvent, SessionState, advance

_PATH = (
    SessionEvent.INVITE, SessionEvent.ACCEPT, SessionEvent.LINK, SessionEvent.SPEND, SessionEvent.SEAL,
    SessionEvent.UPLOAD, SessionEvent.ACKNOWLEDGE, SessionEvent.PUBLISH,
)  # fmt: skip


def test_a_release_from_invitation_to_publication() -> None:
    """The path of a release that is published is walked in its order."""
    states, state = [], SessionState.INVITED
    for event in _PATH:
        state = advance(state, event)
        states.append(str(state))
    assert states == [
        "invited",
        "reserved",
        "linked",
        "spent",
        "sealed",
        "uploaded",
        "acknowledged",
        "published",
    ]


def test_a_person_decides() -> None:
    """A session that waits for a person can still go each way."""
    waiting = advance(SessionState.INVITED, SessionEvent.WAIT)
    assert waiting is SessionState.AWAITING_APPROVAL
    assert advance(waiting, SessionEvent.ACCEPT) is SessionState.RESERVED
    assert advance(waiting, SessionEvent.REFUSE) is SessionState.REFUSED
    assert advance(waiting, SessionEvent.END) is SessionState.ENDED


@pytest.mark.parametrize("repeated", range(len(_PATH)))
@pytest.mark.parametrize("reached", range(len(_PATH)))
def test_repeated_and_late_events(reached: int, repeated: int) -> None:
    """An event the session is past leaves it where it is; one two steps ahead is an error."""
    state = SessionState.INVITED
    for event in _PATH[: reached + 1]:
        state = advance(state, event)
    if repeated <= reached:
        assert advance(state, _PATH[repeated]) is state
    elif repeated > reached + 1 and _PATH[repeated] is not SessionEvent.PUBLISH:
        with pytest.raises(ProtocolError):
            advance(state, _PATH[repeated])


def test_a_lost_receipt_does_not_block_publication() -> None:
    """Publication is taken from sealed on, and never before there is a fragment."""
    takes = {state for state, events in TRANSITIONS.items() if SessionEvent.PUBLISH in events}
    assert takes == {
        SessionState.SEALED,
        SessionState.UPLOADED,
        SessionState.ACKNOWLEDGED,
        SessionState.PUBLISHED,
    }


@pytest.mark.parametrize("state", sorted(FINAL))
def test_ends_are_final(state: SessionState) -> None:
    """No event leads out of an end, but one that goes on with a paid fragment."""
    after = {to for event, to in TRANSITIONS[state].items() if event is not SessionEvent.RESUME}
    assert after == {state}


def test_every_live_session_can_end() -> None:
    """An owner never waits for ever for a release that is over."""
    for state in set(SessionState) - FINAL:
        assert advance(state, SessionEvent.END) is SessionState.ENDED


def test_nobody_refuses_after_spending() -> None:
    """A refusal says that nothing was spent, so it is only possible before."""
    for state in CHARGED:
        with pytest.raises(ProtocolError):
            advance(state, SessionEvent.REFUSE)


def test_spending_comes_before_noise_and_only_once_linked() -> None:
    """The only ways into the charged states: spend after linking, or go on after an end that followed."""
    entries = {
        (before, event)
        for before, events in TRANSITIONS.items()
        for event, after in events.items()
        if after in CHARGED and before not in CHARGED
    }
    assert entries == {
        (SessionState.LINKED, SessionEvent.SPEND),
        (SessionState.ENDED, SessionEvent.RESUME),
    }


def test_table_is_complete() -> None:
    """Every state has a line, and every state but the first can be reached."""
    assert set(TRANSITIONS) == set(SessionState)
    reached = {after for events in TRANSITIONS.values() for after in events.values()}
    assert reached == set(SessionState)


@pytest.mark.parametrize("event", ["seal", "no such event"])
def test_what_is_missing_is_named(event: str) -> None:
    """The error names role, state and event."""
    with pytest.raises(ProtocolError) as caught:
        advance(SessionState.RESERVED, event)
    assert caught.value.details == {"role": "owner", "state": "reserved", "event": event}
