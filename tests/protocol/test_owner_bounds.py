"""An aggregator cannot make an owner's state grow without limit, whatever it invents."""

import pytest

from common.errors import ProtocolError, RefusedError
from tests.fakes.offering import Offering


@pytest.fixture
def offering(tmp_path):
    """An owner node and the aggregator that asks it."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def events(offering: Offering) -> list[str]:
    """Return the kinds of all lines of history."""
    return [entry.event for entry in offering.records.history.entries()]


def test_open_releases_are_few(offering, monkeypatch):
    """An aggregator that invents releases is refused; each that ends makes room for another."""
    monkeypatch.setattr("owner_node.release.invitations._MOST_OPEN", 3)
    for number in range(3):
        offering.node.invitations.describe(f"r{number}", "cohort")
    with pytest.raises(RefusedError, match="3 releases of hub are open"):
        offering.node.invitations.describe("r3", "cohort")
    offering.node.invitations.describe("r1", "cohort")
    offering.node.conclude("r0", "cancelled", "", "")
    offering.node.invitations.describe("r3", "cohort")
    assert len(offering.records.sessions.all()) == 4


def test_nonsense_is_written_down_once(offering, monkeypatch):
    """A rejected message is in the history once, and no more than so many of them a day."""
    monkeypatch.setattr("owner_node.release.node._MOST_REJECTED", 5)
    for _ in range(20):
        offering.node.fail("r1", ProtocolError("there is no open session for this release"))
    assert events(offering) == ["rejected"]
    for number in range(20):
        offering.node.fail(f"x{number}", ProtocolError("there is no open session for this release"))
    assert events(offering) == ["rejected"] * 5


def test_refusing_before_a_session_is_written_down_once(offering):
    """What this owner refuses again and again without a session does not fill the history either."""
    for _ in range(20):
        offering.node.fail("r1", RefusedError("no"))
    assert events(offering) == ["refused"]
