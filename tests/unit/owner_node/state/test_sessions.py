"""Sessions on disk: a restart finds them, a repeat changes nothing, a contradiction is told."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConflictError, InternalError, ProtocolError
from owner_node.state.database import OwnerDatabase
from owner_node.state.session import SessionEvent, SessionState
from owner_node.state.sessions import Session, Sessions


class Ticking:
    """A clock that is a second later at every look."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Tell the time."""
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A real database in a folder of its own."""
    with OwnerDatabase(tmp_path / "state") as database:
        yield database


def _open(db: OwnerDatabase, release: str = "r1", dataset: str = "patients") -> tuple[Sessions, Session]:
    sessions = Sessions(db, Ticking())
    with db.transaction() as tx:
        return sessions, sessions.open(tx, "hub", release, dataset)


def _step(
    db: OwnerDatabase, sessions: Sessions, session: Session, event: SessionEvent, **changes: Any
) -> Session:
    with db.transaction() as tx:
        return sessions.advance(tx, session, event, **changes)


_STORY: tuple[tuple[SessionEvent, dict[str, Any]], ...] = (
    (SessionEvent.ACCEPT, {
        "plan_digest": "d", "plan_signature": b"\x00\xff", "aggregator_certificate": b"PEM",
        "key_check": "k", "purpose": "study",
    }),
    (SessionEvent.LINK, {"source_digest": "s"}),
    (SessionEvent.SPEND, {"addendum": b"[]", "addendum_signature": b"2", "n_records": 7122}),
    (SessionEvent.SEAL, {"fragment_digest": "f", "fragment_size": 12, "fragment_signature": b"3"}),
    (SessionEvent.UPLOAD, {}),
    (SessionEvent.ACKNOWLEDGE, {"receipt": b"()", "receipt_signature": b"4"}),
    (SessionEvent.PUBLISH, {"manifest_digest": "m"}),
)  # fmt: skip


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """After every step another process finds exactly the session that was stored."""
    state = tmp_path / "state"
    with OwnerDatabase(state) as db:
        sessions, session = _open(db)
        for event, changes in _STORY:
            session = _step(db, sessions, session, event, **changes)
            with OwnerDatabase(state) as other:
                assert Sessions(other, Ticking()).get("hub", "r1") == session
    assert session.state is SessionState.PUBLISHED
    expected = {name: value for _, changes in _STORY for name, value in changes.items()}
    assert {name: getattr(session, name) for name in expected} == expected
    assert session.created < session.updated


def test_repeats_change_nothing(db: OwnerDatabase) -> None:
    """Every message told twice, at every point, leaves the session as it was after the first."""
    sessions, session = _open(db)
    for event, changes in _STORY:
        session = _step(db, sessions, session, event, **changes)
        assert _step(db, sessions, session, event, **changes) == session
    for event, changes in _STORY:
        assert _step(db, sessions, session, event, **changes) == session
    assert sessions.get("hub", "r1") == session


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (SessionEvent.ACCEPT, {"plan_digest": "other"}),
        (SessionEvent.LINK, {"source_digest": "other"}),
        (SessionEvent.SEAL, {"fragment_digest": "other"}),
        (SessionEvent.SEAL, {"fragment_size": 13}),
        (SessionEvent.SPEND, {"addendum": b"other"}),
        (SessionEvent.PUBLISH, {"manifest_digest": "other"}),
    ],
)
def test_a_repeat_that_differs(db: OwnerDatabase, event: SessionEvent, changes: dict[str, Any]) -> None:
    """The same id with other content is a conflict that names the fields and changes nothing."""
    sessions, session = _open(db)
    for step, content in _STORY:
        session = _step(db, sessions, session, step, **content)
    with pytest.raises(ConflictError) as caught:
        _step(db, sessions, session, event, **changes)
    assert caught.value.details["fields"] == list(changes)
    assert sessions.get("hub", "r1") == session


def test_first_signature_and_reason_stay(db: OwnerDatabase) -> None:
    """Signatures are never twice the same, so a repeat may bring another; the first is kept."""
    sessions, session = _open(db)
    session = _step(db, sessions, session, SessionEvent.ACCEPT, plan_digest="d", plan_signature=b"first")
    assert (
        _step(db, sessions, session, SessionEvent.ACCEPT, plan_digest="d", plan_signature=b"second")
        == session
    )
    ended = _step(db, sessions, session, SessionEvent.REFUSE, reason="own reason")
    assert _step(db, sessions, ended, SessionEvent.END, reason="the release was refused") == ended


def test_stored_state_counts(db: OwnerDatabase) -> None:
    """A caller that holds an older copy does not take the session back."""
    sessions, first = _open(db)
    accepted = _step(db, sessions, first, SessionEvent.ACCEPT, plan_digest="d")
    linked = _step(db, sessions, first, SessionEvent.LINK, source_digest="s")
    assert (accepted.state, linked.state, linked.plan_digest) == (
        SessionState.RESERVED,
        SessionState.LINKED,
        "d",
    )


def test_wrong_event_changes_nothing(db: OwnerDatabase) -> None:
    """An event out of order is an error and leaves the session."""
    sessions, session = _open(db)
    with pytest.raises(ProtocolError):
        _step(db, sessions, session, SessionEvent.SEAL, fragment_digest="f")
    assert sessions.get("hub", "r1") == session


def test_opening_again(db: OwnerDatabase) -> None:
    """An invitation told twice is one session; for another data set it is a conflict."""
    _, session = _open(db)
    assert _open(db)[1] == session
    with pytest.raises(ConflictError):
        _open(db, dataset="staff")


def test_live_and_all(db: OwnerDatabase) -> None:
    """What has ended is not live, and aggregators are apart although release ids are not."""
    sessions, first = _open(db)
    _open(db, "r2")
    with db.transaction() as tx:
        sessions.open(tx, "other", "r1", "staff")
    _step(db, sessions, first, SessionEvent.END, reason="cancelled")
    assert [s.release for s in sessions.live("hub")] == ["r2"]
    assert [(s.aggregator, s.release) for s in sessions.live()] == [("hub", "r2"), ("other", "r1")]
    assert len(sessions.all()) == 3
    assert sessions.get("hub", "r3") is None


@pytest.mark.parametrize("changes", [{"state": SessionState.PUBLISHED}, {"release": "r9"}, {"nonsense": 1}])
def test_only_known_fields_change(db: OwnerDatabase, changes: dict[str, Any]) -> None:
    """The state changes by events alone, and no name from outside reaches a statement."""
    sessions, session = _open(db)
    with pytest.raises(InternalError):
        _step(db, sessions, session, SessionEvent.ACCEPT, **changes)
    assert sessions.get("hub", "r1") == session


def test_a_step_needs_a_transaction(db: OwnerDatabase) -> None:
    """Nothing is stored beside the transaction of what belongs to it."""
    sessions, session = _open(db)
    with db.transaction() as tx:
        pass
    with pytest.raises(InternalError):
        sessions.advance(tx, session, SessionEvent.ACCEPT)
