"""What an owner's people are told because of the clock: once, and before it is too late."""

from dataclasses import replace
from datetime import timedelta

import pytest

from aggregator.ca.authority import LIFETIME
from common.errors import IntegrityError
from owner_node.config import PolicyConfig
from owner_node.notices import NOTICES, NoticeFeed, note_due
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions
from tests.fakes.offered_plans import looked_at
from tests.fakes.offering import Offering


@pytest.fixture
def offering(tmp_path):
    """An owner node that asks a person about every plan, and has been asked for one."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    plan = made.plan(made.node.invitations.describe("r1", "cohort"), "r1")
    deadline = int((made.now() + timedelta(hours=30)).timestamp())
    assert (
        made.node.invitations.consent("r1", plan.digest, replace(made.offer(plan), deadline=deadline)) is None
    )
    yield made
    made.records.db.close()


def test_a_near_deadline_is_told_once(offering):
    """Not 30 hours before, once from 24 hours before, not after it."""
    for later, noted in ((0, 0), (7, 1), (8, 1), (40, 1)):
        offering.later = timedelta(hours=later)
        note_due(offering.config, offering.records, offering.now)
        assert len(offering.records.history.entries("hub", "r1", "deadline-near")) == noted


def test_a_new_sink_is_not_told_the_past(offering):
    """Whoever configures messages today gets none about last year."""
    feed = NoticeFeed(offering.records.db, offering.records.history, "a")
    head = offering.records.history.head().sequence
    assert head > 0
    assert feed.position("mail:x") == head
    offering.later = timedelta(hours=7)
    note_due(offering.config, offering.records, offering.now)
    records = feed.audit_records(feed.position("mail:x"), 10)
    assert [record["event"] for _, record in records] == ["deadline-near"]


def test_names_of_sinks_that_hold_a_secret_are_forgotten(offering):
    """Sinks go on where they were under their former names; of those and of removed ones nothing is left."""
    feed = NoticeFeed(offering.records.db, offering.records.history, "a")
    former = {
        "webhook:https://x/Geheim7": 1,
        "webhook:https://y/Geheim7": 1,
        "mail:mx:25:a,b": 1,
        "file:/a": 1,
    }
    for name, sequence in former.items():
        feed.note_delivered(name, sequence)
    feed.keep_sinks(
        {
            "webhook:x:ab": "webhook:https://x/Geheim7",
            **dict.fromkeys(("mail:mx:25:a", "mail:mx:25:b"), "mail:mx:25:a,b"),
        }
    )
    feed.note_delivered("mail:mx:25:a", 2)
    feed.keep_sinks({"webhook:x:ab": "", "mail:mx:25:a": "mail:mx:25:a,b", "mail:mx:25:c": "mail:mx:25:a,c"})
    kept = {row["sink"]: row["sequence"] for row in offering.records.db.rows("SELECT * FROM audit_sinks")}
    assert kept == {"webhook:x:ab": 1, "mail:mx:25:a": 2, "file:/a": 1}


def test_a_certificate_that_ends_and_a_halt_are_told_once(offering):
    """Each is one line of the history, however often it is looked at, and becomes one message."""
    for _ in range(2):
        note_due(offering.config, offering.records, offering.now)
    assert not offering.records.history.entries(event="certificate-ends")
    offering.later = LIFETIME - timedelta(days=1)
    with offering.records.db.transaction() as tx:
        offering.records.ledger.losses.stop(tx, IntegrityError("entries were lost Zq7Qz", "recover"))
    for _ in range(2):
        note_due(offering.config, offering.records, offering.now)
    records = NoticeFeed(offering.records.db, offering.records.history, "a").audit_records(0, 100)
    messages = NOTICES.messages([record for _, record in records])
    assert [each["event"] for each in messages] == ["awaiting-approval", "certificate-ends", "ledger-halted"]
    assert "Zq7Qz" not in str(messages)


def test_what_a_person_decides_is_told(offering):
    """A refusal, and before it an approval that nobody used in time; the reason stays here."""
    decisions = Decisions(offering.records.db, offering.now)
    looked_at(offering)
    decisions.approve("r1", "", Person("vera"), timedelta(hours=1))
    offering.later = timedelta(hours=2)
    with offering.records.db.transaction() as tx:
        assert decisions.approvals.note_expired(tx, decisions.find("r1"))
    decisions.refuse("r1", "", Person("otto"), "not our question Zq7Qz")
    records = NoticeFeed(offering.records.db, offering.records.history, "a").audit_records(0, 100)
    messages = NOTICES.messages([record for _, record in records])
    assert [each["event"] for each in messages] == ["awaiting-approval", "approval-expired", "refused"]
    assert "Zq7Qz" not in str(messages)
