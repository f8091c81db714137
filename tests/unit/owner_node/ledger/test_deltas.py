"""δ in the ledger: an amount of its own, added up beside ε and limited; entries without it are as before."""

from decimal import Decimal
from pathlib import Path

import pytest

from common.canonical import document_digest
from common.errors import RefusedError
from owner_node.ledger.entry import COLUMNS, Part
from owner_node.ledger.ledger import Ledger
from owner_node.ledger.losses import LostCharge
from owner_node.state.database import OwnerDatabase
from tests.fakes.ledgers import balance, clock, give_back, reserve, spend

SMALL = Decimal("0.000001")
LIMIT = Decimal("0.000002")


@pytest.fixture
def db(tmp_path: Path) -> OwnerDatabase:
    """An owner's database."""
    return OwnerDatabase(tmp_path / "state")


@pytest.fixture
def ledger(db: OwnerDatabase) -> Ledger:
    """A ledger without entries."""
    return Ledger(db, clock)


def test_what_was_not_returned_adds_up_to_the_limit(db: OwnerDatabase, ledger: Ledger) -> None:
    """Reservations and spends count exactly, returned ones do not; ε is charged as without δ."""
    for release in ("r1", "r2"):
        reserve(db, ledger, release, "0.1", delta=SMALL, total_delta=LIMIT)
    spend(db, ledger, "r1")
    assert ledger.deltas("patients") == LIMIT
    with pytest.raises(
        RefusedError, match=r"total_delta = 0\.000002: .* 0\.000002, this would be 0\.000001 more"
    ):
        reserve(db, ledger, "r3", "0.1", delta=SMALL, total_delta=LIMIT)
    reserve(db, ledger, "r3", "0.1")
    assert give_back(db, ledger, "r2")
    assert ledger.deltas("patients") == SMALL
    assert balance(ledger) == ("0.1", "0.1", "0.8")
    ledger.verify()


def test_no_delta_without_a_limit(db: OwnerDatabase, ledger: Ledger) -> None:
    """A policy that says nothing of δ allows none."""
    with pytest.raises(RefusedError, match="total_delta = 0:"):
        reserve(db, ledger, "r1", delta=SMALL)
    assert not ledger.entries()


def test_a_part_keeps_the_delta(db: OwnerDatabase, ledger: Ledger) -> None:
    """Where only a part of ε is needed, all of δ is spent and none returned."""
    reserve(db, ledger, "r1", "0.9", delta=SMALL, total_delta=LIMIT, epsilon=Decimal("0.9"))
    spend(db, ledger, "r1", part=Part(Decimal("0.3"), Decimal("0.3"), None))
    assert [(str(each.kind), each.delta) for each in ledger.entries()] == [
        ("reserve", SMALL), ("return", 0), ("spend", SMALL),
    ]  # fmt: skip
    assert ledger.deltas("patients") == SMALL


def test_a_recovery_charges_it(db: OwnerDatabase, ledger: Ledger) -> None:
    """A lost charge comes back with its δ, even beyond the limit."""
    with db.transaction() as tx:
        ledger.losses.charge(tx, LostCharge("patients", Decimal(1), "hub", "r1", "0" * 64, delta=SMALL))
    assert ledger.deltas("patients") == SMALL


def test_entries_without_it_are_hashed_as_before_there_was_one(db: OwnerDatabase, ledger: Ledger) -> None:
    """A ledger of version 0.1.0 has no such column, and its hashes hold."""
    reserve(db, ledger, "r1")
    (row,) = ledger.of("hub", "r1")
    before = {name: row[name] for name in COLUMNS if name != "delta"}
    assert row["hash"] == document_digest({**before, "sequence": 1, "previous": row["previous"]})
