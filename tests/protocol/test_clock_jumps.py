"""An owner whose clock is set again and again: one charge, one fragment, and chains that hold."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from common.errors import IdentityError
from tests.fakes.offering import Offering

DAY = timedelta(days=1)


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node on real state."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


@pytest.mark.parametrize(
    ("linking", "masking", "receiving"),
    [(0, 20, -20), (0, -20, 20), (20, -20, 0), (-20, 20, 0), (20, 20, -20), (-20, -40, -60)],
)
def test_a_release_goes_on_whatever_the_clock_says(
    offering: Offering, linking: int, masking: int, receiving: int
) -> None:
    """A clock set between any two steps, over restarts, ends no release, charges once and breaks no chain."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    production = offering.node.production
    offering.later = linking * DAY
    production.link("r1", plan.digest)
    offering.later = masking * DAY
    sealed = production.mask("r1", plan.digest, *offering.addendum(plan))
    offering.restart()
    offering.later = receiving * DAY
    assert offering.node.production.mask("r1", plan.digest, *offering.addendum(plan)) == sealed
    receipt = offering.receipt(plan, sealed.fragment_digest)
    offering.node.production.receive_receipt("r1", plan.digest, *receipt)
    offering.node.close("r1", "published", "", "0" * 64)
    assert offering.kinds() == ["reserve", "spend"]
    offering.records.ledger.verify()
    offering.records.history.verify()
    # Told in the order in which it happened, whatever times stand beside it.
    told = [line.event for line in offering.records.history.entries("hub", "r1")]
    assert told == ["invited", "accepted", "linked", "spent", "sealed", "uploaded", "published"]


def test_a_clock_before_every_certificate_changes_nothing(offering: Offering) -> None:
    """A clock that is years behind accepts no plan and forgets none: set right, the owner goes on."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    offering.restart()
    offering.later = -3650 * DAY
    with pytest.raises(IdentityError):
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert offering.kinds() == []
    offering.later = 0 * DAY
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is not None
    assert offering.kinds() == ["reserve"]
