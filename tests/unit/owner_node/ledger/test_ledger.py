"""The ledger: exact, idempotent, and of a spend nothing ever comes back."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import BalanceError, ConflictError, InternalError
from owner_node.ledger.ledger import Balance, Ledger
from owner_node.state.database import OwnerDatabase
from tests.fakes.ledgers import TOTAL, balance, clock, give_back, kinds, reserve, spend


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A real database in a folder of its own."""
    with OwnerDatabase(tmp_path / "state") as database:
        yield database


@pytest.fixture
def ledger(db: OwnerDatabase) -> Ledger:
    """A ledger without entries."""
    return Ledger(db, clock)


def test_reserve_spend_return(db: OwnerDatabase, ledger: Ledger) -> None:
    """Reserved, spent and remaining always add up to the total, and only reservations come back."""
    reserve(db, ledger, "r1")
    assert balance(ledger) == ("0.4", "0", "0.6")
    spend(db, ledger, "r1")
    assert balance(ledger) == ("0", "0.4", "0.6")
    reserve(db, ledger, "r2", "0.6")
    assert balance(ledger) == ("0.6", "0.4", "0")
    assert give_back(db, ledger, "r2")
    assert balance(ledger) == ("0", "0.4", "0.6")
    assert not give_back(db, ledger, "r1")
    assert balance(ledger) == ("0", "0.4", "0.6")
    assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4", "reserve r2 0.6", "return r2 0.6"]


def test_repeats_change_nothing(db: OwnerDatabase, ledger: Ledger) -> None:
    """A message that arrives twice is charged once."""
    for _ in range(3):
        reserve(db, ledger, "r1")
    for _ in range(3):
        spend(db, ledger, "r1")
    reserve(db, ledger, "r1")
    reserve(db, ledger, "r2", "0.1")
    assert [give_back(db, ledger, "r2") for _ in range(3)] == [True, False, False]
    assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4", "reserve r2 0.1", "return r2 0.1"]


def test_too_much_is_refused(db: OwnerDatabase, ledger: Ledger) -> None:
    """What does not fit names what was asked and what is left, and leaves no entry."""
    reserve(db, ledger, "r1")
    with pytest.raises(BalanceError) as caught:
        reserve(db, ledger, "r2", "0.600000000001")
    assert caught.value.details == {"budget": "patients", "requested": "0.600000000001", "remaining": "0.6"}
    assert kinds(ledger) == ["reserve r1 0.4"]


def test_decimals_are_exact(db: OwnerDatabase, ledger: Ledger) -> None:
    """Ten tenths are one, and the twelfth place counts."""
    for number in range(10):
        reserve(db, ledger, f"r{number}", "0.1")
    assert balance(ledger) == ("1", "0", "0")
    with pytest.raises(BalanceError):
        reserve(db, ledger, "more", "0.000000000001")


def test_budgets_are_apart_and_releases_are_not(db: OwnerDatabase, ledger: Ledger) -> None:
    """A budget counts all aggregators and releases of its data, and nothing of another budget."""
    reserve(db, ledger, "r1", "0.5")
    reserve(db, ledger, "r1", "0.5", aggregator="other")
    reserve(db, ledger, "r2", "0.7", budget="staff")
    with pytest.raises(BalanceError):
        reserve(db, ledger, "r3", "0.1", aggregator="third")
    assert ledger.balance("staff", TOTAL) == Balance(TOTAL, Decimal("0.7"), Decimal(0), Decimal("0.3"))
    assert [entry.release for entry in ledger.entries("staff")] == ["r2"]


@pytest.mark.parametrize("act", [reserve, spend, give_back])
def test_other_plan_same_release(db: OwnerDatabase, ledger: Ledger, act: Any) -> None:
    """Nothing is done for a second plan under the same release id."""
    reserve(db, ledger, "r1")
    with pytest.raises(ConflictError):
        act(db, ledger, "r1", plan_digest="e" * 64)
    assert kinds(ledger) == ["reserve r1 0.4"]


def test_what_was_returned_stays_returned(db: OwnerDatabase, ledger: Ledger) -> None:
    """A late message neither spends nor reserves again what was returned."""
    reserve(db, ledger, "r1")
    give_back(db, ledger, "r1")
    with pytest.raises(ConflictError):
        reserve(db, ledger, "r1")
    with pytest.raises(InternalError):
        spend(db, ledger, "r1")
    assert balance(ledger) == ("0", "0", "1")


def test_nothing_is_spent_unreserved(db: OwnerDatabase, ledger: Ledger) -> None:
    """A spend needs its reservation."""
    with pytest.raises(InternalError):
        spend(db, ledger, "r1")
    assert not give_back(db, ledger, "r1")
    assert ledger.entries() == ()


@pytest.mark.parametrize("charge", ["0", "-0.1", "NaN", "Infinity"])
def test_charges_are_positive(db: OwnerDatabase, ledger: Ledger, charge: str) -> None:
    """A charge that would add to a balance, or is no number, is never written."""
    with pytest.raises(InternalError):
        reserve(db, ledger, "r1", charge)
    assert ledger.entries() == ()


def test_entries_need_a_transaction(db: OwnerDatabase, ledger: Ledger) -> None:
    """A connection whose transaction is over cannot write."""
    with db.transaction() as tx:
        pass
    with pytest.raises(InternalError):
        ledger.reserve(
            tx, budget="b", total_epsilon=TOTAL, charge=TOTAL, aggregator="hub", release="r", plan_digest=""
        )


def test_entry_keeps_the_arithmetic(db: OwnerDatabase, ledger: Ledger) -> None:
    """Both epsilons and the way of accounting can be read later, for the spend as for the reservation."""
    reserve(db, ledger, "r1", epsilon=Decimal("0.4"), epsilon_joint=None, accounting="per-centroid")
    spend(db, ledger, "r1")
    for entry in ledger.entries():
        assert (entry.epsilon, entry.epsilon_joint, entry.accounting) == (
            Decimal("0.4"),
            None,
            "per-centroid",
        )
        assert entry.time == clock().isoformat()


def test_survives_reopening(tmp_path: Path) -> None:
    """What was spent before a restart is spent after it."""
    with OwnerDatabase(tmp_path / "state") as db:
        reserve(db, Ledger(db, clock), "r1")
        spend(db, Ledger(db, clock), "r1")
        head = Ledger(db, clock).head()
    with OwnerDatabase(tmp_path / "state") as db:
        assert balance(Ledger(db, clock)) == ("0", "0.4", "0.6")
        assert Ledger(db, clock).head() == head


def test_lowered_total(db: OwnerDatabase, ledger: Ledger) -> None:
    """A total that the owner lowers below what is spent refuses all further work and hides nothing."""
    reserve(db, ledger, "r1", "0.9")
    assert balance(ledger, Decimal("0.5")) == ("0.9", "0", "-0.4")
    with pytest.raises(BalanceError):
        reserve(db, ledger, "r2", "0.1", total_epsilon=Decimal("0.5"))
