"""owner.db: chained tables take no entry out of turn, and damage says what to do about the ledger."""

from pathlib import Path

import pytest

from common.errors import IntegrityError, InternalError
from owner_node.state.database import OwnerDatabase

_INSERT = (
    "INSERT INTO history (sequence, time, aggregator, release, event, decision, rule, purpose, epsilon, "
    "plan_digest, details, previous, hash) VALUES (?, '', 'a', 'r', '', '', '', '', '', '', '', '', '')"
)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE history SET event = 'other'",
        "DELETE FROM history",
        "INSERT OR REPLACE INTO history SELECT * FROM history",
        _INSERT.replace("?", "7"),
    ],
    ids=["update", "delete", "replace", "gap"],
)
def test_append_only(tmp_path: Path, statement: str) -> None:
    """No statement changes, deletes, replaces or leaves out an entry."""
    with OwnerDatabase(tmp_path / "state") as db:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
        with pytest.raises(InternalError), db.transaction() as tx:
            tx.execute(statement)
        assert [tuple(row)[:4] for row in db.rows("SELECT * FROM history")] == [(1, "", "a", "r")]


def test_looking_makes_nothing(tmp_path: Path) -> None:
    """A command that only looks finds an empty state and leaves no file."""
    with OwnerDatabase(tmp_path / "state", make=False) as db:
        assert db.rows("SELECT * FROM sessions") == []
    assert list(tmp_path.iterdir()) == []


def test_damaged_file(tmp_path: Path) -> None:
    """After damage, the backup that is put back lacks charges: the hint says how to recover them."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "owner.db").write_bytes(b"no database " * 1000)
    with pytest.raises(IntegrityError, match="damaged") as caught:
        OwnerDatabase(state)
    assert "ledger recover" in caught.value.hint
