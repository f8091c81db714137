"""An aggregator cannot make an owner's state grow without limit, whatever it invents."""

from datetime import timedelta

import pytest

from common.errors import IntegrityError, ProtocolError, RefusedError
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.recall import _bounded
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
    with pytest.raises(RefusedError, match="3 open releases of hub"):
        offering.node.invitations.describe("r3", "cohort")
    offering.node.invitations.describe("r1", "cohort")
    offering.node.conclude("r0", "cancelled", "", "")
    offering.node.invitations.describe("r3", "cohort")
    assert len(offering.records.sessions.all()) == 4


def test_releases_are_begun_slowly(offering, monkeypatch):
    """Releases that end at once are for ever in the history: an aggregator can begin only so many an hour."""
    monkeypatch.setattr("owner_node.release.invitations._MOST_NEW", 3)
    for number in range(3):
        offering.node.invitations.describe(f"r{number}", "cohort")
        offering.node.conclude(f"r{number}", "cancelled", "", "")
    with pytest.raises(RefusedError, match="3 new releases of hub per hour"):
        offering.node.invitations.describe("r3", "cohort")
    offering.restart()
    with pytest.raises(RefusedError, match="3 new releases of hub per hour"):
        offering.node.invitations.describe("r3", "cohort")
    offering.later = timedelta(minutes=61)
    offering.node.invitations.describe("r3", "cohort")


class _Endless:
    """The calls of an aggregator that shows the same for ever."""

    def __init__(self, item):
        self.item, self.told = item, 0

    async def items(self):
        """Show it."""
        while True:
            self.told += 1
            yield self.item


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (wire.RecallItem(heads=[wire.LedgerHead(sequence=1)] * 40), 3),
        (wire.RecallItem(release=wire.RecalledRelease(release="r1")), 101),
        (wire.RecallItem(release=wire.RecalledRelease(plan=b"x" * 600)), 2),
        (wire.RecallItem(heads=[wire.LedgerHead(sequence=2**63)]), 1),
    ],
)
async def test_what_is_recalled_is_bounded(monkeypatch, item, told):
    """An aggregator that shows releases and heads without end does not fill the memory of a recovery."""
    for name, most in (("_MOST_PLACES", 100), ("_MOST_RELEASES", 100), ("_MOST_BYTES", 1000)):
        monkeypatch.setattr(f"owner_node.connection.recall.{name}", most)
    endless = _Endless(item)
    with pytest.raises(IntegrityError, match="hub shows more"):
        async for _ in _bounded(endless.items(), "hub"):
            pass
    assert endless.told == told


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
