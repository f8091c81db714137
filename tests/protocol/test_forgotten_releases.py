"""Reservations for an aggregator that has forgotten the release, as one whose backup was put back."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from common.errors import ProtocolError
from common.model.plan import Plan
from owner_node.state.session import SessionState
from tests.fakes.offering import Offering

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node on real state."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def consented(offering: Offering, allowed: timedelta | None = HOUR) -> Plan:
    """Let the owner accept a plan whose deadline is so far away."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    deadline = None if allowed is None else int((offering.now() + allowed).timestamp())
    offering.node.invitations.consent("r1", plan.digest, replace(offering.offer(plan), deadline=deadline))
    return plan


def state(offering: Offering) -> SessionState:
    """Return the state of the release at the owner."""
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    return session.state


@pytest.mark.parametrize(("allowed", "kept"), [(HOUR, HOUR + 9 * MINUTE), (None, 29 * DAY)])
def test_a_reservation_is_returned_after_its_deadline(
    offering: Offering, allowed: timedelta | None, kept: timedelta
) -> None:
    """Not before, not while work is done for it, and once; an aggregator that asks later gets nothing."""
    plan = consented(offering, allowed)
    offering.later = kept
    assert offering.node.expire_orphans(()) == ()
    offering.later = kept + 2 * DAY
    assert offering.node.expire_orphans({"r1"}) == ()
    assert state(offering) is SessionState.RESERVED
    assert offering.node.expire_orphans({"r2"}) == ("r1",)
    assert offering.node.expire_orphans(()) == ()
    assert state(offering) is SessionState.ENDED
    assert offering.kinds() == ["reserve", "return"]
    assert offering.records.history.entries("hub", "r1")[-1].event == "ended"
    with pytest.raises(ProtocolError):
        offering.node.production.link("r1", plan.digest)
    assert offering.kinds() == ["reserve", "return"]


def test_a_release_that_was_linked_waits_for_others(offering: Offering) -> None:
    """The deadline was that of the consent; what waits longer than any step may take is over."""
    plan = consented(offering)
    offering.node.production.link("r1", plan.digest)
    offering.later = 2 * DAY
    assert offering.node.expire_orphans(()) == ()
    offering.later = 31 * DAY
    assert offering.node.expire_orphans(()) == ("r1",)
    assert offering.kinds() == ["reserve", "return"]


def test_what_was_spent_is_never_returned(offering: Offering) -> None:
    """A sealed fragment stays for an aggregator that continues."""
    plan = consented(offering)
    offering.node.production.link("r1", plan.digest)
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    offering.later = 365 * DAY
    assert offering.node.expire_orphans(()) == ()
    assert state(offering) is SessionState.SEALED
    assert offering.kinds() == ["reserve", "spend"]
