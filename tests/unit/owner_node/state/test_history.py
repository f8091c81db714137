"""The audit log: complete, in order, and changed by nobody unseen."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import IntegrityError
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A real database in a folder of its own."""
    with OwnerDatabase(tmp_path / "state") as database:
        yield database


def _history(db: OwnerDatabase) -> History:
    history = History(db, lambda: datetime(2026, 1, 2, tzinfo=UTC))
    with db.transaction() as tx:
        history.record(tx, aggregator="hub", release="r1", event="invited", details={"dataset": "patients"})
        history.record(
            tx, aggregator="hub", release="r1", event="refused", decision="refuse", rule="policy.min_k = 10",
            purpose="study", epsilon="0.5", plan_digest="d", details={"k": 3, "share": Decimal("0.10")},
        )  # fmt: skip
        history.record(tx, aggregator="other", release="r1", event="invited")
    return history


def test_lines_say_what_was_recorded(db: OwnerDatabase) -> None:
    """A refusal can be read in full afterwards: what was asked, what decided, by which rule."""
    line = _history(db).entries()[1]
    assert (line.sequence, line.time) == (2, "2026-01-02T00:00:00+00:00")
    assert (line.event, line.decision, line.rule) == ("refused", "refuse", "policy.min_k = 10")
    assert (line.purpose, line.epsilon, line.plan_digest) == ("study", "0.5", "d")
    assert line.details == {"k": "3", "share": "0.10"}


def test_lines_of_one_release(db: OwnerDatabase) -> None:
    """Releases of different aggregators are apart, whatever they are called."""
    history = _history(db)
    assert [line.event for line in history.entries("hub", "r1")] == ["invited", "refused"]
    assert [line.aggregator for line in history.entries(release="r1")] == ["hub", "hub", "other"]
    assert history.entries("hub", "r2") == ()


def test_undone_with_its_transaction(db: OwnerDatabase) -> None:
    """A line stands for something that happened: it is undone with it."""
    history = _history(db)

    def fail() -> None:
        with db.transaction() as tx:
            history.record(tx, aggregator="hub", release="r2", event="invited")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert history.head().sequence == 3
    history.verify()


def test_lines_and_ledger_have_chains_of_their_own(db: OwnerDatabase) -> None:
    """The first line of the history is number 1 whatever the ledger holds."""
    assert [line.sequence for line in _history(db).entries()] == [1, 2, 3]


@pytest.mark.parametrize("column", ["event", "decision", "rule", "purpose", "epsilon", "details", "hash"])
def test_changed_line_is_found(db: OwnerDatabase, column: str) -> None:
    """A rule or decision that somebody rewords later is found, and the history can still be shown."""
    history = _history(db)
    history.verify()
    raw = sqlite3.connect(db.path)
    raw.execute("DROP TRIGGER history_no_update")
    raw.execute(f"UPDATE history SET {column} = 'x' || {column} WHERE sequence = 2")
    raw.commit()
    raw.close()
    with pytest.raises(IntegrityError) as caught:
        history.verify()
    assert caught.value.details == {"chain": "history", "entry": 2}
    assert len(history.entries()) == 3
