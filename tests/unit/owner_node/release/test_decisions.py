"""What a person can decide, and about which release."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.errors import ConflictError, TesseraError, UsageError
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions, this_person
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.session import SessionEvent, SessionState
from owner_node.state.sessions import Sessions

VERA = Person("vera")
DAY = timedelta(hours=24)
DIGEST = "ab" * 32


def now() -> datetime:
    """Return one moment."""
    return datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A database in which two aggregators ask about a release r1, and one about another."""
    with OwnerDatabase(tmp_path / "state") as database:
        sessions, history = Sessions(database, now), History(database, now)
        for aggregator, release in (("hub", "r1"), ("other", "r1"), ("hub", "r2"), ("hub", "new")):
            with database.transaction() as tx:
                session = sessions.open(tx, aggregator, release, "patients")
                if release == "new":
                    continue
                session = sessions.update(
                    tx, session, plan_digest=DIGEST, purpose="study", source_digest="cd" * 32
                )
                sessions.advance(tx, session, SessionEvent.WAIT)
                history.record(
                    tx, aggregator=aggregator, release=release, event="awaiting-approval", decision="ask",
                    rule="policy.approval", epsilon="0.5", plan_digest=DIGEST,
                )  # fmt: skip
        yield database


def test_a_release_that_two_aggregators_ask_about(db: OwnerDatabase) -> None:
    """Which one is meant has to be said, and then only that one is decided about."""
    decisions = Decisions(db, now)
    assert len(decisions.waiting()) == 3
    with pytest.raises(UsageError) as caught:
        decisions.approve("r1", "", VERA, DAY)
    assert caught.value.details["releases"] == ["hub/r1", "other/r1"]
    decisions.refuse("other/r1", "", VERA, "not ours")
    assert [f"{each.aggregator}/{each.release}" for each in decisions.waiting()] == ["hub/r1", "hub/r2"]
    with pytest.raises(UsageError, match="no release"):
        decisions.find("nobody/r1")


@pytest.mark.parametrize(
    ("digest", "refused"),
    [
        ("", None),
        (DIGEST, None),
        ("ABABABABABAB", None),
        ("abab", (UsageError, "--digest abab is too short to name one plan")),
        ("cd" * 6, (ConflictError, "waits with another plan")),
    ],
)
def test_the_digest_of_the_plan_that_was_seen(
    db: OwnerDatabase, digest: str, refused: tuple[type[TesseraError], str] | None
) -> None:
    """A digest names the plan from twelve digits on; a shorter one or another plan's approves nothing."""
    decisions = Decisions(db, now)
    if refused is None:
        assert decisions.approve("r2", digest, VERA, DAY)[1].plan_digest == DIGEST
    else:
        with pytest.raises(refused[0], match=refused[1]):
            decisions.approve("r2", digest, VERA, DAY)
        assert decisions.approvals.newest(decisions.find("r2")) is None


def test_a_refusal_after_an_approval(db: OwnerDatabase) -> None:
    """Who has agreed can still refuse until the plan is accepted; nobody can agree after a refusal."""
    decisions = Decisions(db, now)
    decisions.approve("r2", "", VERA, DAY)
    session = decisions.refuse("r2", "", VERA, "on second thoughts")
    assert (session.state, session.refusal) == (SessionState.REFUSED, "person")
    lines = History(db, now).entries("hub", "r2")
    assert [(each.event, each.epsilon) for each in lines[1:]] == [("approved", "0.5"), ("refused", "0.5")]
    for decide in (
        lambda: decisions.approve("r2", "", VERA, DAY),
        lambda: decisions.refuse("r2", "", VERA, "again"),
    ):
        with pytest.raises(UsageError, match="does not wait for a decision: it is refused"):
            decide()


def test_nothing_to_decide_yet(db: OwnerDatabase) -> None:
    """An invitation without a plan is nothing to agree to."""
    with pytest.raises(UsageError, match="has not been judged yet"):
        Decisions(db, now).approve("new", "", VERA, DAY)


@pytest.mark.parametrize(
    ("login", "name"), [("4000001", "user 4000001"), ("4294967295", "root"), (None, "root"), ("0", "root")]
)
def test_who_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, login: str | None, name: str) -> None:
    """Who became root is reported by the kernel, where it knows, whatever the environment says."""
    if login is not None:
        (tmp_path / "loginuid").write_text(login)
    monkeypatch.setattr("owner_node.release.decisions._LOGIN_UID", tmp_path / "loginuid")
    monkeypatch.setattr("owner_node.release.decisions.os.getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "chief")
    assert this_person() == Person(name)
    assert this_person().to_document() == {"by": name}


def test_data_that_nobody_could_read_are_not_approved(db: OwnerDatabase) -> None:
    """An approval is for data whose effect was shown; where they cannot be read, nothing is approved."""
    sessions = Sessions(db, now)
    with db.transaction() as tx:
        session = sessions.update(
            tx, sessions.open(tx, "hub", "unread", "patients"), plan_digest=DIGEST, purpose="study"
        )
        sessions.advance(tx, session, SessionEvent.WAIT)
    decisions = Decisions(db, now)
    for source in ("", None):
        with pytest.raises(UsageError, match="could not be read here"):
            decisions.approve("unread", "", VERA, DAY, source)
    assert decisions.approvals.newest(decisions.find("unread")) is None
    decisions.refuse("unread", "", VERA, "nobody saw it")
