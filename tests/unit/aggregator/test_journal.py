"""The aggregator's database: append-only, on the disk at once, and the same release when replayed."""

import sqlite3
import stat
from dataclasses import replace

import pytest

from aggregator.journal import Journal, KnownOwner, SignedHead
from aggregator.protocol.events import Cancelled
from aggregator.protocol.release import apply, begin
from common.errors import ConfigurationError
from common.fragment import LedgerHead
from tests.fakes.protocol_peers import answer, started

OWNER = KnownOwner("a", 5, 6, "1.0", ("cohort", "trial"), "f" * 64, 99)


@pytest.fixture
def journal(tmp_path):
    """A new journal."""
    made = Journal(tmp_path / "aggregator.db")
    yield made
    made.close()


def head(sequence: int, letter: str = "a") -> SignedHead:
    """Return a head whose signature is not looked at here."""
    return SignedHead(LedgerHead("a", sequence, letter * 64), b"signature", b"certificate")


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
    journal.note_operator(1, "start", "r1")
    with (
        sqlite3.connect(tmp_path / "aggregator.db") as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement.format(table))
    connection.close()
    assert journal.operator_log() == [(1, "start", "r1", "")]


def test_ledger_heads_only_move_forward(journal):
    """A head that lies behind, or rewrites the newest place, is not stored."""
    assert journal.ledger_head("a") is None
    assert journal.keep_ledger_head(head(3))
    assert journal.keep_ledger_head(head(3))
    assert not journal.keep_ledger_head(head(3, "b"))
    assert not journal.keep_ledger_head(head(2))
    assert journal.keep_ledger_head(head(4, "b"))
    assert journal.ledger_head("a") == head(4, "b")


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


def test_newer_form_is_refused(journal, tmp_path):
    """A database of a newer version is left alone."""
    with sqlite3.connect(tmp_path / "aggregator.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigurationError, match="another version"):
        Journal(tmp_path / "aggregator.db")
