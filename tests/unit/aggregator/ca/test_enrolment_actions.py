"""What is done with certificates comes into the operators' log: all of it, once, with time and user."""

import shutil
from datetime import UTC, datetime, timedelta

import pytest

from aggregator.ca.actions import EnrolmentActions
from aggregator.ca.authority import Authority
from aggregator.ca.enrolment import Enrolment
from aggregator.store.journal import Journal
from common.trust.enrolment import make_request, new_key, read_request
from common.trust.identity import Party, PartyKind
from deploy.development_ca import DevelopmentCa

NORTH = Party(PartyKind.OWNER, "north", "example.org")


class Sides:
    """A register as commands use it, and a journal as the daemon does."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.now = datetime.now(UTC).replace(microsecond=0)
        ca = DevelopmentCa("example.org")
        self.authority = Authority(ca.certificate, ca.issued.key)
        self.journal = Journal(folder / "aggregator.db")
        self.announced = 0
        self.journal.operators.listen(self.count)
        self.open()

    def count(self) -> None:
        """Count what an audit sink would be woken by."""
        self.announced += 1

    def open(self) -> None:
        """Open the register."""
        self.register = Enrolment(self.folder, lambda: self.now)
        self.actions = EnrolmentActions(self.register, self.journal.db, self.journal.operators)

    def approve(self, **options) -> str:
        """Approve a new key of the owner north."""
        request = read_request(make_request(new_key(), NORTH))
        options = {"replace": True} | options
        issued = self.register.approve(self.authority, request, NORTH, "alice", **options)
        return f"{issued.serial_number:x}"

    def told(self) -> list[tuple[str, str, str]]:
        """Copy, and return what the log says: user, action, serial number."""
        self.actions.copy()
        return [
            (action.user, action.name, action.arguments["serial"])
            for _, action in self.journal.operators.actions()
        ]


@pytest.fixture
def sides(tmp_path):
    """Both sides, closed after the test."""
    made = Sides(tmp_path)
    yield made
    made.register.close()
    made.journal.close()


def test_everything_once(sides):
    """Approvals, replacements and revocations are told in their order, however often is looked."""
    first = sides.approve()
    assert sides.told() == [("alice", "enroll approve", first)]
    second = sides.approve()
    sides.register.revoke("bob", "north")
    expected = [
        ("alice", "enroll approve", first),
        ("alice", "enroll replace", first),
        ("alice", "enroll approve", second),
        ("bob", "enroll revoke", second),
    ]
    assert sides.told() == expected
    assert sides.told() == expected
    assert sides.announced == 2


def test_time_and_whose(sides):
    """An entry has the time at which it was done, not that of the copy, and says whose certificate it was."""
    serial = sides.approve()
    done, sides.now = sides.now, sides.now + timedelta(days=3)
    sides.actions.copy()
    ((_, action),) = sides.journal.operators.actions()
    assert action.at == int(done.timestamp())
    assert (action.arguments["owner"], action.arguments["serial"]) == ("north", serial)
    assert len(action.arguments["fingerprint"]) == 64


def test_a_register_from_a_backup(sides):
    """After an older register was put back, what is done from then on is told, and nothing old again."""
    first = sides.approve()
    sides.register.close()
    shutil.copy(sides.folder / "enrolment.db", sides.folder / "backup")
    sides.open()
    lost = sides.approve()
    sides.told()
    sides.register.close()
    shutil.copy(sides.folder / "backup", sides.folder / "enrolment.db")
    sides.open()
    sides.actions.copy()
    again = sides.approve()
    assert [(name, serial) for _, name, serial in sides.told()] == [
        ("enroll approve", first),
        ("enroll replace", first),
        ("enroll approve", lost),
        ("enroll replace", first),
        ("enroll approve", again),
    ]
