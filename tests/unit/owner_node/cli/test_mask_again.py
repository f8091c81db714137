"""`owner-node mask` asked again: the same id is the same result, charged once, whatever happened between."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from common.cli import console
from common.errors import ExitCode, IntegrityError
from common.files import exclusive_lock
from owner_node.cli import application
from owner_node.local.charge import LocalWork
from owner_node.release.records import Records
from tests.fakes.owner_folder import ask_mask as ask
from tests.fakes.owner_folder import make_owner_folder, spends, write_patients


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An owner's folder, and the place of work."""
    monkeypatch.chdir(tmp_path)
    return make_owner_folder(tmp_path)


def test_the_same_id_gives_the_same_file_uncharged(folder, capsys):
    """Asked again, also into another file and format, the records are the same and nothing is charged."""
    ask(capsys, "--out", "a.csv", "--id", "once")
    code, again = ask(capsys, "--out", "b.csv", "--id", "once")
    assert (code, again["charged"]) == (0, 0)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    assert ask(capsys, "--out", "c.parquet", "--id", "once")[0] == 0
    assert len(pq.read_table("c.parquet")) == 60
    # The file that is there already is left as it is.
    assert ask(capsys, "--out", "a.csv", "--id", "once")[0] == 0
    assert len(spends(folder)) == 1


@pytest.mark.parametrize(
    ("arguments", "differs"),
    [
        (("--epsilon", "0.5"), {"epsilon"}),
        (("--k", "7"), {"attributes"}),
        (("--attributes", "age"), {"attributes", "data", "schema"}),
    ],
)
def test_the_same_id_with_other_arguments(folder, capsys, arguments, differs):
    """A conflict that names what differs; no file, no charge."""
    ask(capsys, "--out", "a.csv", "--id", "once")
    code, document = ask(capsys, "--out", "b.csv", "--id", "once", *arguments)
    assert code == 3
    assert set(document["error"]["details"]["differs"]) == differs
    assert not Path("b.csv").exists()
    assert len(spends(folder)) == 1


def test_the_same_id_with_other_data(folder, capsys):
    """An id stands for one result of one data set."""
    ask(capsys, "--out", "a.csv", "--id", "once")
    write_patients(folder, 60, seed=2)
    code, document = ask(capsys, "--out", "b.csv", "--id", "once")
    assert (code, document["error"]["details"]["differs"]) == (3, ["data"])


def test_without_an_id_another_file_is_another_charge(folder, capsys):
    """Each draw of noise is charged: two files with noise of their own cost twice."""
    first = ask(capsys, "--out", "a.csv")[1]
    second = ask(capsys, "--out", "b.csv")[1]
    assert first["id"] != second["id"]
    assert Path("a.csv").read_bytes() != Path("b.csv").read_bytes()
    assert len(spends(folder)) == 2


def test_nothing_is_overwritten(folder, capsys):
    """A file that is there already stops the command before the charge."""
    for existing in ("a.csv", "b.csv.report.json"):
        Path(existing).write_text("mine")
        code, _ = ask(capsys, "--out", existing.removesuffix(".report.json"))
        assert code == 2
        assert Path(existing).read_text() == "mine"
    assert spends(folder) == []


def test_a_kept_table_that_was_changed_or_deleted(folder, capsys):
    """What was paid for is given out unchanged or not at all."""
    ask(capsys, "--out", "a.parquet", "--id", "once")
    kept = folder / "state" / "masked" / "once.parquet"
    kept.write_bytes(kept.read_bytes()[:-1] + b"!")
    assert ask(capsys, "--out", "b.parquet", "--id", "once")[0] == IntegrityError.exit_code
    kept.unlink()
    code, document = ask(capsys, "--out", "b.parquet", "--id", "once")
    assert (code, "deleted" in document["error"]["message"]) == (2, True)
    assert not Path("b.parquet").exists()
    assert len(spends(folder)) == 1


def test_charged_and_not_masked(folder, capsys, monkeypatch):
    """A command that died after its charge goes on under its id: uncharged, and without its leftovers."""

    def killed(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("owner_node.local.mask.decode_batches", killed)
        assert ask(capsys, "--out", "a.csv", "--id", "once")[0] == ExitCode.INTERNAL
    kept = folder / "state" / "masked"
    assert shown(folder) == []
    # What a process leaves that is killed and cleans nothing.
    (kept / ".once.fragment.drawn").write_text("half a fragment")
    (kept / ".once.parquet.abc.partial").write_text("half a file")
    (kept / "once.parquet").write_text("a file that was never recorded")
    code, document = ask(capsys, "--out", "a.csv", "--id", "once")
    assert (code, document["charged"]) == (0, 0)
    assert len(pd.read_csv("a.csv")) == 60
    assert len(spends(folder)) == 1
    assert sorted(path.name for path in kept.iterdir()) == ["lock", "once.json", "once.parquet"]


def shown(folder: Path) -> list[str]:
    """Return the names of masked tables that are shown, and of draws that are not."""
    names = sorted(path.name for path in (folder / "state" / "masked").iterdir())
    return [name for name in names if name != "lock"]


def test_killed_before_the_result_is_recorded(folder, capsys, monkeypatch):
    """No draw is shown that may be drawn anew, and never are there two of them."""

    def killed(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(LocalWork, "deliver", killed)
        for _ in range(2):
            assert ask(capsys, "--out", "a.csv", "--id", "once")[0] == ExitCode.INTERNAL
            assert shown(folder) == [".once.json.drawn", ".once.parquet.drawn"]
            assert not Path("a.csv").exists()
    first = (folder / "state" / "masked" / ".once.parquet.drawn").read_bytes()
    assert ask(capsys, "--out", "a.parquet", "--id", "once")[0] == 0
    assert Path("a.parquet").read_bytes() != first
    assert shown(folder) == ["once.json", "once.parquet"]
    assert len(spends(folder)) == 1


def test_killed_after_the_result_is_recorded(folder, capsys, monkeypatch):
    """What was recorded is the result: it is given out as it was drawn, whatever was masked in between."""
    deliver = LocalWork.deliver

    def killed(*arguments: Any) -> None:
        deliver(*arguments)
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(LocalWork, "deliver", killed)
        assert ask(capsys, "--out", "a.csv", "--id", "once")[0] == ExitCode.INTERNAL
    drawn = (folder / "state" / "masked" / ".once.parquet.drawn").read_bytes()
    assert ask(capsys, "--out", "b.csv", "--id", "another")[0] == 0
    assert ask(capsys, "--out", "a.parquet", "--id", "once")[1]["charged"] == 0
    assert Path("a.parquet").read_bytes() == drawn
    assert shown(folder) == ["another.json", "another.parquet", "once.json", "once.parquet"]


def test_a_place_that_takes_no_file(folder, capsys):
    """What was charged is kept: the same id gives the file once there is a place for it."""
    ask(capsys, "--out", "a.csv", "--id", "once")
    Path("b.csv.report.json").mkdir()
    code, document = ask(capsys, "--out", "b.csv", "--id", "once")
    assert (code, "--id once" in document["error"]["hint"]) == (2, True)
    Path("b.csv.report.json").rmdir()
    assert ask(capsys, "--out", "b.csv", "--id", "once")[0] == 0
    assert Path("b.csv").read_bytes() == Path("a.csv").read_bytes()
    assert len(spends(folder)) == 1


def test_one_process_masks_at_a_time(folder, capsys):
    """Who comes second is told who is at it, and is not charged."""
    (folder / "state" / "masked").mkdir(parents=True, mode=0o700)
    (folder / "state").chmod(0o700)
    with exclusive_lock(folder / "state" / "masked" / "lock", "owner-node mask"):
        code, document = ask(capsys, "--out", "a.csv")
    assert (code, document["error"]["details"]["holder"]) == (2, "owner-node mask")
    assert spends(folder) == []
    assert ask(capsys, "--out", "a.csv")[0] == 0


def test_a_ledger_that_lost_entries(folder, capsys):
    """No mask and no query is charged, and nobody is asked; what was made before is still given."""
    ask(capsys, "--out", "a.csv", "--id", "once")
    records = Records.open(folder / "state", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    with records.db, records.db.transaction() as tx:
        records.ledger.losses.stop(tx, IntegrityError("the ledger lost entries"))
    assert ask(capsys, "--out", "b.csv")[0] == 7
    query = ["query", "median", "--dataset", "patients", "--attribute", "age", "--epsilon", "1", "--yes"]
    assert console.run(application(), "owner-node", query) == 7
    assert ask(capsys, "--out", "c.csv", "--id", "once")[0] == 0
    assert len(spends(folder)) == 1
