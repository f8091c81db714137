"""A ledger of the first version is read on: its hashes hold, and it grows by what later versions record."""

import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest

from common.canonical import document_digest
from common.errors import IntegrityError, InternalError
from owner_node.ledger.ledger import Ledger
from owner_node.state.chain import GENESIS, Head
from owner_node.state.database import _MIGRATIONS, Database
from tests.fakes.ledgers import balance, clock, kinds, reserve, tamper

_COLUMNS = (
    "time", "kind", "budget", "aggregator", "release", "plan_digest", "charge", "epsilon", "epsilon_joint",
    "accounting",
)  # fmt: skip


def _first_version(path: Path) -> str:
    """Write a database as the first version did, with a reservation and its spend; return the last hash."""
    path.parent.mkdir(mode=0o700)
    raw = sqlite3.connect(path)
    for statement in _MIGRATIONS[0]:
        raw.execute(statement)
    previous = GENESIS
    for sequence, kind in enumerate(("reserve", "spend"), start=1):
        told: tuple[str | None, ...] = (
            "2026-01-01T00:00:00+00:00", kind, "patients", "hub", "r1", "d" * 64, "0.4", "0.4", None, "joint",
        )  # fmt: skip
        values = dict(zip(_COLUMNS, told, strict=True))
        mark = document_digest({**values, "sequence": sequence, "previous": previous})
        places = ", ".join("?" * (len(_COLUMNS) + 3))
        columns = ", ".join(("sequence", *_COLUMNS, "previous", "hash"))
        raw.execute(f"INSERT INTO ledger ({columns}) VALUES ({places})", (sequence, *told, previous, mark))
        previous = mark
    raw.execute("PRAGMA user_version = 1")
    raw.commit()
    raw.close()
    path.chmod(0o600)
    return previous


def test_an_old_ledger_goes_on(tmp_path: Path) -> None:
    """Entries, hashes and heads stay what they were; the next reservation records the budget's total."""
    mark = _first_version(tmp_path / "state" / "owner.db")
    with Database(tmp_path / "state") as db:
        ledger = Ledger(db, clock)
        ledger.verify()
        assert ledger.head() == Head(2, mark)
        assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4"]
        reserve(db, ledger, "r2", "0.1")
        assert balance(ledger) == ("0.1", "0.4", "0.5")
        assert ledger.total("patients") == Decimal(1)
        ledger.verify()


@pytest.mark.parametrize("added", ["note = '{}'", "rank_loss = '0'"])
def test_an_old_entry_that_was_changed(tmp_path: Path, added: str) -> None:
    """What the first version wrote is protected by the same chain; nothing can be put to it either."""
    _first_version(tmp_path / "state" / "owner.db")
    with Database(tmp_path / "state") as db:
        tamper(db, f"UPDATE ledger SET {added} WHERE sequence = 2")
        with pytest.raises(IntegrityError, match="entry 2"):
            Ledger(db, clock).verify()


def test_the_tables_are_append_only_again(tmp_path: Path) -> None:
    """The new table has the triggers of the old one, and only a recovery leaves numbers out."""
    _first_version(tmp_path / "state" / "owner.db")
    with Database(tmp_path / "state") as db:
        for statement in (
            "UPDATE ledger SET charge = '0'",
            "DELETE FROM ledger",
            "INSERT OR REPLACE INTO ledger SELECT * FROM ledger",
            """INSERT INTO ledger SELECT 9, time, 'budget', budget, '', '', '', charge, epsilon, NULL, '',
                NULL, previous, hash, NULL FROM ledger WHERE sequence = 1""",
        ):
            with pytest.raises(InternalError, match="SQLITE_CONSTRAINT"), db.transaction() as tx:
                tx.execute(statement)
        with db.transaction() as tx:
            Ledger(db, clock).lost.acknowledge(tx, [Head(8, "a" * 64)], {})
        assert Ledger(db, clock).head().sequence == 9
