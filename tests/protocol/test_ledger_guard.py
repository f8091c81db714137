"""What aggregators show of this owner's ledger: its own signature is known, whatever became of the CA."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.clock import utc_now
from common.errors import IntegrityError
from common.wire.v1 import owner_pb2 as wire
from deploy.development_ca import DevelopmentCa
from owner_node.connection.client import ledger_head
from owner_node.connection.ledger_guard import LedgerGuard
from owner_node.release.records import Records
from owner_node.state.chain import Head
from owner_node.trust import Trust
from tests.fakes.ledgers import reserve, tamper
from tests.fakes.offering import DOMAIN, Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node on real state with real keys."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def trusting(*authorities: DevelopmentCa) -> Trust:
    """Return what an owner believes that trusts only these CAs."""
    return Trust(lambda: [each.issued.certificate for each in authorities], DOMAIN, "a", "hub", utc_now)


def signed(offering: Offering, release: str) -> wire.LedgerHead:
    """Charge something, and return the signed head."""
    reserve(offering.records.db, offering.records.ledger, release, "0.1")
    return ledger_head(offering.node.head())


async def test_own_keys_outlive_the_ca(offering: Offering) -> None:
    """After the CA was replaced, an older ledger is still known to lack what its owner's key signed."""
    trust = trusting(DevelopmentCa(DOMAIN))
    first, second = signed(offering, "r1"), signed(offering, "r2")
    guard = LedgerGuard(offering.records, "a")
    await guard.examine(trust, "hub", first)
    await guard.examine(trust, "hub", second)
    guard.check()
    tamper(offering.records.db, "DELETE FROM ledger WHERE sequence = 2")
    await guard.examine(trust, "hub", second)  # the same head was seen to hold
    with pytest.raises(IntegrityError, match="ends at entry 1"):
        await LedgerGuard(offering.records, "a").examine(trust, "hub", second)
    with pytest.raises(IntegrityError, match="ends at entry 1"):
        LedgerGuard(offering.records, "a").check()


async def test_a_head_that_nobody_here_signed(offering: Offering, tmp_path: Path) -> None:
    """An unknown signature stops the work for the aggregator that shows it, and for no other."""
    trust = trusting(DevelopmentCa(DOMAIN))
    shown = signed(offering, "r1")
    fresh = Records.open(tmp_path / "fresh", utc_now)
    with fresh.db:
        guard = LedgerGuard(fresh, "a")
        with pytest.raises(IntegrityError, match="none of this owner's keys made") as caught:
            await guard.examine(trust, "hub", shown)
        assert "ledger recover" in caught.value.hint
        guard.check()
        assert not guard.broken.is_set()
        assert fresh.ledger.losses.reason() is None
        with fresh.db.transaction() as tx:
            fresh.ledger.losses.acknowledge(tx, [Head(shown.sequence, shown.hash)], {})
        await guard.examine(trust, "hub", shown)


async def test_a_forged_head_of_a_known_place(offering: Offering) -> None:
    """A head that was changed on its way is no word of this owner's, and halts nothing."""
    shown = signed(offering, "r1")
    shown.sequence += 5
    guard = LedgerGuard(offering.records, "a")
    with pytest.raises(IntegrityError, match="none of this owner's keys made"):
        await guard.examine(trusting(), "hub", shown)
    shown.hash = "no digest"
    with pytest.raises(IntegrityError, match="none of this owner's keys made"):
        await guard.examine(trusting(), "hub", shown)
    assert offering.records.ledger.losses.reason() is None


async def test_an_empty_ledger_lacks_nothing(offering: Offering) -> None:
    """The head of a ledger without entries is in every ledger."""
    shown = ledger_head(offering.node.head())
    assert shown.sequence == 0
    reserve(offering.records.db, offering.records.ledger, "r1", "0.1")
    await LedgerGuard(offering.records, "a").examine(trusting(), "hub", shown)
