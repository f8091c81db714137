"""Records that loading leaves out are counted by column and reason wherever their owner looks."""

import json
from pathlib import Path

import pytest

from common.cli import console
from common.clock import utc_now
from owner_node.cli import application
from owner_node.loading.advice import left_out_lines
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import AuditFeed, History
from tests.fakes.owner_folder import OWNER

PERSON = '\n[dataset.person]\nby = "id"\n[dataset.person.columns]\nage = { rule = "maximum", of = "age" }\n'
CASES = {
    "empty": ("secret-1,,5", "", ["dropped: 1 record with a missing value", "  column 'age': 1 empty"]),
    "code": ("secret-1,99,5", "", ["dropped: 1 record with a missing value", "  column 'age': 1 na_values"]),
    "both": (
        "secret-1,99,5\nsecret-2,,5\nsecret-3,,",
        "",
        ["dropped: 3 records with a missing value", "  column 'age': 1 na_values, 2 empty"],
    ),
    "identifier": (",4,5", "", ["dropped: 1 record with a missing value", "  column 'id': 1 empty"]),
    "opted out": (
        "secret-1,4,5",
        'opt_out = "opted.csv"',
        ["opted out: 1 of 2 listed persons, in no record"],
    ),
    "event": (",4,5", PERSON, ["left out: 1 event without an identifier"]),
    "nothing": ("secret-1,4,5", "", []),
}


@pytest.fixture(params=CASES)
def expected(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An owner's folder whose data have a case, and the lines that say so."""
    monkeypatch.chdir(tmp_path)
    record, more, said = CASES[request.param]
    keys, person = ("", more) if more == PERSON else (more, "")
    head = OWNER[: OWNER.index("[dataset.attributes.income]")].format(policy="")
    head = head.replace('identifier = "id"', f'identifier = "id"\nmissing = "drop"\n{keys}')
    Path("owner.toml").write_text(f"{head}na_values = [99]\n{person}")
    lines = [f"p-{n},{n % 90},7" for n in range(60)]
    Path("patients.csv").write_text("\n".join(["id,age,other", *lines, record, ""]))
    Path("opted.csv").write_text("id\nsecret-1\nsecret-9\n")
    return said


BEGINS = ("dropped:", "opted out:", "left out:")
DATA = ["--dataset", "patients", "--yes", "--id"]
COMMANDS = {
    "q": ["query", "median", "--attribute", "age", "--epsilon", "0.1", *DATA],
    "m": ["mask", "--epsilon", "1", "--anyway", "--out", "m.csv", *DATA],
    "s": ["mask", "--product", "synthetic", "--epsilon", "1", "--anyway", "--out", "s.csv", *DATA],
}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command; return what it prints."""
    assert console.run(application(), "owner-node", arguments) == 0
    return capsys.readouterr().out


def test_every_command_says_what_was_left_out(expected, capsys):
    """The same lines, the same counts for programs; the history keeps them, and nothing that leaves does."""
    for name, command in {"": ["check"], **COMMANDS}.items():
        shown = printed(capsys, *command, *filter(None, [name]))
        assert [line for line in shown.splitlines() if line in expected] == expected
        assert expected or not any(line.startswith(BEGINS) for line in shown.splitlines())
    for path in Path().glob("[ms].*"):
        assert b"na_values" not in path.read_bytes()
        assert b"left_out" not in path.read_bytes()
    counted = {
        name: json.loads(printed(capsys, *command, name, "--json"))["left_out"]
        for name, command in COMMANDS.items()
    }
    assert [bool(each) for each in counted.values()] == [bool(expected)] * 3
    lines = json.loads(printed(capsys, "history", "--json"))["history"]
    kept = {
        each["release"]: each["details"].get("left_out", {}) for each in lines if each["event"] == "spent"
    }
    assert {name: list(left_out_lines(each)) for name, each in kept.items()} == dict.fromkeys("qms", expected)
    table = "".join(printed(capsys, "history").split())
    assert all("".join(line.split()) in table for line in expected)
    with OwnerDatabase(Path("state"), make=False) as db:
        sent = AuditFeed(db, History(db, utc_now), "north").audit_records(0, 9)
    assert len(sent) == len(lines)
    assert "left_out" not in json.dumps(sent)


def test_exploring_says_what_was_left_out(expected, capsys):
    """Settings are chosen for the records that a release would have."""
    tried = ["--epsilon", "1", "--k", "20", "--attacks", "none", "--measures", "none", "--repetitions", "1"]
    assert console.run(application(), "owner-node", ["explore", "--dataset", "patients", *tried]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if line in expected] == expected
