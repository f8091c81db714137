"""`owner-node ledger budget` and `recover`: what they refuse, and what they say."""

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from common.cli import console
from common.errors import IntegrityError
from owner_node.cli import application
from owner_node.release.records import Records
from tests.fakes.ledgers import tamper
from tests.unit.owner_node.cli.test_state_commands import OWNER


def _now() -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An owner's folder whose budget "people" has reserved 0.5 of 2.5."""
    (tmp_path / "owner.toml").write_text(OWNER)
    monkeypatch.chdir(tmp_path)
    records = Records.open(tmp_path / "state", _now)
    with records.db as db, db.transaction() as tx:
        records.ledger.reserve(
            tx, budget="people", total_epsilon=Decimal("2.5"), charge=Decimal("0.5"), aggregator="hub",
            release="r1", plan_digest="d",
        )  # fmt: skip
        records.ledger.losses.sign(tx)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    """Run a command with `--json`."""
    code = console.run(application(), "owner-node", [*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_change_is_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The change is in ledger and history with its reason; the smaller of it and owner.toml holds."""
    change = ["ledger", "budget", "people", "--total", "4", "--reason", " more consents "]
    assert run(capsys, *change)[0] == 2
    code, document = run(capsys, *change, "--yes")
    assert (code, document["before"], document["total"]) == (0, "2.5", "4")
    code, document = run(capsys, "ledger", "--budget", "people")
    lines = document["entries"]
    assert isinstance(lines, list)
    assert [(line["kind"], line["note"]) for line in lines] == [
        ("reserve", {"total": "2.5"}),
        ("budget", {"total": "4", "reason": "more consents"}),
    ]
    balances = document["balances"]
    assert isinstance(balances, list)
    assert balances[0]["total"] == "2.5"
    assert "more consents" in str(run(capsys, "history")[1])
    assert console.run(application(), "owner-node", ["ledger"]) == 0
    assert "reason more consents" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonesuch", "--total", "4", "--reason", "x"],
        ["people", "--total", "-4", "--reason", "x"],
        ["people", "--total", "many", "--reason", "x"],
        ["people", "--total", "4", "--reason", "  "],
        ["people", "--total", "4", "--reason", "x" * 501],
    ],
)
def test_changes_that_make_no_sense(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """A budget nobody knows, a total that is none, and no reason are usage errors, and change nothing."""
    before = (folder / "state" / "owner.db").read_bytes()
    assert run(capsys, "ledger", "budget", *arguments, "--yes")[0] == 2
    assert (folder / "state" / "owner.db").read_bytes() == before


def test_nothing_changes_while_work_is_halted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A halted ledger takes no change of a total, and every listing says that and why."""
    records = Records.open(folder / "state", _now)
    with records.db as db, db.transaction() as tx:
        records.ledger.losses.stop(tx, IntegrityError("entries were lost", "recover it"))
    change = ["ledger", "budget", "people", "--total", "4", "--reason", "x", "--yes"]
    assert run(capsys, *change)[0] == 7
    for command in ("ledger", "status"):
        assert run(capsys, command)[1]["halted"] == "entries were lost"
        console.run(application(), "owner-node", [command])
        told = capsys.readouterr().err
        assert "no work is done: entries were lost; " in told
        assert told.count("no work is done") == 1


def test_a_cut_tail_is_verified_away_from_the_daemon(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--verify` names the entry that is missing at the end, by the newest head that was signed."""
    assert run(capsys, "ledger", "--verify")[0] == 0
    records = Records.open(folder / "state", _now)
    with records.db as db:
        tamper(db, "DELETE FROM ledger WHERE sequence = 1")
    code, document = run(capsys, "ledger", "--verify")
    error = document["error"]
    assert isinstance(error, dict)
    assert (code, error["details"]["entry"]) == (7, 1)


def test_options_stand_behind_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option of the listing before another command would be overlooked, so it is refused."""
    code = console.run(application(), "owner-node", ["ledger", "--verify", "recover", "--yes"])
    assert code == 2
    assert "stand before a command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("enrolled", "says"), [(True, "the ledger is lost"), (False, "totals of owner.toml")]
)
def test_a_ledger_that_is_not_there_is_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str], enrolled: bool, says: str
) -> None:
    """Full balances after a loss are no balances: text and `--json` say so."""
    shutil.rmtree(folder / "state")
    if enrolled:
        (folder / "north.pem").write_text("a certificate")
    code, document = run(capsys, "ledger")
    assert code == 0
    assert says in str(document["warnings"])
    assert console.run(application(), "owner-node", ["ledger"]) == 0
    assert says in " ".join(capsys.readouterr().err.split())


def test_amounts_are_shown_as_people_write_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sums of rounded shares are short numbers on the terminal, and exact in `--json`."""
    records = Records.open(folder / "state", _now)
    with records.db as db, db.transaction() as tx:
        records.ledger.reserve(
            tx, budget="people", total_epsilon=Decimal("2.5"), charge=Decimal("0.999999999996"),
            aggregator="hub", release="r2", plan_digest="e",
        )  # fmt: skip
    assert run(capsys, "ledger")[1]["balances"][0]["remaining"] == "1.000000000004"  # type: ignore[index]
    assert console.run(application(), "owner-node", ["ledger"]) == 0
    shown = capsys.readouterr().out
    assert "99999" not in shown
    assert "00000" not in shown


@pytest.mark.parametrize(
    "charge", ["people=0,0.1", "people=1,1", "people=1,x", "people=1,-0.1", "people=,0.1"]
)
def test_a_delta_is_stated_beside_its_epsilon(
    folder: Path, capsys: pytest.CaptureFixture[str], charge: str
) -> None:
    """Neither of them is stated alone, and a wrong one changes nothing."""
    before = (folder / "state" / "owner.db").read_bytes()
    code, document = run(capsys, "ledger", "recover", "--charge", charge, "--yes")
    assert (code, f"--charge {charge} is no charge to a budget" in str(document)) == (2, True)
    assert "BUDGET=EPSILON,DELTA" in str(document)
    assert (folder / "state" / "owner.db").read_bytes() == before
