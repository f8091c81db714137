"""What an aggregator's operators are told: once, and not of the past."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from aggregator.drive.notices import NOTICES, note_due
from aggregator.protocol.release import apply
from aggregator.protocol.states import State
from aggregator.store.notices import FILE_NAME, NoticeList
from common.errors import ConfigurationError
from tests.fakes.protocol_peers import aggregator_step, new_release

DAY = 86_400
BEGUN = 1_800_000_000


@pytest.fixture
def notices(tmp_path):
    """A new list."""
    with NoticeList(tmp_path / FILE_NAME, "hub", BEGUN) as made:
        yield made


def told(notices, releases=(), halted=lambda _: None, certificates=None, now=BEGUN) -> list[str]:
    """Note what is due, and return every event that was ever noted."""
    note_due(notices, releases, halted, certificates or {}, datetime.fromtimestamp(now, UTC))
    records = notices.audit_records(0, 100)
    assert len(NOTICES.messages([record for _, record in records])) == len(records)
    return [record["event"] for _, record in records]


def release(state: State, entered: int = BEGUN + 1, **changes):
    """Return a release in a state."""
    return replace(new_release("a", "b"), state=state, entered=entered, **changes)


def published():
    """Return a release that was published."""
    joining = replace(new_release("a", "b"), state=State.JOINING)
    event = aggregator_step(joining)
    assert event is not None
    return replace(apply(joining, event), entered=BEGUN + 8)


def test_ends_are_told_once(notices):
    """A release that was published, and one that failed; not again, and not one that ended before."""
    assert told(notices, [published()]) == ["published"]
    assert told(notices, [published()]) == ["published"]
    assert told(notices, [replace(published(), entered=BEGUN - 1)]) == ["published"]
    assert told(notices, [release(State.INVITING), release(State.MASKING)]) == ["published"]


@pytest.mark.parametrize("left", [3 * DAY, DAY // 2, -5])
def test_a_near_deadline_is_told_once(notices, left):
    """From 24 hours before the end of consent, not before, not after it."""
    waits = release(State.CONSENTING, BEGUN, allowed={State.CONSENTING: 7 * DAY})
    expected = ["deadline-near"] if 0 < left < DAY else []
    for _ in range(2):
        assert told(notices, [waits], now=BEGUN + 7 * DAY - left) == expected


def test_a_short_deadline_is_not_near_from_the_beginning(notices):
    """Whoever allows an hour is not told at once that it is less than a day."""
    waits = release(State.CONSENTING, BEGUN, allowed={State.CONSENTING: 3600})
    assert told(notices, [waits]) == []


def test_a_halted_publication_is_told_once(notices):
    """A full disk waits for an operator, who has to hear of it."""
    joins = release(State.JOINING)
    for _ in range(2):
        assert told(notices, [joins], lambda _: ConfigurationError("full")) == ["publication-halted"]


def test_certificates_that_end(notices):
    """The own and an owner's, each once; one that was renewed is told again when it ends."""
    now = datetime.fromtimestamp(BEGUN, UTC)
    soon, later = now + timedelta(days=2), now + timedelta(days=300)
    assert told(notices, certificates={"": soon, "a": soon, "b": later}) == [
        "certificate-ends", "owner-certificate-ends"
    ]  # fmt: skip
    assert len(told(notices, certificates={"": soon, "a": soon})) == 2
    text = NOTICES.messages([record for _, record in notices.audit_records(1, 1)])[0]["text"]
    assert text == "The certificate of owner a ends soon. See aggregator enroll list."
    assert len(told(notices, certificates={"a": later}, now=int(later.timestamp()) - DAY)) == 3


def test_the_list_survives_the_daemon(tmp_path):
    """After a restart nothing is told twice, and a new sink hears nothing of the past."""
    with NoticeList(tmp_path / FILE_NAME, "hub", BEGUN) as first:
        assert told(first, [published()]) == ["published"]
        first.note_delivered("old", 1)
    with NoticeList(tmp_path / FILE_NAME, "hub", BEGUN + 50) as second:
        assert second.begun == BEGUN
        assert told(second, [published()]) == ["published"]
        assert (second.position("old"), second.position("new")) == (1, 1)


def test_names_of_sinks_that_hold_a_secret_are_forgotten(notices):
    """Sinks go on where they were under their former names; of those and of removed ones nothing is left."""
    former = "webhook:https://x/Geheim7"
    notices.note_delivered(former, 3)
    notices.note_delivered("mail:mx:25:gone", 3)
    notices.keep_sinks({"webhook:x:ab": former})
    assert [tuple(row) for row in notices.rows("SELECT * FROM sinks")] == [("webhook:x:ab", 3)]
