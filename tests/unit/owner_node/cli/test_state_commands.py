"""`owner-node status|ledger|history`, run as their user runs them, with and without the daemon."""

import asyncio
import io
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from common.cli import console
from common.words.numbers import moment_text
from deploy.development_ca import DevelopmentCa
from owner_node import config
from owner_node.cli import application
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.release.decisions import Decisions
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.presence import DaemonPresence, NotificationPipe, daemon_lock
from owner_node.state.session import SessionEvent
from owner_node.state.sessions import Sessions
from tests.other_user import closed

OWNER = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"

[[aggregator]]
name = "hub"
address = "localhost:8443"

[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"

[[dataset]]
name = "patients"
source = "patients.csv"
budget = "people"
total_epsilon = "2.5"

[dataset.attributes.age]
type = "integer"
min = 0
max = 120

[[dataset]]
name = "visits"
source = "visits.csv"
total_epsilon = "1"

[dataset.attributes.ward]
type = "category"
categories = ["A", "B"]
"""


def _now() -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An owner's folder with a configuration and no state yet."""
    (tmp_path / "owner.toml").write_text(OWNER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def used(folder: Path) -> Path:
    """The same after a release that was spent and one that is reserved."""
    with OwnerDatabase(folder / "state") as db:
        ledger, sessions, history = Ledger(db, _now), Sessions(db, _now), History(db, _now)
        for release in ("first", "second"):
            with db.transaction() as tx:
                session = sessions.open(tx, "hub", release, "patients")
                history.record(tx, aggregator="hub", release=release, event="invited")
                ledger.reserve(
                    tx, budget="people", total_epsilon=Decimal("2.5"), charge=Decimal("0.5"),
                    aggregator="hub", release=release, plan_digest="d",
                )  # fmt: skip
                session = sessions.advance(tx, session, "accept", plan_digest="d", purpose="study")
                if release == "first":
                    session = sessions.advance(tx, session, "link")
                    ledger.spend(tx, "hub", release, "d")
                    sessions.advance(tx, session, "spend")
    return folder


def _run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = console.run(application(), "owner-node", arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def _json(capsys, *arguments: str) -> tuple[int, dict]:
    code, out, err = _run(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


@pytest.mark.parametrize("command", [["ledger", "--verify"], ["history"], ["status"]])
def test_nothing_yet(folder: Path, capsys, command: list[str]) -> None:
    """Before the first run every command works, and none makes a file."""
    assert _run(capsys, *command)[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["owner.toml"]


def test_ledger(used: Path, capsys) -> None:
    """Every entry and every balance are told, decimals as exact text."""
    code, document = _json(capsys, "ledger", "--verify")
    assert (code, document["verified"]) == (0, True)
    assert [(e["kind"], e["release"], e["charge"]) for e in document["entries"]] == [
        ("reserve", "first", "0.5"), ("spend", "first", "0.5"), ("reserve", "second", "0.5"),
    ]  # fmt: skip
    assert document["balances"] == [
        {
            "budget": "people",
            "total": "2.5",
            "reserved": "0.5",
            "spent": "0.5",
            "remaining": "1.5",
            "rank_loss": "0",
            "without_rank_loss": 2,
            "delta": "0",
        },
        {
            "budget": "visits",
            "total": "1",
            "reserved": "0",
            "spent": "0",
            "remaining": "1",
            "rank_loss": "0",
            "without_rank_loss": 0,
            "delta": "0",
        },
    ]
    assert document["head"]["sequence"] == 3
    code, out, _ = _run(capsys, "ledger", "--verify")
    assert code == 0
    assert "reserve" in out
    assert document["head"]["hash"] in out


def test_ledger_of_one_budget(used: Path, capsys) -> None:
    """A budget is found by its own name or its data set's; an unknown one is told with those that exist."""
    for choice in (["--dataset", "patients"], ["--budget", "people"]):
        code, document = _json(capsys, "ledger", *choice)
        assert (code, len(document["entries"]), len(document["balances"])) == (0, 3, 1)
    assert _json(capsys, "ledger", "--budget", "visits")[1]["entries"] == []
    code, document = _json(capsys, "ledger", "--budget", "patients")
    assert (code, document["error"]["details"]["known"]) == (2, ["people", "visits"])
    assert _json(capsys, "ledger", "--budget", "people", "--dataset", "patients")[0] == 2


@pytest.mark.parametrize("answer", ["", "n\n", "no\n"])
def test_a_person_who_does_not_agree_changes_nothing(used: Path, capsys, monkeypatch, answer: str) -> None:
    """Everything but yes ends a command that asks with exit code 4, and the ledger stays as it is."""
    before = _json(capsys, "ledger")
    monkeypatch.setattr("common.cli.console.can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    code, out, err = _run(capsys, "ledger", "budget", "people", "--total", "4", "--reason", "r")
    assert (code, out) == (4, "")
    assert err.endswith("nothing was changed\n")
    assert _json(capsys, "ledger") == before


def test_budget_that_is_not_configured_any_more(used: Path, capsys) -> None:
    """What was spent of a removed data set stays visible."""
    text = OWNER.replace('budget = "people"', 'budget = "persons"')
    (used / "owner.toml").write_text(text)
    document = _json(capsys, "ledger")[1]
    assert document["balances"][-1] == {
        "budget": "people", "total": None, "reserved": "0.5", "spent": "0.5", "remaining": None,
        "rank_loss": "0", "without_rank_loss": 2, "delta": "0",
    }  # fmt: skip


def _tamper(folder: Path, *statements: str) -> None:
    raw = sqlite3.connect(folder / "state" / "owner.db")
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()


def test_verify_names_the_first_broken_entry(used: Path, capsys) -> None:
    """A changed entry ends in exit 7 and is named."""
    _tamper(used, "DROP TRIGGER ledger_no_update", "UPDATE ledger SET charge = '0.4' WHERE sequence = 2")
    code, document = _json(capsys, "ledger", "--verify")
    assert (code, document["error"]["code"]) == (7, "integrity")
    assert document["error"]["details"] == {"chain": "ledger", "entry": 2}


def test_verify_checks_the_history_too(used: Path, capsys) -> None:
    """The audit log is checked with the ledger."""
    _tamper(used, "DROP TRIGGER history_no_update", "UPDATE history SET event = 'x' WHERE sequence = 1")
    code, document = _json(capsys, "ledger", "--verify")
    assert (code, document["error"]["details"]) == (7, {"chain": "history", "entry": 1})


def test_verify_finds_a_cut_tail(used: Path, capsys) -> None:
    """A ledger whose newest entries were cut off contradicts its own sessions."""
    _tamper(used, "DROP TRIGGER ledger_no_delete", "DELETE FROM ledger WHERE sequence >= 2")
    code, document = _json(capsys, "ledger", "--verify")
    assert (code, document["error"]["details"]["entry"]) == (7, 2)


def test_history(used: Path, capsys) -> None:
    """Every request is told, or those of one release."""
    code, document = _json(capsys, "history")
    assert code == 0
    assert [(e["event"], e["release"]) for e in document["history"]] == [
        ("invited", "first"), ("invited", "second"),
    ]  # fmt: skip
    assert len(_json(capsys, "history", "--release", "first")[1]["history"]) == 1
    assert "invited" in _run(capsys, "history")[1]


def test_history_shows_amounts_as_people_write_them(used: Path, capsys) -> None:
    """A third of 1 has twelve decimal places for programs, and four for people."""
    exact = "0.333333333332"
    with OwnerDatabase(used / "state") as db, db.transaction() as tx:
        History(db, _now).record(
            tx, aggregator="hub", release="third", event="accepted", decision="accept", epsilon=exact,
            details={"charge": exact, "rank_loss": "133.333333333334", "budget": "people"},
        )  # fmt: skip
    (line,) = _json(capsys, "history", "--release", "third")[1]["history"]
    assert (line["epsilon"], line["details"]["charge"]) == (exact, exact)
    shown = " ".join(_run(capsys, "history", "--release", "third")[1].split())
    assert "0.3334" in shown
    assert "budget people, charge 0.3334, rank_loss 133.3334" in shown
    assert exact not in shown


def test_status_without_the_daemon(used: Path, capsys) -> None:
    """Without a daemon the state is told all the same; --check ends in exit 6."""
    code, document = _json(capsys, "status")
    assert (code, document["running"], document["aggregators"][0]["connected"]) == (0, False, False)
    assert [(s["release"], s["state"]) for s in document["sessions"]] == [
        ("first", "spent"), ("second", "reserved"),
    ]  # fmt: skip
    assert document["balances"][0]["remaining"] == "1.5"
    code, document = _json(capsys, "status", "--check")
    assert (code, document["error"]["message"]) == (6, "the daemon is not running")


def test_status_tells_the_linkage_key(used: Path, capsys) -> None:
    """Which linkage key is in place is seen without showing it: by generation and check value."""
    assert _json(capsys, "status")[1]["linkage_key"]["generation"] is None
    assert "linkage key: none" in _run(capsys, "status")[1]
    state_dir = used / "state"
    linkage_key.new(state_dir)
    key = linkage_key.new(state_dir, replace=True)
    told = _json(capsys, "status")[1]["linkage_key"]
    assert (told["generation"], told["check"]) == (2, key.check)
    shown = _run(capsys, "status")[1]
    assert f"linkage key: generation 2, check value {key.check}" in shown
    assert key.key.hex() not in shown


def test_status_tells_when_the_certificate_ends(used: Path, capsys) -> None:
    """A certificate that ends soon, or is not there, is told before the daemon cannot connect any more."""
    code, document = _json(capsys, "status")
    assert (code, document["certificate"]["expires"]) == (0, None)
    assert "there is no certificate" in document["certificate"]["warning"]
    path = used / "north.pem"
    ends = datetime.now(UTC) + timedelta(days=9, hours=1)
    begins = ends - timedelta(days=90)
    path.write_bytes(DevelopmentCa("d").owner("a", not_before=begins, not_after=ends).certificate_pem)
    code, document = _json(capsys, "status")
    assert "ends in 9 days" in document["certificate"]["warning"]
    assert "warning: the certificate of owner" in _run(capsys, "status")[2]


@contextmanager
def event_loop_of_a_daemon(state_dir: Path) -> Iterator[None]:
    """Let an event loop in a thread respond to checks."""
    loop = asyncio.new_event_loop()

    async def listen() -> NotificationPipe:
        return NotificationPipe(state_dir, lambda: None)

    pipe = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        pipe.close()
        loop.close()


def test_status_of_a_daemon_that_does_not_respond(used: Path, capsys) -> None:
    """What it wrote while it was well is shown, and passes for nothing."""
    with OwnerDatabase(used / "state") as db, daemon_lock(used / "state"):
        presence = DaemonPresence(db, _now)
        presence.note_started(17, "1.0")
        presence.note_connected("hub")
        code, document = _json(capsys, "status")
        assert (code, document["running"], document["responds"]) == (0, True, False)
        assert "(process 17, 1.0), but does not respond" in _run(capsys, "status")[1]
        for option in ("--check", "--alive"):
            code, _, err = _run(capsys, "status", option)
            assert (code, "error: the daemon does not respond" in err) == (6, True)


def test_status_of_a_running_daemon(used: Path, capsys) -> None:
    """--check is content only when the daemon responds and is connected, --alive without connections, too."""
    assert _run(capsys, "status", "--alive")[0] == 6
    with (
        OwnerDatabase(used / "state") as db,
        daemon_lock(used / "state"),
        event_loop_of_a_daemon(used / "state"),
    ):
        presence = DaemonPresence(db, _now)
        presence.note_started(17, "1.0")
        presence.note_disconnected("hub", "the aggregator's certificate has expired")
        code, out, err = _run(capsys, "status", "--check")
        assert (code, "certificate has expired" in out) == (6, True)
        assert _run(capsys, "status", "--alive") == (0, "", "")
        assert _json(capsys, "status", "--alive") == (0, {"responds": True, "running": True})
        reason = "the aggregator's certificate has expired"
        assert f"error: not connected to hub: {reason}" in err
        assert err.startswith(f"warning: not connected to hub since {moment_text(_now())}: {reason}")
        presence.note_connected("hub")
        code, document = _json(capsys, "status", "--check")
        assert (code, document["pid"], document["aggregators"][0]["connected"]) == (0, 17, True)
        assert document["aggregators"][0]["since"] == _now().isoformat()
    assert _run(capsys, "status", "--check")[0] == 6


def test_status_says_how_far_a_long_step_is(used: Path, capsys) -> None:
    """People see what the daemon does and what is left of it, and nothing of it once it has stopped."""
    with OwnerDatabase(used / "state") as db, daemon_lock(used / "state"):
        with db.transaction() as tx:
            Sessions(db, _now).open(tx, "hub", "r9", "patients")
        presence = DaemonPresence(db, _now)
        presence.note_started(17, "1.0")
        progress = presence.progress("hub", "r9")
        seconds = iter((0.0, 600.0))
        progress._elapsed = lambda: next(seconds)
        progress.begin("masking", 10)
        progress.done = 4
        presence.write_progress()
        (session,) = [each for each in _json(capsys, "status")[1]["sessions"] if each["release"] == "r9"]
        assert session["progress"] == "masking, 40 %, about 15 minutes left"
        assert "r9: masking, 40 %, about 15 minutes left" in _run(capsys, "status")[1]
        progress._elapsed = lambda: 0.0
        presence.write_progress()
        assert "masking" not in _run(capsys, "status")[1]
        presence.note_wait("hub", "r9", "scratch: No space left on device")
        presence.write_progress()
        assert "r9: waits: scratch: No space left on device" in _run(capsys, "status")[1]
        presence.note_wait("hub", "r9")
        presence.write_progress()
        assert "waits" not in _run(capsys, "status")[1]
        presence.note_stopped()
    assert not (used / "state" / "daemon.progress").exists()


def test_a_daemon_with_a_former_owner_toml(used: Path, capsys) -> None:
    """Whoever changes owner.toml is told that the daemon does not know it, wherever they look."""
    with OwnerDatabase(used / "state") as db, daemon_lock(used / "state"):
        presence = DaemonPresence(db, _now)
        presence.note_started(17, "1.0", config.load(used / "owner.toml").digest)
        assert _json(capsys, "status")[1]["outdated"] is None
        assert "another owner.toml" not in "".join(_run(capsys, "requests")[1:])
        path = used / "owner.toml"
        path.write_text(path.read_text() + "\n# changed\n")
        assert "restart it" in _json(capsys, "status")[1]["outdated"]
        for command in ("status", "requests", "check", "doctor"):
            assert "the daemon runs with another owner.toml" in "".join(_run(capsys, command)[1:]), command
    assert _json(capsys, "status")[1]["outdated"] is None


def test_requests_lists_a_plan_that_waits(folder: Path, capsys) -> None:
    """A person reads the charge rounded up, a program gets it exactly; a plan not judged yet has none."""
    with OwnerDatabase(folder / "state") as db, db.transaction() as tx:
        sessions = Sessions(db, _now)
        session = sessions.open(tx, "hub", "r1", "patients")
        sessions.open(tx, "hub", "r2", "patients")
        session = sessions.update(tx, session, plan_digest="ab" * 32, purpose="study")
        sessions.advance(tx, session, SessionEvent.WAIT)
        History(db, _now).record(
            tx, aggregator="hub", release="r1", event="awaiting-approval", decision="ask",
            details={"charge": Decimal("0.123456789")},
        )  # fmt: skip
    (listed,) = _json(capsys, "requests")[1]["requests"]
    assert (listed["release"], listed["charge"]) == ("r1", "0.123456789")
    for options in ([], ["--all"]):
        code, out, _ = _run(capsys, "requests", *options)
        assert (code, "0.1235" in out, "r2" in out) == (0, True, bool(options))


def test_as_a_user_who_may_not_enter_the_state_folder(monkeypatch, capsys) -> None:
    """The wrong user is told what to do; `doctor` says it, too, and goes on."""
    commands = ("status", "ledger", "history", "requests", "check")
    # Others may enter the folders that pytest makes only as their user.
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "owner.toml").write_text(OWNER)
        (folder / "patients.csv").write_text("age\n" + "50\n" * 10)
        (folder / "visits.csv").write_text("ward\nA\n")
        monkeypatch.chdir(folder)
        with OwnerDatabase(folder / "state"):
            pass
        for command in (*commands, "doctor"):
            _run(capsys, command)  # imports what another user may not be able to read
        with closed(folder / "state"):
            for command in commands:
                code, _, err = _run(capsys, command)
                assert (code, "sudo -u" in err) == (2, True), err
                assert f"error: {folder}/state/owner.db cannot be used: Permission denied" in err
            code, out, err = _run(capsys, "doctor")
    assert (code, err) == (2, "")
    assert f"FAIL  ledger: {folder}/state/owner.db cannot be used" in out
    assert "FAIL  daemon: " in out


def test_approve_asks_unless_a_digest_is_named(used: Path, capsys) -> None:
    """Nobody agrees unseen: without a digest and a terminal approving takes --yes."""
    with OwnerDatabase(used / "state") as db:
        sessions = Sessions(db, _now)
        with db.transaction() as tx:
            session = sessions.open(tx, "hub", "r9", "patients")
            session = sessions.update(
                tx, session, plan_digest="ab" * 32, purpose="study", source_digest="cd" * 32
            )
            sessions.advance(tx, session, SessionEvent.WAIT)
        code, _, err = _run(capsys, "approve", "r9")
        assert (code, "no terminal" in err) == (2, True)
        assert Decisions(db, _now).approvals.newest(Decisions(db, _now).find("r9")) is None
        assert _run(capsys, "approve", "r9", "--digest", "cd" * 6)[0] == 3
        assert _run(capsys, "approve", "r9", "--digest", "ab" * 6)[0] == 0
        assert _run(capsys, "approve", "r9", "--yes")[0] == 0


def test_attempts_are_shown_wherever_one_looks(used: Path, capsys) -> None:
    """What is left of linkings without a charge, and when, is in every overview."""
    with OwnerDatabase(used / "state") as db:
        sessions = Sessions(db, lambda: datetime.now(UTC))
        for release in "abcdefghij":
            with db.transaction() as tx:
                session = sessions.begin_answer(tx, sessions.open(tx, "hub", release, "patients"))
                sessions.advance(tx, session, SessionEvent.REFUSE)
    (used / "patients.csv").write_text("age\n" + "5\n" * 20)
    (used / "visits.csv").write_text("ward\n" + "A\n" * 20)
    for command in ("status", "check", "doctor"):
        shown = "".join(_run(capsys, command)[1:])
        assert "attempts 10 of 10, next free on 20" in shown, command
        assert "attempts 0 of 10, next free now (aggregator 'hub', budget 'visits')" in shown, command
    (people, _) = _json(capsys, "status")[1]["attempts"]
    assert (people["used"], people["limit"], people["blocked"]) == (10, 10, True)


def test_return_of_a_reservation(used: Path, capsys) -> None:
    """What an aggregator left behind comes back once, after its deadline; what is spent does not."""
    back = ("ledger", "return", "second", "--reason", "it vanished", "--yes")
    code, document = _json(capsys, *back)
    assert (code, document["state"]) == (0, "refused")
    assert _json(capsys, "ledger")[1]["balances"][0]["reserved"] == "0"
    for release in ("second", "first", "none"):
        assert _json(capsys, "ledger", "return", release, "--reason", "x", "--yes")[0] == 2
    assert _json(capsys, "ledger", "--verify")[1]["verified"] is True


def test_a_total_that_the_ledger_did_not_record(used: Path, capsys) -> None:
    """A raised total is an error wherever one looks, with the command that records it."""
    (used / "patients.csv").write_text("age\n" + "5\n" * 20)
    (used / "visits.csv").write_text("ward\n" + "A\n" * 20)
    (used / "owner.toml").write_text(OWNER.replace('"2.5"', '"4"'))
    for command in ("status", "check", "doctor"):
        code, out, err = _run(capsys, command)
        assert code == 2, command
        assert "owner-node ledger budget 'people' --total 4 --reason TEXT" in out + err, command
    assert _json(capsys, "status")[1]["error"]["details"]["owner"] == "north"
    assert _run(capsys, "ledger", "budget", "people", "--total", "4", "--reason", "r", "--yes")[0] == 0
    assert _run(capsys, "status")[0] == 0
    assert _run(capsys, "check")[0] == 0


def test_doctor_finds_settings_that_cannot_work(folder: Path, capsys) -> None:
    """Scratch on a disk that is not there, an audit file without a folder, a secret that is open."""
    secret = folder / "secret"
    secret.write_text("s\n")
    secret.chmod(0o644)
    (folder / "owner.toml").write_text(
        OWNER + '[engine]\nscratch = "gone/scratch"\n[audit]\nfile = "gone/audit"\n'
        '[notify.webhook]\nurl = "https://x.example/"\nsecret_file = "secret"\n'
    )
    code, document = _json(capsys, "doctor")
    found = {each["check"]: each["outcome"] for each in document["checks"]}
    assert code == 2
    told = [found[check] for check in ("scratch", "engine", "audit", "webhook")]
    assert told == ["warn", "skip", "fail", "fail"]
    assert not (folder / "gone").exists()
