"""A ledger that is known to lack entries charges nothing, whoever asks and however often."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import IntegrityError, InternalError
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import OwnerDatabase

_LOST = IntegrityError("the ledger lost entries", "recover it", {"sequence": 3, "signed": 5})


def clock() -> datetime:
    """A clock that stands."""
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def reserve(db: OwnerDatabase, release: str) -> None:
    """Reserve in a transaction of its own."""
    with db.transaction() as tx:
        Ledger(db, clock).reserve(
            tx, budget="patients", total_epsilon=Decimal(1), charge=Decimal("0.1"), aggregator="hub",
            release=release, plan_digest="d",
        )  # fmt: skip


def test_a_halt_outlives_its_process(tmp_path: Path) -> None:
    """Once stopped, nothing is reserved or spent, not after a restart either, and the first reason stays."""
    with OwnerDatabase(tmp_path / "state") as db:
        reserve(db, "r1")
        with db.transaction() as tx:
            Ledger(db, clock).losses.stop(tx, _LOST)
            Ledger(db, clock).losses.stop(tx, IntegrityError("something else"))
    with OwnerDatabase(tmp_path / "state") as db:
        ledger = Ledger(db, clock)
        with pytest.raises(IntegrityError) as caught:
            reserve(db, "r2")
        assert (caught.value.message, caught.value.hint) == (_LOST.message, _LOST.hint)
        assert caught.value.details == {"sequence": "3", "signed": "5"}
        with pytest.raises(IntegrityError), db.transaction() as tx:
            ledger.spend(tx, "hub", "r1", "d")
        with pytest.raises(IntegrityError), db.transaction() as tx:
            ledger.check_may_charge(tx)
        assert len(ledger.lines()) == 1


def test_an_acknowledged_loss_lets_work_go_on(tmp_path: Path) -> None:
    """After a recovery charges are taken again."""
    with OwnerDatabase(tmp_path / "state") as db:
        ledger = Ledger(db, clock)
        with db.transaction() as tx:
            ledger.losses.stop(tx, _LOST)
        with db.transaction() as tx:
            ledger.losses.acknowledge(tx, [], {})
        reserve(db, "r1")
        assert ledger.losses.reason() is None


def test_a_check_outside_a_transaction_is_no_check(tmp_path: Path) -> None:
    """Between a check and its charge nobody else may write."""
    with OwnerDatabase(tmp_path / "state") as db:
        with db.transaction() as tx:
            pass
        with pytest.raises(InternalError):
            Ledger(db, clock).check_may_charge(tx)
