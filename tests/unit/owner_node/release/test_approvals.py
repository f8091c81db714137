"""Approvals: for one plan, until their end, whatever the clock does."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.daemon.console import OidcSection
from owner_node.release.approvals import EXPIRED, Approvals, Person
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session

START = datetime(2026, 1, 2, 12, tzinfo=UTC)
DAY = timedelta(hours=24)
VERA = Person("vera")
SESSION = Session("hub", "r1", SessionState.AWAITING_APPROVAL, "patients", "study", plan_digest="a" * 64)


class Kept:
    """Approvals in a real database, under a clock that a test sets."""

    def __init__(self, db: OwnerDatabase) -> None:
        self.now = START
        self.db = db
        self.history = History(db, lambda: self.now)
        self.approvals = Approvals(self.history, lambda: self.now)

    def approve(self, session: Session = SESSION, person: Person = VERA) -> None:
        """Approve for a day."""
        with self.db.transaction() as tx:
            self.approvals.approve(tx, session, person, DAY)

    def valid(self, session: Session = SESSION) -> bool:
        """Whether an approval holds."""
        return bool(self.approvals.held(session, None))

    def note(self, release: str = "other") -> None:
        """Write some other line."""
        with self.db.transaction() as tx:
            self.history.record(tx, aggregator="hub", release=release, event="invited")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """Approvals of an owner."""
    with OwnerDatabase(tmp_path / "state") as db:
        yield Kept(db)


def test_who_approved_what_and_when(kept: Kept) -> None:
    """The history says who agreed to which plan, when and until when, and holds."""
    kept.approve()
    (line,) = kept.history.entries("hub", "r1")
    assert (line.event, line.decision, line.plan_digest) == ("approved", "approve", "a" * 64)
    until = (START + DAY).isoformat()
    assert line.details == {"by": "vera", "until": until, "source": ""}
    found = kept.approvals.newest(SESSION)
    assert found is not None
    assert (found.by, found.given, found.until, found.line) == ("vera", START, START + DAY, 1)
    kept.history.verify()


def test_an_approval_is_for_one_plan(kept: Kept) -> None:
    """Neither another plan, nor another release or aggregator, nor a session without a plan is approved."""
    kept.approve()
    assert kept.valid()
    for other in (
        replace(SESSION, plan_digest="b" * 64),
        replace(SESSION, release="r2"),
        replace(SESSION, aggregator="other"),
        replace(SESSION, plan_digest=""),
    ):
        assert not kept.valid(other)


def test_an_approval_ends(kept: Kept) -> None:
    """Its last moment is the one before its end; a new approval begins anew."""
    kept.approve()
    kept.now = START + DAY - timedelta(seconds=1)
    assert kept.valid()
    kept.now = START + DAY
    assert not kept.valid()
    kept.approve()
    assert kept.valid()


def test_a_clock_that_jumps_forward_ends_it(kept: Kept) -> None:
    """However it came to be so late: an approval that has ended by the clock is none."""
    kept.approve()
    kept.now = START + timedelta(days=400)
    assert not kept.valid()


def test_a_clock_that_is_set_back_extends_nothing(kept: Kept) -> None:
    """What the history has seen the end of stays ended, and a moment before the approval is no time of it."""
    kept.approve()
    kept.now = START + DAY
    kept.note()
    kept.now = START + timedelta(hours=1)
    assert not kept.valid()
    kept.approve()
    kept.now -= timedelta(seconds=30)
    assert kept.valid()
    kept.now -= timedelta(hours=2)
    assert not kept.valid()


def test_lines_before_an_approval_do_not_end_it(kept: Kept) -> None:
    """After a clock that was wrong for a while, approvals work again."""
    kept.now = START + timedelta(days=400)
    kept.note()
    kept.now = START
    kept.approve()
    assert kept.valid()


def test_an_end_unused_is_noted_once(kept: Kept) -> None:
    """The history tells that an approval came too late, once, and never of one that holds."""
    kept.approve()
    kept.now = START + DAY

    def note() -> bool:
        with kept.db.transaction() as tx:
            return kept.approvals.note_expired(tx, SESSION)

    assert [note(), note()] == [True, False]
    assert [line.event for line in kept.history.entries("hub", "r1")] == ["approved", EXPIRED]
    kept.approve()
    assert not note()


def test_persons_are_counted_once(kept: Kept) -> None:
    """Whoever approves again is still one person."""
    for person in (Person("vera"), Person("vera"), Person("vera"), Person("otto")):
        kept.approve(person=person)
        kept.now += timedelta(minutes=1)
    assert [each.by for each in kept.approvals.held(SESSION, None)] == ["vera", "otto"]
    kept.now = START + DAY + timedelta(minutes=2, seconds=30)
    assert [each.by for each in kept.approvals.held(SESSION, None)] == ["otto"]
    with kept.db.transaction() as tx:
        assert kept.approvals.note_expired(tx, SESSION)
    with kept.db.transaction() as tx:
        assert not kept.approvals.note_expired(tx, SESSION)


ISSUER = "https://login.north.example"
DORA = "dora@north.example"


def provider(*approvers: str, issuer: str = ISSUER) -> OidcSection:
    """Return the table `[console.oidc]`."""
    return OidcSection(
        issuer=issuer, client_id="tessera", client_secret_file=Path("secret"), approvers=approvers
    )


def signed_in(entry: str, subject: str) -> Person:
    """Return a person of the provider."""
    return Person(entry, f"{ISSUER} {subject}")


@pytest.mark.parametrize(
    ("persons", "n"),
    [
        # Two accounts with one address, one account by two entries, and both.
        ([signed_in(DORA, "17"), signed_in(DORA, "18")], 1),
        ([signed_in(DORA, "17"), signed_in("17", "17")], 1),
        ([signed_in("17", "17"), signed_in("18", "18"), signed_in(DORA, "17"), signed_in(DORA, "18")], 1),
        ([signed_in(DORA, "17"), signed_in("18", "18")], 2),
        # One human being may be both a user and a subject.
        ([signed_in(DORA, "17"), Person("dora")], 1),
        ([signed_in("17", "17"), Person("17"), Person("vera")], 2),
        ([signed_in("17", "17"), signed_in("18", "18"), Person("vera")], 2),
    ],
)
def test_one_person_under_several_names_counts_once(kept: Kept, persons: list[Person], n: int) -> None:
    """Approvals that share a subject or an entry are of one person; users and subjects are not added up."""
    for person in persons:
        kept.approve(person=person)
    assert len(kept.approvals.held(SESSION, provider(DORA, "17", "18"))) == n


def test_only_present_approvers_of_the_provider_count(kept: Kept) -> None:
    """Whoever is removed from the configuration, or whose provider is, has approved nothing."""
    kept.approve(person=signed_in(DORA, "17"))
    kept.approve(person=signed_in("s=18", "s=18"))
    kept.approve(person=Person("vera"))

    def counted(section: OidcSection | None) -> list[str]:
        return [each.by for each in kept.approvals.held(SESSION, section)]

    assert counted(provider("Dora@North.example", "s=18")) == [DORA, "s=18"]
    assert counted(provider("s=18")) == ["s=18"]
    assert counted(provider(DORA, "s=18", issuer="https://other.example")) == ["vera"]
    assert counted(None) == ["vera"]


def test_an_approval_of_version_0_1_is_of_the_user_who_logged_in(kept: Kept) -> None:
    """Who approved as root before an upgrade and by name after it is one person."""
    with kept.db.transaction() as tx:
        kept.history.record(
            tx, aggregator="hub", release="r1", event="approved", plan_digest=SESSION.plan_digest,
            details={
                "by": "root", "login_user": "vera", "sudo_user_stated": "vera",
                "until": (START + DAY).isoformat(), "source": "",
            },
        )  # fmt: skip
    kept.approve(person=Person("vera"))
    assert [each.by for each in kept.approvals.held(SESSION, None)] == ["vera"]
