"""A reservation that is spent in part: what the entries say, and what a recovery makes of them."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import InternalError
from owner_node.ledger.entry import CHARGES, EntryKind, Part
from owner_node.ledger.ledger import Ledger
from owner_node.ledger.losses import LostCharge
from owner_node.ledger.rank_losses import rank_losses
from owner_node.state.database import OwnerDatabase
from tests.fakes.ledgers import balance, clock, give_back, kinds, reserve, spend


@pytest.fixture
def db(tmp_path: Path) -> OwnerDatabase:
    """An owner's database."""
    return OwnerDatabase(tmp_path / "state")


def part(epsilon: str, joint: str | None, rank_loss: str | None = None) -> Part:
    """Return what is needed of a reservation."""
    return Part(*(None if each is None else Decimal(each) for each in (epsilon, joint, rank_loss)))  # type: ignore[arg-type]


def test_amounts_of_both_entries_add_up(db: OwnerDatabase) -> None:
    """Charge, epsilon, joint bound and rank loss are each split without a remainder, once."""
    ledger = Ledger(db, clock)
    amounts = {"epsilon": Decimal("0.3"), "epsilon_joint": Decimal("0.9"), "rank_loss": Decimal(7)}
    reserve(db, ledger, "r1", "0.9", **amounts)
    spend(db, ledger, "r1", part=part("0.1", "0.3", "2.5"))
    entries = {each.kind: each for each in ledger.entries()}
    for name in ("charge", "epsilon", "epsilon_joint", "rank_loss"):
        values = [getattr(entries[kind], name) for kind in (EntryKind.SPEND, EntryKind.RETURN)]
        assert sum(values) == getattr(entries[EntryKind.RESERVE], name)
    assert kinds(ledger) == ["reserve r1 0.9", "return r1 0.6", "spend r1 0.3"]
    assert balance(ledger) == ("0", "0.3", "0.7")
    assert ledger.rank_losses("patients").bounded == Decimal("2.5")
    spend(db, ledger, "r1", part=part("0.1", "0.3"))
    assert not give_back(db, ledger, "r1")
    reserve(db, ledger, "r1", "0.9", **amounts)
    assert len(ledger.entries()) == 3
    ledger.verify()


def test_rank_losses_of_a_damaged_ledger(db: OwnerDatabase) -> None:
    """A spend whose reservation cannot be told any more counts; `ledger --verify` names the damage."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.9", rank_loss=Decimal(7))
    spend(db, ledger, "r1")
    reserved, spent = (each for each in ledger.entries() if each.kind in CHARGES)
    assert rank_losses([replace(reserved, release="r0"), spent]).bounded == 14
    assert rank_losses([spent]).bounded == 7
    assert rank_losses([replace(spent, kind=EntryKind.RETURN)]).bounded == 0


def test_all_of_a_reservation(db: OwnerDatabase) -> None:
    """Where all of it is needed nothing is returned, and the spend says what the reservation said."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.4", epsilon=Decimal("0.2"), epsilon_joint=Decimal("0.4"))
    spend(db, ledger, "r1", part=part("0.2", "0.4"))
    assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4"]


def test_charged_as_the_reservation_was(db: OwnerDatabase) -> None:
    """The accounting is that of the reservation, whatever the policy says by now."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.4", epsilon=Decimal("0.4"), accounting="per-centroid")
    spend(db, ledger, "r1", part=part("0.1", None))
    assert kinds(ledger) == ["reserve r1 0.4", "return r1 0.3", "spend r1 0.1"]
    assert [each.epsilon_joint for each in ledger.entries()] == [None, None, None]


@pytest.mark.parametrize("needed", [part("0.5", "0.5"), part("0.1", None), part("0", "0")])
def test_no_more_than_was_reserved(db: OwnerDatabase, needed: Part) -> None:
    """More, nothing, or what the accounting knows no bound of, is a fault; the reservation stands."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.4")
    with pytest.raises(InternalError, match="more than was reserved"):
        spend(db, ledger, "r1", part=needed)
    assert kinds(ledger) == ["reserve r1 0.4"]


def test_a_lost_spend_after_a_partial_one(db: OwnerDatabase) -> None:
    """A recovery charges nothing once more for a release whose part was spent and whose rest was returned."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.4")
    spend(db, ledger, "r1", part=part("0.1", "0.1"))
    with db.transaction() as tx:
        ledger.losses.charge(tx, LostCharge("patients", Decimal("0.4"), "hub", "r1", "d" * 64))
    assert kinds(ledger) == ["reserve r1 0.4", "return r1 0.3", "spend r1 0.1"]


def test_the_database_returns_no_spend(db: OwnerDatabase) -> None:
    """Whatever this program would do, the table takes no return after a spend, and neither of them twice."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", "0.4")
    spend(db, ledger, "r1")
    for kind in ("return", "spend"):
        again = f"""INSERT INTO ledger SELECT 3, time, '{kind}', budget, aggregator, release, plan_digest,
            charge, epsilon, epsilon_joint, accounting, rank_loss, note, previous, hash, delta
            FROM ledger WHERE sequence = 1"""
        with pytest.raises(InternalError, match="SQLITE_CONSTRAINT"), db.transaction() as tx:
            tx.execute(again)
    assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4"]
