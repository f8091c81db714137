"""Where errors show values of the data, as docs/sources.md says: in `owner-node check`, and nowhere else."""

from pathlib import Path

import pytest

from common.cli import console
from owner_node.cli import application
from tests.unit.owner_node.cli.test_check import OWNER

SECRET = "Zq7Qz"
SILENT = [
    ["doctor"],
    ["doctor", "--json"],
    ["mask", "--dataset", "patients", "--epsilon", "1", "--out", "m.csv", "--yes"],
    ["query", "median", "--dataset", "patients", "--attribute", "age", "--epsilon", "1", "--yes"],
    ["query", "median", "--dataset", "patients", "--attribute", "age", "--epsilon", "1", "--yes", "--json"],
    ["explore", "--dataset", "patients"],
    ["schema", "export", "schema.toml", "--dataset", "patients"],
    ["link-check", "patients.csv", "--dataset", "patients"],
    ["status"],
    ["history"],
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wrong values of every kind."""
    declared = {
        "number": 'type = "number"\nmin = 0\nmax = 9\ndecimals = 1',
        "day": 'type = "date"\nmin = 1900-01-01\nmax = 2026-12-31',
        "flag": 'type = "boolean"',
        "ward": 'type = "category"\ncategories = ["A"]',
    }
    owner = OWNER + "".join(f"[dataset.attributes.{name}]\n{keys}\n" for name, keys in declared.items())
    (tmp_path / "owner.toml").write_text(owner)
    names = ["age", "weight", *declared]
    wrong = [f"{SECRET}{name}" for name in names]
    (tmp_path / "patients.csv").write_text(f"id,{','.join(names)}\n{SECRET}id,{','.join(wrong)}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_check_names_what_is_wrong(folder, capsys, flags):
    """Each kind of wrong value, for the person who has to find it; an identifier is not among them."""
    assert console.run(application(), "owner-node", ["check", *flags]) == 2
    captured = capsys.readouterr()
    said = captured.out + captured.err
    for name in ("age", "weight", "number", "day", "flag", "ward"):
        assert f"{SECRET}{name}" in said
    assert f"{SECRET}id" not in said


@pytest.mark.parametrize("command", SILENT, ids=lambda command: " ".join(command[:1] + command[-1:]))
def test_no_other_command_shows_a_value(folder, capsys, caplog, command):
    """Not in its output, its log, or a file that it writes."""
    console.run(application(), "owner-node", command)
    captured = capsys.readouterr()
    assert captured.out + captured.err
    written = [
        each.read_bytes() for each in folder.rglob("*") if each.is_file() and each.name != "patients.csv"
    ]
    assert SECRET not in captured.out + captured.err + caplog.text
    assert not any(SECRET.encode() in content for content in written)
