"""Names of files with letters beyond ASCII, in a locale without them, for all commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.cli import console
from tests.unit.owner_node.cli.test_check import OWNER, PATIENTS

ROOT = Path(__file__).parents[4]
KEPT_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NAME = "pätients"
OF_DATA = ["--dataset", "patients"]
OWNER_COMMANDS = [
    (["init", "nö.csv"], 2),
    (["init", f"{NAME}.csv", "--out", "nëw.toml"], 0),
    (["check"], 0),
    (["check", "--config", "äbsent.toml"], 2),
    (["mask", *OF_DATA, "--epsilon", "1", "--out", "möx.csv", "--yes", "--anyway"], 0),
    (["query", "median", *OF_DATA, "--attribute", "age", "--epsilon", "1", "--yes"], 0),
    (["schema", "export", "schemä.toml", *OF_DATA], 0),
    (["schema", "apply", "schemä.toml"], 2),
    (["status"], 0),
    (["history"], 0),
    (["ledger"], 0),
    (["explore", *OF_DATA], 0),
    (["doctor"], 6),
    (["backup", "bäckup.tar"], 0),
    (["verify", "relëase"], 2),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of an owner, with an umlaut in its own name and in those of its files."""
    folder = tmp_path / "köln"
    folder.mkdir()
    owner = OWNER.replace("patients.csv", f"{NAME}.csv")
    (folder / "owner.toml").write_text(owner, encoding="utf-8")
    (folder / f"{NAME}.csv").write_text(PATIENTS, encoding="utf-8")
    return folder


def run(folder: Path, program: str, arguments: list[str], *flags: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program in the folder, as a process of its own."""
    code = f"from {program}.cli import main; main()"
    return subprocess.run(
        [sys.executable, *flags, "-c", code, *arguments],
        cwd=folder,
        env=os.environ | KEPT_ASCII | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    OWNER_COMMANDS,
    ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else None,
)
def test_no_command_of_an_owner_ends_with_a_fault(folder, arguments, code):
    """Each does what it does in any other locale, with the name as it is written."""
    done = run(folder, "owner_node", arguments)
    said = done.stdout.decode() + done.stderr.decode()
    assert "internal fault" not in said
    assert done.returncode == code, said
    assert "\\udc" not in said


def test_no_command_of_an_aggregator_ends_with_a_fault(folder):
    """Its command line begins in the same place; the flag of Python is as good as the variable."""
    done = run(folder, "aggregator", ["status", "--config", "zenträlë.toml"], "-X", "utf8=0")
    assert (done.returncode, b"internal fault" in done.stderr) == (2, False)
    assert "zenträlë.toml" in done.stderr.decode()


def test_an_encoding_that_lacks_a_letter_is_named(capsys):
    """Other encodings are kept, since a system may use them; what they lack is no fault of the program."""

    class Command:
        def main(self, **_: object) -> None:
            """Open a file of a Polish name."""
            "łódź.csv".encode("latin-1")

    assert console.run(Command(), "owner-node", []) == 2
    assert "PYTHONUTF8=1" in capsys.readouterr().err
