"""The aggregator's database: append-only, on the disk at once, and the same release when replayed."""

import asyncio
import sqlite3
import stat
from dataclasses import replace

import pytest

from aggregator.protocol.events import Cancelled
from aggregator.protocol.release import apply, begin
from aggregator.store.journal import Journal, KnownOwner
from aggregator.store.operator_log import Action
from common.errors import ConfigurationError
from tests.fakes.protocol_peers import answer, started

OWNER = KnownOwner("a", 5, 6, "1.0", ("cohort", "trial"), "f" * 64, 99)

ACTION = Action(7, "alice", "release", "r1", {"epsilon": "1"})


@pytest.fixture
def journal(tmp_path):
    """A new journal."""
    made = Journal(tmp_path / "aggregator.db")
    yield made
    made.close()


def test_replay_equals_live(journal, tmp_path):
    """What is read back after a crash is the release as it was, and in the order of its events."""
    first = started("a", "b")
    live = begin(first)
    journal.append("r1", first)
    for owner in ("a", "b"):
        event = answer(live, owner, "describe")
        journal.append("r1", event)
        live = apply(live, event)
    # A second connection to the same file sees it without the first having been closed.
    again = Journal(tmp_path / "aggregator.db")
    assert again.replay() == {"r1": live}
    assert again.events("r1")[0] == first
    again.close()


def test_releases_are_kept_apart(journal):
    """Events of several releases do not mix, and the oldest release comes first."""
    newer = replace(started("a", "b"), at=7)
    newer = replace(newer, request=replace(newer.request, release="a-newer"))
    journal.append("a-newer", newer)
    journal.append("r1", started("a", "b"))
    journal.append("r1", Cancelled(at=9, code="cancelled", message="m"))
    assert [(name, str(each.state)) for name, each in journal.replay().items()] == [
        ("r1", "cancelled"),
        ("a-newer", "inviting"),
    ]


@pytest.mark.parametrize("table", ["events", "operator_log"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET time = 0", "DELETE FROM {}"])
def test_append_only(journal, tmp_path, table, statement):
    """History can be added to and never changed, not even by somebody with the database open."""
    journal.append("r1", started("a"))
    journal.operators.note(ACTION)
    with (
        sqlite3.connect(tmp_path / "aggregator.db") as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement.format(table))
    connection.close()
    assert journal.operators.actions() == [(1, ACTION)]


def test_an_action_and_its_event_are_one(journal):
    """What an operator did is on record exactly if it happened."""
    journal.append("r1", started("a"), ACTION)
    with pytest.raises(TypeError):
        journal.append(
            "r1", Cancelled(at=9, code="cancelled", message="m"), replace(ACTION, arguments={"x": {1}})
        )
    assert [type(event).__name__ for event in journal.events("r1")] == ["Started"]
    assert [action for _, action in journal.operators.actions()] == [ACTION]


def test_actions_are_read_in_pieces(journal):
    """The log can be read from any place on, and of one release alone; sinks remember how far they are."""
    heard = []
    journal.operators.listen(lambda: heard.append(len(journal.operators.actions())))
    for number in range(5):
        journal.operators.note(replace(ACTION, at=number, release=f"r{number % 2}"))
    assert heard == [1, 2, 3, 4, 5]
    assert [number for number, _ in journal.operators.actions(2, 2)] == [3, 4]
    assert [action.at for _, action in journal.operators.actions(release="r1")] == [1, 3]
    assert journal.operators.position("file:x") == 0
    journal.operators.note_delivered("file:x", 2)
    sequence, record = journal.operators.audit_records(journal.operators.position("file:x"), 1)[0]
    assert (sequence, record["sequence"], record["user"]) == (3, 3, "alice")


async def test_what_commands_write_is_announced(journal, tmp_path, monkeypatch):
    """An entry that another process wrote wakes the audit sinks; without one nothing does."""
    monkeypatch.setattr("aggregator.store.journal._CHECK_SECONDS", 0)
    heard = asyncio.Event()
    journal.operators.listen(heard.set)
    watching = asyncio.create_task(journal.watch())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not heard.is_set()
    command = Journal(tmp_path / "aggregator.db")
    command.operators.note(ACTION)
    command.close()
    async with asyncio.timeout(90):
        await heard.wait()
    watching.cancel()


def test_owners_are_remembered(journal):
    """An owner's first connection stays, everything else is as of its last."""
    journal.seen(OWNER)
    journal.seen(replace(OWNER, first_seen=50, last_seen=60, datasets=()))
    assert journal.owners() == {"a": replace(OWNER, last_seen=60, datasets=())}


def test_only_this_user_can_read_it(journal, tmp_path):
    """Schemas and plans are nobody else's business."""
    assert stat.S_IMODE((tmp_path / "aggregator.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"no database at all, but long enough to look like one" * 20])
def test_not_a_database(tmp_path, content):
    """A damaged database is a configuration error with a hint, not a traceback."""
    path = tmp_path / "aggregator.db"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        Journal(path)
    assert caught.value.hint
