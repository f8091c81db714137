"""Many plans at the same instant, at one owner node: exactly what the budget holds is accepted."""

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import BalanceError
from common.model.plan import Plan
from owner_node.config import PolicyConfig
from tests.fakes.offering import Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path, PolicyConfig(max_open_releases=50))
    yield made
    made.records.db.close()


def test_of_fifty_plans_seven_are_accepted(offering: Offering) -> None:
    """Fifty plans of 0.4 against a budget of 3: seven consents and reservations, 43 refusals for balance."""
    plans = [
        offering.plan(offering.node.invitations.describe(f"r{number}", "cohort"), f"r{number}", "0.4")
        for number in range(50)
    ]
    together, accepted, refused = threading.Barrier(50), list[str](), list[str]()

    def ask(plan: Plan) -> None:
        offer = offering.offer(plan)
        together.wait()
        try:
            offering.node.invitations.consent(plan.release, plan.digest, offer)
            accepted.append(plan.release)
        except BalanceError:
            refused.append(plan.release)

    threads = [threading.Thread(target=ask, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(accepted), len(refused)) == (7, 43)
    reserved = [entry.release for entry in offering.records.ledger.entries()]
    assert sorted(reserved) == sorted(accepted)
    assert offering.records.ledger.balance("cohort", Decimal(3)).remaining == Decimal("0.2")
    offering.records.ledger.verify()
    offering.records.history.verify()
